//! Answers in unusual forms of HTTP. How lines and events are cut is tested with the recorded streams of
//! `tests/corpus.rs`, and bytes without an end in `tests/it`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use turnwright_testing::cancellation::NEXT;
use turnwright_testing::model_failures::failure;
use turnwright_testing::raw_server::{RawServer, text_stream, write_head};

use crate::agent::{LIMIT, TestAgent};

const WORDS: &str = "Grüße, 世界 🦀 – Ende.";

fn start(server: &RawServer) -> TestAgent {
    TestAgent::builder().variable("OPENAI_BASE_URL", &server.base_url()).start()
}

/// Checks that the agent shows `WORDS`, however `play` sends the answer.
fn check(play: impl Fn(&mut TcpStream) + Send + Sync + 'static) {
    let server = RawServer::start(move |_, stream| play(stream));
    let mut agent = start(&server);
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), WORDS);
    assert_eq!(agent.turn(NEXT), "end_turn");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn r_turn_12_an_answer_in_chunks_that_split_characters_is_read_correctly() {
    check(|stream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
            transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for chunk in text_stream(WORDS).as_bytes().chunks(3) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).ok();
            stream.write_all(chunk).ok();
            stream.write_all(b"\r\n").ok();
        }
        stream.write_all(b"0\r\n\r\n").ok();
    });
}

#[test]
fn r_turn_12_a_compressed_answer_that_was_not_asked_for_is_read_correctly() {
    let server = RawServer::start(|number, stream| {
        let (status, text) = match number {
            0 => ("400 Bad Request", json!({ "error": "Bad luck" }).to_string()),
            _ => ("200 OK", text_stream(WORDS)),
        };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        let body = encoder.finish().unwrap();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
    });
    let mut agent = start(&server);
    let error = failure(&mut agent, "bad_request", Some(400));
    assert!(error["message"].as_str().unwrap().contains("Bad luck"), "{error}");
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), WORDS);
    let request = server.requests()[0].to_lowercase();
    assert!(request.contains("\r\naccept-encoding: identity\r\n"), "{request}");
}

#[test]
fn a_connection_is_reused_when_its_last_chunk_comes_after_the_answer() {
    let (may_end, wait_to_end) = channel();
    let (ended, wait_for_end) = channel();
    let (wait_to_end, ended) = (Mutex::new(wait_to_end), Mutex::new(ended));
    let server = RawServer::start(move |_, stream| {
        for _ in 0..2 {
            let text = text_stream(WORDS);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
            let body = format!("{head}{:x}\r\n{text}\r\n", text.len());
            stream.write_all(body.as_bytes()).unwrap();
            wait_to_end.lock().unwrap().recv().unwrap();
            stream.write_all(b"0\r\n\r\n").unwrap();
            ended.lock().unwrap().send(()).unwrap();
            wait_for_more(stream);
        }
    });
    // A request for the models would take the connection.
    let mut agent = TestAgent::builder()
        .variable("OPENAI_BASE_URL", &server.base_url())
        .own_file("config/config.toml", "list_models = false")
        .start();
    for _ in 0..2 {
        // The turn ends before the end of the body.
        assert_eq!(agent.turn("hello"), "end_turn");
        may_end.send(()).unwrap();
        wait_for_end.recv_timeout(LIMIT).unwrap();
        // When these requests are answered, the agent has run its loop again and has read the last
        // chunk.
        agent.sync();
        agent.sync();
    }
    assert_eq!(agent.text(), WORDS.repeat(2));
    // The server counts connections here, because it reads one request from each.
    assert_eq!(server.requests().len(), 1);
}

/// Reads the part of the next request that has arrived, or the end of the connection.
fn wait_for_more(stream: &mut TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    assert!(stream.read(&mut buffer).is_ok());
}

#[test]
fn r_turn_12_comments_after_the_end_of_an_answer_do_not_keep_the_turn_alive() {
    let server = RawServer::start(|_, stream| {
        write_head(stream);
        let whole = text_stream(WORDS).replace("data: [DONE]\n\n", "");
        stream.write_all(whole.as_bytes()).unwrap();
        // Until the agent closes the connection.
        while stream.write_all(b": ping\n\n").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    });
    let mut agent = start(&server);
    assert_eq!(agent.turn("hello"), "end_turn");
    assert_eq!(agent.text(), WORDS);
}
