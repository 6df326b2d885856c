"""Drives Toad on a pseudo-terminal: sends prompts, answers every permission request, prints its screens.

    drive.py TOAD AGENT PROJECT KEY PROMPT END [PROMPT END]...

KEY answers each request: `a` allows it once, `r` rejects it. END is a text that the screen shows when the
prompt is answered.
"""

import sys
import time

import pexpect
import pyte

COLUMNS, LINES = 150, 70
LIMIT = 60
# The first option of a question that is not answered yet has the cursor.
QUESTION = "❯ a Allow once"


class Terminal:
    def __init__(self, toad, agent, project):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            toad, ["acp", agent, project], dimensions=(LINES, COLUMNS), timeout=1
        )

    def shown(self):
        return "\n".join(line.rstrip() for line in self.screen.display if line.strip())

    def read(self, seconds):
        """Shows what Toad writes in this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self.stream.feed(self.child.read_nonblocking(65536, 0.1))
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                sys.exit(f"Toad has ended:\n{self.shown()}")

    def wait(self, text, key=None):
        """Waits for a text, and answers the questions before it with a key."""
        end = time.monotonic() + LIMIT
        while text not in self.shown():
            if time.monotonic() > end:
                sys.exit(f"{text!r} is not shown:\n{self.shown()}")
            self.read(0.5)
            if key and QUESTION in self.shown():
                self.answer(key)
        self.read(1.5)

    def answer(self, key):
        # Toad loses keys until it has drawn the question, and a second key answers the next one.
        self.read(1.5)
        print(self.shown(), "\n")
        self.child.send(key)
        end = time.monotonic() + LIMIT
        while QUESTION in self.shown() and time.monotonic() < end:
            self.read(0.2)

    def submit(self, text):
        self.child.send(text)
        self.read(1)
        if text.startswith("/"):
            # Escape closes the list of commands, from which Enter would choose.
            self.child.send("\x1b")
            self.read(1)
        self.child.send("\r")


def main():
    toad, agent, project, key, *steps = sys.argv[1:]
    terminal = Terminal(toad, agent, project)
    terminal.wait("How can I help you today?")
    for prompt, end in zip(steps[::2], steps[1::2]):
        terminal.submit(prompt)
        terminal.wait(end, key)
        print(terminal.shown(), "\n")
    terminal.child.kill(15)


main()
