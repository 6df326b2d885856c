// A client of version 2.

import { Client, check, shown } from "./client.mjs";

export class ClientV2 extends Client {
  version = 2;
  #active;

  async initialize() {
    const answer = await this.agent.request(this.methods.agent.initialize, {
      protocolVersion: 2,
      info: { name: "turnwright-test", version: "1.0.0" },
      capabilities: { elicitation: { form: {} } },
    });
    check(answer.protocolVersion === 2, `version ${answer.protocolVersion}`);
    check(answer.info.name === "turnwright", JSON.stringify(answer.info));
    const { session, providers } = answer.capabilities;
    return { ...session, takesServers: session.mcp.acp, hasProviders: providers };
  }

  async logIn() {
    await this.agent.request(this.methods.agent.auth.login, { methodId: "configured" });
  }

  /** Opens the session through the SDK's helper, which then routes its updates. */
  async open(...servers) {
    const request = { cwd: this.project, mcpServers: servers };
    this.#active = await this.agent.buildSession(request).start();
    const mode = this.#active.configOptions.find((option) => option.configId === "mode");
    check(mode.currentValue === "ask", `mode ${mode.currentValue}`);
    return this.#active.sessionId;
  }

  async turn(sessionId, text, { signal, onText } = {}) {
    if (this.#active?.sessionId !== sessionId) return this.#foreignTurn(sessionId, text);
    const accepted = this.#active.prompt(text, { cancellationSignal: signal });
    const refusal = accepted.then(() => new Promise(() => {}));
    const updates = [];
    let isRunning = false;
    for (;;) {
      const next = await Promise.race([this.#active.nextUpdate(), refusal]);
      const { update } = next;
      isRunning ||= update.state === "running";
      if (next.kind === "stop" && isRunning) {
        const { messageId } = await accepted;
        const echoes = updates.filter((it) => it.sessionUpdate === "user_message");
        check(echoes.some((it) => it.messageId === messageId), `no echo of ${messageId}`);
        return { stop: next.stopReason, error: update.error, ...shown(updates) };
      }
      updates.push(update);
      if (update.sessionUpdate === "agent_message_chunk") onText?.();
    }
  }

  /** A turn in a session that was not opened by the SDK's helper. */
  async #foreignTurn(sessionId, text) {
    const start = this.notifications.length;
    const prompt = [{ type: "text", text }];
    await this.agent.request(this.methods.agent.session.prompt, { sessionId, prompt });
    const idle = await this.until(sessionId, start, (updates) => {
      const began = updates.findIndex((it) => it.state === "running");
      return began >= 0 && updates.slice(began).find((it) => it.state === "idle");
    });
    return { stop: idle.stopReason, ...shown(this.updates(sessionId, start)) };
  }

  async setMode(sessionId, value) {
    await this.setOption(sessionId, "mode", value);
  }

  async setOption(sessionId, configId, value) {
    const { setConfigOption } = this.methods.agent.session;
    return this.agent.request(setConfigOption, { sessionId, configId, type: "id", value });
  }

  /** Opens a session again, and returns what was replayed. */
  async load(sessionId) {
    this.forget();
    const start = this.notifications.length;
    const params = { sessionId, cwd: this.project, replayFrom: { type: "start" } };
    await this.agent.request(this.methods.agent.session.resume, params);
    return this.updates(sessionId, start);
  }

  /** Ends the routing to the SDK's helper. */
  forget() {
    this.#active?.dispose();
    this.#active = undefined;
  }
}
