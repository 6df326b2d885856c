set -eu
export PYTHONUTF8=1
find . -name __pycache__ -prune -exec rm -rf {} +
printf '{\n  "excited": true\n}\n' | diff - settings.json
script=$PWD/hello.py
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

expect() { # SETTINGS OUTPUT ARGUMENT...
  printf '%s' "$1" > settings.json
  expected=$2
  shift 2
  printed=$(python3 "$script" "$@")
  test "$printed" = "$expected" || { echo "$(cat settings.json) $*: $printed"; exit 1; }
}
expect '{"language": "zh"}' '你好，小李！' 小李
expect '{"language": "zh"}' '早上好，小李！' --morning 小李
expect '{"language": "zh", "excited": true}' '早上好，王 芳！' 王 芳 --morning
expect '{"language": "en"}' 'Hello, Ada!' Ada
expect '{"language": "xx"}' 'Good morning, Ada!' --morning Ada
expect '{"language": null}' 'Hello, Ada!' Ada
expect '{"excited": false}' 'Hello, Ada.' Ada

# Either full stop will do.
printf '{"language": "zh", "excited": false}' > settings.json
printed=$(python3 "$script" 小李)
test "$printed" = '你好，小李。' || test "$printed" = '你好，小李.' || { echo "not excited: $printed"; exit 1; }

rm settings.json
test "$(python3 "$script" 小李)" = 'Hello, 小李!'
