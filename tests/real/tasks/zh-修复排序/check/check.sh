set -eu
expected=$(printf '1. 小红 100\n2. 大卫 95\n3. 小明 20\n4. 丽丽 20\n5. 阿强 3')
printed=$(node rank.js scores.txt)
test "$printed" = "$expected" || { echo "$printed"; exit 1; }
node check.js
