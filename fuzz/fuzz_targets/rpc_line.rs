//! Parses arbitrary bytes as a line of JSON-RPC. An id in the result must be one from the line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_rpc::{ParsedLine, RequestId, RpcMessage, parse_line};

fuzz_target!(|line: &[u8]| {
    match parse_line(line) {
        ParsedLine::Message(RpcMessage::Request { id, params, .. }) => {
            check_echo(&id, line);
            drop(params.read::<serde_json::Value>());
        }
        ParsedLine::Message(RpcMessage::Notification { params, .. }) => {
            drop(params.read::<serde_json::Value>());
        }
        ParsedLine::Message(RpcMessage::Response { id, .. }) => check_echo(&id, line),
        ParsedLine::Rejected { id, error } => {
            check_echo(&id, line);
            assert!((-32700..=-32600).contains(&error.code), "{error:?}");
        }
        ParsedLine::Ignored => {}
    }
});

fn check_echo(id: &RequestId, line: &[u8]) {
    let id = id.to_string();
    let value: serde_json::Value = serde_json::from_str(&id).expect("an id is JSON");
    assert!(value.is_null() || value.is_string() || value.is_number(), "{id}");
    assert!(value.is_null() || String::from_utf8_lossy(line).contains(&id), "{id}");
}
