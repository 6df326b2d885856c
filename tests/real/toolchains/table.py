"""The toolchains of `tests/real/run --only toolchains`: small projects and the commands of an everyday loop.

A row is its name, the programs that it needs, the files of its project, its steps (what is done, the command, and the
access that a model asks for, if any; one that ends in `&` runs in the background), and what the user has done before, if anything. `@PORT@` is a free port, `@NAME@` a name that no other run has, and
`@CACHE@` the folder with what was downloaded.
"""

SERVE = "{server} & p=$!; r=1; for i in $(seq 100); do curl -sf http://127.0.0.1:@PORT@/{path} && r=0 && break; sleep 0.1; done; kill $p; exit $r"


def serve(server, path=""):
    """A command that starts a server, fetches a page of it, and stops it."""
    return SERVE.format(server=server, path=path)


HTTP_TEST_JS = """
const http = require('node:http'), test = require('node:test'), assert = require('node:assert');
const server = http.createServer((_, response) => response.end('pong'));
test('answers', async () => {
  await new Promise(done => server.listen(0, '127.0.0.1', done));
  const answer = await fetch(`http://127.0.0.1:${server.address().port}`);
  assert.equal(await answer.text(), 'pong');
  server.close();
});
"""
SERVER_JS = "require('http').createServer((_, r) => r.end('pong')).listen(process.argv[2], '127.0.0.1');\n"
NODE = {
    "package.json": '{"name": "small", "version": "1.0.0", "private": true, "scripts": {"test": "node --test",'
    ' "build": "node -e 1"}, "dependencies": {"is-odd": "3.0.1"}}\n',
    "server.test.js": HTTP_TEST_JS,
    "server.js": SERVER_JS,
    ".gitignore": "node_modules\ndist\n",
}
PYTEST = {
    "test_server.py": """
import http.server, threading, urllib.request
import pytest

@pytest.fixture
def url():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()

def test_answers(url, tmp_path):
    assert urllib.request.urlopen(url + "test_server.py").status == 200
    (tmp_path / "x").write_text("x")
""",
    ".gitignore": ".venv\n__pycache__\n.tox\n",
}
PYPROJECT = """
[project]
name = "small"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["iniconfig"]
"""
CRASH_C = "int main(void) { volatile int *p = 0; return *p; }\n"
HELLO_C = '#include <stdio.h>\nint twice(int x) { return 2 * x; }\nint main(void) { printf("%d\\n", twice(21)); return 0; }\n'
OVERFLOW_CC = "int main(int argc, char **) { int *x = new int[2]; x[1] = argc; int y = x[1]; delete[] x; return y - 1; }\n"
JAVA_TEST = """
import com.sun.net.httpserver.HttpServer;
import java.net.*;
public class Small {
  public static void main(String[] a) throws Exception {
    HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    s.createContext("/", e -> { e.sendResponseHeaders(204, -1); e.close(); });
    s.start();
    URL u = new URL("http://127.0.0.1:" + s.getAddress().getPort() + "/");
    System.out.println(((HttpURLConnection) u.openConnection()).getResponseCode());
    s.stop(0);
  }
}
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>s</groupId><artifactId>small</artifactId><version>1</version>
<properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target></properties>
</project>
"""
MULTIPROCESSING = """
import multiprocessing
from multiprocessing import shared_memory

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(abs, [-1, -2]))
    memory = shared_memory.SharedMemory(create=True, size=1000)
    memory.close()
    memory.unlink()
"""
NOTEBOOK = (
    '{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [],'
    ' "source": ["print(6 * 7)"]}], "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python",'
    ' "name": "python3"}}, "nbformat": 4, "nbformat_minor": 5}\n'
)
CHROMIUM_JS = """
import chromium from '@sparticuz/chromium';
import { chromium as playwright } from 'playwright-core';
import http from 'node:http';
const server = http.createServer((_, r) => r.end('<title>pong</title>')).listen(0, '127.0.0.1');
const browser = await playwright.launch({
  executablePath: process.env.CHROMIUM || await chromium.executablePath(), args: [...chromium.args, '--no-sandbox'] });
const page = await browser.newPage();
await page.goto(`http://127.0.0.1:${server.address().port}`);
console.log(await page.title());
await page.screenshot({ path: 'shot.png' });
await browser.close();
server.close();
"""

TOOLCHAINS = [
    ("cargo", "cargo", {
        "Cargo.toml": '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\nitoa = "1"\n',
        "src/main.rs": """
fn main() { println!("{}", itoa::Buffer::new().format(42)); }
#[test]
fn answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
}
""",
        ".gitignore": "target\n",
    }, [
        ("install", "cargo fetch", "network"),
        ("build", "cargo build"),
        ("test", "cargo test"),
        ("run", "cargo run -q"),
    ]),
    ("npm", "node npm", NODE, [
        ("install", "npm install", "network"),
        ("build", "npm run build"),
        ("test", "npm test"),
        ("serve", serve("node server.js @PORT@")),
        ("interfaces", "node -e 'console.log(Object.keys(os.networkInterfaces()))'"),
        ("npx of what is there", "npx --no-install is-odd --version || ls node_modules"),
        ("install globally", "npm install -g is-number", "network"),
    ], "mkdir ~/.npm-global && npm config set prefix ~/.npm-global"),
    ("pnpm", "node pnpm", NODE, [
        ("install", "pnpm install", "network"),
        ("test", "pnpm test"),
        ("install offline", "rm -rf node_modules && pnpm install --offline"),
    ]),
    ("yarn 1", "node yarn", NODE, [
        ("install", "yarn install", "network"),
        ("test", "yarn test"),
    ]),
    ("yarn 4", "node yarn4", NODE | {".yarnrc.yml": "nodeLinker: node-modules\n"}, [
        ("install", "yarn4 install", "network"),
        ("test", "yarn4 test"),
    ]),
    ("vite", "node npm", NODE | {
        "index.html": '<title>pong</title><script type="module" src="/main.js"></script>\n', "main.js": "export {};\n"}, [
        ("install", "npm install -D vite@7", "network"),
        ("build", "npx vite build"),
        ("serve", serve("npx vite --host 127.0.0.1 --port @PORT@")),
        ("server stays", "npx vite --host 127.0.0.1 --port @PORT@ &"),
        ("fetch it later", "for i in $(seq 100); do curl -sf http://127.0.0.1:@PORT@/ && exit 0; sleep 0.1; done; exit 1"),
    ]),
    ("vitest", "node npm", {k: v for k, v in NODE.items() if "test" not in k} | {
        "a.test.ts": "import { expect, test } from 'vitest';\ntest('adds', () => expect(1 + 1).toBe(2));\n"}, [
        ("install", "npm install -D vitest@3", "network"),
        ("test", "npx vitest run"),
    ]),
    ("playwright-core", "node playwright-core", {"go.mjs": CHROMIUM_JS}, [
        ("browser", "ln -sfn @CACHE@/node/node_modules . && node go.mjs"),
    ]),
    ("venv and pip", "python3", PYTEST, [
        ("make", "python3 -m venv .venv"),
        ("install", ".venv/bin/pip install pytest", "network"),
        ("cache is writable", "d=$(.venv/bin/pip cache dir) && mkdir -p $d && touch $d/x"),
        ("test", ".venv/bin/pytest -q"),
        ("serve", serve("python3 -m http.server -b 127.0.0.1 @PORT@")),
        ("install --user", "python3 -m pip install --user iniconfig", "network"),
    ]),
    ("uv", "uv python3", PYTEST | {"pyproject.toml": PYPROJECT}, [
        ("install", "uv sync", "network"),
        ("add", "uv add --dev pytest", "network"),
        ("test", "uv run --offline pytest -q"),
        ("tool", "uv tool install pycowsay", "network"),
    ]),
    ("poetry", "poetry python3", PYTEST | {
        "pyproject.toml": PYPROJECT.replace('"iniconfig"', "") + "[tool.poetry]\npackage-mode = false\n"}, [
        ("install", "poetry install"),
        ("run", "poetry run python -c 'import sys; print(sys.prefix)'"),
        ("add", "poetry add iniconfig", "network"),
    ]),
    ("pipenv", "pipenv python3", PYTEST, [
        ("install", "pipenv install pytest", "network"),
        ("test", "pipenv run pytest -q"),
    ]),
    ("tox", "tox python3", PYTEST | {"tox.ini": "[tox]\nskipsdist = true\n[testenv]\ndeps = pytest\ncommands = pytest -q\n"}, [
        ("test", "tox", "network"),
    ]),
    ("pytest", "pytest", PYTEST, [("test", "pytest -q")]),
    ("nbconvert", "jupyter-nbconvert", {"n.ipynb": NOTEBOOK}, [
        ("execute", "jupyter-nbconvert --to notebook --execute n.ipynb --stdout"),
    ]),
    ("multiprocessing", "python3", {"m.py": MULTIPROCESSING}, [("pool", "python3 m.py")]),
    ("go", "go", {
        "go.mod": "module small\n\ngo 1.19\n",
        "a_test.go": """package small
import ("net/http"; "net/http/httptest"; "testing")
func TestAnswers(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	if _, err := http.Get(s.URL); err != nil { t.Fatal(err) }
}
""",
    }, [
        ("build", "go build ./..."),
        ("test", "go test ./..."),
        ("vet", "go vet ./..."),
    ]),
    ("javac", "javac java", {"Small.java": JAVA_TEST}, [
        ("build", "javac -d out Small.java"),
        ("serve", "java -cp out Small"),
        ("watched", "java -cp out Small & jps; wait"),
    ]),
    ("maven", "mvn", {"pom.xml": POM, "src/main/java/A.java": "public class A {}\n"}, [
        ("build", "mvn -q -B compile", "network"),
        ("offline", "mvn -q -B -o compile"),
    ]),
    ("gradle", "gradle", {"build.gradle": "plugins { id 'java' }\n", "settings.gradle": "", "src/main/java/A.java": "class A {}\n"}, [
        ("build", "gradle build"),
        ("again", "gradle --offline build"),
    ]),
    ("cmake", "cmake ninja g++", {
        "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(small C)\nadd_executable(small a.c)\nenable_testing()\n"
        "add_test(NAME runs COMMAND small)\n",
        "a.c": HELLO_C,
    }, [
        ("configure", "cmake -G Ninja -B build"),
        ("build", "cmake --build build"),
        ("test", "ctest --test-dir build --output-on-failure"),
    ]),
    ("meson", "meson ninja", {
        "meson.build": "project('small', 'c')\nsmall = executable('small', 'a.c')\ntest('runs', small)\n", "a.c": HELLO_C}, [
        ("configure", "meson setup build"),
        ("test", "meson test -C build"),
    ]),
    ("ccache", "ccache gcc", {"a.c": HELLO_C}, [
        ("build", "ccache gcc -c a.c && ccache gcc -c a.c && ccache -s"),
        ("cache is used", "ccache -s | grep -E 'Hits: +1 '"),
    ]),
    ("sccache", "sccache gcc", {"a.c": HELLO_C}, [
        ("build", "SCCACHE_SERVER_PORT=@PORT@ sccache gcc -c a.c; r=$?; SCCACHE_SERVER_PORT=@PORT@ sccache --stop-server; exit $r"),
    ]),
    ("sanitizer", "g++", {"a.cc": OVERFLOW_CC}, [
        ("build", "g++ -g -fsanitize=address,undefined a.cc -o a"),
        ("run with leaks", "ASAN_OPTIONS=detect_leaks=1 ./a"),
    ]),
    ("gdb", "gdb gcc", {"a.c": HELLO_C, "crash.c": CRASH_C}, [
        ("build", "gcc -g a.c -o a && gcc -g crash.c -o crash"),
        ("break", "gdb -batch -ex 'break twice' -ex run -ex 'print x' ./a 2>&1 | tee out; grep -q '= 21' out"),
        ("crash", "gdb -batch -ex run -ex bt ./crash 2>&1 | tee out; grep -q SIGSEGV out"),
        ("core size", "ulimit -c unlimited; ./a"),
    ]),
    ("strace", "strace", {}, [("trace", "strace -f -o out sh -c 'cat /dev/null' && grep -q execve out")]),
    ("terminals", "script python3", {}, [
        ("openpty", "python3 -c 'import pty; print(pty.openpty())'"),
        ("script", "script -qec 'tty' /dev/null"),
    ]),
    ("tmux", "tmux", {}, [
        ("window", "tmux -L @NAME@ new-session -d 'sleep 60' && tmux -L @NAME@ ls && tmux -L @NAME@ kill-server"),
    ]),
    ("names in /tmp", "sh", {}, [
        ("fixed name", "sh -c 'echo x > /tmp/x.$$ && cat /tmp/x.$$ && rm /tmp/x.$$'"),
        ("mktemp", "f=$(mktemp -p /tmp) && echo x > $f && rm $f"),
        ("write", "echo x > /tmp/@NAME@"),
        ("read later", "cat /tmp/@NAME@ && rm /tmp/@NAME@"),
        ("shared memory", "echo x > /dev/shm/@NAME@ && rm /dev/shm/@NAME@"),
    ]),
    ("ruby", "ruby", {"a.rb": "require 'socket'\ns = TCPServer.new('127.0.0.1', 0)\nTCPSocket.new('127.0.0.1', s.addr[1]).close\nputs 42\n"}, [
        ("run", "ruby a.rb"),
        ("temporary file", "ruby -rtmpdir -e 'Dir.mktmpdir { |d| puts d }'"),
    ]),
    ("php", "php", {"index.php": "<?php file_put_contents(tempnam(sys_get_temp_dir(), 'x'), 'x'); echo 'pong';\n"}, [
        ("run", "php index.php"),
        ("serve", serve("php -S 127.0.0.1:@PORT@")),
    ]),
    ("lua", "lua", {}, [("temporary file", "lua -e 'local f = assert(io.open(os.tmpname(), \"w\")) f:write(1)'")]),
    ("redis", "redis-server redis-cli", {}, [
        ("serve", "redis-server --port @PORT@ --daemonize no >log 2>&1 & p=$!; sleep 1; redis-cli -p @PORT@ set a 1; r=$?; kill $p; cat log; exit $r"),
    ]),
    ("postgres", "initdb pg_ctl psql", {}, [
        ("make", "initdb -D db -A trust"),
        ("serve", "pg_ctl -D db -w -o '-p @PORT@ -k /tmp' -l log start && psql -h 127.0.0.1 -p @PORT@ -d postgres -c 'select 1'; r=$?; "
         "pg_ctl -D db stop; cat log; exit $r"),
    ]),
    ("docker", "docker", {"a.txt": "a\n"}, [("list containers", "docker ps")]),
    # Nobody asks for the network: each registry is one question, while the command waits.
    ("npm by host", "npm", {"package.json": '{"name": "small", "version": "1.0.0"}\n'}, [
        ("install", "npm install is-odd"),
        ("install another", "npm install is-even"),
    ]),
    ("pip by host", "python3", {"a.txt": "a\n"}, [
        ("venv", "python3 -m venv .venv"),
        ("install", ".venv/bin/pip install iniconfig"),
    ]),
    ("cargo by host", "cargo", {
        "Cargo.toml": '[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "\n",
    }, [
        ("add", "cargo add itoa"),
        ("build", "cargo build"),
    ]),
    ("go by host", "go", {"go.mod": "module small\n\ngo 1.19\n"}, [
        ("get", "go get golang.org/x/text@v0.14.0"),
    ]),
    ("git by host", "git", {"a.txt": "a\n"}, [
        ("clone", "git clone -q --depth 1 https://github.com/octocat/Hello-World hello"),
        ("fetch", "git -C hello fetch -q"),
    ]),
    ("git", "git ssh-keygen", {"a.txt": "a\n"}, [
        ("commit", "git add . && git commit -qm one && git log --oneline"),
        ("branch", "git switch -qc other && echo b >> a.txt && git commit -qam two && git switch -q - && git merge -q other"),
        ("worktree", "git worktree add -q wt && git -C wt log --oneline && git worktree remove wt"),
        ("submodule", "git init -q sub-origin && git -C sub-origin commit -q --allow-empty -m s && "
         "git -c protocol.file.allow=always submodule add ./sub-origin sub"),
        ("stash", "echo c >> a.txt && git stash -q && git stash pop"),
        ("rebase", "git commit -qam three && git rebase -q HEAD~1"),
        ("gc", "git gc -q"),
        ("remote", "git remote add other ../elsewhere && git remote -v"),
        ("config", "git config user.email me@example.org"),
    ]),
    ("git signing by ssh", "git ssh-keygen", {"a.txt": "a\n"}, [
        ("commit", "git add . && git commit -qS -m one"),
    ], "mkdir -m 700 ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && git config --global gpg.format ssh && "
     "git config --global user.signingkey ~/.ssh/id_ed25519"),
    ("git signing by gpg", "git gpg", {"a.txt": "a\n"}, [
        ("commit", "git add . && git commit -qS -m one"),
    ], "gpg --batch --passphrase '' --quick-gen-key someone@example.org && "
     "git config --global user.signingkey someone@example.org"),
    ("git lfs", "git git-lfs", {"a.bin": "a\n"}, [
        ("install", "git lfs install --local"),
        ("commit", "git lfs track '*.bin' && git add . && git commit -qm one && git lfs ls-files"),
    ]),
]
