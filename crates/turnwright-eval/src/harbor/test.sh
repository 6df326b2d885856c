#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p /logs/verifier
cd /app || exit 1
cp -R "$here/restore/." /app/
if timeout SECONDS sh "$here/command.sh"; then reward=1; else reward=0; fi
echo "$reward" >/logs/verifier/reward.txt
