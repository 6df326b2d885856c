with open("CHANGELOG.md", encoding="utf-8") as file:
    new, old = file.read().split("\n## 1.1\n", 1)
assert old == "\n- The option `--dir` says where the copies go.\n\n## 1.0\n\n- The first version.\n", "old sections"
assert new.startswith("# Changes\n\n## Unreleased\n") and "- `--dry-run` marks its lines.\n" in new
assert "--target" in new, "the change log does not mention it"
