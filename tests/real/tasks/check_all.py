"""Proves the tasks in this folder, whose form docs/eval.md describes, without a model.

Each check must fail at the start, pass with solution.patch, and fail with near-miss.patch, which does what the prompt
says on the face of it and overlooks the task's trap; twice each, in a new tree every time. It must also fail if nothing
was done but to empty the files that `restore` puts back. A task whose program is missing or does not work (node,
rustc) is left out, with a line on stderr. Exit status: 0 if all is well, 1 if not, 3 if this Python is too old.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    print("!!! SKIPPED: the tasks need Python from 3.11 on, which reads TOML", file=sys.stderr)
    sys.exit(3)

HERE = pathlib.Path(__file__).resolve().parent
# What a check may need beside sh and python3.
PROGRAMS = ("node", "rustc")
KEYS = {"check": {"command", "timeout", "restore"}, "limits": {"time", "requests"}}
# The shell's statuses for a command that is not there, and for one that cannot be run.
NOT_RUN = (126, 127)
IDENTITY = {
    "GIT_AUTHOR_NAME": "task",
    "GIT_AUTHOR_EMAIL": "task@localhost",
    "GIT_COMMITTER_NAME": "task",
    "GIT_COMMITTER_EMAIL": "task@localhost",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


class Wrong(Exception):
    """What is wrong with a task."""


class Task:
    def __init__(self, folder):
        self.folder, self.name = folder, folder.name
        with open(folder / "task.toml", "rb") as file:
            self.settings = tomllib.load(file)
        self.check = self.settings["check"]
        self.restore = self.check.get("restore", [])

    def missing_programs(self):
        script = self.folder / "check/check.sh"
        text = self.check["command"] + (script.read_text(encoding="utf-8") if script.exists() else "")
        used = [program for program in PROGRAMS if re.search(rf"\b{program}\b", text)]
        return [program for program in used if not can_run(program)]

    def inspect(self):
        """Finds what is wrong with the files of the task itself."""
        for section, table in self.settings.items():
            unknown = set(table) - KEYS[section] if section in KEYS else {section}
            if unknown:
                raise Wrong(f"unknown keys: {sorted(unknown)}")
        if not (self.folder / "prompt.md").read_text(encoding="utf-8").strip():
            raise Wrong("there is no prompt")

    def tree(self, parent):
        """Makes the start tree: a repository with one commit."""
        tree = pathlib.Path(tempfile.mkdtemp(prefix=f"{self.name}-", dir=parent))
        shutil.copytree(self.folder / "files", tree, dirs_exist_ok=True)
        git(tree, "init", "-q")
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", "start")
        return tree

    def run_check(self, tree):
        """Does what `eval` does: puts the files of `restore` back, adds those of check/, and runs the check.

        Returns its status and output.
        """
        for pattern in self.restore:
            git(tree, "checkout", "-q", "HEAD", "--", glob(pattern))
        shutil.copytree(self.folder / "check", tree, dirs_exist_ok=True)
        process = subprocess.Popen(
            ["sh", "-c", self.check["command"]],
            cwd=tree,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=self.check["timeout"])[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Wrong("the check does not end") from None
        return process.returncode, output

    def expect(self, tree, passes, when):
        status, output = self.run_check(tree)
        if status in NOT_RUN:
            raise Wrong(f"the check cannot be run {when}:\n{output}")
        if (status == 0) != passes:
            raise Wrong(f"the check {'fails' if passes else 'passes'} {when}:\n{output}")

    def restored(self, tree, *command):
        """Returns the files of `restore` that a command of git lists."""
        patterns = [glob(pattern) for pattern in self.restore]
        return git(tree, *command, "-z", "--", *patterns).split("\0")[:-1] if patterns else []

    def prove(self, parent, times):
        self.inspect()
        for _ in range(times):
            self.expect(self.tree(parent), False, "at the start")
            for patch, passes in (("solution.patch", True), ("near-miss.patch", False)):
                tree = self.tree(parent)
                git(tree, "apply", str(self.folder / patch))
                if passes and (changed := self.restored(tree, "diff", "--name-only", "HEAD")):
                    raise Wrong(f"{patch} changes files that are put back: {' '.join(changed)}")
                self.expect(tree, passes, f"with {patch}")
        tree = self.tree(parent)
        for name in self.restored(tree, "ls-files"):
            (tree / name).write_text("", encoding="utf-8")
        self.expect(tree, False, "with nothing but emptied tests")


def can_run(program):
    """Returns true if a program is there and works: the `rustc` of rustup may lack a toolchain."""
    found = shutil.which(program)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0


def glob(pattern):
    return f":(glob){pattern}"


def git(tree, *arguments):
    command = ["git", "-c", "core.autocrlf=false", "-c", "core.quotePath=false", "-C", str(tree), *arguments]
    done = subprocess.run(command, env=os.environ | IDENTITY, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise Wrong(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout


def all_tasks(names):
    tasks = [Task(file.parent) for file in sorted(HERE.glob("*/task.toml"))]
    unknown = set(names) - {task.name for task in tasks}
    if unknown:
        sys.exit(f"there is no task {', '.join(sorted(unknown))}")
    for task in tasks:
        if names and task.name not in names:
            continue
        if missing := task.missing_programs():
            print(f"!!! SKIPPED {task.name}: no {' and no '.join(missing)}", file=sys.stderr)
            continue
        yield task


def proof(task, parent, times):
    """Returns what is wrong with a task, or None, and the line that says so."""
    begun = time.monotonic()
    try:
        task.prove(parent, times)
    except (Wrong, OSError, KeyError) as problem:
        return problem, f"WRONG {task.name}: {problem}"
    return None, f"ok    {task.name} ({time.monotonic() - begun:.1f} s)"


def main():
    parser = argparse.ArgumentParser(description="Proves the tasks in this folder.")
    parser.add_argument("--list", action="store_true", help="only print the names of the tasks that can be checked here")
    parser.add_argument("--once", action="store_true", help="run each check once instead of twice")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="only these")
    wanted = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")
    tasks = list(all_tasks(wanted.tasks))
    if wanted.list:
        print("\n".join(task.name for task in tasks))
        return 0
    wrong = 0
    times = 1 if wanted.once else 2
    with (
        tempfile.TemporaryDirectory(prefix="turnwright-tasks-") as parent,
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for problem, line in pool.map(lambda task: proof(task, parent, times), tasks):
            wrong += problem is not None
            print(line, flush=True, file=sys.stderr if problem else sys.stdout)
    print(f"{len(tasks) - wrong} of {len(tasks)} tasks are sound")
    return 1 if wrong or not tasks else 0


if __name__ == "__main__":
    sys.exit(main())
