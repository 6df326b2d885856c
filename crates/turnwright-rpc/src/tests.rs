//! What each odd line gets, and what the lane promises.

use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A short name for what a line turned out to be.
fn shape(line: &str) -> String {
    match parse(line.as_bytes()) {
        Line::Message(Frame::Request { id, method, .. }) => format!("request {id} {method}"),
        Line::Message(Frame::Notification { method, .. }) => format!("notification {method}"),
        Line::Message(Frame::Response { id, result: Ok(result) }) => {
            format!("response {id} {}", result.get())
        }
        Line::Message(Frame::Response { id, result: Err(error) }) => {
            format!("error {id} {} {}", error.code, error.message)
        }
        Line::Refused { id, error } => format!("refused {id} {}", error.code),
        Line::Ignored => "ignored".to_owned(),
    }
}

#[test]
fn each_line_gets_what_json_rpc_prescribes() {
    let table = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#, "request 1 a"),
        (r#"{"jsonrpc":"2.0","id":"x","method":"a","params":null}"#, "request \"x\" a"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "request null a"),
        (r#"{"jsonrpc":"2.0","id":-1,"method":"a","params":[]}"#, "request -1 a"),
        (r#"{"jsonrpc":"2.0","id":9007199254740992,"method":"a"}"#, "request 9007199254740992 a"),
        (
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"a"}"#,
            "request 18446744073709551615 a",
        ),
        (r#"{"jsonrpc":"2.0","method":"\u0061b"}"#, "notification ab"),
        (r#"{"jsonrpc":"2.0","id":3,"result":null}"#, "response 3 null"),
        (r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#, "error 3 -1 no"),
        (r#"{"jsonrpc":"2.0","id":3,"error":"odd"}"#, "error 3 -32603 \"odd\""),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#, "error null -1 no"),
        // −32700
        ("{oops", "refused null -32700"),
        ("oops", "refused null -32700"),
        ("[1,", "refused null -32700"),
        // −32600
        ("5", "refused null -32600"),
        ("\"x\"", "refused null -32600"),
        ("[]", "refused null -32600"),
        ("[1]", "refused null -32600"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":5}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "refused 1 -32600"),
        (r#"{"id":1,"method":"a"}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "refused null -32600"),
        // Nobody waits for an answer to these.
        ("", "ignored"),
        ("  \t", "ignored"),
        (r#"{"jsonrpc":"2.0","method":5}"#, "ignored"),
        (r#"{"jsonrpc":"2.0","method":"a","params":5}"#, "ignored"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#, "ignored"),
        ("{}", "ignored"),
    ];
    for (line, expected) in table {
        assert_eq!(shape(line), expected, "{line}");
    }
}

#[test]
fn invalid_utf8_is_a_parse_error() {
    assert!(matches!(
        parse(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}"),
        Line::Refused { error: RpcError { code: -32700, .. }, .. }
    ));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}1{}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    // Whether it is refused now or when its parameters are read does not matter.
    drop(parse(deep.as_bytes()));
}

proptest! {
    #[test]
    fn no_line_makes_the_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(parse(&line));
    }

    #[test]
    fn almost_json_does_not_either(line in r#"[\{\}\[\]",:0-9a-z\\ ]{0,80}"#) {
        drop(parse(line.as_bytes()));
    }
}

/// A writer that passes on what it gets, and blocks while nobody takes it.
struct Pipe(mpsc::SyncSender<Vec<u8>>);

impl std::io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_bulk_wait_and_answers_pass() {
    let (sender, receiver) = mpsc::sync_channel(0);
    let outbox = Outbox::start(Pipe(sender)).unwrap();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(50), outbox.room()).await.is_ok() {
        outbox.notify("session/update", &"x".repeat(10_000));
        sent += 1;
        assert!(sent < 100, "bulk never had to wait");
    }
    outbox.respond(&RequestId::null(), Ok(&"the answer"));

    let mut all = Vec::new();
    while !all.ends_with(b"\"the answer\"}\n") {
        all.extend(receiver.recv_timeout(Duration::from_secs(5)).unwrap());
    }
    outbox.room().await;
    assert_eq!(all.split(|it| *it == b'\n').count(), sent + 2);
}

#[tokio::test]
async fn a_client_that_is_gone_makes_nobody_wait() {
    let (sender, receiver) = mpsc::sync_channel(0);
    drop(receiver);
    let outbox = Outbox::start(Pipe(sender)).unwrap();
    for _ in 0..100 {
        outbox.room().await;
        outbox.notify("session/update", &"x".repeat(10_000));
    }
    outbox.close(Duration::from_secs(5));
}

#[tokio::test]
async fn a_request_that_is_given_up_is_withdrawn_and_a_late_answer_ignored() {
    let (sender, receiver) = mpsc::sync_channel(16);
    let peer = Peer::new(Outbox::start(Pipe(sender)).unwrap());
    let limit = Duration::from_millis(20);
    let failed = peer.request("ask", &"?", limit).await.unwrap_err();
    assert_eq!(failed, RequestFailed::TimedOut(limit));
    let mut text = String::new();
    while !text.contains("cancel_request") {
        let bytes = receiver.recv_timeout(Duration::from_secs(5)).unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(text.contains(r#""params":{"requestId":0}"#), "{text}");
    let Line::Message(Frame::Response { id, result }) =
        parse(br#"{"jsonrpc":"2.0","id":0,"result":1}"#)
    else {
        panic!("not a response")
    };
    peer.complete(&id, result);
}

#[tokio::test]
async fn hanging_up_ends_every_wait() {
    let peer = Peer::new(Outbox::start(std::io::sink()).unwrap());
    let asking = peer.request("ask", &"?", Duration::from_secs(60));
    let hanging_up = async {
        tokio::task::yield_now().await;
        peer.hang_up();
    };
    let (answer, ()) = tokio::join!(asking, hanging_up);
    assert_eq!(answer.unwrap_err(), RequestFailed::Gone);
    let later = peer.request("ask", &"?", Duration::from_secs(60)).await;
    assert_eq!(later.unwrap_err(), RequestFailed::Gone);
}
