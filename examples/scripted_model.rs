//! A scripted model: an OpenAI-compatible HTTP server on loopback that plays a scenario file, for demos and
//! bug reports. A `POST` to `…/chat/completions` is answered with the next reply, always as a
//! stream, whatever else the request contains. A `GET` of `…/models` lists one model, `scripted`. All
//! other requests get a 404.
//!
//! ```text
//! cargo run --example scripted_model -- examples/scenarios/tools.json [--port N]
//! ```
//!
//! This command prints `listening on http://127.0.0.1:PORT/v1` on stdout, then a line per request on
//! stderr. `crates/turnwright-testing/src/scripted_model/mod.rs` describes the format of
//! scenarios.

use std::convert::Infallible;
use std::process::ExitCode;
use std::{env, fs};

use turnwright_testing::scripted_model::{Recorded, Scenario, Server};

#[expect(clippy::print_stderr, reason = "a program's way to say what is wrong")]
fn main() -> ExitCode {
    let Err(problem) = run();
    eprintln!("scripted_model: {problem}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "what the program is there for")]
fn run() -> Result<Infallible, String> {
    const USAGE: &str = "usage: scripted_model SCENARIO [--port N]";
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (file, port) = match arguments[..] {
        [file] => (file, "0"),
        [file, "--port", port] | ["--port", port, file] => (file, port),
        _ => return Err(USAGE.to_owned()),
    };
    let port = port.parse().map_err(|_| USAGE)?;
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let scenario = Scenario::parse(&text).map_err(|problem| format!("{file}: {problem}"))?;
    let server = Server::start(scenario, port).map_err(|error| format!("port {port}: {error}"))?;
    println!("listening on {}", server.base_url());
    let mut number = 0;
    loop {
        let Recorded { path, body, .. } = server.request(number);
        number += 1;
        let messages = body["messages"].as_array().map_or(0, Vec::len);
        eprintln!("request {number}: {path}, model {}, {messages} messages", body["model"]);
    }
}
