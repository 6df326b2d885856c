"""Converts a list of temperatures."""

import argparse

UNITS = ("celsius", "fahrenheit", "kelvin")
DIGITS = 2


def parser():
    options = argparse.ArgumentParser(description=__doc__)
    for side, default in (("from", UNITS[0]), ("to", UNITS[1])):
        options.add_argument(f"--{side}", choices=UNITS, default=default, help=f"the unit to convert {side}")
    options.add_argument("--digits", type=int, default=DIGITS, help="digits after the point")
    options.add_argument("--quiet", action="store_true", help="no units in the output")
    options.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("values", nargs="+", type=float)
    return options


def convert(value, source, target):
    kelvin = {
        "celsius": value + 273.15,
        "fahrenheit": (value - 32) / 1.8 + 273.15,
        "kelvin": value,
    }[source]
    return {
        "celsius": kelvin - 273.15,
        "fahrenheit": (kelvin - 273.15) * 1.8 + 32,
        "kelvin": kelvin,
    }[target]


def main():
    options = vars(parser().parse_args())
    unit = "" if options["quiet"] else " " + options["to"]
    for value in options["values"]:
        print(f"{convert(value, options['from'], options['to']):.{options['digits']}f}{unit}")


if __name__ == "__main__":
    main()
