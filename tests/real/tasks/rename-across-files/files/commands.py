"""The commands of the console, each with the function of users.py that it calls."""

import users

COMMANDS = {
    "show": "get_user",
    "count": "get_user_count",
}


def run(command, *arguments):
    return getattr(users, COMMANDS[command])(*arguments)
