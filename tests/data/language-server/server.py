"""A language server for tests. Every line with BAD has an error. The first argument says how it behaves."""

import json
import os
import sys
import threading
import time

mode = sys.argv[1]
out = sys.stdout.buffer
lock = threading.Lock()
texts = {}
answers = {}
next_id = 0


def send(**message):
    data = json.dumps(dict(jsonrpc="2.0", **message)).encode()
    with lock:
        out.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        out.flush()


def units(text):
    return len(text.encode("utf-16-le")) // 2


def place(text, at):
    line = text.count("\n", 0, at)
    start = text.rfind("\n", 0, at) + 1
    return {"line": line, "character": units(text[start:at])}


def words(text, word):
    at = text.find(word)
    while at >= 0:
        yield {"start": place(text, at), "end": place(text, at + len(word))}
        at = text.find(word, at + 1)


def errors(text):
    lines = text.split("\n")
    return [
        {"range": found, "severity": 1, "code": "E1", "message": "wrong: " + lines[found["start"]["line"]].strip()}
        for found in words(text, "BAD")
    ]


def publish(uri, found, version=None):
    params = {"uri": uri, "diagnostics": found}
    if version is not None:
        params["version"] = version
    send(method="textDocument/publishDiagnostics", params=params)


def ask(method, params):
    global next_id
    next_id += 1
    answers[next_id] = None
    send(id=next_id, method=method, params=params)
    return next_id


def check(uri, version, text):
    time.sleep(0.05)
    if mode == "asks":
        # It works only if everything that it asks is answered as it should be.
        first = ask("workspace/configuration", {"items": [{"section": "python"}, {"section": "x"}]})
        second = ask("window/workDoneProgress/create", {"token": "t"})
        third = ask("x/unknown", {})
        fourth = ask("client/registerCapability", {"registrations": [{"id": "1", "method": "x"}]})
        end = time.time() + 1.5
        while None in answers.values() and time.time() < end:
            time.sleep(0.01)
        ok = len(answers[first]["result"]) == 2 and "result" in answers[second]
        if not ok or answers[third]["error"]["code"] != -32601 or "result" not in answers[fourth]:
            return
    if mode == "old":
        publish(uri, errors("BAD stale\n"), version - 1)
        time.sleep(0.3)
    if mode == "flood":
        for number in range(700):
            publish("file:///flood/%d" % number, errors("BAD\n" * 5))
    if mode == "silent" or mode == "pull":
        return
    publish(uri, errors(text), None if mode == "unversioned" else version)


def change(uri, version, text, is_open=False):
    texts[uri] = text
    if mode == "crash" and "CRASH" in text and not is_open:
        print("it fell over", file=sys.stderr, flush=True)
        os._exit(3)
    if mode == "memory" and "HUGE" in text and not is_open:
        held = bytearray(os.urandom(1)) * (300 << 20)
        time.sleep(60)
    threading.Thread(target=check, args=(uri, version, text), daemon=True).start()


def all_files():
    for name in sorted(os.listdir(root)):
        if name.endswith(".py"):
            path = os.path.join(root, name)
            with open(path, encoding="utf-8", newline="") as file:
                yield "file://" + path, file.read()


def word_at(params):
    text = texts[params["textDocument"]["uri"]]
    line = text.split("\n")[params["position"]["line"]]
    at = params["position"]["character"]
    rest = line.encode("utf-16-le")[at * 2 :].decode("utf-16-le")
    return rest[: next((i for i, char in enumerate(rest) if not (char.isalnum() or char == "_")), len(rest))]


def answer(method, params):
    if method == "textDocument/diagnostic":
        return {"kind": "full", "items": errors(texts[params["textDocument"]["uri"]])}
    if method == "textDocument/definition":
        word = "def " + word_at(params)
        return [{"uri": uri, "range": found} for uri, text in all_files() for found in words(text, word)]
    if method == "textDocument/references":
        word = word_at(params)
        return [{"uri": uri, "range": found} for uri, text in all_files() for found in words(text, word)]
    if method == "textDocument/rename":
        word = word_at(params)
        edits = {
            uri: [{"range": found, "newText": params["newName"]} for found in words(text, word)]
            for uri, text in all_files()
        }
        return {"changes": {uri: found for uri, found in edits.items() if found}}
    return None


print("a greeting that is no message", flush=True)
while True:
    length = 0
    while True:
        header = sys.stdin.buffer.readline()
        if not header:
            sys.exit()
        if header == b"\r\n":
            break
        if header.lower().startswith(b"content-length:"):
            length = int(header.split(b":")[1])
    message = json.loads(sys.stdin.buffer.read(length))
    method, params = message.get("method"), message.get("params")
    if method is None:
        answers[message["id"]] = message
    elif method == "initialize":
        root = params["rootUri"][len("file://") :]
        try:
            with open(os.path.join(root, "written-by-server"), "w") as file:
                file.write("x")
        except OSError:
            pass
        if mode == "slow":
            time.sleep(60)
        capabilities = {
            "textDocumentSync": {"openClose": True, "change": 1 if mode == "push" else 2, "save": True},
            "definitionProvider": True,
            "referencesProvider": True,
            "renameProvider": True,
        }
        if mode == "pull":
            capabilities["diagnosticProvider"] = {"interFileDependencies": False}
        send(id=message["id"], result={"capabilities": capabilities})
    elif method == "textDocument/didOpen":
        document = params["textDocument"]
        change(document["uri"], document["version"], document["text"], is_open=True)
    elif method == "textDocument/didChange":
        [only] = params["contentChanges"]
        uri = params["textDocument"]["uri"]
        if "range" in only:
            whole = place(texts[uri], len(texts[uri]))
            assert only["range"] == {"start": {"line": 0, "character": 0}, "end": whole}, only["range"]
        change(uri, params["textDocument"]["version"], only["text"])
    elif method == "exit":
        sys.exit()
    elif "id" in message:
        send(id=message["id"], result=answer(method, params))
