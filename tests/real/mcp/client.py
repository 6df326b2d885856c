"""Drives `turnwright mcp-server` with the official Python SDK (`pip install mcp`).

    python client.py TURNWRIGHT FOLDER

FOLDER is empty or new: the server's own files and a project are made in it. Connects twice, by the
newest revision that both speak and by the handshake of the older ones. Ends with 0 if all was as it
should be.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

binary, folder = sys.argv[1], Path(sys.argv[2]).resolve()
project = folder / "project"
project.mkdir(parents=True, exist_ok=True)
(project / "note.txt").write_text("The word is PELICAN.\n")


def server(*arguments):
    return stdio_client(
        StdioServerParameters(
            command=binary,
            args=["mcp-server", "--root", str(project), *arguments],
            env={"TURNWRIGHT_HOME": str(folder / "home")},
            cwd=str(project),
        )
    )


def check(holds, what):
    if not holds:
        print(f"client.py: {what}", file=sys.stderr)
        sys.exit(1)


def text(result):
    return result.content[0].text


async def names(client):
    found, cursor = [], None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += [it.name for it in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def without_user(mode):
    async with Client(server(), mode=mode) as client:
        print(f"{mode}: {client.protocol_version}")
        listed = await names(client)
        check({"read_file", "write_file", "exec"} <= set(listed), f"tools: {listed}")
        result = await client.call_tool("read_file", {"path": "note.txt"})
        check(not result.is_error and "PELICAN" in text(result), f"read_file: {result}")
        result = await client.call_tool("write_file", {"path": "no.txt", "content": "x"})
        check(result.is_error and "--mode" in text(result), f"a refusal: {result}")
        check(not (project / "no.txt").exists(), "a refused file is there")
        result = await client.call_tool("read_file", {"path": 5})
        check(result.is_error, f"bad arguments: {result}")
        try:
            await client.call_tool("no_such_tool", {})
            check(False, "an unknown tool was called")
        except Exception as error:
            check("Unknown tool" in str(error), f"an unknown tool: {error!r}")


async def with_user(mode):
    questions = []

    async def decide(_, params):
        questions.append(params.message)
        if len(questions) == 1:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"decision": "Allow once"})

    news = []

    async def progress(done, total, message):
        news.append(message)

    async with Client(server(), mode=mode, elicitation_callback=decide) as client:
        write = {"path": f"{mode}.txt", "content": "asked\n"}
        result = await client.call_tool("write_file", write)
        check(result.is_error, f"a declined call: {result}")
        check(not (project / f"{mode}.txt").exists(), "a declined file is there")
        result = await client.call_tool("write_file", write)
        check(not result.is_error, f"an accepted call: {result}")
        check((project / f"{mode}.txt").read_text() == "asked\n", "the file is another")
        check(len(questions) == 2 and "+asked" in questions[1], f"questions: {questions}")
        line = {"command": "echo PELICAN; sleep 2; echo end"}
        result = await client.call_tool("exec", line, progress_callback=progress)
        check("end" in text(result), f"exec: {result}")
        check(any("PELICAN" in it for it in news), f"progress: {news}")


async def main():
    for mode in ("auto", "legacy"):
        await without_user(mode)
        await with_user(mode)
    left = [it for it in Path("/proc").glob("[0-9]*/cmdline") if str(project).encode() in read(it)]
    check(not [it for it in left if it.parent.name != str(os.getpid())], f"still there: {left}")
    print("client.py: all as it should be")


def read(path):
    try:
        data = path.read_bytes()
        return data if b"mcp-server" in data else b""
    except OSError:
        return b""


asyncio.run(asyncio.wait_for(main(), 120))
