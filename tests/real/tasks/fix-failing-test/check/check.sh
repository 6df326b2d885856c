set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
python3 -m unittest -q test_slug
python3 check.py
