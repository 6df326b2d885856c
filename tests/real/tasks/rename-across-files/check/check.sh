set -eu
find . -name __pycache__ -prune -exec rm -rf {} +
if grep -rnwI --exclude-dir=.git --exclude=check.sh get_user .; then
  echo 'the old name is still there'
  exit 1
fi
python3 check.py
