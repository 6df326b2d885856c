//! Tests of the parser's answers to odd lines, of the outgoing queue's back pressure, and of
//! withdrawn requests.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::value::RawValue;

use super::*;

/// Describes the result of parsing a line.
fn describe(line: &str) -> String {
    match parse_line(line.as_bytes()) {
        ParsedLine::Message(RpcMessage::Request { id, method, .. }) => {
            format!("request {id} {method}")
        }
        ParsedLine::Message(RpcMessage::Notification { method, .. }) => {
            format!("notification {method}")
        }
        ParsedLine::Message(RpcMessage::Response { id, result: Ok(result) }) => {
            format!("response {id} {}", result.get())
        }
        ParsedLine::Message(RpcMessage::Response { id, result: Err(error) }) => {
            format!("error {id} {} {}", error.code, error.message)
        }
        ParsedLine::Rejected { id, error } => format!("refused {id} {}", error.code),
        ParsedLine::Ignored => "ignored".to_owned(),
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
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}", "request 1 a"),
        (r#"{"jsonrpc":"2.0","id":1.0,"method":"a"}"#, "request 1.0 a"),
        (r#"{"jsonrpc":"2.0","method":"\u0061b"}"#, "notification ab"),
        (r#"{"jsonrpc":"2.0","id":3,"result":null}"#, "response 3 null"),
        (r#"{"jsonrpc":"2.0","id":3,"error":{"code":-1,"message":"no"}}"#, "error 3 -1 no"),
        (r#"{"jsonrpc":"2.0","id":3,"error":"odd"}"#, "error 3 -32603 \"odd\""),
        (r#"{"jsonrpc":"2.0","id":3,"result":{},"error":null}"#, "response 3 {}"),
        (r#"{"jsonrpc":"2.0","id":3,"result":null,"error":null}"#, "response 3 null"),
        (r#"{"jsonrpc":"2.0","id":3}"#, "response 3 null"),
        (
            r#"{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":-1,"message":"no"}}"#,
            "error 3 -1 no",
        ),
        (
            r#"{"jsonrpc":"2.0","id":3,"result":{},"error":{"code":-1,"message":"no"}}"#,
            "error 3 -1 no",
        ),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#, "error null -1 no"),
        // −32700
        ("{oops", "refused null -32700"),
        ("oops", "refused null -32700"),
        ("[1,", "refused null -32700"),
        // −32600
        ("5", "refused null -32600"),
        ("\"x\"", "refused null -32600"),
        ("null", "refused null -32600"),
        ("[]", "refused null -32600"),
        ("[1]", "refused null -32600"),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#, "refused null -32600"),
        ("{}", "refused null -32600"),
        (r#"{"params":{}}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":5}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "refused 1 -32600"),
        (r#"{"id":1,"method":"a"}"#, "refused 1 -32600"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":[8],"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":true,"method":"a"}"#, "refused null -32600"),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "refused null -32600"),
        // These must not be answered.
        ("", "ignored"),
        ("  \t", "ignored"),
        (r#"{"jsonrpc":"2.0","method":5}"#, "ignored"),
        (r#"{"jsonrpc":"2.0","method":"a","params":5}"#, "ignored"),
        (r#"{"jsonrpc":"2.0","result":1}"#, "ignored"),
        (r#"{"error":{"code":1,"message":""}}"#, "ignored"),
    ];
    for (line, expected) in table {
        assert_eq!(describe(line), expected, "{line}");
    }
}

#[test]
fn half_a_character_does_not_spoil_a_message() {
    let line =
        r#"{"jsonrpc":"2.0","method":"a","params":{"text":"a \ud83d b \ud83d\ude00 \\ud83d"}}"#;
    let ParsedLine::Message(RpcMessage::Notification { params, .. }) = parse_line(line.as_bytes())
    else {
        panic!("it is a notification");
    };
    let fields: BTreeMap<String, String> = params.read().unwrap();
    assert_eq!(fields["text"], "a \u{fffd} b 😀 \\ud83d");
    let response = r#"{"jsonrpc":"2.0","id":3,"result":"cut \uD83D"}"#;
    assert_eq!(describe(response), r#"response 3 "cut \ufffd""#);
}

#[test]
fn a_wrong_byte_in_a_text_does_not_spoil_a_message() {
    let line =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"text\":\"caf\xe9 \x80kb\"}}";
    let ParsedLine::Message(RpcMessage::Request { id, params, .. }) = parse_line(line) else {
        panic!("it is a request");
    };
    let fields: BTreeMap<String, String> = params.read().unwrap();
    assert_eq!((id.to_string().as_str(), fields["text"].as_str()), ("1", "caf\u{fffd} \u{fffd}kb"));
    // Anywhere else it is no JSON.
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\xff\"method\":\"a\"}";
    assert!(matches!(
        parse_line(line),
        ParsedLine::Rejected { error: RpcError { code: -32700, .. }, .. }
    ));
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{}1{}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    // It does not matter whether it is refused now or when its parameters are deserialised.
    drop(parse_line(deep.as_bytes()));
}

proptest! {
    #[test]
    fn no_line_makes_the_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(parse_line(&line));
    }

    #[test]
    fn almost_json_does_not_either(line in r#"[\{\}\[\]",:0-9a-z\\ ]{0,80}"#) {
        drop(parse_line(line.as_bytes()));
    }
}

/// A writer that sends what is written to a channel, and blocks while nothing receives it.
struct ChannelWriter(mpsc::SyncSender<Vec<u8>>);

impl std::io::Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_bulk_output_but_not_responses() {
    let (sender, receiver) = mpsc::sync_channel(0);
    let outbox = Outbox::start(ChannelWriter(sender)).unwrap();
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(50), outbox.wait_for_capacity()).await.is_ok()
    {
        outbox.notify("session/update", &"x".repeat(10_000));
        sent += 1;
        assert!(sent < 100, "bulk never had to wait");
    }
    outbox.respond(&RequestId::null(), Ok(&"the answer"));

    let mut all = Vec::new();
    while !all.ends_with(b"\"the answer\"}\n") {
        all.extend(receiver.recv_timeout(Duration::from_secs(60)).unwrap());
    }
    outbox.wait_for_capacity().await;
    assert_eq!(all.split(|byte| *byte == b'\n').count(), sent + 2);
}

#[test]
fn a_batch_is_one_write() {
    let (sender, receiver) = mpsc::sync_channel(16);
    let outbox = Outbox::start(ChannelWriter(sender)).unwrap();
    let outer = outbox.batch();
    let inner = outbox.batch();
    for number in 0..3 {
        outbox.send(&number);
    }
    drop(inner);
    assert!(receiver.try_recv().is_err(), "another batch is open");
    drop(outer);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), b"0\n1\n2\n");
    outbox.send(&3);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), b"3\n");
    // What is open when everything ends holds nothing back.
    let _batch = outbox.batch();
    outbox.send(&4);
    outbox.close(Duration::from_secs(5));
    assert_eq!(receiver.recv_timeout(Duration::from_secs(5)).unwrap(), b"4\n");
}

#[test]
fn no_character_of_a_text_ends_a_line() {
    let (sender, receiver) = mpsc::sync_channel(16);
    let outbox = Outbox::start(ChannelWriter(sender)).unwrap();
    outbox.send(&"a\u{2028}b\u{2029}“c”\n\\u2028");
    let line = receiver.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(line, "\"a\\u2028b\\u2029“c”\\n\\\\u2028\"\n".as_bytes());
}

#[tokio::test]
async fn a_client_that_has_hung_up_blocks_no_sender() {
    let (sender, receiver) = mpsc::sync_channel(0);
    drop(receiver);
    let outbox = Outbox::start(ChannelWriter(sender)).unwrap();
    for _ in 0..100 {
        outbox.wait_for_capacity().await;
        outbox.notify("session/update", &"x".repeat(10_000));
    }
    outbox.close(Duration::from_secs(60));
}

#[tokio::test]
async fn a_request_that_times_out_is_withdrawn_and_its_late_response_is_ignored() {
    let (sender, receiver) = mpsc::sync_channel(16);
    let peer = Peer::new(Outbox::start(ChannelWriter(sender)).unwrap());
    let limit = Duration::from_millis(20);
    let failed = peer.request("ask", &"?", limit).await.unwrap_err();
    assert_eq!(failed, RequestError::TimedOut(limit));
    let mut text = String::new();
    while !text.contains("cancel_request") {
        let bytes = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        text.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(text.contains(r#""params":{"requestId":0}"#), "{text}");
    let ParsedLine::Message(RpcMessage::Response { id, result }) =
        parse_line(br#"{"jsonrpc":"2.0","id":0,"result":1}"#)
    else {
        panic!("not a response")
    };
    peer.complete(&id, result);
}

#[tokio::test]
async fn a_response_whose_id_comes_back_in_another_form_is_delivered() {
    for id in ["0", "\"0\"", "0.0"] {
        let peer = Peer::new(Outbox::start(std::io::sink()).unwrap());
        let asking = peer.request("ask", &"?", Duration::from_secs(60));
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":1}}"#);
        let answering = async {
            tokio::task::yield_now().await;
            let ParsedLine::Message(RpcMessage::Response { id, result }) =
                parse_line(line.as_bytes())
            else {
                panic!("not a response")
            };
            peer.complete(&id, result);
        };
        let (answer, ()) = tokio::join!(asking, answering);
        assert_eq!(answer.unwrap().get(), "1", "{id}");
    }
}

#[test]
fn a_request_is_answered_once_or_given_up_and_too_many_are_refused() {
    let pending = PendingRequests::new(1, 2);
    let mut answered = pending.register(1, None).unwrap();
    let mut given_up = pending.register(2, None).unwrap();
    assert_eq!(pending.register(3, None).unwrap_err(), RequestError::TooMany);
    assert!(pending.give_up(2) && !pending.give_up(2) && pending.is_pending(1));
    for id in [1, 1, 2, 7] {
        pending.complete(id, Ok(RawValue::NULL.to_owned()));
    }
    assert!(answered.try_recv().unwrap().is_ok() && given_up.try_recv().is_err());
    assert!(pending.is_empty());
    let mut lost = pending.register(4, None).unwrap();
    pending.fail_all();
    assert!(lost.try_recv().is_err() && !pending.give_up(4));
    assert_eq!(pending.register(5, None).unwrap_err(), RequestError::ConnectionClosed);
}

#[tokio::test]
async fn hanging_up_fails_pending_and_later_requests() {
    let peer = Peer::new(Outbox::start(std::io::sink()).unwrap());
    let asking = peer.request("ask", &"?", Duration::from_secs(60));
    let hanging_up = async {
        tokio::task::yield_now().await;
        peer.fail_all();
    };
    let (answer, ()) = tokio::join!(asking, hanging_up);
    assert_eq!(answer.unwrap_err(), RequestError::ConnectionClosed);
    let later = peer.request("ask", &"?", Duration::from_secs(60)).await;
    assert_eq!(later.unwrap_err(), RequestError::ConnectionClosed);
}

#[test]
#[cfg(unix)]
fn messages_of_each_sender_stay_in_order_whether_or_not_the_peer_reads() {
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    let (reader, writer) = std::io::pipe().unwrap();
    let output = std::fs::File::from(OwnedFd::from(writer));
    let outbox = Outbox::start_observed(output, |_, _| None, None).unwrap();
    let padding = "x".repeat(500);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    // The peer reads each of these before the next is sent.
    for number in 0..100 {
        outbox.send(&(9, number, &padding));
        let (sender, received, _): (u8, u32, String) =
            serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!((sender, received), (9, number));
    }
    // More than a pipe holds.
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let outbox = &outbox;
            let padding = &padding;
            scope.spawn(move || {
                for number in 0..1_000 {
                    outbox.send(&(sender, number, padding));
                }
            });
        }
    });
    let mut expected = [0; 4];
    for line in lines.by_ref().take(4_000) {
        let (sender, received, _): (usize, u32, String) = serde_json::from_str(&line).unwrap();
        assert_eq!(received, expected[sender]);
        expected[sender] += 1;
    }
    outbox.close(Duration::from_secs(60));
    drop(outbox);
    assert_eq!(lines.next(), None);
}

fn answer_to_long(beginning: &str, end: &str) -> String {
    match LongLine::of(beginning.as_bytes(), end.as_bytes()).parsed() {
        ParsedLine::Rejected { id, error } => format!("refused {id} {}", error.code),
        ParsedLine::Message(RpcMessage::Response { id, result }) => {
            format!("answer {id} {}", result.unwrap_err().code)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn the_id_is_read_from_the_beginning_or_the_end() {
    for (beginning, end, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"b":"xx"#,
            r#"xx"}}"#,
            "refused 7 -32600",
        ),
        (r#"{ "id" : "p-1" , "params":["xx"#, "xx\"]}\n", "refused \"p-1\" -32600"),
        (r#"{"params":{"id":3,"id":4},"id":8,"more":"xx"#, r#"xx"}"#, "refused 8 -32600"),
        (r#"{"params":{"id":3,"a":"xx"#, "xx\"}, \"id\": 9 }\r\n", "refused 9 -32600"),
        (r#"{"params":{"id":3,"a":"xx"#, r#"xx","id":9}}"#, "refused null -32600"),
        (r#"{"method":"a","params":"xx"#, r#"xx,\"id\":9}"}"#, "refused null -32600"),
        (r#"{"a":"xx"#, r#"xx","id":{"id":9}}"#, "refused null -32600"),
        (r#"{"id":5,"result":{"content":"xx"#, r#"xx"}}"#, "answer 5 -32600"),
        (r#"{"result":{"content":"xx"#, r#"xx"},"id":5}"#, "answer 5 -32600"),
        (r#"[{"id":5,"a":"xx"#, "xx\"}]", "refused null -32600"),
        ("xx", "xx", "refused null -32600"),
    ] {
        assert_eq!(answer_to_long(beginning, end), expected, "{beginning}…{end}");
    }
}

#[test]
fn a_stand_in_is_answered_like_the_line() {
    for (beginning, expected) in [
        (r#"{"id":7,"params":"xx"#, r#"Rejected { id: RequestId("7")"#),
        (r#"{"id":7,"result":"xx"#, r#"Message(Response { id: RequestId("7")"#),
        (r#"{"params":"xx"#, r#"Rejected { id: RequestId("null")"#),
    ] {
        let stand_in = LongLine::of(beginning.as_bytes(), b"").stand_in();
        let parsed = format!("{:?}", parse_line(stand_in.as_bytes()));
        assert!(parsed.starts_with(expected), "{parsed}");
    }
}

#[test]
fn the_line_after_a_long_one_is_read() {
    let long = format!("{{\"params\":\"{}\",\"id\":3}}\n", "x".repeat(MAX_LINE_BYTES));
    let mut input = std::io::Cursor::new(format!("{long}next\nlast").into_bytes());
    let mut buffer = Vec::new();
    let line = read_line(&mut input, &mut buffer).unwrap().unwrap();
    assert_eq!(line.id.unwrap().to_string(), "3");
    for expected in ["next\n", "last", ""] {
        buffer.clear();
        assert!(read_line(&mut input, &mut buffer).unwrap().is_none());
        assert_eq!(buffer, expected.as_bytes());
    }
}
