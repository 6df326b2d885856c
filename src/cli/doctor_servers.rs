//! The part of `turnwright doctor` about MCP servers: each one of the settings is tried as a session
//! would have it, all at the same time.

use serde_json::{Value, json};

use crate::session::{Host, ServerCheck};

/// Tries them. A server that cannot be used does not keep the agent from working.
pub(super) async fn try_all(host: &Host) -> Vec<ServerCheck> {
    match std::path::absolute(".") {
        Ok(folder) => host.try_servers(&folder).await,
        Err(_) => Vec::new(),
    }
}

/// `ok` or not, and what to say, in one line.
pub(super) fn line(check: &ServerCheck) -> (&'static str, String) {
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
        Err(why) => {
            let lines: Vec<_> = why.lines().map(str::trim).filter(|it| !it.is_empty()).collect();
            ("no", format!("{}: {}", check.name, lines.join(" / ")))
        }
    }
}

/// The same for programs.
pub(super) fn as_json(check: &ServerCheck) -> Value {
    let facts = check.outcome.as_ref().ok();
    json!({
        "name": check.name,
        "state": if facts.is_some() { "ok" } else { "no" },
        "error": check.outcome.as_ref().err(),
        "title": facts.map(|it| &it.title),
        "revision": facts.map(|it| &it.revision),
        "tools": facts.map(|it| it.tools),
        "prompts": facts.map(|it| it.prompts),
        "seconds": check.took.as_secs_f64(),
    })
}
