//! Stands between a client and an agent, and plants one fault into what the agent says, to show that
//! `turnwright doctor --acp` finds it.
//!
//!     faulty_proxy FAULT PROGRAM [ARGUMENT]...

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use serde_json::{Value, json};

/// The lines that the client gets instead of one of the agent's. `None` for a fault that is not known.
fn planted(fault: &str, line: &str) -> Option<Vec<String>> {
    let mut frame: Value = serde_json::from_str(line).unwrap_or_default();
    let is_turn_end = frame["result"].get("stopReason").is_some();
    let is_chunk = frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let call_ends = frame["params"]["update"]["status"] == "completed";
    let unchanged = || vec![line.to_owned()];
    let twice = || vec![line.to_owned(), line.to_owned()];
    Some(match fault {
        "none" => unchanged(),
        "no-id" if is_turn_end => {
            frame.as_object_mut()?.remove("id");
            vec![frame.to_string()]
        }
        "answered-twice" if is_turn_end => twice(),
        "update-after-end" if is_turn_end => {
            let content = json!({ "type": "text", "text": "One more thing." });
            let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
            // The session that the agent speaks of is always the last one that was opened.
            let session = SESSION.lock().ok()?.clone();
            let params = json!({ "sessionId": session, "update": update });
            let late = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
            vec![line.to_owned(), late.to_string()]
        }
        "wrong-enum" if call_ends => {
            frame["params"]["update"]["status"] = "finished".into();
            vec![frame.to_string()]
        }
        "unknown-call" if call_ends => {
            frame["params"]["update"]["toolCallId"] = "another".into();
            vec![line.to_owned(), frame.to_string()]
        }
        "ends-twice" if call_ends => twice(),
        "not-json" if is_chunk => vec!["DEBUG: a chunk".to_owned(), line.to_owned()],
        "no-capability" if frame["result"].get("agentCapabilities").is_some() => {
            let request = json!({ "jsonrpc": "2.0", "id": "x", "method": "fs/read_text_file" });
            vec![line.to_owned(), request.to_string()]
        }
        "wrong-error" if frame["error"]["code"] == -32601 => {
            frame["error"]["code"] = (-32000).into();
            vec![frame.to_string()]
        }
        "no-id" | "answered-twice" | "update-after-end" | "wrong-enum" | "unknown-call"
        | "ends-twice" | "not-json" | "no-capability" | "wrong-error" => unchanged(),
        _ => return None,
    })
}

/// The session that was opened last.
static SESSION: std::sync::Mutex<String> = std::sync::Mutex::new(String::new());

fn remember_session(line: &str) {
    let frame: Value = serde_json::from_str(line).unwrap_or_default();
    if let (Some(session), Ok(mut last)) = (frame["result"]["sessionId"].as_str(), SESSION.lock()) {
        session.clone_into(&mut last);
    }
}

#[expect(clippy::disallowed_methods, reason = "the proxy starts the agent, and stdout is its own")]
fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [fault, program, rest @ ..] = arguments.as_slice() else {
        return Ok(ExitCode::from(2));
    };
    let mut command = Command::new(program);
    let mut agent = command.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut agent_input) = agent.stdin.take() {
        thread::spawn(move || io::copy(&mut io::stdin().lock(), &mut agent_input));
    }
    for line in agent.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line?;
        remember_session(&line);
        let Some(lines) = planted(fault, &line) else { return Ok(ExitCode::from(2)) };
        let mut stdout = io::stdout();
        for line in lines {
            writeln!(stdout, "{line}")?;
        }
        stdout.flush()?;
    }
    agent.wait()?;
    Ok(ExitCode::SUCCESS)
}
