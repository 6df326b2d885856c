"""Runs turns against llmock, which truncates streams and refuses requests at random, and passes on its
verdict about the client.

Usage: llmock.py TURNWRIGHT CACHE FOLDER"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from drive import free_port, wait_until_ready

TURNS, TURN_LIMIT = 12, 120
# A whole call is run also if no finish reason follows, and the first answer of a process without one is
# taken, because some servers never send any.
ALLOWED = "truncated_stream_accepted"


def main():
    program, cache, folder = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    port = free_port()
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    clean |= {"NO_PROXY": "*", "no_proxy": "*"}
    command = [cache / "llmock/bin/llmock", "serve", "--host", "127.0.0.1", "--port", str(port), "--report",
               "--stream-fault", "truncate=0.3", "--error-rate", "429=0.3"]
    report = folder / "server"
    with open(report, "w") as log:
        server = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env=clean)
    statuses = []
    try:
        wait_until_ready(server, f"http://127.0.0.1:{port}/health")
        for number in range(TURNS):
            project = folder / f"project-{number}"
            (project / "home/config").mkdir(parents=True)
            # It takes processes with the same key for one client, which asks again for what was refused.
            (project / "home/config/config.toml").write_text("list_models = false\n")
            variables = clean | {
                "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": f"mock-key-{number}",
                "TURNWRIGHT_MODEL": "gpt-4o", "TURNWRIGHT_HOME": str(project / "home"),
            }
            # The first answer is a call, the second a text.
            command = [program, "run", "--json", "--no-input", "--mode", "plan", "Say something."]
            done = subprocess.run(command, cwd=project, env=variables, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=TURN_LIMIT)
            (project / "output").write_text(done.stdout + done.stderr)
            statuses.append(done.returncode)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
    verdict = report.read_text()
    print(verdict)
    failed = [status for status in statuses if status]
    faults = [line.split()[1] for line in verdict.splitlines() if line.strip().startswith("FAIL ")]
    other = [fault for fault in faults if fault != ALLOWED]
    print(f"{len(failed)} of {TURNS} turns failed, faults of the client: {', '.join(faults) or 'none'}")
    # By chance an answer breaks more often than it is asked for again, which the user is told.
    sys.exit(len(failed) > TURNS // 4 or any(status != 3 for status in failed) or bool(other))


if __name__ == "__main__":
    main()
