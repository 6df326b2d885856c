// Drives the agent as an editor does, with MCP servers that nobody here wrote, and plays the model.
//
//     node drive.mjs AGENT everything|everything-http|filesystem FOLDER MODULES
//
// FOLDER is the agent's home and the project; MODULES holds the servers. Ends with 0 if all that was
// called has answered as it should and no process of a server is left.

import { spawn, execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [agentPath, which, folder, modules] = process.argv.slice(2);
const LIMIT_MS = 30_000;
const project = join(folder, "project");
mkdirSync(project, { recursive: true });
writeFileSync(join(project, "note.txt"), "The word is PELICAN.\n");

const server = (name) => join(modules, "@modelcontextprotocol", name, "dist", "index.js");

function fail(why) {
  console.error(`drive: ${why}`);
  process.exit(1);
}
setTimeout(() => fail("the time is up"), 120_000).unref();

// What the model calls, one call an answer, and what its result must hold.
const EVERYTHING = [
  ["echo", { message: "PELICAN" }, /PELICAN/],
  ["get-sum", { a: 2, b: 3 }, /\b5\b/],
  ["get-tiny-image", {}, /image/i],
  ["get-annotated-message", { messageType: "error", includeImage: false }, /error/i],
  ["get-structured-content", { location: "New York" }, /temperature/],
  ["get-resource-links", { count: 2 }, /:\/\//],
  ["get-resource-reference", { resourceType: "Text", resourceId: 1 }, /:\/\//],
  ["trigger-long-running-operation", { duration: 1, steps: 3 }, /completed/i],
  ["get-sum", { a: "two", b: 3 }, /./],
];
const FILESYSTEM = [
  ["list_allowed_directories", {}, /project/],
  ["read_text_file", { path: join(project, "note.txt") }, /PELICAN/],
  ["write_file", { path: join(project, "new.txt"), content: "from a server\n" }, /./],
  ["list_directory", { path: project }, /new\.txt/],
  ["read_text_file", { path: "/etc/hostname" }, /denied|outside/i],
];
const plan = which === "filesystem" ? FILESYSTEM : EVERYTHING;

// The model: each request gets the next call.
const requests = [];
const model = createServer((request, response) => {
  let body = "";
  request.on("data", (piece) => (body += piece));
  request.on("end", () => {
    if (request.method !== "POST") return response.writeHead(404).end();
    const asked = JSON.parse(body);
    requests.push(asked);
    const next = plan[requests.length - 1];
    response.writeHead(200, { "content-type": "text/event-stream" });
    const say = (choice) => response.write(`data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`);
    if (next) {
      const wanted = next[0];
      const tool = asked.tools.find((it) => it.function.name === `mcp__real__${wanted}`);
      if (!tool) return fail(`${wanted} is not offered: ${asked.tools.map((it) => it.function.name)}`);
      const call = { name: tool.function.name, arguments: JSON.stringify(next[1]) };
      say({ delta: { tool_calls: [{ index: 0, id: `c${requests.length}`, type: "function", function: call }] } });
      say({ delta: {}, finish_reason: "tool_calls" });
    } else {
      say({ delta: { content: "All done." } });
      say({ delta: {}, finish_reason: "stop" });
    }
    response.end("data: [DONE]\n\n");
  });
});
await new Promise((ready) => model.listen(0, "127.0.0.1", ready));

async function reach() {
  if (which === "filesystem") {
    return { name: "real", command: process.execPath, args: [server("server-filesystem"), project], env: [] };
  }
  if (which === "everything") {
    return { name: "real", command: process.execPath, args: [server("server-everything"), "stdio"], env: [] };
  }
  // The server takes no port from the system, so it gets one that was free just now.
  const probe = createServer();
  await new Promise((ready) => probe.listen(0, "127.0.0.1", ready));
  const { port } = probe.address();
  await new Promise((closed) => probe.close(closed));
  const child = spawn(process.execPath, [server("server-everything"), "streamableHttp"], {
    env: { ...process.env, PORT: String(port) },
    stdio: ["ignore", "inherit", "inherit"],
  });
  process.on("exit", () => child.kill());
  const url = `http://127.0.0.1:${port}/mcp`;
  for (let tries = 0; ; tries++) {
    try {
      await fetch(url);
      return { type: "http", name: "real", url, headers: [] };
    } catch {
      if (tries > 100) fail("the server does not listen");
      await new Promise((later) => setTimeout(later, 100));
    }
  }
}

// The editor.
const agent = spawn(agentPath, [], {
  env: {
    PATH: process.env.PATH,
    HOME: folder,
    TURNWRIGHT_HOME: join(folder, "home"),
    OPENAI_BASE_URL: `http://127.0.0.1:${model.address().port}/v1`,
    OPENAI_API_KEY: "sk-test-0123456789",
    TURNWRIGHT_MODEL: "scripted",
    NO_PROXY: "127.0.0.1",
  },
  stdio: ["pipe", "pipe", "inherit"],
});
const waiting = new Map();
const cards = new Map();
let lastId = 0;
const send = (message) => agent.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const call = (method, params) =>
  new Promise((answered) => {
    const id = ++lastId;
    waiting.set(id, answered);
    setTimeout(() => fail(`${method} was not answered`), LIMIT_MS).unref();
    send({ id, method, params });
  });
createInterface({ input: agent.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === "session/request_permission") {
    const { options } = message.params;
    const optionId = options.find((it) => it.kind === "allow_once").optionId;
    send({ id: message.id, result: { outcome: { outcome: "selected", optionId } } });
  } else if (message.method === "session/update") {
    const { update } = message.params;
    if (update.toolCallId) cards.set(update.toolCallId, { ...cards.get(update.toolCallId), ...update });
  } else if (waiting.has(message.id)) {
    waiting.get(message.id)(message);
    waiting.delete(message.id);
  }
});

await call("initialize", { protocolVersion: 1, clientCapabilities: {} });
const opened = await call("session/new", { cwd: project, mcpServers: [await reach()] });
if (!opened.result) fail(JSON.stringify(opened));
const { sessionId } = opened.result;
const answer = await call("session/prompt", { sessionId, prompt: [{ type: "text", text: "go" }] });
if (answer.result?.stopReason !== "end_turn") fail(JSON.stringify(answer));

for (const [place, [name, , expected]] of plan.entries()) {
  const results = requests[place + 1].messages.filter((it) => it.role === "tool");
  const { content } = results.at(-1);
  const text = typeof content === "string" ? content : JSON.stringify(content);
  if (!expected.test(text)) fail(`${name} answered ${text.slice(0, 500)}`);
  console.log(`${name}: ${text.slice(0, 100).replaceAll("\n", " ")}`);
}
const open = [...cards.values()].filter((it) => !["completed", "failed"].includes(it.status));
if (open.length > 0) fail(`open cards: ${JSON.stringify(open)}`);

await call("session/close", { sessionId });
if (which !== "everything-http") {
  const children = execFileSync("ps", ["-eo", "ppid=,args="], { encoding: "utf8" });
  const left = children.split("\n").filter((it) => it.includes(folder) && it.includes(modules) && !it.includes("drive.mjs"));
  if (left.length > 0) fail(`left behind: ${left}`);
}
agent.stdin.end();
const code = await new Promise((ended) => agent.on("exit", ended));
if (code !== 0) fail(`the agent ended with ${code}`);
console.log(`drive: ${plan.length} calls of ${which}`);
process.exit(0);
