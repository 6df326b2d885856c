//! Compares what can be counted exactly with `tests/data/budgets.txt`. Times are measured in `benches`.
#![expect(clippy::disallowed_methods, reason = "the bans apply to the agent; tests are its client")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]
#![cfg_attr(
    all(windows, target_env = "gnu"),
    expect(
        clippy::missing_const_for_thread_local,
        reason = "they are const, which is not seen there"
    )
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
use serde_json::Value;
use serde_json::json;
use turnwright_llm::Protocol;
use turnwright_llm::internals::assemble_reply;
use turnwright_rpc::Stdio;
use turnwright_testing::{
    ChildAgent, InProcessServer, Program, TestAgent, ThreadAgent, calls, says,
};

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

/// Counts the allocations of each thread, and of all threads that run an agent.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static RUNS_AN_AGENT: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS_OF_AGENTS: AtomicUsize = AtomicUsize::new(0);

fn count_allocation() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    if RUNS_AN_AGENT.get() {
        ALLOCATIONS_OF_AGENTS.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "passes everything on to the system's allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation();
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocation();
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

/// The agent on a thread of the test, whose allocations are counted.
enum CountedAgent {}

impl InProcessServer for CountedAgent {
    fn serve(
        home: &Path,
        variables: &[(String, String)],
        input: File,
        output: File,
    ) -> io::Result<()> {
        RUNS_AN_AGENT.set(true);
        turnwright::internals::serve_acp(home, variables, Stdio { input, output })
    }
}

/// Only the runtime's thread is counted, because the number of the others depends on their speed.
#[test]
fn a_tool_round_allocates_little() {
    const ROUNDS: usize = 10;
    // The first turn pays for what is kept until the end of the session.
    let replies: Vec<_> = [1, 1, ROUNDS + 1, 1, ROUNDS + 1]
        .into_iter()
        .flat_map(|rounds| {
            // The same call again and again would be stopped.
            let call = |it| calls("read_file", &json!({ "path": format!("notes.{it:0>3}") }));
            (0..rounds).map(call).chain([says("Done.")])
        })
        .collect();
    let mut builder = TestAgent::<ThreadAgent<CountedAgent>>::builder();
    for number in 0..=ROUNDS {
        builder = builder.file(&format!("notes.{number:0>3}"), "a note\n");
    }
    let mut agent = builder.model(json!(replies)).start();
    let mut allocations = || {
        let before = ALLOCATIONS_OF_AGENTS.load(Ordering::Relaxed);
        agent.turn("read the notes");
        ALLOCATIONS_OF_AGENTS.load(Ordering::Relaxed) - before
    };
    allocations();
    let rounds = (0..2).map(|_| {
        let one = allocations();
        (allocations() - one) / ROUNDS
    });
    let round = rounds.min().unwrap();
    // Paths are looked at component by component, which costs about three allocations each. The budget
    // is that of `/tmp/NAME/NAME`.
    let deeper = agent.workspace().components().count().saturating_sub(4);
    assert_at_most("allocations for a tool round", round - 3 * deeper);
}

#[test]
fn the_program_has_few_crates() {
    let tree =
        ["tree", "--package", "turnwright", "--locked", "--edges", "normal", "--prefix", "none"];
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

/// The project has more to tell than there is room for. The rest of the prompt has the name of a folder in it.
#[test]
fn the_first_request_is_small_with_surroundings() {
    let scripts = r#"{ "scripts": { "build": "x", "lint": "x", "test": "x", "typecheck": "x" } }"#;
    let mut builder = TestAgent::<ChildAgent<Turnwright>>::builder()
        .model(json!([says("Hi.")]))
        .surroundings()
        .file("Cargo.toml", "[package]\n")
        .file("Cargo.lock", "")
        .file("package.json", scripts)
        .file("package-lock.json", "{}");
    for number in 0..20 {
        let name = "a-name-of-a-file-that-is-as-long-as-names-of-files-are";
        builder = builder.file(&format!("{name}-{number}.rs"), "");
    }
    let mut agent = builder.start();
    agent.turn("hi");
    let request = agent.model_request(0);
    let sent = json!([request["messages"], request["tools"]]).to_string();
    assert!(sent.contains("Surroundings when the session began"), "{sent}");
    assert_at_most("bytes of the first request with surroundings", sent.len());
}

/// Pages of the heap and of the stacks, which each agent has for itself. Those into which the loader writes
/// addresses are not counted: this program has three times as many of them as the published one. The order
/// in which threads run adds up to 50 KiB to what is needed, so the least of several starts counts.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn an_idle_session_holds_little_memory() {
    const STARTS: usize = 8;
    let start = || TestAgent::<ChildAgent<Turnwright>>::builder().model(json!([])).start();
    let Some(all) = (0..STARTS).map(|_| heap_and_stacks(&start())).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    assert_at_most("KiB of heap and stacks after session/new", all.into_iter().min().unwrap());
}

/// `None` if it cannot be measured: the agent protects its memory from other processes of its user.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn heap_and_stacks(agent: &TestAgent<ChildAgent<Turnwright>>) -> Option<usize> {
    let memory = match std::fs::read_to_string(format!("/proc/{}/smaps", agent.pid())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("SKIPPED: only root can see the memory of the agent, which protects it");
            return None;
        }
        memory => memory.unwrap(),
    };
    let (mut is_file, mut kibibytes) = (false, 0);
    for line in memory.lines() {
        if let Some(anonymous) = line.strip_prefix("Anonymous:") {
            let anonymous: usize = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
            kibibytes += if is_file { 0 } else { anonymous };
        } else if line.starts_with(|it: char| it.is_ascii_digit() || it.is_ascii_lowercase()) {
            is_file = line.contains('/');
        }
    }
    Some(kibibytes)
}

/// Four helpers that have read a file and wait for the model. One before them pays for what all share.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn a_helper_holds_little_memory() {
    const HELPERS: usize = 4;
    let start = |task: usize| {
        let task = json!({ "prompt": format!("task {task}."), "background": task > 0 });
        json!({ "call": { "name": "agent", "arguments": task } })
    };
    let when =
        |task: usize, reply: Value| json!({ "when": format!("task {task}."), "steps": reply });
    let all: Vec<_> = (1..=HELPERS).map(start).collect();
    let mut replies = vec![json!([start(0)]), says("Done."), json!(all), says("Started.")];
    for task in 0..=HELPERS {
        replies.push(when(task, calls("read_file", &json!({ "path": "notes.txt" }))));
        replies.push(when(task, if task == 0 { says("Read.") } else { json!([{ "hang": true }]) }));
    }
    let mut agent = TestAgent::<ChildAgent<Turnwright>>::builder()
        .file("notes.txt", "a note\n")
        .model(json!(replies))
        .start();
    agent.turn("go");
    let Some(before) = heap_and_stacks(&agent) else { return };
    agent.turn("go on");
    agent.model_request(4 + 2 + 2 * HELPERS - 1);
    let each = heap_and_stacks(&agent).unwrap().saturating_sub(before) / HELPERS;
    assert_at_most("KiB of anonymous memory for a helper", each);
}

/// The speed of other threads changes what the main thread does only in one place: it starts another thread for
/// `session/new`, with eight system calls, if the one that asks the system in the background is not done yet.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn the_start_does_little() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    let folder = turnwright_testing::temporary_folder();
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
    let mut stdin = process.stdin.take().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut ask = |id: u32, method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        // strace ends at once where it may not trace.
        writeln!(stdin, "{request}").ok()?;
        let mut line = String::new();
        stdout.read_line(&mut line).ok()?;
        serde_json::from_str::<Value>(&line).ok()
    };
    let capabilities = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    let answer = ask(1, "initialize", capabilities);
    let session = ask(2, "session/new", json!({ "cwd": folder.path(), "mcpServers": [] }));
    drop(stdin);
    process.wait().unwrap();
    let (Some(answer), Some(session)) = (answer, session) else {
        eprintln!("SKIPPED: strace may not trace here");
        return;
    };
    assert_eq!((&answer["id"], &session["id"]), (&json!(1), &json!(2)), "{answer} {session}");

    let trace = std::fs::read_to_string(trace).unwrap();
    // What is written has its address instead of its text if strace may not read it.
    if !trace.contains("jsonrpc") {
        eprintln!("SKIPPED: strace needs the rights of root to read the memory of the agent");
        return;
    }
    let is_response = |line: &str| line.contains("write") && line.contains("jsonrpc");
    let lines: Vec<_> = trace.lines().collect();
    let mut parts = lines.split(|it| is_response(it));
    let (start, new_session) = (parts.next().unwrap(), parts.next().unwrap());

    let main = trace.split_whitespace().next().unwrap();
    let by_main = |part: &[&str]| {
        let own = |it: &&&str| it.starts_with(main) && !it.contains("resumed>");
        let calls: Vec<_> = part.iter().filter(own).copied().collect();
        let opens = |it: &&&str| it.contains("openat(") && !it.contains("ENOENT");
        (calls.len(), calls.iter().filter(opens).count())
    };
    let (calls, opened) = by_main(start);
    assert_at_most("system calls of the main thread before the response to initialize", calls);
    assert_at_most("files opened by the main thread before the response to initialize", opened);
    let (calls, opened) = by_main(new_session);
    assert_at_most("system calls of the main thread for session/new", calls);
    assert_at_most("files opened by the main thread for session/new", opened);
}
