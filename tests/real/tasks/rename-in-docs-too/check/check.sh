set -eu
unset BACKUP_DIR
expect() { # OUTPUT COMMAND...
  expected=$1
  shift
  printed=$("$@")
  test "$printed" = "$expected" || { echo "$*: $printed"; exit 1; }
}
expect /mnt/disk/a.txt python3 backup.py --target /mnt/disk a.txt
expect '? /mnt/disk/a.txt' python3 backup.py --dry-run --target=/mnt/disk a.txt
expect backup/a.txt python3 backup.py a.txt
expect /tmp/x/a.txt env BACKUP_DIR=/tmp/x python3 backup.py a.txt
if python3 backup.py --dir /mnt/disk a.txt 2> /dev/null; then
  echo 'the old option still works'
  exit 1
fi
if grep -nwE -e '--dir' backup.py README.md docs/cron.md; then
  echo 'the old option is still mentioned'
  exit 1
fi
test "$(grep -c -e --target README.md)" -ge 2
grep -qF 'python3 backup.py --target=/mnt/disk notes.txt' docs/cron.md
grep -q BACKUP_DIR README.md

python3 check.py
