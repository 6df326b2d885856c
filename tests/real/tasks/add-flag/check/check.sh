set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect() { # OUTPUT ARGUMENT...
  expected=$(printf "$1")
  shift
  printed=$(python3 todo.py "$@")
  test "$printed" = "$expected" || { echo "todo.py $* prints:"; echo "$printed"; exit 1; }
}

printf '[x] one [ ] box\n[ ] not [x] this\nx done\n [x] indented\n[X] two\n' > "$folder/list"
expect 'paint the door\nfix the roof\ncut the hedge' house.txt
expect 'buy nails\nplant a tree' --done house.txt
expect 'buy nails\nplant a tree' house.txt --done
expect 'one [ ] box\ntwo' --done "$folder/list"
expect 'not [x] this' "$folder/list"
expect '' --done /dev/null
python3 todo.py --help | grep -q -e --done
grep -q -e --done README.md
