// Drives the agent as an editor does, with MCP servers that nobody here wrote, and plays the model.
//
//     node drive.mjs AGENT everything|everything-http|filesystem FOLDER MODULES
//     node drive.mjs AGENT rmcp-stdio|rmcp-modern|rmcp-http FOLDER SERVER
//
// FOLDER is the agent's home and the project; MODULES holds the servers, and SERVER is the program that
// tests/real/mcp/rust makes. Ends with 0 if all that was called has answered as it should and no process of a
// server is left.

import { spawn, execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";

const [agentPath, which, folder, modules] = process.argv.slice(2);
const isRmcp = which.startsWith("rmcp-");
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
// The plan of the running turn, and its requests to the model.
let plan = [];
let requests = [];
let lastCall = 0;

// The model: each request gets the next call.
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
      say({ delta: { tool_calls: [{ index: 0, id: `c${++lastCall}`, type: "function", function: call }] } });
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
  if (which === "rmcp-http") {
    const child = spawn(modules, ["http"], { stdio: ["ignore", "pipe", "inherit"] });
    process.on("exit", () => child.kill());
    const lines = createInterface({ input: child.stdout });
    const url = await new Promise((told) => lines.once("line", told));
    return { type: "http", name: "real", url, headers: [] };
  }
  if (isRmcp) {
    return { name: "real", command: modules, args: [which.slice("rmcp-".length)], env: [] };
  }
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
// All updates as text, what the agent has said, and the questions of servers.
let shown = "";
let said = "";
const questions = [];
// The turn is cancelled when an update looks like this.
let cancelAt = null;
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
  } else if (message.method === "elicitation/create") {
    questions.push(message.params.message);
    send({ id: message.id, result: { action: "accept", content: { name: "PELICAN" } } });
  } else if (message.method === "session/update") {
    const { sessionId, update } = message.params;
    const text = JSON.stringify(update);
    shown += `${text}\n`;
    if (update.sessionUpdate === "agent_message_chunk") said += update.content.text;
    if (cancelAt?.test(text)) {
      cancelAt = null;
      send({ method: "session/cancel", params: { sessionId } });
    }
    if (update.toolCallId) cards.set(update.toolCallId, { ...cards.get(update.toolCallId), ...update });
  } else if (waiting.has(message.id)) {
    waiting.get(message.id)(message);
    waiting.delete(message.id);
  }
});

const clientCapabilities = isRmcp ? { elicitation: { form: {} } } : {};
await call("initialize", { protocolVersion: 1, clientCapabilities });
const opened = await call("session/new", { cwd: project, mcpServers: [await reach()] });
if (!opened.result) fail(JSON.stringify(opened));
const { sessionId } = opened.result;

// Runs a turn in which the model makes these calls. Those without an expected result are not looked at.
let callCount = 0;
async function turn(text, calls, expectedStop = "end_turn") {
  plan = calls;
  requests = [];
  const answer = await call("session/prompt", { sessionId, prompt: [{ type: "text", text }] });
  if (answer.result?.stopReason !== expectedStop) fail(JSON.stringify(answer));
  for (const [place, [name, , expected]] of calls.entries()) {
    if (!expected) continue;
    const results = requests[place + 1].messages.filter((it) => it.role === "tool");
    const { content } = results.at(-1);
    const text = typeof content === "string" ? content : JSON.stringify(content);
    if (!expected.test(text)) fail(`${name} answered ${text.slice(0, 500)}`);
    console.log(`${name}: ${text.slice(0, 100).replaceAll("\n", " ")}`);
  }
  callCount += calls.length;
}

function expect(what, text, expected) {
  if (!expected.test(text)) fail(`${what}: ${expected} is not in ${text.slice(-2000)}`);
}

async function rmcpTurns() {
  await turn("go", [
    ["weather", { city: "Rome" }, /Rome[^]*degrees\W+21/],
    ["walk", { steps: 5 }, /walked 5 steps/],
    ["greet", {}, /Hello, PELICAN!/],
    ["add", { a: 2, b: 3 }, which === "rmcp-modern" ? /5 as a task/ : /5 at once/],
    ["read_resource", {}, /memo:\/\/today[^]*memo:\/\/\{day\}/],
    ["read_resource", { uri: "memo://monday" }, /Nothing on monday/],
    ["read_resource", { uri: "memo://today" }, /Buy milk/],
    ["write_memo", { text: "Buy bread." }, /written/],
    // Gives the server time to tell of the change.
    ["walk", { steps: 3 }, /walked 3 steps/],
    ["read_resource", { uri: "memo://today" }, /Buy bread/],
  ]);
  expect("the progress", shown, /real: Step \d \(\d of 5\)/);
  expect("the question", questions.join("\n"), /^The MCP server real asks: Who are you\?$/);
  const last = JSON.stringify(requests.at(-1).messages);
  expect("the change", last, /memo:\/\/today of the MCP server real has changed/);

  await turn("/real:hello", []);
  if (requests.length > 0) fail("a prompt without its argument was sent to the model");
  expect("the suggestions", said, /Missing arguments: who[^]*“Ada”, “Grace”/);
  await turn("/real:hello Ada", []);
  expect("the prompt", JSON.stringify(requests[0].messages), /Please say hello to Ada\./);

  cancelAt = / of 600\)/;
  await turn("go on", [["walk", { steps: 600 }]], "cancelled");
  await turn("count", [
    ["walk", { steps: 2 }, /walked 2 steps/],
    ["ended_early", {}, /^1 ended early/],
  ]);
}

if (isRmcp) {
  await rmcpTurns();
} else {
  await turn("go", which === "filesystem" ? FILESYSTEM : EVERYTHING);
}
const open = [...cards.values()].filter((it) => !["completed", "failed"].includes(it.status));
if (open.length > 0) fail(`open cards: ${JSON.stringify(open)}`);

await call("session/close", { sessionId });
if (!which.endsWith("-http")) {
  const children = execFileSync("ps", ["-eo", "ppid=,args="], { encoding: "utf8" });
  const left = children.split("\n").filter((it) => it.includes(folder) && it.includes(modules) && !it.includes("drive.mjs"));
  if (left.length > 0) fail(`left behind: ${left}`);
}
agent.stdin.end();
const code = await new Promise((ended) => agent.on("exit", ended));
if (code !== 0) fail(`the agent ended with ${code}`);
console.log(`drive: ${callCount} calls of ${which}`);
process.exit(0);
