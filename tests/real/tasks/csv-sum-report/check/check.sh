set -eu
test -f report.sh || { echo 'there is no report.sh'; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect() { # FILE EXPECTED
  sh report.sh "$1" > "$folder/printed"
  diff "$2" "$folder/printed"
}

printf 'Dairy: 7.50\nFrozen food: 12.00\nFruit: 3.05\n' > "$folder/expected"
expect sales.csv "$folder/expected"

printf 'date,category,amount\n2024-06-01,Tea,0.1\n2024-06-01,Bread and rolls,1000\n2024-06-02,Tea,0.2' > "$folder/june 1.csv"
printf 'Bread and rolls: 1000.00\nTea: 0.30\n' > "$folder/expected"
expect "$folder/june 1.csv" "$folder/expected"

printf 'date,category,amount\n' > "$folder/none.csv"
: > "$folder/expected"
expect "$folder/none.csv" "$folder/expected"
