set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
python3 -m unittest -q test_shop
python3 check.py
