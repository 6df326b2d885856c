#!/usr/bin/env python3
"""PostToolUse: takes spaces at the ends of lines out of the file that was written."""
import json
import pathlib
import sys

path = pathlib.Path(json.load(sys.stdin)["tool_input"]["file_path"])
if path.suffix == ".py":
    lines = path.read_text().splitlines()
    path.write_text("".join(line.rstrip() + "\n" for line in lines))
