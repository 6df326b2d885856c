#!/bin/sh
# PreToolUse of Bash: no forced pushes.
if grep -q '"command":"git push[^"]*--force'; then
    echo "no forced pushes in this house" >&2
    exit 2
fi
