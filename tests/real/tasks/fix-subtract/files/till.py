"""Prints the total of a receipt: python3 till.py 200 350"""

import sys

from calc import add


def total(prices):
    cents = 0
    for price in prices:
        cents = add(cents, -price)
    return cents


if __name__ == "__main__":
    print(total(int(word) for word in sys.argv[1:]))
