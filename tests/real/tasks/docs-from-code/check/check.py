import re

text = open("README.md", encoding="utf-8").read()
before, rest = text.split("## Options\n", 1)
table, after = rest.split("## Licence\n", 1)
assert before.startswith("# convert\n\nConverts temperatures") and after == "\nPublic domain.\n", "other parts changed"
rows = {}
for line in table.splitlines():
    cells = [cell.strip() for cell in line.replace("\\|", "/").strip().strip("|").split("|")]
    found = re.match(r"`?(--[a-z]+)", cells[0])
    if found:
        assert len(cells) == 3, f"a row without three columns: {line}"
        assert found[1] not in rows, f"{found[1]} is there twice"
        rows[found[1]] = cells[1:]
assert sorted(rows) == ["--digits", "--from", "--quiet", "--to"], f"the options are {sorted(rows)}"
for option, default in (("--from", "celsius"), ("--to", "fahrenheit"), ("--digits", "2")):
    assert rows[option][0].strip("`\"") == default, f"the default of {option} is {rows[option][0]}"
assert re.sub("[^a-z]", "", rows["--quiet"][0].lower()) in ("off", "false", "no", "none", "na", "", "notset"), "--quiet"
assert all(len(row[1]) > 5 for row in rows.values()), "a meaning is missing"
assert "--verbose" not in text and "--trace" not in text
