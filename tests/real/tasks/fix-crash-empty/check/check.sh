set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect() { # FILE OUTPUT
  printed=$(sh average.sh "$1")
  test "$printed" = "$2" || { echo "average.sh $1 prints: $printed"; exit 1; }
}

printf '# nothing yet\n\n' > "$folder/comments only.txt"
printf '0\n' > "$folder/zero.txt"
printf '3\n-3\n' > "$folder/sum is zero.txt"
: > "$folder/empty.txt"
expect heights.txt 171
expect "$folder/zero.txt" 0
expect "$folder/sum is zero.txt" 0
expect "$folder/empty.txt" 'no numbers'
expect "$folder/comments only.txt" 'no numbers'

if printed=$(sh average.sh "$folder/missing.txt" 2> "$folder/errors"); then
  echo 'a missing file is no error'
  exit 1
fi
test -z "$printed" && test -s "$folder/errors" || { echo 'the error does not go to stderr'; exit 1; }
