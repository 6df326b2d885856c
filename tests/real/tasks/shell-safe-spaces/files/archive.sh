#!/bin/sh
# Moves the log files of a folder into its subfolder old, and says which and how many.
# Hidden files and folders stay where they are.
# Usage: sh archive.sh FOLDER
set -e

cd $1
mkdir -p old
count=0
for file in $(ls | grep '\.log$'); do
  if [ -f $file ]; then
    mv $file old/$file
    echo moved $file
    count=$((count + 1))
  fi
done
echo "$count files"
