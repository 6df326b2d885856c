#!/usr/bin/env python3
"""SessionStart: reminds the model of the conventions of the team."""
import json
import sys

source = json.load(sys.stdin)["source"]
print(json.dumps({
    "hookSpecificOutput": {
        "hookEventName": "SessionStart",
        "additionalContext": f"Begun by {source}: commit messages are written in Latin.",
    }
}))
