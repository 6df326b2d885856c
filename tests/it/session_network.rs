//! The network of a session: its commands reach each other's servers, the agent fetches their pages, and the user opens
//! ports to and from the machine. The tests print a note and pass where there are no private networks.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// A command that answers every connection to a port with a page.
fn server(port: u16) -> String {
    format!(
        "python3 -c 'import http.server
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b\"<p>page of the session</p>\")
http.server.HTTPServer((\"127.0.0.1\", {port}), Page).serve_forever()'"
    )
}

/// What a command says about a port: what the server there answers, or why there is no answer.
fn client(port: u16) -> String {
    format!(
        "python3 -c 'import socket
try: it = socket.create_connection((\"127.0.0.1\", {port}), 5); it.sendall(b\"GET / HTTP/1.0\\r\\n\\r\\n\"); print(it.recv(4096))
except OSError as error: print(error.strerror); raise SystemExit(1)'"
    )
}

fn can_test() -> bool {
    let namespaces = turnwright_sandbox::namespace_support();
    let has_python = ["/bin/python3", "/usr/bin/python3", "/usr/local/bin/python3"]
        .iter()
        .any(|path| std::path::Path::new(path).exists());
    let can = namespaces.network && namespaces.supervision && has_python;
    if !can {
        eprintln!("SKIPPED: there are no private networks here, or no python3");
    }
    can
}

fn auto() -> TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_MODE", "auto").permission("allow_once")
}

/// A server of the user's on this machine, which answers with a word.
fn start_server_of_the_user() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 64]).unwrap_or(0);
            stream.write_all(b"daemon of the user").ok();
        }
    });
    port
}

fn start_server(port: u16, arguments: &Value) -> Value {
    let mut all = json!({ "command": server(port), "background": true });
    all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    calls("exec", &all)
}

/// Waits for the server, whatever the machine does meanwhile.
fn wait_for_server(port: u16) -> Value {
    let command = format!("until {} | grep -q 'of the session'; do sleep 0.05; done", client(port));
    calls("exec", &json!({ "command": command }))
}

#[test]
fn a_later_command_and_the_agent_reach_the_server_of_an_earlier_one_without_a_question() {
    if !can_test() {
        return;
    }
    let mut agent = auto()
        .model(json!([
            start_server(4711, &json!({})),
            wait_for_server(4711),
            calls("web_fetch", &json!({ "url": "http://localhost:4711/" })),
            calls("web_fetch", &json!({ "url": "http://127.0.0.1:4712/" })),
            says("Done."),
        ]))
        .start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 0);
    let page = cards::card_text(&cards::card(&agent, 2));
    assert!(page.contains("page of the session"), "{page}");
    let nothing = cards::card_text(&cards::card(&agent, 3));
    assert!(nothing.contains("no command of this session answers at port 4712"), "{nothing}");
    // Nobody else reaches it.
    assert!(TcpStream::connect("127.0.0.1:4711").is_err());
}

#[test]
fn a_server_of_the_user_is_reached_only_by_its_address() {
    if !can_test() {
        return;
    }
    let port = start_server_of_the_user();
    let run = |escalate: Value| {
        let arguments = json!({ "command": client(port), "escalate": escalate });
        let mut agent = auto().model(json!([calls("exec", &arguments), says("Done.")])).start();
        let result = cards::turn(&mut agent);
        (result, cards::questions(&agent))
    };
    let address = format!("127.0.0.1:{port}");
    let (result, _) = run(json!("none"));
    assert!(result.contains("Connection refused"), "{result}");
    let hint = format!("\"escalate\": \"{address}\"");
    assert!(result.contains(&address) && result.contains(&hint), "{result}");
    let (result, questions) = run(json!("network"));
    assert!(result.contains("Connection refused") && questions == 1, "{result}");
    let hint = format!("\"escalate\": \"network,{address}\"");
    assert!(result.contains(&hint), "{result}");
    for escalate in [json!(address), json!(["network", format!("localhost:{port}")])] {
        let (result, questions) = run(escalate);
        assert!(result.contains("daemon of the user") && questions == 1, "{result}");
    }
}

/// Where the network is a session's own, a supervisor is told what is refused.
#[test]
fn a_system_call_that_was_refused_is_named_only_if_the_command_has_missed_it() {
    if !can_test() {
        return;
    }
    let run = |end: &str| {
        let command = format!(
            "python3 -c 'import ctypes
if ctypes.CDLL(None).unshare(0x10000000): {end}'"
        );
        let replies = json!([calls("exec", &json!({ "command": command })), says("Done.")]);
        let mut agent = auto().model(replies).start();
        let result = cards::turn(&mut agent);
        (result, cards::card_text(&cards::card(&agent, 0)))
    };
    let (result, shown) = run("raise SystemExit(\"no user namespace\")");
    let denial = "[sandbox: commands may not make namespaces: containers do, and browsers without --no-sandbox";
    assert!(result.contains(&format!("{denial}. If it is needed")), "{result}");
    assert!(result.contains("\"escalate\": \"full\""), "{result}");
    assert!(shown.contains(&format!("{denial}]")) && !shown.contains("escalate"), "{shown}");
    let (result, _) = run("print(\"done without\")");
    assert!(result.contains("done without") && !result.contains("[sandbox"), "{result}");
}

#[test]
fn a_port_of_the_session_is_open_to_the_machine_while_its_command_runs() {
    if !can_test() {
        return;
    }
    let mut agent = auto()
        .model(json!([
            start_server(4713, &json!({ "escalate": "publish:4713" })),
            wait_for_server(4713),
            says("Done."),
        ]))
        .start();
    cards::turn(&mut agent);
    assert_eq!(cards::questions(&agent), 1);
    let mut stream = TcpStream::connect("127.0.0.1:4713").unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("page of the session"), "{page}");
    agent.close();
    assert!(TcpStream::connect("127.0.0.1:4713").is_err());
}
