"""One session of the agent with a scripted model that calls `exec`, with a user who answers its questions."""

import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "gateways"), str(HERE.parent / "llama")]

from long import Agent  # noqa: E402
from upstream import Upstream  # noqa: E402

COMMAND_LIMIT = 300


class Result:
    """What came of one command."""

    def __init__(self, code, seconds, questions, text):
        self.code, self.seconds, self.questions, self.text = code, seconds, questions, text

    @property
    def is_good(self):
        return self.code == 0


class Session:
    """A session in a project; the questions of each command are allowed for the session where that is offered."""

    def __init__(self, program, folder, project, variables, mode):
        folder.mkdir(parents=True, exist_ok=True)
        self.upstream, self.questions = Upstream(), []
        self.upstream.begin([[{"text": "Done."}]])
        settings = {"OPENAI_BASE_URL": self.upstream.base_url, "OPENAI_API_KEY": "none", "TURNWRIGHT_MODEL": "scripted"}
        settings |= {"TURNWRIGHT_MODE": mode, "TURNWRIGHT_HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1"}
        self.agent = Agent(program, folder, time.monotonic() + 7000, self.answer, variables | settings)
        info = {"name": "toolchains", "version": "1"}
        self.agent.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": info})
        self.id = self.agent.ask("session/new", {"cwd": str(project), "mcpServers": []})[0]["sessionId"]

    def answer(self, request):
        if request["method"] != "session/request_permission":
            return {"error": {"code": -32601, "message": "not supported"}}
        options = {option["kind"]: option["optionId"] for option in request["params"]["options"]}
        self.questions.append(request["params"]["toolCall"].get("title", "") + ("" if "allow_always" in options else " (once)"))
        chosen = options.get("allow_always") or options["allow_once"]
        return {"result": {"outcome": {"outcome": "selected", "optionId": chosen}}}

    def call(self, tool, arguments):
        """Lets the model make one call, and returns what came of it."""
        self.questions = []
        self.upstream.begin([[{"call": {"name": tool, "arguments": arguments}}], [{"text": "Done."}]])
        begun, ends = time.monotonic(), []

        def note(update):
            if update["sessionUpdate"] == "tool_call_update" and update.get("status") in ("completed", "failed"):
                ends.append((time.monotonic() - begun, update))

        self.agent.ask("session/prompt", {"sessionId": self.id, "prompt": [{"type": "text", "text": "Go on."}]}, note)
        seconds, update = ends[-1] if ends else (0, {})
        raw = update.get("rawOutput") or {}
        code = raw.get("exitCode", 0 if update.get("status") == "completed" else 1)
        return Result(1 if code is None else code, seconds, list(self.questions), self.last_result())

    def last_result(self):
        """What the model was told."""
        messages = json.loads(self.upstream.requests[-1][1])["messages"]
        told = [message["content"] for message in messages if message["role"] == "tool"]
        return str(told[-1]) if told else ""

    def execute(self, command, escalate=None):
        # A server that is to stay is a job of its own.
        background = {"background": True} if command.endswith(" &") else {}
        arguments = {"command": command.removesuffix(" &"), "timeout": COMMAND_LIMIT} | background
        result = self.call("exec", arguments | ({"escalate": escalate} if escalate else {}))
        is_running = bool(background) and "running in the background" in result.text.lower()
        if is_running:
            result.code = 0
        return result

    def close(self):
        self.agent.close()
        self.upstream.server.shutdown()


def variables(cache, home):
    """The environment of a user with this home folder, whose toolchains are those of the machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWRIGHT_", "OPENAI_"))}
    real = Path(os.environ.get("HOME", "/"))
    # Programs that stand for others, which they choose by the folder, find these in the old home folder.
    kept.setdefault("RUSTUP_HOME", str(real / ".rustup"))
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if "/shims" not in part)
    python = Path(sys.executable).resolve().parent
    # Java takes the home folder of the system's list of users.
    return kept | {"HOME": str(home), "GRADLE_USER_HOME": str(home / ".gradle"), "PATH": f"{cache / 'bin'}:{python}:{path}"}
