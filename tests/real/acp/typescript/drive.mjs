// Drives the agent with the official TypeScript SDK of ACP (`@agentclientprotocol/sdk`).
//
//     node drive.mjs PACKAGES ENTRY PROJECT COMMAND...         starts the agent
//     node drive.mjs PACKAGES ENTRY PROJECT connect URL LINES  connects to `turnwright serve`
//
// PACKAGES is the folder with the node_modules that hold the SDK, ENTRY is the SDK's entry point: stable,
// unstable, v2 or v2-unstable. PROJECT is an empty folder. The model has to play scenario.json. What is sent
// to URL, over HTTP or WebSocket, and from there, is kept in the folder LINES. Ends with 0 if all was as it
// should be.

import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { converse } from "./conversation.mjs";
import { ClientV1 } from "./v1.mjs";
import { ClientV2 } from "./v2.mjs";

const ENTRIES = {
  stable: "@agentclientprotocol/sdk",
  unstable: "@agentclientprotocol/sdk/unstable",
  v2: "@agentclientprotocol/sdk/experimental/v2",
  "v2-unstable": "@agentclientprotocol/sdk/experimental/v2/unstable",
};
const LIMIT_MS = 60_000;

const [packages, entry, project, ...target] = process.argv.slice(2);
const resolver = createRequire(join(packages, "index.js"));
const load = (name) => import(pathToFileURL(resolver.resolve(name)));

// The SDK reports messages that it cannot use on the console.
const complaints = [];
console.error = console.warn = (...words) => complaints.push(words.map(String).join(" "));

function fail(problem) {
  process.stderr.write(`drive.mjs: ${entry}: ${[problem?.stack ?? problem, ...complaints].join("\n")}\n`);
  // The last line is the reason that tests/real/run prints.
  process.stderr.write(`${entry}: ${problem?.message ?? problem} ${JSON.stringify(problem?.data ?? "")}\n`);
  process.exit(1);
}
setTimeout(() => fail(`the time is up in: ${client?.step}`), LIMIT_MS).unref();

async function connect(acp) {
  const [first, url, lines] = target;
  if (first === "connect") return [kept(await network(url), lines)];
  const agent = spawn(first, target.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve(code ?? signal)));
  const end = () => {
    agent.stdin.end();
    return ended;
  };
  return [acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), end];
}

async function network(url) {
  const headers = { authorization: `Bearer ${process.env.TURNWRIGHT_SERVE_TOKEN}` };
  if (url.startsWith("http:")) {
    const { createHttpStream } = await load("@agentclientprotocol/sdk/experimental/http-client");
    return createHttpStream(url, { headers });
  }
  const { createWebSocketStream } = await load("@agentclientprotocol/sdk/experimental/ws-client");
  const { default: WebSocket } = await load("ws");
  return createWebSocketStream(url, { headers, WebSocket });
}

/** A stream whose messages are also written into two files of this folder. */
function kept({ writable, readable }, folder) {
  mkdirSync(folder, { recursive: true });
  const keeper = (name) =>
    new TransformStream({
      transform(message, controller) {
        appendFileSync(join(folder, name), `${JSON.stringify(message)}\n`);
        controller.enqueue(message);
      },
    });
  const outgoing = keeper("to-agent");
  outgoing.readable.pipeTo(writable).catch(() => {});
  return { writable: outgoing.writable, readable: readable.pipeThrough(keeper("from-agent")) };
}

let client;
try {
  const acp = await load(ENTRIES[entry]);
  const [stream, end] = await connect(acp);
  client = entry.startsWith("v2") ? new ClientV2(acp, project) : new ClientV1(acp, project);
  client.isRemote = target[0] === "connect";
  client.isHttp = client.isRemote && target[1].startsWith("http:");
  await client.app.connectWith(stream, async (agent) => {
    client.agent = agent;
    await converse(client, entry.endsWith("unstable"));
  });
  const status = await end?.();
  if (status) fail(`the agent ended with ${status}`);
  if (complaints.length > 0) fail("the SDK has complained");
  console.log(`drive.mjs: ${entry}: all as it should be`);
  process.exit(0);
} catch (error) {
  fail(error);
}
