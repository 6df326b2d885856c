"""Gives a small model twenty small tasks, each in a session and a project of its own, and counts those that are
done: what the files and the answer say decides, not how the model got there. All that the agent asks is allowed.

The number says something about the instructions and tools that the agent sends, but only beside another one: run it
with two builds. The last line of output is the result.
"""

import argparse
import pathlib
import subprocess
import sys
import time

from long import Agent, Failed

# A model that repeats itself is stopped after so many calls.
MOST_CALLS = 6

FILES = {
    "note.txt": "Shopping list\nThe code word is PELICAN.\nBuy bread and milk.\nCall the plumber.\n",
    "config.json": '{\n  "name": "demo",\n  "version": "1.0.0",\n  "port": 8080\n}\n',
    "calc.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n",
    "main.py": "from calc import add\n\nprint(add(2, 3))\n",
    "old.txt": "This file is old.\n",
    "a.txt": "12\n",
    "b.txt": "30\n",
    "todo.md": "# Tasks\n\n- TODO: paint the door\n- TODO: fix the roof\n- done: buy nails\n",
    "data/red.csv": "id,price\n1,10\n2,20\n",
    "data/blue.csv": "id,price\n7,70\n",
    "data/empty.csv": "",
    "src/server.py": "import socket\n\n\ndef open_door():\n    return socket.socket()\n",
    "src/client.py": "def knock():\n    return 'knock'\n",
}


class Done:
    """What a task left behind."""

    def __init__(self, project, answer):
        self.project, self.answer = project, answer

    def text(self, path):
        file = self.project / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def says(self, *words):
        return all(word.lower() in self.answer.lower() for word in words)

    def prints(self, script):
        command = [sys.executable, script]
        run = subprocess.run(command, cwd=self.project, capture_output=True, text=True, timeout=20)
        return run.stdout.strip()


TASKS = (
    ("Read note.txt and tell me the code word.", lambda it: it.says("pelican")),
    ("Create a file hello.txt with the text: Hello, world", lambda it: "Hello, world" in it.text("hello.txt")),
    (
        "In config.json change the port from 8080 to 9090.",
        lambda it: it.text("config.json") == FILES["config.json"].replace("8080", "9090"),
    ),
    ("Which files are in the folder data? List their names.", lambda it: it.says("red.csv", "blue.csv", "empty.csv")),
    ("Which file defines the function open_door? Search for it.", lambda it: it.says("server.py")),
    ("Run the command `expr 1234 + 4321` and tell me what it prints.", lambda it: it.says("5555")),
    (
        "Rename the file old.txt to new.txt.",
        lambda it: it.text("new.txt") == FILES["old.txt"] and not it.text("old.txt"),
    ),
    ("Delete the file old.txt.", lambda it: not (it.project / "old.txt").exists()),
    (
        "Add the line 'Feed the cat.' at the end of note.txt. Keep the other lines.",
        lambda it: it.text("note.txt").rstrip() == FILES["note.txt"] + "Feed the cat.",
    ),
    ("The function add in calc.py is wrong: it subtracts. Fix it.", lambda it: it.prints("main.py") == "5"),
    ("How many lines has note.txt?", lambda it: it.says("4") or it.says("four")),
    ("Create a folder docs with a file readme.md in it that says: Welcome", lambda it: "Welcome" in it.text("docs/readme.md")),
    ("a.txt and b.txt hold one number each. What is their sum?", lambda it: it.says("42")),
    ("What does the function knock in src/client.py return?", lambda it: it.says("knock")),
    (
        'In config.json set the version to "2.0.0".',
        lambda it: it.text("config.json") == FILES["config.json"].replace("1.0.0", "2.0.0"),
    ),
    ("Write a Python script five.py that prints the numbers from 1 to 5, one a line.", lambda it: it.prints("five.py") == "1\n2\n3\n4\n5"),
    ("What is 6 times 7? Answer without a tool.", lambda it: it.says("42")),
    (
        "In todo.md replace each TODO by OPEN.",
        lambda it: it.text("todo.md") == FILES["todo.md"].replace("TODO", "OPEN"),
    ),
    ("What is on the third line of note.txt?", lambda it: it.says("bread")),
    ("Which price has id 7 in data/blue.csv?", lambda it: it.says("70")),
)


def allowed(request):
    """The answer to a request of the agent: the user allows everything once."""
    for option in request["params"].get("options", []):
        if option["kind"] == "allow_once":
            return {"result": {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}}
    return {"error": {"code": -32601, "message": "not supported"}}


class Turn:
    """What the updates of a turn have said so far."""

    def __init__(self, agent, session):
        self.agent, self.session = agent, session
        self.text, self.calls = [], []

    def add(self, update):
        kind = update["sessionUpdate"]
        if kind == "agent_message_chunk":
            self.text.append(update["content"].get("text", ""))
        elif kind == "tool_call_update" and update.get("status") in ("completed", "failed"):
            self.calls.append(update["toolCallId"])
            if len(set(self.calls)) == MOST_CALLS:
                self.agent.send({"method": "session/cancel", "params": {"sessionId": self.session}})


def attempt(program, folder, task, deadline):
    """Gives the model one task. Returns whether it is done, and what is to be said of it."""
    prompt, is_done = task
    project = folder / "project"
    for name, text in FILES.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    agent = Agent(program, folder, deadline, allowed)
    begun = time.monotonic()
    try:
        agent.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        params = {"cwd": str(project), "mcpServers": []}
        session = agent.ask("session/new", params)[0]["sessionId"]
        turn = Turn(agent, session)
        parts = [{"type": "text", "text": prompt}]
        result, _ = agent.ask("session/prompt", {"sessionId": session, "prompt": parts}, turn.add)
        done = is_done(Done(project, "".join(turn.text)))
        said = f"{result['stopReason']}, {len(set(turn.calls))} calls"
    except (Failed, OSError, subprocess.TimeoutExpired) as failure:
        done, said = False, str(failure)
    finally:
        agent.close()
    return done, f"{said}, {time.monotonic() - begun:.0f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", help="the program `turnwright`")
    parser.add_argument("folder", type=pathlib.Path, help="for the projects and the logs")
    parser.add_argument("--seconds", type=float, required=True, help="the time limit of a task")
    wanted = parser.parse_args()
    count = 0
    for number, task in enumerate(TASKS, 1):
        folder = wanted.folder.resolve() / f"task-{number}"
        folder.mkdir(parents=True)
        done, said = attempt(wanted.agent, folder, task, time.monotonic() + wanted.seconds)
        count += done
        print(f"{number:2} {'done' if done else 'NOT '} {task[0]} ({said})", flush=True)
    print(f"{count} of {len(TASKS)} tasks done")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
