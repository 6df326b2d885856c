"""Plays the table of cases through a gateway, and prints what each way made of each case.

Usage: drive.py GATEWAY TURNWRIGHT CACHE FOLDER [--case NAME]"""

import base64
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from gateways import GATEWAYS, environment
from upstream import Upstream

CASES = json.loads((Path(__file__).parent / "cases.json").read_text())
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
START_LIMIT, TURN_LIMIT = 240, 100


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_ready(process, url):
    end = time.monotonic() + START_LIMIT
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() < end:
        try:
            opener.open(url, timeout=5).read()
            return
        except OSError:
            time.sleep(0.5)
    sys.exit("the gateway did not start")


class Turn:
    """What the agent has shown in one turn."""

    def __init__(self, status, output, errors):
        self.status, self.errors = status, errors
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        updates = [line["params"]["update"] for line in lines if line.get("method") == "session/update"]
        self.text = self.all_text(updates, "agent_message_chunk")
        self.thought = self.all_text(updates, "agent_thought_chunk")
        self.gauges = [update for update in updates if update["sessionUpdate"] == "usage_update"]
        self.told = output + errors

    @staticmethod
    def all_text(updates, kind):
        chunks = [update["content"] for update in updates if update["sessionUpdate"] == kind]
        return "".join(chunk.get("text", "") for chunk in chunks)


def play(program, gateway, way, port, case, upstream, folder):
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "note.txt").write_text("The word of the day is PELICAN.\n")
    (project / "dot.png").write_bytes(base64.b64decode(DOT))
    config = folder / "home/config"
    config.mkdir(parents=True)
    key = case.get("key", gateway.key)
    settings = f'model = "real/{way.model}"\n[providers.real]\nbase_url = "http://127.0.0.1:{port}{way.path}"\n'
    settings += f'api = "{way.api}"\n' + ('key_env = "GATEWAY_KEY"\n' if key else "")
    if way.headers:
        settings += f"headers = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in way.headers.items())} }}\n"
    (config / "config.toml").write_text(settings)
    attached = ["--file", case["file"]] if "file" in case else []
    command = [program, "run", "--json", "--yes", *attached, "Do what the test wants."]
    variables = environment(gateway) | {"TURNWRIGHT_HOME": str(folder / "home"), "GATEWAY_KEY": key}
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TURNWRIGHT_MODEL"):
        variables.pop(name, None)
    upstream.begin(case["replies"])
    done = subprocess.run(command, cwd=project, env=variables, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TURN_LIMIT)
    (folder / "output").write_text(done.stdout)
    (folder / "errors").write_text(done.stderr)
    return Turn(done.returncode, done.stdout, done.stderr)


def judge(case, turn, upstream, project):
    """Returns what is wrong."""
    expected = case.get("status", 0)
    last = turn.errors.strip().splitlines()[-1:] or [""]
    if turn.status != expected:
        return f"the status is {turn.status} instead of {expected}: {last[0][:160]}"
    if case.get("says", "") not in turn.text:
        return f"it says {turn.text[-80:]!r}"
    if case.get("thinks", "") not in turn.thought:
        return f"it thinks {turn.thought!r}"
    if case.get("tells", "") not in turn.told:
        return f"it does not tell {case['tells']!r}: {last[0][:160]}"
    for name, lines in case.get("lines", {}).items():
        found = sorted((project / name).read_text().split())
        if found != lines:
            return f"{name} has {found}"
    if "window" in case and turn.gauges[-1]["size"] != case["window"]:
        return f"the window is {turn.gauges[-1]['size']}"
    if "cost" in case:
        cost = turn.gauges[-1].get("cost", {}).get("amount")
        if cost is None or abs(cost - case["cost"]) > 1e-9:
            return f"the cost is {cost}"
    times = [at for at, _ in upstream.requests]
    if "requests" in case and len(times) != case["requests"]:
        return f"{len(times)} requests instead of {case['requests']}"
    if "waits" in case and times[1] - times[0] < case["waits"] - 0.1:
        return f"it waited only {times[1] - times[0]:.1f} s"
    return ""


def main():
    name, program, cache, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    wanted = sys.argv[6:7] or CASES
    folder.mkdir(parents=True, exist_ok=True)
    upstream, port = Upstream(), free_port()
    gateway = GATEWAYS[name](cache, folder, port, upstream.base_url)
    failures = 0
    upstream.begin([[{"text": "Hello."}]])
    with open(folder / "gateway", "w") as log:
        process = subprocess.Popen([str(word) for word in gateway.command], stdout=log, stderr=log,
                                   stdin=subprocess.DEVNULL, env=environment(gateway), cwd=folder)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}{gateway.ready}")
        for way in gateway.ways:
            for title in wanted:
                case = CASES[title] | way.expects.get(title, {})
                place = folder / way.name.replace(" ", "-") / title.replace(" ", "-")
                if title in way.lacks:
                    result = f"-  {way.lacks[title]}"
                else:
                    try:
                        turn = play(program, gateway, way, port, case, upstream, place)
                        problem = judge(case, turn, upstream, place / "project")
                    except subprocess.TimeoutExpired:
                        problem = f"it took more than {TURN_LIMIT} s"
                    failures += bool(problem)
                    result = f"FAILED  {problem}" if problem else "passed"
                print(f"{way.name:22} {title:26} {result}", flush=True)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
    played = len(gateway.ways) * len(wanted)
    print(f"{failures} of {played} failed" if failures else f"{played} cases")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
