//! Measures single functions: `cargo bench --bench functions`. The benchmarks in this file use divan.
//! Those in the submodules have budgets and print tables. The whole program is measured in
//! `benches/process`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]

#[cfg(target_os = "linux")]
mod sandbox;
mod compaction;
mod mcp;
mod model;
mod permission;
mod search;
#[path = "../process/seed.rs"]
mod seed;
mod store;
#[path = "../process/table.rs"]
#[allow(dead_code, reason = "not every benchmark uses every function")]
mod table;
mod tools;

use std::hint::black_box;
use std::io;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use serde_json::{Value, json};
use turnwright_llm::sse::Decoder;
use turnwright_policy::shell::parse;
use turnwright_rpc::{Outbox, parse_line};
use turnwright_types::shell_script::ShellDialect;

/// The number of events of the decoded stream.
const EVENTS: usize = 1_000;
/// A typical number of bytes from one read of a socket.
const READ: usize = 8 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench --bench functions -- model` prints only that table. Any other argument is a filter for
    // divan.
    let has = |word: &str| arguments.iter().any(|it| it == word);
    if has("--peers") {
        // Only for the other benchmark.
        return;
    }
    let tables =
        ["model", "search", "tools", "permission", "sandbox", "store", "mcp", "compaction"];
    let only_tables = tables.into_iter().any(has);
    let is_all = arguments == ["--bench"];
    if !only_tables {
        divan::main();
    }
    if (has("model") || is_all)
        && let Err(error) = model::measure()
    {
        eprintln!("functions: {error}");
    }
    if has("permission") || is_all {
        permission::measure();
    }
    #[cfg(target_os = "linux")]
    if (has("sandbox") || is_all)
        && let Err(error) = sandbox::measure()
    {
        eprintln!("functions: {error}");
    }
    if (has("store") || is_all)
        && let Err(error) = store::measure()
    {
        eprintln!("functions: {error}");
    }
    if has("compaction") || is_all {
        compaction::measure();
    }
    if has("mcp") || is_all {
        mcp::measure();
    }
    if has("tools") || is_all {
        tools::measure();
    }
    if (has("search") || is_all)
        && let Err(error) = search::measure()
    {
        eprintln!("functions: {error}");
    }
}

/// Builds an event stream of [`EVENTS`] deltas.
fn stream(line_end: &str) -> Vec<u8> {
    let mut stream = String::new();
    for number in 0..EVENTS {
        let delta = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{ "index": 0, "delta": { "content": format!(" word {number}") } }]
        });
        stream.push_str(&format!("data: {delta}{line_end}{line_end}"));
    }
    stream.into_bytes()
}

/// Decodes a model's event stream, in pieces as large as a socket read or in small pieces that end in
/// the middle of a line.
#[divan::bench(args = [("lf", READ), ("crlf", READ), ("lf", 61)])]
fn sse_decode(bencher: Bencher<'_, '_>, (line_end, piece): (&str, usize)) {
    let stream = stream(if line_end == "lf" { "\n" } else { "\r\n" });
    bencher.counter(ItemsCount::new(EVENTS)).counter(BytesCount::of_slice(&stream)).bench(|| {
        let mut decoder = Decoder::default();
        let mut bytes = 0;
        for piece in black_box(&stream).chunks(piece) {
            let pushed = decoder.push(piece, |event| bytes += event.data.len());
            debug_assert_eq!(pushed, Ok(()));
        }
        bytes
    });
}

/// A message from the client.
fn client_message(name: &str) -> Value {
    match name {
        "prompt" => json!({
            "jsonrpc": "2.0", "id": 3, "method": "session/prompt",
            "params": { "sessionId": "0b7f2c52-1f6d-4a4e-9a3d-2f2b8c1f0d11", "prompt": [
                { "type": "text", "text": "What does this function do, and who calls it?" },
                { "type": "resource", "resource": {
                    "uri": "file:///home/user/project/src/main.rs",
                    "text": "fn main() {\n    println!(\"hello\");\n}\n".repeat(50)
                } }
            ] }
        }),
        "cancel" => json!({
            "jsonrpc": "2.0", "method": "session/cancel",
            "params": { "sessionId": "0b7f2c52-1f6d-4a4e-9a3d-2f2b8c1f0d11" }
        }),
        _ => json!({
            "jsonrpc": "2.0", "id": 12,
            "result": { "outcome": { "outcome": "selected", "optionId": "allow_once" } }
        }),
    }
}

/// Parses a line from the client into a message.
#[divan::bench(args = ["prompt", "cancel", "answer"])]
fn rpc_parse(bencher: Bencher<'_, '_>, name: &str) {
    let line = client_message(name).to_string();
    bencher.counter(BytesCount::of_str(&line)).bench(|| parse_line(black_box(line.as_bytes())));
}

/// Queues a text update for the writer thread.
#[divan::bench]
fn outbox_notify(bencher: Bencher<'_, '_>) {
    let Ok(outbox) = Outbox::start(io::sink()) else { return };
    let update = json!({
        "sessionId": "0b7f2c52-1f6d-4a4e-9a3d-2f2b8c1f0d11",
        "update": {
            "sessionUpdate": "agent_message_chunk", "messageId": "msg-1",
            "content": { "type": "text", "text": " a few words" }
        }
    });
    bencher
        .counter(ItemsCount::new(1_u32))
        .bench(|| outbox.notify("session/update", black_box(&update)));
}

/// Parses a command line into simple commands. The parser does not support loops, so it only scans the
/// last line.
#[divan::bench(args = [
    "git status -s",
    "cargo test -p core 2>&1 | tail -20",
    "cd crates/core && RUST_BACKTRACE=1 cargo test --lib parse -- --nocapture",
    "grep -rn 'fn main' src --include='*.rs' | sort | head -5 > found.txt",
    "for file in src/*.rs; do wc -l \"$file\"; done",
])]
fn permission_read_line(bencher: Bencher<'_, '_>, line: &str) {
    bencher.bench(|| parse(black_box(line), ShellDialect::Bash));
}
