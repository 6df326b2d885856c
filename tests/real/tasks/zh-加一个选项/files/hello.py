"""Greets somebody: python3 hello.py [--morning] NAME"""

import json
import pathlib
import sys


def settings():
    file = pathlib.Path("settings.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def greeting(name, is_morning, options):
    words = "Good morning" if is_morning else "Hello"
    mark = "!" if options.get("excited", True) else "."
    return f"{words}, {name}{mark}"


def main():
    arguments = sys.argv[1:]
    is_morning = "--morning" in arguments
    names = [word for word in arguments if word != "--morning"]
    print(greeting(" ".join(names), is_morning, settings()))


if __name__ == "__main__":
    main()
