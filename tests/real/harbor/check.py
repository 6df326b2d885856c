"""Has Harbor's own package read what `turnwright eval export --harbor FOLDER` wrote: its linter may find nothing, and
its runner must load each task and the entry with which its ACP agent starts turnwright. Run by tests/real/run."""

import json
import subprocess
import sys
from pathlib import Path

from harbor.agents.installed import acp
from harbor.models.task.task import Task


def main(folder: Path) -> str:
    tasks = sorted(path for path in folder.iterdir() if path.is_dir())
    if not tasks:
        return f"no tasks are in {folder}"
    # Tests of ours run beside the agent's work, as Harbor does it unless it is told otherwise.
    words = ["lint", "--json", "--ignore", "shared-verifier"]
    harbor = Path(sys.executable).with_name("harbor")
    lint = subprocess.run([harbor, *words, *tasks], stdout=subprocess.PIPE, text=True, check=False)
    print(lint.stdout)
    if lint.returncode != 0 or json.loads(lint.stdout) != []:
        return f"harbor lint finds something (exit status {lint.returncode})"
    for path in tasks:
        task = Task(path)
        if not task.instruction.strip() or not task.name.startswith("turnwright/"):
            return f"{path.name} is loaded as {task.name!r} with the instruction {task.instruction!r}"
    entry = acp._load_registry_entry(None, folder / "turnwright.json")
    print(entry)
    if entry.id != "turnwright":
        return f"the registry entry is loaded as {entry.id!r}"
    print(f"{len(tasks)} tasks")
    return ""


if __name__ == "__main__":
    problem = main(Path(sys.argv[1]))
    if problem:
        print(problem)
        sys.exit(1)
