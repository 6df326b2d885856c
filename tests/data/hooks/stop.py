#!/usr/bin/env python3
"""Stop: no turn ends before there are release notes, but it is said only once."""
import json
import os
import sys

turn = json.load(sys.stdin)
if not turn["stop_hook_active"] and not os.path.exists("NOTES.md"):
    print(json.dumps({"decision": "block", "reason": "Write NOTES.md first."}))
