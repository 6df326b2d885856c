#!/bin/sh
# Prints the average of the whole numbers in a file, one a line, without decimals.
# Empty lines and lines that begin with # are left out.
# Usage: sh average.sh FILE

sum=0
count=0
while read -r line; do
  case $line in
    '' | '#'*) continue ;;
  esac
  sum=$((sum + line))
  count=$((count + 1))
done < "$1"

echo $((sum / count))
