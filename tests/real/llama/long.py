"""Holds one long session with a small model in a small window, and judges it by what was said.

The model reads twenty files, one a prompt. The window holds only a few of them, so the conversation
must be compacted again and again; at the end the model must still know what the first prompt said.
A prompt after which the model has not read the file is repeated in other words, as a user would.
The last line of output says what was measured, or what went wrong.
"""

import argparse
import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

WORD = "PELICAN"
CODES = (
    "amber basalt cedar dune ember fjord garnet harbor indigo jasper "
    "kelp lagoon maple nectar opal pebble quartz raven saffron tundra"
).split()
FIRST = f"The word of the day is {WORD}. Remember it: I ask for it at the end. "
PROMPTS = (
    "Call the read_file tool with path {path}, then tell me: which code does it name?",
    "Call the read_file tool with path {path}. Then tell me the code in it.",
    "Please read the file {path} with the read_file tool and answer with the code that it names.",
    "I need the code in {path}. Call read_file with this path.",
)
LAST = (
    "What is the word of the day that I told you at the beginning? Answer without a tool.",
    "Which word of the day did I ask you to remember? Answer without calling a tool.",
    "My first message names the word of the day. What is it?",
)


def refusal(request):
    """The answer to a request of the agent: the user allows nothing but reading, and goes on."""
    for option in request["params"].get("options", []):
        if option["kind"] == "reject_once":
            return {"result": {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}}
    return {"error": {"code": -32601, "message": "not supported"}}


class Failed(Exception):
    """What went wrong."""


class Agent:
    """A process of the agent with one session."""

    def __init__(self, program, folder, deadline, reply=refusal, environment=None):
        self.deadline, self.reply = deadline, reply
        self.wire = (folder / "wire").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            [program, "acp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr").open("wb"),
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()
        self.requests = 0
        self.begun = time.monotonic()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def log(self, mark, line):
        seconds = time.monotonic() - self.begun
        self.wire.write(f"{seconds:8.1f} {mark} {line.rstrip()}\n")
        self.wire.flush()

    def send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message})
        self.log("→", line)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, method, params, each=lambda update: None):
        """Returns the result and the updates that came before it, each of which is also passed to
        `each` at once. Questions of the agent get the reply."""
        self.requests += 1
        wanted, updates = self.requests, []
        self.send({"id": wanted, "method": method, "params": params})
        while True:
            try:
                line = self.lines.get(timeout=max(0.1, self.deadline - time.monotonic()))
            except queue.Empty:
                raise Failed(f"the time was up during {method}") from None
            if line is None:
                raise Failed(f"the agent ended during {method}")
            self.log("←", line)
            message = json.loads(line)
            if message.get("method") == "session/update":
                updates.append(message["params"]["update"])
                each(updates[-1])
            elif "method" in message and "id" in message:
                self.send({"id": message["id"], **self.reply(message)})
            elif message.get("id") == wanted:
                if "error" in message:
                    raise Failed(f"{method} was refused: {json.dumps(message['error'])}")
                return message["result"], updates

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Tally:
    """What a session has done so far."""

    def __init__(self):
        self.calls = self.compactions = self.prompts = 0

    def count(self, updates):
        """Returns the text of the answer and the titles of completed calls."""
        self.prompts += 1
        text, titles, completed = [], {}, []
        for update in updates:
            kind = update["sessionUpdate"]
            if kind == "agent_message_chunk":
                text.append(update["content"].get("text", ""))
            elif kind == "compaction_update" and update.get("status") == "completed":
                self.compactions += 1
            elif kind == "compaction_update" and update.get("status") == "failed":
                raise Failed(f"a compaction failed: {json.dumps(update)}")
            elif kind in ("tool_call", "tool_call_update"):
                call = update["toolCallId"]
                titles[call] = update.get("title") or titles.get(call, "")
                if update.get("status") == "completed":
                    completed.append(titles[call])
        self.calls += len(completed)
        return "".join(text), completed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", help="the program `turnwright`")
    parser.add_argument("folder", type=pathlib.Path, help="for the project and the logs")
    parser.add_argument("--seconds", type=float, required=True, help="the time limit")
    return parser.parse_args()


def write_files(project):
    """Files of about a hundred tokens."""
    project.mkdir(parents=True)
    for number, code in enumerate(CODES, 1):
        lines = [f"Note {number} of {len(CODES)}.", f"The code of note {number} is {code}."]
        lines += [f"Line {it} of note {number} says nothing of interest." for it in range(1, 7)]
        (project / f"note-{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def prompt(agent, session, tally, text):
    parts = [{"type": "text", "text": text}]
    result, updates = agent.ask("session/prompt", {"sessionId": session, "prompt": parts})
    answer, completed = tally.count(updates)
    if result["stopReason"] != "end_turn":
        raise Failed(f"a turn ended with {result['stopReason']}")
    return answer, completed


def read_all(agent, session, tally):
    """Returns how many of the answers held their code."""
    right = 0
    for number, code in enumerate(CODES, 1):
        path = f"note-{number}.txt"
        for words in PROMPTS:
            text = words.format(path=path)
            if tally.prompts == 0:
                text = FIRST + text
            answer, completed = prompt(agent, session, tally, text)
            if any(path in title for title in completed):
                break
        else:
            raise Failed(f"the model has not read {path}")
        right += code in answer.lower()
        print(f"{path}: {code in answer.lower()}, {tally.compactions} compactions", flush=True)
    return right


def converse(agent, folder):
    capabilities = {"session": {"compaction": {}}}
    agent.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})
    params = {"cwd": str(folder / "project"), "mcpServers": []}
    session = agent.ask("session/new", params)[0]["sessionId"]
    tally = Tally()
    right = read_all(agent, session, tally)
    if not any(WORD in prompt(agent, session, tally, it)[0] for it in LAST):
        raise Failed(f"the last answer lacks the word {WORD}")
    if tally.calls < len(CODES):
        raise Failed(f"only {tally.calls} calls were completed")
    if tally.compactions < 2:
        raise Failed(f"only {tally.compactions} compactions were needed")
    return (
        f"{tally.calls} calls, {tally.compactions} compactions, {tally.prompts} prompts, "
        f"{right} of {len(CODES)} codes told"
    )


def main():
    wanted = arguments()
    folder = wanted.folder.resolve()
    write_files(folder / "project")
    os.makedirs(folder / "home", exist_ok=True)
    agent = Agent(wanted.agent, folder, time.monotonic() + wanted.seconds)
    try:
        print(converse(agent, folder))
    except Failed as failure:
        print(failure)
        return 1
    finally:
        agent.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
