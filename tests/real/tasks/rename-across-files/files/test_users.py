import unittest
from unittest.mock import patch

import mail
import report
import users


class UsersTest(unittest.TestCase):
    def test_a_user_is_found(self):
        self.assertEqual(users.get_user(1), "Ada")

    def test_a_letter_begins_with_the_name(self):
        with patch("users.get_user", return_value="Linus"):
            self.assertEqual(mail.greeting(3), "Dear Linus,")

    def test_the_report_counts_the_users(self):
        self.assertEqual(report.report([2]), "2: Grace\n2 users")


if __name__ == "__main__":
    unittest.main()
