//! A line of JSON-RPC from any bytes. An identifier that is echoed must be what came.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright::rpc::{Frame, Line, RequestId, parse};

fuzz_target!(|line: &[u8]| {
    match parse(line) {
        Line::Message(Frame::Request { id, params, .. }) => {
            check_echo(&id, line);
            drop(params.read::<serde_json::Value>());
        }
        Line::Message(Frame::Notification { params, .. }) => {
            drop(params.read::<serde_json::Value>());
        }
        Line::Message(Frame::Response { id, .. }) => check_echo(&id, line),
        Line::Refused { id, error } => {
            check_echo(&id, line);
            assert!((-32700..=-32600).contains(&error.code), "{error:?}");
        }
        Line::Ignored => {}
    }
});

fn check_echo(id: &RequestId, line: &[u8]) {
    let id = id.to_string();
    let value: serde_json::Value = serde_json::from_str(&id).expect("an identifier is JSON");
    assert!(value.is_null() || value.is_string() || value.is_number(), "{id}");
    assert!(value.is_null() || String::from_utf8_lossy(line).contains(&id), "{id}");
}
