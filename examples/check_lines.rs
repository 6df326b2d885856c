//! Checks what a client and an agent have said to each other against the JSON Schema of ACP:
//!
//! ```text
//! cargo run --example check_lines -- VERSION TO_AGENT FROM_AGENT
//! ```
//!
//! The files have the lines of one connection, one file a direction; the order between the two does not
//! matter. Each line must be a message that the schema of this version allows, no id may be used twice, each
//! answer needs a request, and the agent must have answered all of them. A request that was answered with an
//! error may be one that the schema does not allow.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a terminal program")]

use std::collections::HashMap;
use std::process::ExitCode;
use std::{env, fs};

use serde_json::Value;
use turnwright_testing::schema;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [version @ ("1" | "2"), to_agent, from_agent] =
        &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        eprintln!("usage: check_lines 1|2 TO_AGENT FROM_AGENT");
        return ExitCode::from(2);
    };
    let version = if *version == "1" { 1 } else { 2 };
    match read(to_agent).and_then(|to| check(version, &to, &read(from_agent)?)) {
        Ok(count) => {
            println!("{count} lines of version {version}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("check_lines: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &str) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let parse = |line: &str| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"));
    text.lines().map(parse).collect()
}

/// Returns the number of messages.
fn check(version: usize, to_agent: &[Value], from_agent: &[Value]) -> Result<usize, String> {
    let of_client = requests(to_agent)?;
    let of_agent = requests(from_agent)?;
    let by_agent = answers(from_agent, &of_client)?;
    let by_client = answers(to_agent, &of_agent)?;
    if let Some(lost) = of_client.iter().find(|(id, _)| !by_agent.contains_key(*id)) {
        return Err(format!("the agent has not answered {} {}", lost.1, lost.0));
    }
    for (messages, own_requests, answered) in
        [(to_agent, &of_agent, &by_agent), (from_agent, &of_client, &by_client)]
    {
        for message in messages {
            let id = message["id"].to_string();
            let method = message["method"].as_str();
            let is_refused = answered.get(&id).is_some_and(|it| it.get("error").is_some());
            // The schema has no definitions for methods of our own.
            let is_own = method.is_some_and(|it| it.starts_with('_'));
            if method.is_some() && (is_refused || is_own) {
                continue;
            }
            // Panics, with the message, if it does not fit.
            schema::check_version(version, message, own_requests.get(&id).map(String::as_str));
        }
    }
    Ok(to_agent.len() + from_agent.len())
}

/// The methods of the requests in one direction by their ids.
fn requests(messages: &[Value]) -> Result<HashMap<String, String>, String> {
    let mut requests = HashMap::new();
    for message in messages {
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            continue;
        };
        if requests.insert(id.to_string(), method.to_owned()).is_some() {
            return Err(format!("the id is used twice: {message}"));
        }
    }
    Ok(requests)
}

/// The answers to these requests by their ids.
fn answers<'a>(
    messages: &'a [Value],
    requests: &HashMap<String, String>,
) -> Result<HashMap<String, &'a Value>, String> {
    let mut answers = HashMap::new();
    for message in messages.iter().filter(|it| it.get("method").is_none()) {
        let id = message["id"].to_string();
        if !requests.contains_key(&id) {
            return Err(format!("nobody has asked for this: {message}"));
        }
        if answers.insert(id, message).is_some() {
            return Err(format!("the second answer to one request: {message}"));
        }
    }
    Ok(answers)
}
