"""Drives the agent with a real language server: an edit that breaks a type, its repair, and the tools for symbols.

drive.py PROGRAM CACHE FOLDER LANGUAGE
"""

import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "toolchains"))

from agent import Session  # noqa: E402

# Of each language: the files, the file that is edited, its good and its broken text, and a symbol of it.
CASES = {
    "rust": (
        {
            "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/main.rs": "mod price;\n\nfn main() {\n    println!(\"{}\", price::total(2));\n}\n",
        },
        "src/price.rs",
        "pub fn total(count: u32) -> u32 {\n    count * 3\n}\n",
        "pub fn total(count: u32) -> u32 {\n    let name: u32 = \"three\";\n    count * name\n}\n",
        "total",
    ),
    "go": (
        {
            "go.mod": "module shop\n\ngo 1.21\n",
            "main.go": "package main\n\nfunc main() {\n\tprintln(total(2))\n}\n",
        },
        "price.go",
        "package main\n\nfunc total(count int) int {\n\treturn count * 3\n}\n",
        'package main\n\nfunc total(count int) int {\n\tvar name int = "three"\n\treturn count * name\n}\n',
        "total",
    ),
    "python": (
        {"main.py": "from price import total\n\nprint(total(2))\n"},
        "price.py",
        "def total(count: int) -> int:\n    return count * 3\n",
        'def total(count: int) -> int:\n    name: int = "three"\n    return count * name\n',
        "total",
    ),
    "typescript": (
        {
            "tsconfig.json": '{ "compilerOptions": { "strict": true, "module": "commonjs" } }\n',
            "main.ts": 'import { total } from "./price";\n\nconsole.log(total(2));\n',
        },
        "price.ts",
        "export function total(count: number): number {\n  return count * 3;\n}\n",
        'export function total(count: number): number {\n  const name: number = "three";\n  return count * name;\n}\n',
        "total",
    ),
    "c": (
        {
            "compile_flags.txt": "-std=c11\n",
            "price.h": "int total(int count);\n",
            "main.c": '#include "price.h"\n\nint main(void) { return total(2); }\n',
        },
        "price.c",
        '#include "price.h"\n\nint total(int count) { return count * 3; }\n',
        '#include "price.h"\n\nint total(int count) {\n  struct { int x; } name = {1};\n  return count * name;\n}\n',
        "total",
    ),
}
# How long a server may take to load the project.
LOADING = 180


def said(session, number, tool, arguments):
    began = time.monotonic()
    text = session.call(tool, arguments).text
    print(f"--- {number} {tool} ({time.monotonic() - began:.1f} s)\n{text.strip()}\n")
    return text


def fail(why):
    print(why)
    sys.exit(1)


def main():
    program, cache, folder, language = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    files, edited, good, broken, symbol = CASES[language]
    project = folder / "project"
    for name, text in files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    config = folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("find_checks = false\nverify = 'off'\n[lsp]\nmode = 'on'\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWRIGHT_", "OPENAI_"))}
    variables = kept | {"PATH": f"{cache / 'bin'}:{os.environ['PATH']}"}
    session = Session(program, folder, project, variables, "auto-edit")
    try:
        # The last file is the one that uses the symbol.
        drive(session, (edited, good, broken, symbol), list(files)[-1])
    finally:
        session.close()
    if list(project.rglob("target")):
        fail("the server has written in the project")
    print("an error in the result of its edit, mended in the next one; definition, references, rename")


def drive(session, case, user):
    edited, good, broken, symbol = case
    end = time.monotonic() + LOADING
    text = ""
    while "no new errors" not in text:
        if time.monotonic() > end:
            fail(f"the server was not ready after {LOADING} s: {text.splitlines()[-1:]}")
        # Each text differs, so that each is an edit.
        good += "\n"
        text = said(session, "load", "write_file", {"path": edited, "content": good})
    text = said(session, "break", "write_file", {"path": edited, "content": broken})
    if "1 new error in" not in text:
        fail("the broken type was not told")
    text = said(session, "mend", "write_file", {"path": edited, "content": good})
    if "no new errors" not in text:
        fail("the mended type was not clean")
    where = {"path": edited, "symbol": symbol}
    if f"{edited}:" not in said(session, "find", "definition", where | {"path": user}):
        fail("the definition was not found")
    if "main" not in said(session, "find", "references", where):
        fail("the use in the other file was not found")
    text = said(session, "rename", "rename_symbol", where | {"new_name": "sum_of"})
    if "main" not in text or "sum_of" not in text:
        fail("the use in the other file was not renamed")


if __name__ == "__main__":
    main()
