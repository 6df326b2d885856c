"""Does the everyday loop of each toolchain of the table outside and in the agent, in mode `auto`, each time in a new
project and a fresh home folder, and prints both. A model that is told what to ask for asks for it.

Exit status: 1 if something works outside and not in the agent.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from agent import COMMAND_LIMIT, Result, Session, variables
from days import DAYS
from table import TOOLCHAINS

GIT = "[user]\nname = Someone\nemail = someone@example.org\n[init]\ndefaultBranch = main\n"
# The access that a result names, apart from access to everything. What the sandbox allows, at the end, names the
# network always: a model asks for it where the output is about it.
NAMED = re.compile(r'"escalate": "((?:network|debug|[\w.]+:\d+)(?:,[^"]*)?)"')
# What was denied, and the access that allows it.
DENIED = re.compile(r'If it is needed, call again with "escalate": "([^"]+)"')
LIMITS = re.compile(r"\[sandbox: .*", re.DOTALL)
ABOUT_NETWORKS = re.compile(r"listen|socket|connect|bind|resolve|unreachable|network", re.IGNORECASE)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Place:
    """A new project in a repository, and a fresh home folder."""

    def __init__(self, folder, cache, files, before="true"):
        self.folder, self.project, self.home = folder, folder / "project", folder / "user"
        self.home.mkdir(parents=True)
        (self.home / ".gitconfig").write_text(GIT)
        for name, text in files.items():
            file = self.project / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.project.mkdir(exist_ok=True)
        self.variables = variables(cache, self.home)
        make = f"git init -q && git commit -q --allow-empty -m start && {before}"
        subprocess.run(["bash", "-c", make], cwd=self.project, env=self.variables, check=False, capture_output=True)
        words = {"@PORT@": str(free_port()), "@NAME@": f"small-{os.getpid()}-{free_port()}", "@CACHE@": str(cache)}
        self.fill = lambda command: re.sub("|".join(words), lambda found: words[found[0]], command)


class Outside:
    """A shell without the agent."""

    def __init__(self, place):
        self.place, self.groups, self.log = place, [], (place.folder / "output").open("w")

    def execute(self, command, escalate=None):
        self.log.write(f"\n$ {command}\n")
        self.log.flush()
        begun = time.monotonic()
        process = subprocess.Popen(["bash", "-c", command], cwd=self.place.project, env=self.place.variables, stdin=subprocess.DEVNULL,
                                   stdout=self.log, stderr=self.log, start_new_session=True)
        self.groups.append(process.pid)
        try:
            code = process.wait(COMMAND_LIMIT)
        except subprocess.TimeoutExpired:
            code = 124
        return Result(code, time.monotonic() - begun, [], "")

    def close(self):
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass


def suggestion(result):
    """The access for which a model asks after a failure."""
    if denied := DENIED.search(result.text):
        return denied[1]
    output = LIMITS.sub("", result.text)
    named = NAMED.search(output)
    if named or not ABOUT_NETWORKS.search(output):
        return named and named[1]
    limits = NAMED.search(result.text)
    return limits and limits[1]


def inside(session, command, escalate, log):
    """One command of the model, which asks for what it is told to ask for, at most twice."""
    result = session.execute(command, escalate)
    for _ in range(2):
        named = None if result.is_good else suggestion(result)
        if not named or named in (escalate or "").split(","):
            break
        log.write(f"\n$ {command}\n{result.text}\n")
        wanted = f"{escalate},{named}" if escalate else named
        again = session.execute(command, wanted)
        again.questions = result.questions + again.questions
        again.seconds += result.seconds
        result, escalate = again, wanted
    log.write(f"\n$ {command}    [{escalate or ''}] {result.questions}\n{result.text}\n")
    log.flush()
    return result, escalate


def toolchain(program, cache, folder, row, mode):
    name, needs, files, steps, *before = row
    lacks = [need for need in needs.split() if not shutil.which(need, path=variables(cache, folder)["PATH"])]
    if lacks:
        print(f"{name:18} SKIPPED: no {', '.join(lacks)}", flush=True)
        return [{"toolchain": name, "skipped": lacks}]
    outer = Place(folder / "outside", cache, files, *before)
    inner = Place(folder / "inside", cache, files, *before)
    shell, rows = Outside(outer), []
    session = Session(program, folder / "agent", inner.project, inner.variables, mode)
    log = (folder / "agent/output").open("w")
    try:
        for step, command, *access in steps:
            before = shell.execute(outer.fill(command))
            after, named = inside(session, inner.fill(command), *(access or [None]), log)
            verdict = "ok" if after.is_good else "FAILED" if before.is_good else "fails, too"
            extra = f"with {named}" if named and not access else ""
            rows.append({"toolchain": name, "step": step, "outside": before.is_good, "outside_s": round(before.seconds, 2),
                         "inside": after.is_good, "inside_s": round(after.seconds, 2), "questions": after.questions, "access": named})
            print(f"{name:18} {step:22} {'ok' if before.is_good else 'fails':6} {before.seconds:7.1f} s   {verdict:10} "
                  f"{after.seconds:7.1f} s {len(after.questions):3}  {extra}", flush=True)
    finally:
        shell.close()
        session.close()
    return rows


def day(program, cache, folder, name, mode):
    needs, files, commands = DAYS[name]
    if lacks := [need for need in needs.split() if not shutil.which(need, path=variables(cache, folder)["PATH"])]:
        print(f"day {name:10} {mode:10} SKIPPED: no {', '.join(lacks)}", flush=True)
        return []
    place = Place(folder, cache, files)
    session, rows = Session(program, folder / "agent", place.project, place.variables, mode), []
    log = (folder / "agent/output").open("w")
    try:
        for line in commands:
            command, access = line if isinstance(line, tuple) else (line, None)
            result, named = inside(session, place.fill(command), access, log)
            rows.append({"day": name, "mode": mode, "command": command, "access": named, "inside": result.is_good, "questions": result.questions})
    finally:
        session.close()
    asked = [question for row in rows for question in row["questions"]]
    failed = [row["command"] for row in rows if not row["inside"]]
    print(f"day {name:10} {mode:10} {len(rows)} commands, {len(asked)} questions, {len(failed)} failed", flush=True)
    for question in asked:
        print(f"    asked: {question[:110]}")
    for command in failed:
        print(f"    failed: {command[:110]}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the program `turnwright`")
    parser.add_argument("cache", type=Path, help="where the toolchains are")
    parser.add_argument("folder", type=Path, help="for projects, homes and logs; not below /tmp")
    parser.add_argument("--only", action="append", help="this toolchain or `day NAME`; may be repeated")
    parser.add_argument("--json", type=Path, help="a file for the results")
    wanted = parser.parse_args()
    program, cache, folder = (path.resolve() for path in (wanted.program, wanted.cache, wanted.folder))
    results = []
    print(f"{'toolchain':18} {'step':22} {'outside':18} {'in the agent':23} questions")
    for row in TOOLCHAINS:
        if not wanted.only or row[0] in wanted.only:
            results += toolchain(program, cache, folder / row[0].replace(" ", "-").replace("/", ""), row, "auto")
    for name in DAYS:
        for mode in ("auto", "auto-edit"):
            if not wanted.only or f"day {name}" in wanted.only:
                results += day(program, cache, folder / f"day-{name}-{mode}", name, mode)
    if wanted.json:
        wanted.json.write_text(json.dumps(results, indent=1))
    steps = [row for row in results if "step" in row]
    failed = [f"{row['toolchain']}: {row['step']}" for row in steps if row["outside"] and not row["inside"]]
    questions = sum(len(row["questions"]) for row in steps)
    if failed:
        print("works outside and not in the agent: " + "; ".join(failed))
    print(f"{len(steps)} steps, {len(failed)} work only outside, {questions} questions")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
