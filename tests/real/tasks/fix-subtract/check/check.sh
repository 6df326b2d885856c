set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
python3 check.py
test "$(python3 till.py 200 350 1)" = 551
