#!/usr/bin/env python3
"""PreToolUse of edits: lock files are made by tools, not by hand."""
import json
import sys

call = json.load(sys.stdin)
path = call["tool_input"].get("file_path", "")
if path.endswith((".lock", "package-lock.json")):
    print(json.dumps({
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": f"{path} is generated",
        }
    }))
