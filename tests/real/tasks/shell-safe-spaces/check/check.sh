set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
script=$PWD/archive.sh
here="$folder/My  Logs"
mkdir "$here" "$here/a folder.log" "$folder/empty" "$folder/-Dash"

archive() { # FOLDER COUNT
  (cd "$folder" && sh "$script" "$1") > "$folder/printed"
  test "$(tail -n 1 "$folder/printed")" = "$2 files" || { cat "$folder/printed"; exit 1; }
}

broken='line
break.log'
for name in plain.log 'two  spaces.log' ' lead.log' -n.log '-rf x.log' 'star *.log' '[ab].log' 'back\nslash.log' 'qu"o'"'te.log" "$broken"; do
  printf '%s' "$name" > "$here/$name"
done
printf 'stays' > "$here/notes.txt"
printf 'stays' > "$here/.hidden.log"
printf 'stays' > "$here/catalog"
archive 'My  Logs' 10
for name in plain.log 'two  spaces.log' ' lead.log' -n.log '-rf x.log' 'star *.log' '[ab].log' 'back\nslash.log' 'qu"o'"'te.log" "$broken"; do
  test ! -e "$here/$name" || { echo "$name was not moved"; exit 1; }
  test "$(cat "$here/old/$name")" = "$name" || { echo "$name was lost"; exit 1; }
  printf 'moved %s\n' "$name" >> "$folder/expected"
done
test "$(cat "$here/notes.txt" "$here/.hidden.log" "$here/catalog")" = staysstaysstays
test -d "$here/a folder.log"
sed '$d' "$folder/printed" | sort > "$folder/sorted"
sort "$folder/expected" | diff - "$folder/sorted"

archive empty 0
test "$(ls -A "$folder/empty")" = old
printf x > "$folder/-Dash/a b.log"
archive -Dash 1
test -f "$folder/-Dash/old/a b.log"
archive "$here" 0
