set -eu
if grep -n unsafe src/main.rs; then
  echo 'no unsafe code was wanted'
  exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
rustc --edition 2021 -o "$folder/words" src/main.rs

expect() { # SHORTEST INPUT OUTPUT
  printed=$(printf '%s\n' "$2" | "$folder/words" "$1")
  test "$printed" = "$3" || { echo "$1: $2 -> $printed"; exit 1; }
}
expect 3 'a bird in the hand' 'bird the hand'
expect 3 'we go to an old inn by me' 'old inn'
expect 2 'a b c' ''
expect 1 'a b c' 'a b c'
expect 4 'für über Öl äöüß' 'über äöüß'
expect 5 'apple a apple' 'apple apple'
