#!/usr/bin/env node
// PreToolUse of Bash: this team uses another package manager.
let text = "";
process.stdin.on("data", (chunk) => (text += chunk));
process.stdin.on("end", () => {
  const call = JSON.parse(text);
  const command = call.tool_input.command.replace(/\bnpm\b/g, "pnpm");
  if (command !== call.tool_input.command) {
    const hookSpecificOutput = {
      hookEventName: "PreToolUse",
      permissionDecision: "allow",
      updatedInput: { ...call.tool_input, command },
    };
    console.log(JSON.stringify({ hookSpecificOutput }));
  }
});
