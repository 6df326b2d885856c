"""Arithmetic for the till."""


def add(a, b):
    return a - b


def double(a):
    return a * 2
