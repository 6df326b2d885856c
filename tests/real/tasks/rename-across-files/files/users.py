USERS = {1: "Ada", 2: "Grace"}


def get_user(number):
    """Returns the name of a user, or None if there is none."""
    return USERS.get(number)


def get_user_count():
    return len(USERS)
