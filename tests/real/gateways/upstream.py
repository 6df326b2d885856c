"""The provider behind the gateways: plays the replies of a case, in chat completions and in the Responses
API, whichever the gateway asks for. A reply is a list of steps:

- {"text": "…"}, {"thought": "…"}, {"call": {"name": "…", "arguments": {…}}}
- {"if": "…", "text": "…", "else": "…"}: the first text if the request contains the word
- {"usage": {…}}: more fields of the token counts
- {"error": {…}}: an error within the stream, {"cut": true}: the connection breaks
- {"status": 429, "headers": {…}, "body": {…}}: an answer that is no stream
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "scripted"
WINDOW = 50_000
TOKENS = {"prompt_tokens": 9000, "completion_tokens": 20, "total_tokens": 9020}


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Says nothing about a gateway that closes its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Upstream:
    """The server and what it has been asked."""

    def __init__(self):
        self.replies, self.requests = [], []
        self.lock = threading.Lock()
        upstream = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                listed = {"id": MODEL, "object": "model", "created": 1, "owned_by": "test", "max_model_len": WINDOW}
                whole(self, 200, {}, {"object": "list", "data": [listed]})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                steps = upstream.next_reply(body)
                if "status" in steps[0]:
                    step = steps[0]
                    return whole(self, step["status"], step.get("headers", {}), step["body"])
                dialect = Responses() if "/responses" in self.path else Chat()
                play(self, dialect, steps, body, json.loads(body).get("stream", False))

        self.server = QuietServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def begin(self, replies):
        with self.lock:
            self.replies, self.requests = list(replies), []

    def next_reply(self, body):
        """The last reply answers all further requests."""
        with self.lock:
            self.requests.append((time.monotonic(), body))
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


def whole(handler, status, headers, body):
    data = json.dumps(body).encode()
    handler.send_response(status)
    for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def play(handler, dialect, steps, body, is_stream):
    events, cut = [], False
    for step in steps:
        if "if" in step:
            step = {"text": step["text"] if step["if"] in body else step["else"]}
        if "usage" in step:
            dialect.usage.update(step["usage"])
        elif "cut" in step:
            cut = True
        else:
            events += dialect.events(step)
    has_failed = any("error" in step for step in steps)
    if not is_stream and not cut and not has_failed:
        return whole(handler, 200, {}, dialect.document())
    if not cut and not has_failed:
        events += dialect.end()
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    for event in events:
        name = f"event: {event['type']}\n" if "type" in event else ""
        send(handler, f"{name}data: {json.dumps(event)}\n\n")
    if cut:
        time.sleep(0.3)
        handler.close_connection = True
        return handler.connection.shutdown(2)
    if isinstance(dialect, Chat):
        send(handler, "data: [DONE]\n\n")
    handler.wfile.write(b"0\r\n\r\n")


def send(handler, text):
    data = text.encode()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
    handler.wfile.flush()


class Chat:
    """Chat completions."""

    def __init__(self):
        self.usage = dict(TOKENS)
        self.message, self.calls = {"role": "assistant", "content": ""}, []

    def chunk(self, delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self.head("chat.completion.chunk") | {"choices": [choice]}

    def head(self, kind):
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": MODEL}

    def events(self, step):
        if "error" in step:
            return [{"error": step["error"]}]
        if "call" in step:
            call = step["call"]
            function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            index = len(self.calls)
            self.calls.append({"id": f"call_{index}", "type": "function", "function": function})
            return [self.chunk({"role": "assistant", "tool_calls": [{"index": index, **self.calls[-1]}]})]
        field = "content" if "text" in step else "reasoning_content"
        text = step.get("text", step.get("thought"))
        self.message[field] = self.message.get(field, "") + text
        return [self.chunk({"role": "assistant", field: part}) for part in halves(text)]

    def end(self):
        usage = self.head("chat.completion.chunk") | {"choices": [], "usage": self.usage}
        return [self.chunk({}, "tool_calls" if self.calls else "stop"), usage]

    def document(self):
        message = self.message | ({"tool_calls": self.calls} if self.calls else {})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if self.calls else "stop"}
        return self.head("chat.completion") | {"choices": [choice], "usage": self.usage}


class Responses:
    """The Responses API."""

    def __init__(self):
        self.usage = {"input_tokens": 9000, "output_tokens": 20, "total_tokens": 9020,
                      "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        self.output = []

    def response(self, status):
        return {"id": "resp_1", "object": "response", "created_at": 1, "model": MODEL, "status": status,
                "output": self.output, "error": None, "incomplete_details": None, "instructions": None,
                "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [],
                "top_p": 1.0, "usage": self.usage if status == "completed" else None}

    def events(self, step):
        first = [] if self.output else [{"type": "response.created", "response": self.response("in_progress")}]
        at = len(self.output)
        if "error" in step:
            return first + [{"type": "error", **step["error"]}]
        if "call" in step:
            call = step["call"]
            arguments = json.dumps(call["arguments"])
            item = {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": call["name"],
                    "arguments": arguments, "status": "completed"}
            deltas = [{"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": at,
                       "delta": arguments},
                      {"type": "response.function_call_arguments.done", "item_id": item["id"], "output_index": at,
                       "arguments": arguments}]
            empty = item | {"arguments": "", "status": "in_progress"}
        elif "thought" in step:
            part = {"type": "summary_text", "text": step["thought"]}
            item = {"type": "reasoning", "id": f"rs_{at}", "summary": [part]}
            deltas = [{"type": "response.reasoning_summary_text.delta", "item_id": item["id"], "output_index": at,
                       "summary_index": 0, "delta": half} for half in halves(step["thought"])]
            empty = item | {"summary": []}
        else:
            part = {"type": "output_text", "text": step["text"], "annotations": []}
            item = {"type": "message", "id": f"msg_{at}", "role": "assistant", "status": "completed",
                    "content": [part]}
            place = {"item_id": item["id"], "output_index": at, "content_index": 0}
            deltas = [{"type": "response.content_part.added", **place, "part": part | {"text": ""}}]
            deltas += [{"type": "response.output_text.delta", **place, "delta": half} for half in halves(step["text"])]
            deltas += [{"type": "response.output_text.done", **place, "text": step["text"]}]
            empty = item | {"content": [], "status": "in_progress"}
        self.output.append(item)
        added = {"type": "response.output_item.added", "output_index": at, "item": empty}
        done = {"type": "response.output_item.done", "output_index": at, "item": item}
        return [*first, added, *deltas, done]

    def end(self):
        return [{"type": "response.completed", "response": self.response("completed")}]

    def document(self):
        return self.response("completed")


def halves(text):
    middle = len(text) // 2
    return [part for part in (text[:middle], text[middle:]) if part]
