#!/bin/sh
# Any event: keeps what happens, a line each.
cat >> "$(dirname "$0")/log.jsonl"
