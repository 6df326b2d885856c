//! The MCP part of `turnwright doctor`: starts every configured server as a session would, all of
//! them concurrently.

use serde_json::{Value, json};

use crate::session::{ServerCheck, SessionHost};

/// Starts every server. A server that fails does not make the agent unusable.
pub(super) async fn check_all(host: &SessionHost) -> Vec<ServerCheck> {
    match std::path::absolute(".") {
        Ok(folder) => host.check_servers(&folder).await,
        Err(_) => Vec::new(),
    }
}

/// The mark and the text of the report line of one server.
pub(super) fn report_line(check: &ServerCheck) -> (&'static str, String) {
    match &check.outcome {
        Ok(facts) => {
            let text = format!(
                "{}: {}, revision {}, {} tools, {} prompts, ready after {:.1} s",
                check.name,
                facts.title,
                facts.revision,
                facts.tools,
                facts.prompts,
                check.took.as_secs_f64()
            );
            ("ok", text)
        }
        Err(problem) => {
            let why = problem.to_string();
            let lines: Vec<_> =
                why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            ("FAIL", format!("{}: {}", check.name, lines.join(" / ")))
        }
    }
}

pub(super) fn as_json(check: &ServerCheck) -> Value {
    let facts = check.outcome.as_ref().ok();
    json!({
        "name": check.name,
        "state": if facts.is_some() { "ok" } else { "no" },
        "error": check.outcome.as_ref().err().map(ToString::to_string),
        "title": facts.map(|facts| &facts.title),
        "revision": facts.map(|facts| &facts.revision),
        "tools": facts.map(|facts| facts.tools),
        "prompts": facts.map(|facts| facts.prompts),
        "seconds": check.took.as_secs_f64(),
    })
}
