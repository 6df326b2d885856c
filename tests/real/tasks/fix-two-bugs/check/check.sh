set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
printed=$(python3 report.py)
test "$printed" = "$(printf 'Alice: 14:35\nBob: 8:00')" || { echo "$printed"; exit 1; }
python3 check.py
