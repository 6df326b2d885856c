"""Lists what is left to do."""

import argparse


def tasks(lines):
    for line in lines:
        if line.startswith("[ ] "):
            yield line[4:].rstrip("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a list with one task a line")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as lines:
        for task in tasks(lines):
            print(task)


if __name__ == "__main__":
    main()
