//! Compares what can be counted exactly with `tests/data/budgets.txt`. Times are measured in `benches`.
#![expect(clippy::disallowed_methods, reason = "the bans apply to the agent; tests are its client")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};
use turnwright_llm::Protocol;
use turnwright_llm::internals::assemble_reply;
use turnwright_testing::{ChildAgent, Program, TestAgent, says};

const PROGRAM: &str = env!("CARGO_BIN_EXE_turnwright");

/// The figure of `tests/data/budgets.txt`.
fn budget(name: &str) -> usize {
    let budgets = include_str!("data/budgets.txt");
    let line = budgets.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no line for `{name}`")).parse().unwrap()
}

/// For what every machine counts alike. Less is a change of the file as well.
fn assert_is(name: &str, measured: usize) {
    assert_eq!(measured, budget(name), "{name}, left; tests/data/budgets.txt, right");
}

/// For what depends a little on the C library.
fn assert_at_most(name: &str, measured: usize) {
    assert!(measured <= budget(name), "{name}: {measured}, and not {}", budget(name));
}

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "passes everything on to the system's allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        unsafe { System.realloc(place, layout, size) }
    }
}

#[test]
fn a_delta_allocates_little() {
    let event = |number: usize| {
        let delta = json!({ "content": format!(" word {number}") });
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        format!("data: {}\n\n", json!({ "id": "1", "choices": [choice] }))
    };
    let allocations = |count: usize| {
        let mut events: Vec<_> = (0..count).map(event).collect();
        events.push("data: [DONE]\n\n".to_owned());
        let before = ALLOCATIONS.get();
        assemble_reply(Protocol::Chat, "m", &[], events.iter().map(String::as_bytes)).unwrap();
        ALLOCATIONS.get() - before
    };
    // The difference leaves out what a reply costs once.
    assert_is("allocations for 100 deltas", allocations(1_100) - allocations(1_000));
}

#[test]
fn the_program_has_few_crates() {
    let tree = ["tree", "--locked", "--edges", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(tree)
        .args(["--target", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let words = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    let crates: BTreeSet<_> = text.lines().filter(|it| !it.is_empty()).map(words).collect();
    assert_is("crates of the program", crates.len());
}

enum Turnwright {}

impl Program for Turnwright {
    const PATH: &'static str = PROGRAM;
}

#[test]
fn the_model_is_told_little_in_advance() {
    let mut agent =
        TestAgent::<ChildAgent<Turnwright>>::builder().model(json!([says("Hi.")])).start();
    agent.turn("hi");
    let request = agent.model_request(0);
    let told = json!([request["messages"][0], request["tools"]]).to_string();
    assert_is("bytes of instructions and tools in a request", told.len());
}

/// Neither the number of threads nor their speed changes what the main thread does.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn the_start_does_little() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let started = Command::new("strace")
        .args(["-f", "-o", trace.to_str().unwrap(), PROGRAM])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TURNWRIGHT_HOME", folder.path())
        .env("OPENAI_API_KEY", "sk-none")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut process) = started else {
        eprintln!("SKIPPED: strace is not installed");
        return;
    };
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let mut stdin = process.stdin.take().unwrap();
    // strace ends at once where it may not trace.
    drop(writeln!(stdin, "{request}"));
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(stdin);
    process.wait().unwrap();
    let Ok(answer) = serde_json::from_str::<Value>(&line) else {
        eprintln!("SKIPPED: strace may not trace here");
        return;
    };
    assert_eq!(answer["id"], 1, "{answer}");

    let trace = std::fs::read_to_string(trace).unwrap();
    let main = trace.split_whitespace().next().unwrap();
    let is_response = |it: &&str| !(it.contains("write") && it.contains("jsonrpc"));
    let calls = trace.lines().take_while(is_response).filter_map(|it| it.strip_prefix(main));
    let calls: Vec<_> = calls.filter(|it| !it.contains("resumed>")).collect();
    assert_at_most(
        "system calls of the main thread before the response to initialize",
        calls.len(),
    );
    let opened = calls.iter().filter(|it| it.contains("openat(") && !it.contains("ENOENT"));
    assert_at_most(
        "files opened by the main thread before the response to initialize",
        opened.count(),
    );
}
