//! What single functions cost: `cargo bench --bench functions`. Most by divan; those of the model
//! layer, of searching, of the tools, of permission, of the sandbox and of the store, which have budgets, in tables. Whole-process figures are in `benches/process`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its figures")]

#[cfg(target_os = "linux")]
mod jail;
mod mcp;
mod model;
mod permission;
mod search;
#[path = "../process/seed.rs"]
mod seed;
mod store;
#[path = "../process/table.rs"]
#[allow(dead_code, reason = "the other bench takes medians")]
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
use turnwright_types::dialect::ShellDialect;

/// Events of the stream that is decoded.
const EVENTS: usize = 1_000;
/// About what a read from a socket brings.
const READ: usize = 8 * 1024;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `--bench -- model` is that table alone, and any other word is a filter of divan's.
    let has = |word: &str| arguments.iter().any(|it| it == word);
    let alone = ["model", "search", "tools", "permission", "jail", "store", "mcp"];
    let is_alone = alone.into_iter().any(has);
    let is_all = arguments == ["--bench"];
    if !is_alone {
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
    if (has("jail") || is_all)
        && let Err(error) = jail::measure()
    {
        eprintln!("functions: {error}");
    }
    if (has("store") || is_all)
        && let Err(error) = store::measure()
    {
        eprintln!("functions: {error}");
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

/// A model's stream → events, cut as a socket cuts it, or into pieces that never end with a line.
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

fn line(name: &str) -> Value {
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

/// A line of the client → a message.
#[divan::bench(args = ["prompt", "cancel", "answer"])]
fn rpc_parse(bencher: Bencher<'_, '_>, name: &str) {
    let line = line(name).to_string();
    bencher.counter(BytesCount::of_str(&line)).bench(|| parse_line(black_box(line.as_bytes())));
}

/// A text update → the buffer of the writer, which runs beside it.
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

/// A command line → its simple commands; the last one is not understood and only scanned.
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
