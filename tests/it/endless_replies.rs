//! Endless replies (R-TURN-12): a model server that never stops sending cannot fill the agent's memory.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use turnwright_testing::cancellation::NEXT;
use turnwright_testing::model_failures::failure;
use turnwright_testing::process_report::peak_memory;
use turnwright_testing::raw_server::{RawServer, text_stream, write_head, write_stream};

use crate::agent::TestAgent;

const WORDS: &str = "Grüße, 世界 🦀 – Ende.";

fn start(server: &RawServer) -> TestAgent {
    TestAgent::builder().variable("OPENAI_BASE_URL", &server.base_url()).start()
}

/// Checks that the turn fails and little memory is used if the server writes `start_of_body` and then
/// `piece` without end.
fn check_endless(start_of_body: &'static str, piece: &'static str) {
    const LIMIT: u64 = 400 << 20;
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let server = RawServer::start(move |number, stream| {
        if number > 0 {
            return write_stream(stream, &text_stream(WORDS));
        }
        write_head(stream);
        let piece = piece.repeat((64 << 10) / piece.len());
        stream.write_all(start_of_body.as_bytes()).unwrap();
        while counter.load(Ordering::Relaxed) < LIMIT && stream.write_all(piece.as_bytes()).is_ok()
        {
            counter.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    });
    let mut agent = start(&server);
    let error = failure(&mut agent, "malformed", None);
    assert!(error["message"].as_str().unwrap().contains("32 MiB"), "{error}");
    let written = written.load(Ordering::Relaxed);
    assert!(written < 100 << 20, "{written} bytes were read");
    let peak = peak_memory(agent.pid());
    assert!(peak < 200 << 20, "{peak} bytes of memory were used");
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert_eq!(agent.text(), WORDS);
}

#[test]
fn r_turn_12_an_endless_line_is_an_error_before_memory_is_full() {
    check_endless("data: ", "x");
}

#[test]
fn r_turn_12_an_endless_event_is_an_error_before_memory_is_full() {
    check_endless(
        "",
        "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
    );
}

#[test]
fn r_turn_12_an_endless_document_is_an_error_before_memory_is_full() {
    check_endless("{\"choices\": [", "        ");
}

#[test]
fn r_turn_12_an_endless_error_is_reported_after_its_first_part() {
    let server = RawServer::start(|number, stream| {
        if number > 0 {
            return write_stream(stream, &text_stream(WORDS));
        }
        stream.write_all(b"HTTP/1.1 400 \r\nconnection: close\r\n\r\n").unwrap();
        let piece = "x".repeat(64 << 10);
        while stream.write_all(piece.as_bytes()).is_ok() {}
    });
    let mut agent = start(&server);
    let error = failure(&mut agent, "bad_request", Some(400));
    assert!(error["message"].as_str().unwrap().len() < 1_000, "{error}");
    assert!(peak_memory(agent.pid()) < 200 << 20);
    assert_eq!(agent.turn(NEXT), "end_turn");
}

#[test]
fn r_turn_12_blank_lines_before_a_reply_need_neither_memory_nor_time() {
    // Some providers keep a connection alive with blank lines.
    let server = RawServer::start(|_, stream| {
        write_head(stream);
        let blank = "\n".repeat(64 << 10);
        for _ in 0..1_000 {
            stream.write_all(blank.as_bytes()).ok();
        }
        stream.write_all(text_stream(WORDS).as_bytes()).ok();
    });
    let mut agent = start(&server);
    // Most of it is the program itself, without optimisation.
    let before = peak_memory(agent.pid());
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), WORDS);
    let more = peak_memory(agent.pid()) - before;
    assert!(more < 20 << 20, "{more} bytes of memory were used");
}
