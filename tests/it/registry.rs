//! The checks that the ACP registry runs on the agents that it lists: the way in which it starts them, the
//! requests that it sends, and its limits of time.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use turnwright_testing::process_waits;

/// Starts the program in an empty home, without any variable that could help.
fn start(home: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_turnwright"))
        .env_clear()
        .envs(turnwright_testing::basic_variables())
        .envs([("HOME", home), ("TMPDIR", home)])
        .env("TERM", "dumb")
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

struct Validator {
    child: Child,
    stdout: BufReader<ChildStdout>,
    home: tempfile::TempDir,
}

impl Validator {
    fn start() -> Validator {
        let home = turnwright_testing::temporary_folder();
        let mut child = start(home.path());
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Validator { child, stdout, home }
    }

    fn send(&mut self, id: u32, method: &str, params: &Value) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.child.stdin.as_mut().unwrap(), "{request}").unwrap();
    }

    fn first_line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The answer to a request; notifications before it are allowed.
    fn ask(&mut self, id: u32, method: &str, params: &Value) -> Value {
        self.send(id, method, params);
        loop {
            let message = self.first_line();
            if message["id"] == json!(id) && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// The validator does not announce `auth.terminal`, only its older form.
    fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": 1,
            "clientInfo": { "name": "ACP Registry Validator", "version": "1.0.0" },
            "clientCapabilities": {
                "terminal": true,
                "fs": { "readTextFile": true, "writeTextFile": true },
                "_meta": { "terminal_output": true, "terminal-auth": true },
            },
        });
        self.send(1, "initialize", &params);
        self.first_line()
    }
}

impl Drop for Validator {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        process_waits::wait(&mut self.child);
    }
}

#[test]
fn the_first_line_is_an_answer_that_offers_a_way_to_log_in() {
    let mut validator = Validator::start();
    let answer = validator.initialize();
    assert!(answer.get("error").is_none() && answer["id"] == json!(1), "{answer}");
    let methods = answer["result"]["authMethods"].as_array().unwrap();
    let kind = |it: &Value| it["type"].as_str().unwrap_or("agent").to_owned();
    assert!(methods.iter().any(|it| ["agent", "terminal"].contains(&&*kind(it))), "{answer}");
}

#[test]
fn the_program_ends_well_when_nobody_is_there() {
    let home = turnwright_testing::temporary_folder();
    let mut child = start(home.path());
    drop(child.stdin.take());
    let output = process_waits::wait_with_output(child);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
}

/// Each request of the daily matrix is answered, and none of them as an unknown method.
#[test]
fn every_request_of_the_matrix_is_supported() {
    let mut validator = Validator::start();
    let answer = validator.initialize();
    let capabilities = &answer["result"]["agentCapabilities"]["sessionCapabilities"];
    assert!(capabilities["close"].is_object(), "{answer}");
    // Without a model the answer is that one has to log in, in the way that was offered.
    let folder = validator.home.path().to_owned();
    let new = json!({ "cwd": folder, "mcpServers": [] });
    assert_eq!(validator.ask(2, "session/new", &new)["error"]["code"], json!(-32000));
    let ways = answer["result"]["authMethods"].as_array().unwrap();
    let offline = ways.iter().find(|it| it["id"] == json!("offline")).unwrap();
    let login = json!({ "methodId": offline["id"] });
    assert!(validator.ask(3, "authenticate", &login)["result"].is_object());
    let session = validator.ask(4, "session/new", &new)["result"]["sessionId"].clone();
    assert!(session.is_string(), "{session}");

    let unknown = "00000000-0000-0000-0000-000000000000";
    let matrix = [
        ("session/list", json!({})),
        ("session/fork", json!({ "sessionId": unknown, "cwd": folder, "mcpServers": [] })),
        ("session/resume", json!({ "sessionId": unknown, "cwd": folder, "mcpServers": [] })),
        ("session/set_model", json!({ "sessionId": session, "modelId": "matrix-model" })),
    ];
    for (id, (method, params)) in (5..).zip(matrix) {
        let answer = validator.ask(id, method, &params);
        let code = answer["error"]["code"].as_i64();
        assert!(code.is_none_or(|it| [-32602, -32002, -32000].contains(&it)), "{method}: {answer}");
    }
    let closed = validator.ask(20, "session/close", &json!({ "sessionId": session }));
    assert!(closed["result"].is_object(), "{closed}");
}
