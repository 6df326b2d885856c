"""Tin, a tiny language. `python3 tin.py build FILE` checks a program, `python3 tin.py run FILE` also runs it.

A program consists of functions; it begins with main. Each variable is declared with `:=` and must be used.
"""

import keyword
import re
import sys

KNOWN = {"len", "list", "str"}


class BuildError(Exception):
    pass


def names(expression):
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"', "", expression))
    return [word for word in words if not keyword.iskeyword(word)]


def close(unused):
    for name, number in unused.items():
        raise BuildError(f"{number}: declared and not used: {name}")


def translate(text):
    functions = set(re.findall(r"^func (\w+)", text, re.MULTILINE))
    lines, depth, local, unused = [], 0, set(), {}
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0].strip()

        def use(expression):
            for name in names(expression):
                if name not in local | functions | KNOWN:
                    raise BuildError(f"{number}: undefined: {name}")
                unused.pop(name, None)
            return expression.replace("/", "//")

        if code.startswith("}"):
            depth, code = depth - 1, code[1:].strip()
            if depth == 0:
                close(unused)
        python, opens = "", code.endswith("{")
        if match := re.fullmatch(r"func (\w+)\((.*)\) \{", code):
            local, unused, python = set(names(match[2])), {}, f"def {match[1]}({match[2]}):"
        elif match := re.fullmatch(r"for (\w+) in (.+) \{", code):
            python = f"for {match[1]} in {use(match[2])}:"
            local.add(match[1])
        elif match := re.fullmatch(r"if (.+) \{", code):
            python = f"if {use(match[1])}:"
        elif code == "else {":
            python = "else:"
        elif match := re.fullmatch(r"(\w+) (:?=) (.+)", code):
            python = f"{match[1]} = {use(match[3])}"
            if match[2] == ":=" and match[1] in local:
                raise BuildError(f"{number}: no new variable on the left side of :=")
            if match[2] == ":=":
                local.add(match[1])
                unused[match[1]] = number
            elif match[1] not in local:
                raise BuildError(f"{number}: undefined: {match[1]}")
        elif match := re.fullmatch(r"(return|print) (.+)", code):
            python = f"return {use(match[2])}" if match[1] == "return" else f"print({use(match[2])})"
        elif re.fullmatch(r"\w+\(.*\)", code):
            python = use(code)
        elif code:
            raise BuildError(f"{number}: syntax error: {code}")
        lines.append("    " * depth + python)
        depth += opens
    if depth or "main" not in functions:
        raise BuildError("the program does not end, or has no main")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("build", "run"):
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as file:
        try:
            program = translate(file.read())
        except BuildError as error:
            sys.exit(f"{sys.argv[2]}:{error}")
    if sys.argv[1] == "run":
        exec(compile(program + "main()\n", sys.argv[2], "exec"), {"list": lambda *items: items})


if __name__ == "__main__":
    main()
