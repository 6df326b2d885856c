#!/usr/bin/env bash
# Runs a command that speaks on stdin and stdout, and keeps what both sides say:
#
#     tee.sh FOLDER COMMAND...
set -euo pipefail
folder=$1
shift
mkdir -p "$folder"
tee "$folder/to-agent" | "$@" | tee "$folder/from-agent"
