import unittest

import commands
import mail
import report
import test_users
import users

assert users.find_user(1) == "Ada" and users.find_user(9) is None
assert users.get_user_count() == 2, "get_user_count keeps its name"
assert mail.greeting(2) == "Dear Grace," and mail.greeting(9) == "Hello,"
assert report.report([1, 2]) == "1: Ada\n2: Grace\n2 users"
assert commands.run("show", 2) == "Grace", "the command show is broken"
assert commands.run("count") == 2, "the command count is broken"
tests = unittest.defaultTestLoader.loadTestsFromModule(test_users)
assert tests.countTestCases() >= 3, "tests are gone"
assert unittest.TextTestRunner(verbosity=0).run(tests).wasSuccessful(), "tests fail"
