//! The agent contacts the hosts of `docs/privacy.md` and no others: a whole session runs under a tracer.
//! Without strace, or where it may not trace, the tests say so and are skipped.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use turnwright_testing::mcp_http_stub::McpHttpStub;
use turnwright_testing::{ChildAgent, Program};

use crate::agent::{calls, says};

enum UnderStrace {}

impl Program for UnderStrace {
    const PATH: &'static str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/under-strace");
}

type TracedAgent = turnwright_testing::TestAgent<ChildAgent<UnderStrace>>;
type Builder = turnwright_testing::TestAgentBuilder<ChildAgent<UnderStrace>>;

fn can_trace() -> bool {
    let inject = "inject=prctl:retval=0:when=1";
    let traced =
        Command::new("strace").args(["-qq", "-e", "trace=prctl", "-e", inject, "true"]).status();
    let can = traced.is_ok_and(|it| it.success());
    if !can {
        eprintln!("SKIPPED: strace is not installed, or may not trace here");
    }
    can
}

/// Traces everything from the start of the program on.
fn traced(builder: Builder, trace: &Path) -> Builder {
    builder
        .variable("TRACED_PROGRAM", env!("CARGO_BIN_EXE_turnwright"))
        .variable("TRACE_FILE", trace.to_str().unwrap())
}

/// The addresses with ports of the internet domain that a process has connected or sent to.
fn addresses(trace: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(trace).unwrap();
    // connect(9, {sa_family=AF_INET, sin_port=htons(40123), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
    let between = |line: &str, start: &str, end: char| {
        line.split_once(start).map(|it| it.1.split(end).next().unwrap_or_default().to_owned())
    };
    // An ordinary user's tracer may not read the memory of a sandbox, whose network reaches nobody.
    let is_unread = |it: &&str| {
        between(it, "connect(", ')').is_some_and(|it| it.contains(", 0x"))
            && !it.contains("ENETUNREACH")
    };
    assert_eq!(text.lines().find(is_unread), None, "the tracer may not read the addresses");
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|it| it.contains("sa_family=AF_INET")) {
        let port = between(line, "_port=htons(", ')').unwrap();
        let address = between(line, "inet_addr(\"", '"')
            .or_else(|| between(line, "inet_pton(AF_INET6, \"", '"'))
            .unwrap_or_else(|| panic!("{line}"));
        found.insert(format!("{address}:{port}"));
    }
    found
}

fn host_and_port(url: &str) -> String {
    url.split('/').nth(2).unwrap().to_owned()
}

#[test]
fn a_whole_session_contacts_the_model_and_the_configured_servers_only() {
    if !can_trace() {
        return;
    }
    let folder = turnwright_testing::temporary_folder();
    let trace = folder.path().join("trace");
    let stub = McpHttpStub::start(|_, _| false);
    let server = stub.server("far", &[]);
    let replies = json!([
        calls("read_file", &json!({ "path": "a.txt" })),
        calls("write_file", &json!({ "path": "b.txt", "content": "new\n" })),
        calls("exec", &json!({ "command": "wc -l a.txt b.txt" })),
        // It has no network, and the system says no.
        calls("exec", &json!({ "command": "exec 3<>/dev/tcp/192.0.2.1/80" })),
        calls("web_fetch", &json!({ "url": "http://127.0.0.1:9/" })),
        calls("mcp__far__echo", &json!({ "text": "hi" })),
        says("Done."),
        says("Again."),
    ]);
    let mut agent: TracedAgent = traced(TracedAgent::builder(), &trace)
        .file("a.txt", "one\n")
        .model(replies)
        .permission("allow_once")
        .noisy()
        .server_as(server.clone())
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.turn("/models"), "end_turn");
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("and again"), "end_turn");
    let model = host_and_port(&agent.model().base_url());
    agent.close();
    let server = host_and_port(server["url"].as_str().unwrap());
    let mut allowed = BTreeSet::from([model.clone(), server.clone()]);
    // A command that tries is traced where the sandbox cannot make the attempt itself impossible.
    allowed.insert("192.0.2.1:80".to_owned());
    // It is fetched in the private network of the commands.
    allowed.extend(["127.0.0.1:9", "::1:9"].map(str::to_owned));
    let found = addresses(&trace);
    assert!(found.contains(&model) && found.contains(&server), "{found:?}");
    assert!(found.is_subset(&allowed), "{found:?} and not only {allowed:?}");
}

#[test]
fn the_offline_model_makes_no_connection() {
    if !can_trace() {
        return;
    }
    let folder = turnwright_testing::temporary_folder();
    let trace = folder.path().join("trace");
    let mut agent: TracedAgent = traced(TracedAgent::offline(), &trace)
        .file("a.txt", "one\n")
        .permission("allow_once")
        .noisy()
        .start();
    for prompt in ["read a.txt", "run wc -l a.txt", "/models", "/mcp", "/context"] {
        assert_eq!(agent.turn(prompt), "end_turn", "{prompt}");
    }
    agent.close();
    assert_eq!(addresses(&trace), BTreeSet::new());
}
