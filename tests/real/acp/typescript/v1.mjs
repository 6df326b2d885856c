// A client of version 1: it lends the agent its files, its terminals and forms.

import { spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { Client, check, shown } from "./client.mjs";

export class ClientV1 extends Client {
  version = 1;
  #active;
  #terminals = new Map();
  /** The methods that the agent has called for files and terminals. */
  lent = [];

  constructor(acp, project) {
    super(acp, project);
    const { fs, terminal } = acp.methods.client;
    this.#lend(fs.readTextFile, ({ path }) => ({ content: readFileSync(path, "utf8") }));
    this.#lend(fs.writeTextFile, ({ path, content }) => writeFileSync(path, content));
    this.#lend(terminal.create, (params) => this.#start(params));
    this.#lend(terminal.output, ({ terminalId }) => {
      const { output, exitStatus } = this.#terminals.get(terminalId);
      return { output, truncated: false, exitStatus };
    });
    this.#lend(terminal.waitForExit, ({ terminalId }) => this.#terminals.get(terminalId).ended);
    this.#lend(terminal.kill, ({ terminalId }) => void this.#terminals.get(terminalId).child.kill());
    this.#lend(terminal.release, ({ terminalId }) => void this.#terminals.delete(terminalId));
  }

  #lend(method, answer) {
    this.app.onRequest(method, ({ params }) => {
      this.lent.push(method);
      return answer(params);
    });
  }

  #start({ command, args, cwd, env }) {
    const terminalId = `terminal-${this.lent.length}`;
    const added = Object.fromEntries((env ?? []).map(({ name, value }) => [name, value]));
    const child = spawn(command, args, { cwd, env: { ...process.env, ...added } });
    const terminal = { child, output: "" };
    for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (bytes) => (terminal.output += bytes));
    terminal.ended = new Promise((resolve) => {
      child.on("close", (exitCode, signal) => {
        terminal.exitStatus = { exitCode, signal };
        resolve(terminal.exitStatus);
      });
    });
    this.#terminals.set(terminalId, terminal);
    return { terminalId };
  }

  async initialize(isUnstable) {
    const answer = await this.agent.request(this.methods.agent.initialize, {
      protocolVersion: 1,
      clientInfo: { name: "turnwright-test", version: "1.0.0" },
      clientCapabilities: {
        fs: { readTextFile: true, writeTextFile: true },
        terminal: true,
        elicitation: { form: {} },
        session: { configOptions: { boolean: {} }, notices: {}, compaction: {} },
        ...(isUnstable && { plan: {}, subagents: {} }),
      },
    });
    check(answer.protocolVersion === 1, `version ${answer.protocolVersion}`);
    check(answer.agentInfo.name === "turnwright", JSON.stringify(answer.agentInfo));
    check(answer.agentCapabilities.loadSession, "no session/load");
    const { sessionCapabilities, mcpCapabilities, providers } = answer.agentCapabilities;
    return { ...sessionCapabilities, takesServers: mcpCapabilities.acp, hasProviders: providers };
  }

  async logIn() {
    await this.agent.request(this.methods.agent.authenticate, { methodId: "configured" });
  }

  /** Opens the session through the SDK's helper, which then routes its updates. */
  async open(...servers) {
    const request = { cwd: this.project, mcpServers: servers };
    this.#active = await this.agent.buildSession(request).start();
    const { modes, newSessionResponse } = this.#active;
    check(modes.currentModeId === "ask", `mode ${modes.currentModeId}`);
    check(newSessionResponse.configOptions.length > 0, "no options");
    return this.#active.sessionId;
  }

  async turn(sessionId, text, { signal, onText } = {}) {
    if (this.#active?.sessionId !== sessionId) return this.#foreignTurn(sessionId, text);
    const answer = this.#active.prompt(text, { cancellationSignal: signal });
    // Errors are thrown by the updates, too.
    answer.catch(() => {});
    const updates = [];
    for (;;) {
      const next = await Promise.race([this.#active.nextUpdate(), answer.then(() => new Promise(() => {}))]);
      if (next.kind === "stop") return { stop: next.stopReason, ...shown(updates) };
      updates.push(next.update);
      if (next.update.sessionUpdate === "agent_message_chunk") onText?.();
    }
  }

  /** A turn in a session that was not opened by the SDK's helper. */
  async #foreignTurn(sessionId, text) {
    const start = this.notifications.length;
    const prompt = [{ type: "text", text }];
    const { stopReason } = await this.agent.request(this.methods.agent.session.prompt, { sessionId, prompt });
    return { stop: stopReason, ...shown(this.updates(sessionId, start)) };
  }

  async setMode(sessionId, modeId) {
    await this.agent.request(this.methods.agent.session.setMode, { sessionId, modeId });
  }

  async setOption(sessionId, configId, value) {
    const { setConfigOption } = this.methods.agent.session;
    return this.agent.request(setConfigOption, { sessionId, configId, value });
  }

  /** Opens a session again, and returns what was replayed. */
  async load(sessionId) {
    this.forget();
    const start = this.notifications.length;
    const params = { sessionId, cwd: this.project, mcpServers: [] };
    await this.agent.request(this.methods.agent.session.load, params);
    return this.updates(sessionId, start);
  }

  /** Ends the routing to the SDK's helper. */
  forget() {
    this.#active?.dispose();
    this.#active = undefined;
  }
}
