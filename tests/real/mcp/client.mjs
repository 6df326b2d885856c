// Drives `turnwright mcp-server` with the official TypeScript SDK (`@modelcontextprotocol/sdk`).
//
//     node client.mjs TURNWRIGHT FOLDER
//
// FOLDER is empty or new: the server's own files and a project are made in it. The SDK is looked for
// where Node looks from the current folder. Ends with 0 if all was as it should be.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const from = createRequire(join(process.cwd(), "index.js"));
const sdk = (path) => import(pathToFileURL(from.resolve(`@modelcontextprotocol/sdk/${path}`)));
const { Client } = await sdk("client/index.js");
const { StdioClientTransport } = await sdk("client/stdio.js");
const { ElicitRequestSchema } = await sdk("types.js");

const [command, where] = process.argv.slice(2);
const folder = resolve(where);
const project = join(folder, "project");
mkdirSync(project, { recursive: true });
writeFileSync(join(project, "note.txt"), "The word is PELICAN.\n");
const about = { name: "turnwright-test", version: "1.0.0" };

function check(holds, what) {
  if (holds) return;
  console.error(`client.mjs: ${what}`);
  process.exit(1);
}
setTimeout(() => check(false, "the time is up"), 120_000).unref();

function transport() {
  return new StdioClientTransport({
    command,
    args: ["mcp-server", "--root", project],
    env: { PATH: process.env.PATH, TURNWRIGHT_HOME: join(folder, "home") },
    cwd: project,
    stderr: "inherit",
  });
}

const text = (result) => result.content[0].text;
const call = (client, name, args, options) =>
  client.callTool({ name, arguments: args }, undefined, options);

async function withoutUser() {
  const client = new Client(about);
  await client.connect(transport());
  const names = [];
  let cursor;
  do {
    const page = await client.listTools({ cursor });
    names.push(...page.tools.map((it) => it.name));
    cursor = page.nextCursor;
  } while (cursor);
  check(names.includes("read_file") && names.includes("exec"), `tools: ${names}`);
  const read = await call(client, "read_file", { path: "note.txt" });
  check(!read.isError && text(read).includes("PELICAN"), `read_file: ${text(read)}`);
  const refused = await call(client, "write_file", { path: "no.txt", content: "x" });
  check(refused.isError && text(refused).includes("--mode"), `a refusal: ${text(refused)}`);
  check(!existsSync(join(project, "no.txt")), "a refused file is there");
  const unknown = await call(client, "no_such_tool", {}).catch((it) => it);
  check(unknown.code === -32602, `an unknown tool: ${unknown}`);
  await client.close();
}

async function withUser() {
  const client = new Client(about, { capabilities: { elicitation: {} } });
  const questions = [];
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    questions.push(params.message);
    if (questions.length === 1) return { action: "decline" };
    return { action: "accept", content: { decision: "Allow once" } };
  });
  const transported = transport();
  await client.connect(transported);
  const write = { path: "ts.txt", content: "asked\n" };
  const declined = await call(client, "write_file", write);
  check(declined.isError && !existsSync(join(project, "ts.txt")), `declined: ${text(declined)}`);
  const accepted = await call(client, "write_file", write);
  check(!accepted.isError, `accepted: ${text(accepted)}`);
  check(readFileSync(join(project, "ts.txt"), "utf8") === "asked\n", "the file is another");
  const news = [];
  const line = { command: "echo PELICAN; sleep 2; echo end" };
  const onprogress = (it) => news.push(it.message);
  const run = await call(client, "exec", line, { onprogress });
  check(text(run).includes("end"), `exec: ${text(run)}`);
  check(news.some((it) => it.includes("PELICAN")), `progress: ${news}`);
  const stop = new AbortController();
  const sleep = { command: "sleep 100" };
  const waiting = call(client, "exec", sleep, { signal: stop.signal }).catch((it) => it);
  setTimeout(() => stop.abort("enough"), 500);
  check((await waiting) instanceof Error, "an aborted call has a result");
  await client.ping();
  const { pid } = transported;
  await client.close();
  check(!existsSync(`/proc/${pid}`), "the server is still there");
}

await withoutUser();
await withUser();
console.log("client.mjs: all as it should be");
process.exit(0);
