set -eu
python3 tin.py build invoice.tin
test "$(python3 tin.py run invoice.tin)" = "$(printf 'net 2500\ntotal 3000')"

# The program must calculate: with other prices it prints something else.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed 's/1200, 800, 500/300, 100/' invoice.tin > "$folder/other.tin"
printed=$(python3 tin.py run "$folder/other.tin")
test "$printed" = "$(printf 'net 400\ntotal 480')" || { echo "with other prices: $printed"; exit 1; }
