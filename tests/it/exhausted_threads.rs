//! A user who may start no more threads and processes: a running agent goes on with what it has, and what
//! it cannot do fails with a reason.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::process_waits::{self, Input};
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{prompt, run_mark, says};

/// The user `nobody`. The limit does not apply to root.
const USER: u32 = 65534;

/// A command that runs a program as a user to whom the limit applies.
#[cfg(unix)]
fn as_user(program: &Path) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={USER}"), format!("--regid={USER}")];
    command.args(user).arg("--clear-groups").arg(program);
    command
}

/// Makes a process start no more threads and processes; false if that is not possible.
fn limit_threads(process: u32) -> bool {
    let mut command = as_user(Path::new("prlimit"));
    command.arg(format!("--pid={process}")).arg("--nproc=1:");
    process_waits::status(&mut command).is_ok_and(|it| it.success())
}

struct Agent {
    child: Child,
    stdin: Input,
    lines: Receiver<Value>,
    next_id: u64,
}

impl Agent {
    fn start(program: &Path, home: &Path, model: &Server) -> Agent {
        let mut child = as_user(program)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TURNWRIGHT_HOME", home)
            .env("OPENAI_BASE_URL", model.base_url())
            .env("OPENAI_API_KEY", "sk-test-0123456789")
            .env("TURNWRIGHT_MODEL", "scripted")
            .envs([run_mark()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                drop(sender.send(serde_json::from_str(&line).unwrap()));
            }
        });
        let stdin = Input::of(&mut child);
        Agent { child, stdin, lines, next_id: 1 }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stdin.write(format!("{line}\n").as_bytes()).unwrap();
        loop {
            let message = self.lines.recv_timeout(process_waits::LIMIT).expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        process_waits::kill(&mut self.child);
    }
}

/// A folder that the user of the agent owns. `None` in a user namespace without such a user.
#[cfg(unix)]
fn folder() -> Option<TempDir> {
    let folder = turnwright_testing::temporary_folder();
    if rustix::process::geteuid().is_root()
        && let Err(error) = std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER))
    {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        eprintln!("NOT TESTED: there is no user {USER} here");
        return None;
    }
    Some(folder)
}

#[test]
fn an_agent_that_can_start_no_more_threads_goes_on() {
    let call =
        |name: &str, arguments: Value| json!({ "call": { "name": name, "arguments": arguments } });
    let replies = json!([
        [
            call("write_file", json!({ "path": "a", "content": "needle\n" })),
            call("read_file", json!({ "path": "b" })),
            call("list_dir", json!({ "path": "." })),
            call("grep", json!({ "pattern": "needle" })),
            call("find_files", json!({ "pattern": "*" })),
            call("exec", json!({ "command": "echo ran" })),
        ],
        says("Done."),
        says("Again."),
    ]);
    let model =
        Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0).unwrap();
    let (Some(home), Some(workspace), Some(place)) = (folder(), folder(), folder()) else {
        return;
    };
    std::fs::write(workspace.path().join("b"), "a needle\n").unwrap();
    // The folder with the built program may be closed to other users.
    let program = place.path().join("turnwright");
    turnwright_testing::copy_program(Path::new(env!("CARGO_BIN_EXE_turnwright")), &program);
    let mut agent = Agent::start(&program, home.path(), &model);
    agent.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
    let here = json!({ "cwd": workspace.path(), "mcpServers": [] });
    let session = agent.call("session/new", &here)["sessionId"].as_str().unwrap().to_owned();
    agent.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    if !limit_threads(agent.child.id()) {
        eprintln!("NOT TESTED: there is no setpriv or prlimit");
        return;
    }
    agent.call("session/new", &here);
    agent.call("session/list", &json!({}));
    agent.call("session/prompt", &prompt(&session, "Do all of it."));
    let messages = model.request(1).body["messages"].clone();
    let results: Vec<_> =
        messages.as_array().unwrap().iter().filter(|it| it["role"] == "tool").collect();
    let expected = ["Created a", "a needle", "b", "needle", "b", "could not be started"];
    assert_eq!(results.len(), expected.len(), "{results:#?}");
    for (result, expected) in results.iter().zip(expected) {
        let text = result["content"].as_str().unwrap();
        assert!(text.contains(expected), "{results:#?}");
        assert!(!text.contains("panic") && !text.contains("Internal"), "{text}");
    }
    agent.call("session/prompt", &prompt(&session, "Once more."));
}
