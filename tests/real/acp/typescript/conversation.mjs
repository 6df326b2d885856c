// The conversation that is held with every entry point of the SDK. The model plays scenario.json.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { check, refused, shown } from "./client.mjs";

export async function converse(client, isUnstable) {
  const capabilities = await step(client, "initialize", () => client.initialize(isUnstable));
  await step(client, "authenticate", () => client.logIn());
  const sessionId = await step(client, "session/new", () => client.open());
  await step(client, "streamed text", () => hello(client, sessionId));
  await step(client, "other content", () => content(client, sessionId));
  await step(client, "a call that is allowed", () => allowed(client, sessionId));
  await step(client, "a call that is rejected", () => rejected(client, sessionId));
  await step(client, "a file is read", () => read(client, sessionId));
  await step(client, "a command", () => command(client, sessionId));
  await step(client, "a plan", () => plan(client, sessionId));
  await step(client, "a form", () => form(client, sessionId));
  await step(client, "a helper", () => helper(client, sessionId, isUnstable));
  await step(client, "/compact", () => compact(client, sessionId));
  await step(client, "mode and options", () => options(client, sessionId));
  await step(client, "session/cancel", () => cancel(client, sessionId));
  await step(client, "a question that is withdrawn", () => withdraw(client, sessionId));
  await step(client, "$/cancel_request", () => cancelRequest(client, sessionId));
  await step(client, "a prompt that waits", () => queue(client, sessionId));
  await step(client, "a second session", () => second(client, sessionId));
  await step(client, "errors", () => errors(client, sessionId));
  await step(client, "a failing model", () => failure(client, sessionId));
  await step(client, "list, load and resume", () => again(client, sessionId));
  if (isUnstable) {
    await step(client, "the unstable methods", () => unstable(client, sessionId, capabilities));
    if (capabilities.takesServers) await step(client, "MCP over ACP", () => lentServer(client));
    else console.log("SKIPPED: MCP over ACP, which the agent does not advertise");
  }
  await step(client, "delete", () => remove(client, sessionId));
}

async function step(client, name, run) {
  client.step = name;
  try {
    return await run();
  } catch (error) {
    error.message = `${name}: ${error.message}`;
    throw error;
  } finally {
    console.log(name);
  }
}

/** Sends a request about a session. */
const call = (client, name, params) => client.agent.request(client.methods.agent.session[name], params);
const inProject = (client, name) => join(client.project, name);

/** A turn that ends by itself. */
async function turn(client, sessionId, text, options) {
  const ended = await client.turn(sessionId, text, options);
  check(ended.stop === "end_turn", `the turn ended with ${ended.stop} ${JSON.stringify(ended.error)}`);
  return ended;
}

async function hello(client, sessionId) {
  const { text, chunks, thoughts } = await turn(client, sessionId, "Say hello.");
  check(text === "Hello from the model.", text);
  check(chunks.length > 1, "the text was not streamed");
  check(thoughts.includes("A greeting."), `the thought is missing: ${thoughts}`);
}

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async function content(client, sessionId) {
  const uri = `file://${client.project}/note.txt`;
  const { text } = await turn(client, sessionId, [
    { type: "text", text: "Say hello." },
    { type: "resource_link", uri, name: "note.txt" },
    { type: "resource", resource: { uri, text: "The word is PELICAN.\n" } },
    { type: "image", mimeType: "image/png", data: PIXEL },
  ]);
  check(text === "Hello from the model.", text);
}

async function allowed(client, sessionId) {
  client.choice = "allow_once";
  const { text, cards } = await turn(client, sessionId, "Write allowed.txt");
  check(text === "It is written.", text);
  check(client.questions.length === 1, `${client.questions.length} questions`);
  check(readFileSync(inProject(client, "allowed.txt"), "utf8") === "one\ntwo\n", "it is another text");
  const [card] = cards;
  check(card.status === "completed", card.status);
  check(card.content.some((it) => it.type === "diff"), `no diff: ${JSON.stringify(card)}`);
}

async function rejected(client, sessionId) {
  client.choice = "reject_once";
  const { text, cards } = await turn(client, sessionId, "Write rejected.txt");
  check(text === "It is not written.", text);
  check(client.questions.length === 2, `${client.questions.length} questions`);
  check(!existsSync(inProject(client, "rejected.txt")), "it was written");
  check(cards[0].status === "failed", cards[0].status);
}

async function read(client, sessionId) {
  const { cards } = await turn(client, sessionId, "Read the buffer");
  check(cards[0].status === "completed", cards[0].status);
  check(client.version === 2 || client.lent.includes("fs/read_text_file"), "it was not read through the client");
}

async function command(client, sessionId) {
  client.choice = "allow_once";
  const { text, cards, kinds } = await turn(client, sessionId, "Run a command");
  check(text === "It has run.", text);
  check(existsSync(inProject(client, "made")), "it has not run");
  check(cards[0].status === "completed", cards[0].status);
  // `turnwright serve` shows the output as text, because another client may take over.
  if (client.isRemote) return;
  check(cards[0].content.some((it) => it.type === "terminal"), `no terminal: ${JSON.stringify(cards[0])}`);
  const isShown = client.version === 1 ? client.lent.includes("terminal/create") : kinds.has("terminal_update");
  check(isShown, "nothing was shown in the terminal");
}

async function plan(client, sessionId) {
  const { kinds } = await turn(client, sessionId, "Make a plan");
  check(kinds.has("plan") || kinds.has("plan_update"), `no plan: ${[...kinds]}`);
}

async function form(client, sessionId) {
  const { text } = await turn(client, sessionId, "Ask me");
  check(text === "You have answered.", text);
  check(client.forms.length === 1, `${client.forms.length} forms`);
}

async function helper(client, sessionId, isUnstable) {
  const start = client.notifications.length;
  const { text, cards } = await turn(client, sessionId, "Ask a helper");
  check(text === "It has greeted.", text);
  check(cards[0].status === "completed", JSON.stringify(cards[0]));
  // Over HTTP the helper's session has a stream of its own, which the SDK opens only for requests.
  if (client.version === 2 || !isUnstable || client.isHttp) return;
  const other = client.notifications.slice(start).filter((it) => it.sessionId !== sessionId);
  check(shown(other.map((it) => it.update)).text === "Hello from the model.", "nothing of the helper was shown");
}

async function compact(client, sessionId) {
  const { kinds } = await turn(client, sessionId, "/compact");
  check(kinds.has("compaction_update"), `no compaction: ${[...kinds]}`);
}

async function options(client, sessionId) {
  await client.setMode(sessionId, "auto-edit");
  const { configOptions } = await client.setOption(sessionId, "mode", "ask");
  const mode = configOptions.find((option) => (option.id ?? option.configId) === "mode");
  check(mode.currentValue === "ask", `mode ${mode.currentValue}`);
  await refused(client.setMode(sessionId, "nonsense"), -32602);
  await refused(client.setOption(sessionId, "nonsense", "ask"), -32602);
}

async function cancel(client, sessionId) {
  const cancelled = await client.turn(sessionId, "Take long", {
    onText: () => client.agent.notify(client.methods.agent.session.cancel, { sessionId }),
  });
  check(cancelled.stop === "cancelled", `the turn ended with ${cancelled.stop}`);
}

async function withdraw(client, sessionId) {
  const count = client.questions.length;
  client.choice = "wait";
  client.onQuestion = () => client.agent.notify(client.methods.agent.session.cancel, { sessionId });
  const cancelled = await client.turn(sessionId, "Wait for me");
  check(cancelled.stop === "cancelled", `the turn ended with ${cancelled.stop}`);
  check(client.questions.length === count + 1 && client.withdrawn === 1, "the question was not withdrawn");
  check(!existsSync(inProject(client, "never.txt")), "it was written");
  client.choice = "allow_once";
}

/** Version 2 answers a prompt at once, so that there is nothing left that could be cancelled. */
async function cancelRequest(client, sessionId) {
  if (client.version === 2) return;
  const aborter = new AbortController();
  const options = { signal: aborter.signal, onText: () => aborter.abort() };
  const cancelled = await client.turn(sessionId, "Take long", options);
  check(cancelled.stop === "cancelled", `the turn ended with ${cancelled.stop}`);
}

/** A prompt that waits for the end of a turn is withdrawn, and the turn cancelled. */
async function queue(client, sessionId) {
  const aborter = new AbortController();
  let waiting;
  const cancelled = await client.turn(sessionId, "Take long", {
    onText: async () => {
      const prompt = [{ type: "text", text: "Say hello." }];
      const options = { cancellationSignal: aborter.signal };
      waiting = client.agent.request(client.methods.agent.session.prompt, { sessionId, prompt }, options);
      waiting = waiting.catch((error) => error);
      aborter.abort();
      await waiting;
      await client.agent.notify(client.methods.agent.session.cancel, { sessionId });
    },
  });
  check(cancelled.stop === "cancelled", `the turn ended with ${cancelled.stop}`);
  const { stopReason, code } = await waiting;
  check(client.version === 1 ? stopReason === "cancelled" : code === -32800, `${stopReason} ${code}`);
}

/** Two sessions work at the same time, and one is closed in the middle of a turn. */
async function second(client, sessionId) {
  const { sessionId: other } = await call(client, "new", { cwd: client.project, mcpServers: [] });
  const [own, foreign] = await Promise.all([
    turn(client, sessionId, "Say hello."),
    turn(client, other, "Say hello."),
  ]);
  check(own.text === foreign.text, `${own.text} ${foreign.text}`);
  const start = client.notifications.length;
  const running = client.turn(other, "Take long");
  await client.until(other, start, (updates) => shown(updates).text);
  await call(client, "close", { sessionId: other });
  const { stop } = await running;
  check(stop === "cancelled", `the turn ended with ${stop}`);
  await call(client, "delete", { sessionId: other });
}

async function errors(client, sessionId) {
  const prompt = [{ type: "text", text: "Say hello." }];
  await refused(call(client, "prompt", { sessionId: "nobody", prompt }), -32002);
  await refused(call(client, "prompt", { sessionId, prompt: [] }), -32602);
  await refused(call(client, "new", { cwd: "relative", mcpServers: [] }), -32602);
  await refused(call(client, "list", { cursor: "nonsense" }), -32602);
  await refused(client.agent.request("_nobody/knows", {}), -32601);
}

async function failure(client, sessionId) {
  const failed = await client.turn(sessionId, "Fail").catch((error) => ({ error }));
  check(client.version === 1 || failed.stop === "error", `the turn ended with ${failed.stop}`);
  const { message, data } = failed.error ?? {};
  check(`${message} ${JSON.stringify(data)}`.includes("does not want to"), `${message} ${JSON.stringify(data)}`);
}

async function again(client, sessionId) {
  const { sessions } = await call(client, "list", { cwd: client.project });
  check(sessions.some((it) => it.sessionId === sessionId), "it is not in the list");
  await call(client, "close", { sessionId });
  const replayed = await client.load(sessionId);
  const user = replayed.filter((it) => it.sessionUpdate.startsWith("user_message"));
  check(JSON.stringify(user).includes("Say hello."), "the first prompt was not replayed");
  const { text, cards } = shown(replayed.map(asChunk));
  check(text.includes("Hello from the model."), `the answer was not replayed: ${text}`);
  const statuses = cards.map((it) => it.status).sort().join(" ");
  // Version 1 has no status for a call that the user has cancelled.
  const [cancelled, others] = client.version === 1 ? ["", " failed failed"] : ["cancelled ", " failed"];
  check(statuses === `${cancelled}completed completed completed completed completed${others}`, statuses);
  await turn(client, sessionId, "Say hello.");
  await call(client, "close", { sessionId });
  const start = client.notifications.length;
  await call(client, "resume", { sessionId, cwd: client.project, mcpServers: [] });
  const messages = client.updates(sessionId, start).filter((it) => it.content ?? it.toolCallId);
  check(messages.length === 0, `replayed: ${JSON.stringify(messages)}`);
  await turn(client, sessionId, "Say hello.");
}

/** Version 2 may replay a message as a whole. */
function asChunk(update) {
  if (update.sessionUpdate !== "agent_message") return update;
  return { sessionUpdate: "agent_message_chunk", content: update.content[0] };
}

async function unstable(client, sessionId, capabilities) {
  if (capabilities.hasProviders) await account(client);
  for (const name of ["fork", "archive", "status"]) check(capabilities[name], `no ${name}`);
  const { project: cwd } = client;
  const fork = await call(client, "fork", { sessionId, cwd, mcpServers: [] });
  check(fork.sessionId !== sessionId, "the fork has the same id");
  await turn(client, fork.sessionId, "Say hello.");
  const { status } = await call(client, "status", { sessionId });
  check(status === "open", status);
  const { title } = await call(client, "setTitle", { sessionId, title: "The first" });
  check(title === "The first", title);
  await call(client, "close", { sessionId: fork.sessionId });
  await call(client, "archive", { sessionId: fork.sessionId });
  const inList = async () => (await call(client, "list", { cwd })).sessions.map((it) => it.sessionId);
  check(!(await inList()).includes(fork.sessionId), "an archived session is in the list");
  await call(client, "unarchive", { sessionId: fork.sessionId });
  check((await inList()).includes(fork.sessionId), "it is still archived");
  await call(client, "delete", { sessionId: fork.sessionId });
}

async function account(client) {
  const { auth, providers } = client.methods.agent;
  const { state } = await client.agent.request(auth.status, {});
  check(state === "authenticated" || state === "not_required", state);
  const listed = await client.agent.request(providers.list, {});
  check(Array.isArray(listed.providers), JSON.stringify(listed));
}

async function lentServer(client) {
  client.forget();
  const sessionId = await client.open(client.lendServer());
  const { text, cards } = await turn(client, sessionId, "Use the server");
  check(text === "The server was used.", text);
  check(JSON.stringify(cards[0]).includes("echo: PELICAN"), JSON.stringify(cards[0]));
  await call(client, "close", { sessionId });
  await call(client, "delete", { sessionId });
}

async function remove(client, sessionId) {
  if (client.version === 1) {
    const count = (method) => client.lent.filter((it) => it === method).length;
    check(count("terminal/create") === count("terminal/release"), "a terminal was kept");
  }
  await call(client, "close", { sessionId });
  await call(client, "delete", { sessionId });
  const { sessions } = await call(client, "list", { cwd: client.project });
  check(sessions.length === 0, `left: ${JSON.stringify(sessions)}`);
}
