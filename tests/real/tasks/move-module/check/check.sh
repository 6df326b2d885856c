set -eu
test ! -e src/util/dates.js || { echo 'the old file is still there'; exit 1; }
test -f src/time/dates.js || { echo 'the new file is not there'; exit 1; }
test -f src/util/pad.js || { echo 'pad.js was not to be moved'; exit 1; }
if grep -rn 'util/dates' src; then
  echo 'something still imports the old file'
  exit 1
fi
test "$(node src/main.js 2024-03-05)" = 05.03.2024
expected=$(printf '28.12.2023\n29.12.2023\n30.12.2023\n31.12.2023\n01.01.2024\n02.01.2024\n03.01.2024\n04.01.2024')
test "$(node src/main.js 2023-12-28 --next)" = "$expected"
node check.mjs
