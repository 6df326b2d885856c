"""Days of work: the commands of a model that works in a small project, with the access for which it asks."""

from table import NODE, PYTEST, TOOLCHAINS, serve

RUST = next(row[2] for row in TOOLCHAINS if row[0] == "cargo")
GO = next(row[2] for row in TOOLCHAINS if row[0] == "go")

# What models do in every project.
LOOKING = [
    "git status", "ls -la", "git log --oneline | head -5", "git diff", "cat README.md", "grep -rn TODO . | head", "find . -name '*.md' | head",
    "wc -l README.md", "git branch -a", "sed -n 1,20p README.md", "echo $PATH | tr : '\\n' | head -3", "du -sh .",
]
KEEPING = [
    "git switch -c feature", "mkdir -p notes && echo '# Notes' > notes/a.md", "sed -i 's/Small/Tiny/' README.md", "git diff --stat",
    "git add -A", "git commit -m 'Tiny'", "echo more >> README.md", "git stash", "git stash pop", "git commit -am 'More'", "git log -p -1 | head -20",
    "git switch main", "git merge feature", "git branch -d feature", "git tag v0.1.0", "git show --stat HEAD", "cp README.md /tmp/@NAME@.md",
    "diff README.md /tmp/@NAME@.md", "rm -rf notes", "git checkout -- notes", "mv notes/a.md notes/b.md", "git rev-parse HEAD",
]
README = {"README.md": "# Small\nA project.\n"}

DAYS = {
    "node": ("node npm", NODE | README, LOOKING + [
        "node --version", "cat package.json", ("npm install", "network"), "ls node_modules", "npm test", "npm run build", "npm test -- --test-name-pattern answers",
        "npm ls", "node -e 'console.log(require(\"os\").networkInterfaces())'", ("npm install -D typescript@5", "network"), "npx tsc --version",
        "echo 'const x: number = 1; export { x };' > a.ts && npx tsc --noEmit a.ts", ("npm install -D prettier@3", "network"), "npx prettier --check server.js || true",
        "npx prettier --write server.js", serve("node server.js @PORT@"), "CI=1 npm test", "export CI=1; npm run build", "npm test 2>&1 | tail -5",
        "cd node_modules && ls | head -3 && cd ..", "npm pkg set description=small", "rm -rf node_modules && npm ci --offline", "npm run", "node --check server.js",
        ("npm view is-odd version", "network"), "npm test && git status --short",
    ] + KEEPING),
    "python": ("python3", PYTEST | README, LOOKING + [
        "python3 --version", "python3 -m venv .venv", (".venv/bin/pip install pytest", "network"), ".venv/bin/pytest -q", ".venv/bin/pip list",
        (".venv/bin/pip install ruff", "network"), ".venv/bin/ruff check . || true", ".venv/bin/ruff format --check . || true", "source .venv/bin/activate && pytest -q",
        ".venv/bin/pytest -q -k answers", ".venv/bin/pytest -q 2>&1 | tail -3", ".venv/bin/pip freeze > requirements.txt",
        (".venv/bin/pip install -r requirements.txt", "network"), "python3 -c 'print(1)'", serve("python3 -m http.server -b 127.0.0.1 @PORT@"),
        "python3 -m compileall -q .", "python3 - <<'X'\nimport tempfile\nprint(tempfile.mkdtemp())\nX", "python3 -c 'import multiprocessing as m; m.Pool(2).map(abs, [1])'",
        ".venv/bin/python -m pytest --collect-only -q", "find . -name __pycache__ -prune -exec rm -rf {} +", (".venv/bin/pip install mypy", "network"), ".venv/bin/mypy test_server.py || true",
        "python3 -m json.tool <<< '{}'", "python3 -m unittest discover || true", "PYTHONPATH=. .venv/bin/pytest -q", ".venv/bin/pip show pytest",
    ] + KEEPING),
    "rust": ("cargo", RUST | README, LOOKING + [
        "cargo --version", ("cargo fetch", "network"), "cargo build", "cargo test", "cargo run -q", "cargo check", "cargo fmt", "cargo fmt --check", "cargo clippy -q || true",
        "cargo test answers", "cargo test 2>&1 | tail -5", "cargo build --release", "cargo tree", ("cargo add serde", "network"), "cargo build", "cargo doc --no-deps -q",
        "cargo metadata --format-version 1 | head -c 100", "rustc --version", "RUST_BACKTRACE=1 cargo test", "CARGO_TERM_COLOR=never cargo check", "cargo clean -p small", "cargo build --offline",
        ("cargo update", "network"), "ls target/debug | head", "./target/debug/small", "cargo test -- --nocapture",
    ] + KEEPING),
    "go": ("go", GO | README, LOOKING + [
        "go version", "go env GOPATH", "go build ./...", "go test ./...", "go vet ./...", "gofmt -l .", "go test -run Answers ./...", "go test -v ./... 2>&1 | tail -3", "go list ./...",
        "go mod tidy", "go test -race ./... || true", "go test -count=1 ./...", "go doc net/http Get | head -3", "go test -cover ./...", "go build -o small.out ./... || true",
        "go test -c -o t.out && ./t.out", "GOFLAGS=-mod=mod go test ./...", "go clean", "go mod verify", "go mod graph", "go env", "go test -json ./... | tail -1", "go vet ./... && go test ./...",
        "go help test | head -3", "cat go.mod", "rm -f t.out small.out",
    ] + KEEPING),
}
