"""Shows where the copies of files go.

    python3 backup.py --dir /mnt/disk notes.txt photo.jpg
"""

import argparse
import os
import pathlib


def main():
    parser = argparse.ArgumentParser(description="Shows where the copies of files go.")
    parser.add_argument(
        "--dir",
        default=os.environ.get("BACKUP_DIR", "backup"),
        help="the folder for the copies [default: $BACKUP_DIR, or else backup]",
    )
    parser.add_argument("--dry-run", action="store_true", help="marks each line with a question mark")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    mark = "? " if options.dry_run else ""
    for file in options.files:
        print(f"{mark}{pathlib.PurePosixPath(options.dir) / file}")


if __name__ == "__main__":
    main()
