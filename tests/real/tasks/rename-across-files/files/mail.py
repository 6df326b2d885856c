import users


def greeting(number):
    name = users.get_user(number)
    return f"Dear {name}," if name else "Hello,"
