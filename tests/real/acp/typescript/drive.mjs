// Drives the agent with the official TypeScript SDK of ACP (`@agentclientprotocol/sdk`).
//
//     node drive.mjs ENTRY PROJECT COMMAND...     starts the agent
//     node drive.mjs ENTRY PROJECT http|ws URL    connects to `turnwright serve`
//
// ENTRY is the SDK's entry point: stable, unstable, v2 or v2-unstable. PROJECT is an empty folder. The SDK is
// looked for where Node looks from the current folder. The model has to play scenario.json. Ends with 0 if
// all was as it should be.

import { spawn } from "node:child_process";
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

const [entry, project, ...target] = process.argv.slice(2);
const resolver = createRequire(join(process.cwd(), "index.js"));
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
  const [first, url] = target;
  const headers = { authorization: `Bearer ${process.env.TURNWRIGHT_SERVE_TOKEN}` };
  if (first === "http") {
    const { createHttpStream } = await load("@agentclientprotocol/sdk/experimental/http-client");
    return [createHttpStream(url, { headers })];
  }
  if (first === "ws") {
    const { createWebSocketStream } = await load("@agentclientprotocol/sdk/experimental/ws-client");
    const { WebSocket } = await load("ws");
    return [createWebSocketStream(url, { headers, WebSocket })];
  }
  const agent = spawn(first, target.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve(code ?? signal)));
  const end = () => {
    agent.stdin.end();
    return ended;
  };
  return [acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), end];
}

let client;
try {
  const acp = await load(ENTRIES[entry]);
  const [stream, end] = await connect(acp);
  client = entry.startsWith("v2") ? new ClientV2(acp, project) : new ClientV1(acp, project);
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
