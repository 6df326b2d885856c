//! The network by host: a command reaches the hosts that the settings list, and those that the user is asked about
//! while it waits. Behind the agent is a proxy of the user's, so no test needs the internet. The tests print a note
//! and pass where there are no private networks, or no curl.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::questions::{ask, ask_and_answer, last_result, option_names};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

fn can_test() -> bool {
    let namespaces = turnwright_sandbox::namespace_support();
    let has_curl = ["/bin/curl", "/usr/bin/curl", "/usr/local/bin/curl"]
        .iter()
        .any(|path| std::path::Path::new(path).exists());
    let can = namespaces.network && has_curl;
    if !can {
        eprintln!("SKIPPED: there are no private networks here, or no curl");
    }
    can
}

/// Starts a proxy for tunnels. Whatever their hosts are, it answers a request in one with the first lines of both.
/// Returns its address.
fn start_internet() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let tunnel = first_line(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok();
            let page = format!("{tunnel}, {}\n", first_line(&mut stream));
            let length = page.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
            );
            stream.write_all(answer.as_bytes()).ok();
        }
    });
    address
}

/// The first line of a request without a body.
fn first_line(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
        request.push(byte[0]);
    }
    String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned()
}

fn auto() -> TestAgentBuilder {
    TestAgent::builder()
        .variable("TURNWRIGHT_MODE", "auto")
        .variable("https_proxy", &start_internet())
}

fn with_settings(settings: &str) -> TestAgentBuilder {
    auto().own_file("config/config.toml", settings)
}

fn exec(command: &str) -> Value {
    calls("exec", &json!({ "command": command }))
}

#[test]
fn an_unknown_host_is_one_question_a_registry_while_the_command_waits() {
    if !can_test() {
        return;
    }
    let mut agent = auto().start();
    let both =
        "curl -sS http://pypi.org/a && curl -sS http://files.pythonhosted.org/b http://pypi.org/c";
    let question = ask_and_answer(&mut agent, exec(both), "allow_once");
    let call = &question["params"]["toolCall"];
    let title = call["title"].as_str().unwrap();
    assert!(
        title.starts_with("`curl -sS") && title.contains("wants pypi.org, files.pythonhosted.org"),
        "{title}"
    );
    let names = option_names(&question);
    assert!(names[1].starts_with("Allow requests to pypi.org and requests to files."), "{names:?}");
    assert_eq!(names[2..], ["Reject", "Reject requests to these hosts in this session"]);
    let result = last_result(&agent);
    for (host, path) in [("pypi.org", "a"), ("files.pythonhosted.org", "b"), ("pypi.org", "c")] {
        let passed_on = format!("CONNECT {host}:80 HTTP/1.1, GET /{path} HTTP/1.1");
        assert!(result.contains(&passed_on), "{result}");
    }
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], both, "the card is that of the command again");
    // It held for that command only.
    ask_and_answer(&mut agent, exec("curl -sS http://pypi.org/d"), "allow_always");
    ask_nothing(&mut agent, exec("curl -sS http://files.pythonhosted.org/e"), "GET /e HTTP/1.1");
}

fn ask_nothing(agent: &mut TestAgent, reply: Value, expected: &str) {
    turnwright_testing::questions::run_without_question(agent, reply);
    let result = last_result(agent);
    assert!(result.contains(expected), "{result}");
}

#[test]
fn a_refused_host_is_named_and_not_asked_about_again_by_the_same_command() {
    if !can_test() {
        return;
    }
    let mut agent = auto().start();
    let twice = "curl -sS http://a.example/1; curl -sS http://a.example/2";
    ask_and_answer(&mut agent, exec(twice), "reject_once");
    assert_eq!(cards::questions(&agent), 1);
    let result = last_result(&agent);
    assert!(
        result.contains("commands in the sandbox do not reach a.example: the user has refused it"),
        "{result}"
    );
    let reason = "[sandbox: refused hosts: a.example: the user has refused it; do not try again]";
    assert!(result.contains(reason), "{result}");
    assert!(!result.contains("CONNECT"), "{result}");
    ask_and_answer(&mut agent, exec(twice), "reject_always");
    ask_nothing(&mut agent, exec(twice), "refused hosts: a.example: a rule denies it, or the user");
}

#[test]
fn a_question_is_withdrawn_when_its_command_ends_or_is_cancelled() {
    if !can_test() {
        return;
    }
    for (time, is_cancelled, stop) in [("1", false, "end_turn"), ("99", true, "cancelled")] {
        let mut agent = auto().start();
        let command = format!("curl -sS --max-time {time} http://a.example/");
        let (turn, _) = ask(&mut agent, exec(&command));
        let before = titles(&agent, &command);
        if is_cancelled {
            agent.cancel();
        }
        assert_eq!(agent.stop_reason(&turn), stop);
        assert!(titles(&agent, &command) > before, "the card is that of the command again");
    }
}

/// The number of updates with this title.
fn titles(agent: &TestAgent, title: &str) -> usize {
    agent.updates().iter().filter(|update| update["title"] == title).count()
}

#[test]
fn listed_hosts_need_no_question_and_rules_precede_the_list() {
    if !can_test() {
        return;
    }
    let settings = "[sandbox]\nnetwork = ['python', '*.a.example']\n\
                    [permissions]\ndeny = ['fetch(domain:evil.a.example)']\n";
    let mut agent = with_settings(settings).start();
    for (command, expected) in [
        ("curl -sS http://pypi.org/a http://b.a.example/c", "b.a.example:80 HTTP/1.1, GET /c"),
        ("curl -sS http://evil.a.example/", "evil.a.example: a rule denies it"),
        // Any command has the proxy then, also one that is not known to download.
        ("touch x; env | grep NO_PROXY", "NO_PROXY=localhost,127.0.0.1,::1"),
        ("touch x; env | grep HTTP_PROXY", "HTTP_PROXY=http://tw:[hidden:"),
    ] {
        ask_nothing(&mut agent, exec(command), expected);
    }
    let question = ask_and_answer(&mut agent, exec("curl -sS http://a.example/"), "allow_once");
    assert!(question["params"]["toolCall"]["title"].as_str().unwrap().contains("wants a.example"));
}

#[test]
fn a_call_may_ask_for_a_host_before_its_command_runs() {
    if !can_test() {
        return;
    }
    let mut agent = auto().start();
    let fetch = |escalate: &str| {
        calls(
            "exec",
            &json!({ "command": "sh -c 'curl -sS http://a.example/'", "escalate": escalate }),
        )
    };
    let question = ask_and_answer(&mut agent, fetch("https://a.example"), "allow_always");
    assert_eq!(question["params"]["toolCall"]["kind"], "execute", "it was asked before it ran");
    assert!(question.to_string().contains("reaches `a.example`"), "{question}");
    assert!(last_result(&agent).contains("CONNECT a.example:80"), "{}", last_result(&agent));
    ask_nothing(&mut agent, fetch("http://a.example/"), "CONNECT a.example:80");
}

#[test]
fn nobody_is_asked_about_addresses_nor_where_nobody_is() {
    if !can_test() {
        return;
    }
    let mut agent = auto().start();
    ask_nothing(&mut agent, exec("curl -sS http://10.0.0.1/ http://x.internal/"), "10.0.0.1");
    let result = last_result(&agent);
    for refused in ["10.0.0.1: it is a literal address", "x.internal: it is a private address"] {
        assert!(result.contains(refused), "{result}");
    }
    let mut alone = with_settings("alone = true\nverify = 'off'\n").start();
    let command = exec("curl -sS http://a.example/");
    ask_nothing(&mut alone, command, "\"escalate\": \"https://a.example\"]");
}

#[test]
fn a_command_without_use_for_it_has_no_proxy() {
    if !can_test() {
        return;
    }
    let mut agent = auto()
        .model(json!([exec("touch x; env | grep -c PIP_DEFAULT_TIMEOUT; true"), says("Done.")]))
        .start();
    let result = cards::turn(&mut agent);
    assert!(result.starts_with('0') || result.contains("\n0\n"), "{result}");
}
