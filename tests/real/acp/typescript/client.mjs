// What the clients of both versions have in common: the updates and questions that have arrived, and checks.

import { writeFileSync } from "node:fs";
import { join } from "node:path";

export function check(holds, what) {
  if (!holds) throw new Error(what);
}

/** Returns the error, which must have this code. */
export async function refused(promise, code) {
  const error = await promise.then(
    (result) => new Error(`no error, but ${JSON.stringify(result)}`),
    (error) => error,
  );
  check(error.code === code, `wanted the error ${code}, got ${error.code}: ${error.message}`);
  return error;
}

export class Client {
  /** The updates of all sessions, in the order of their arrival. */
  notifications = [];
  questions = [];
  forms = [];
  /** The kind of the option that is chosen in every permission request, or `wait` until it is withdrawn. */
  choice = "allow_once";
  withdrawn = 0;
  step = "connect";
  #waiting = [];

  constructor(acp, project) {
    this.project = project;
    this.methods = acp.methods;
    writeFileSync(join(project, "note.txt"), "The word is PELICAN.\n");
    this.app = this.#handlers(acp.client({ name: "turnwright-test" }));
    // Only the unstable entry points have it.
    if (!acp.McpOverAcpProvider) return;
    this.servers = new acp.McpOverAcpProvider();
    this.app.onRequest(acp.methods.client.mcp.message, this.servers.handleRequest);
  }

  /** Registers an MCP server that the agent reaches over ACP: its only tool gives back its argument. */
  lendServer() {
    const { declaration } = this.servers.registerServer(this.agent, { name: "lent", handler: answer });
    return declaration;
  }

  #handlers(app) {
    const { methods } = this;
    return app
      .onNotification(methods.client.session.update, ({ params }) => {
        this.notifications.push(params);
        for (const look of this.#waiting.slice()) look();
      })
      .onRequest(methods.client.session.requestPermission, async ({ params, signal }) => {
        this.questions.push(params);
        if (this.choice === "wait") {
          this.onQuestion();
          await new Promise((withdrawn) => signal.addEventListener("abort", withdrawn));
          this.withdrawn += 1;
          return { outcome: { outcome: "cancelled" } };
        }
        const option = params.options.find((option) => option.kind === this.choice);
        return { outcome: { outcome: "selected", optionId: option.optionId } };
      })
      .onRequest(methods.client.elicitation.create, ({ params }) => {
        this.forms.push(params);
        const [[field, schema]] = Object.entries(params.requestedSchema.properties);
        const choices = schema.enum ?? schema.oneOf?.map((choice) => choice.const);
        return { action: "accept", content: { [field]: choices?.[0] ?? "yes" } };
      });
  }

  /** Waits until this function of the updates of a session since `start` returns a value. */
  async until(sessionId, start, find) {
    for (;;) {
      const found = find(this.updates(sessionId, start));
      if (found) return found;
      await new Promise((resolve) => {
        const look = () => {
          this.#waiting.splice(this.#waiting.indexOf(look), 1);
          resolve();
        };
        this.#waiting.push(look);
      });
    }
  }

  updates(sessionId, start) {
    const own = this.notifications.slice(start).filter((it) => it.sessionId === sessionId);
    return own.map((it) => it.update);
  }
}

/** What a client would show of these updates. */
export function shown(updates) {
  const text = (kind) => updates.filter((it) => it.sessionUpdate === kind).map((it) => it.content.text);
  const cards = new Map();
  for (const { sessionUpdate, toolCallId, ...change } of updates) {
    if (toolCallId) cards.set(toolCallId, { ...cards.get(toolCallId), ...change });
  }
  return {
    chunks: text("agent_message_chunk"),
    text: text("agent_message_chunk").join(""),
    thoughts: text("agent_thought_chunk").join(""),
    kinds: new Set(updates.map((it) => it.sessionUpdate)),
    cards: [...cards.values()],
  };
}

function answer({ method, params }) {
  const results = {
    "server/discover": () => ({ supportedVersions: ["2026-07-28"], capabilities: { tools: {} } }),
    "tools/list": () => ({ tools: [{ name: "echo", description: "Gives back.", inputSchema: { type: "object" } }] }),
    "tools/call": () => ({ content: [{ type: "text", text: `echo: ${params.arguments.message}` }] }),
  };
  const result = results[method]?.();
  if (!result) return { error: { code: -32601, message: `there is no ${method}` } };
  return { result: { resultType: "complete", ttlMs: 60_000, cacheScope: "private", ...result } };
}
