//! Properties that hold for any stream.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{assembler, receive};
use crate::internals::read_reply;
use crate::reply::ReplyReader;
use crate::{Delta, DeltaBatch, LlmError, Protocol};
use turnwright_types::message::Arguments;

/// Reads a reply and describes all of it.
fn transcribe<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    format!("{:?}", read_reply(Protocol::Responses, "m", &[], pieces))
}

/// Valid and invalid fragments of streams.
fn fragment() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "\"",
        ":",
        ",",
        "null",
        "\\ud83d",
        "1",
        "data: ",
        "error: ",
        "event: error\n",
        "event: response.completed\n",
        "\n\n",
        "\r\n\r\n",
        "\r",
        ": c\n",
        "[DONE]",
        "\u{feff}",
        "\"type\":\"response.output_text.delta\"",
        "\"delta\":\"ä😀\"",
        "\"item\":{\"type\":\"function_call\"}",
        "\"response\":{\"status\":\"completed\"}",
        "<html>",
    ]);
    let end = prop::sample::select(vec![
        "data: {\"type\":\"response.completed\",\"response\":{}}\n\n",
        "data: {\"type\":\"response.incomplete\",\"response\":{}}\n\n",
        "data: [DONE]\n\n",
        "data: {\"error\":\"no\"}\n\n",
    ]);
    prop_oneof![
        3 => fragment.prop_map(str::to_owned),
        6 => item_event(),
        1 => end.prop_map(str::to_owned),
        1 => "\\PC{0,8}",
    ]
}

/// An event about an item, with or without index and identifier.
fn item_event() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "output_text.delta",
        "output_text.done",
        "refusal.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_text.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.added",
        "output_item.done",
    ]);
    let id = || prop::option::of(prop::sample::select(vec!["", "a", "b"]));
    let kind = prop::sample::select(vec!["message", "reasoning", "function_call", "other"]);
    let text = prop::sample::select(vec!["", "{}", "{\"x\":1}", "{\"x\"", ":1}", "ä"]);
    (word, prop::option::of(0_u8..3), id(), id(), 0_u8..3, kind, text).prop_map(
        |(word, index, id, call_id, part, kind, text)| {
            let item = json!({
                "type": kind, "id": id, "call_id": call_id, "name": "f", "arguments": text,
                "content": [{ "type": "output_text", "text": text }],
                "summary": [{ "type": "summary_text", "text": text }],
                "encrypted_content": text,
            });
            let event = json!({
                "type": format!("response.{word}"), "output_index": index, "item_id": id,
                "content_index": part, "delta": text, "text": text, "arguments": text,
                "item": item,
            });
            format!("data: {event}\n\n")
        },
    )
}

const END: &[u8] = b"data: {\"type\":\"response.completed\",\"response\":{}}\n\n";

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        receive([bytes.as_slice()]).1.ok();
    }

    #[test]
    fn how_the_stream_is_cut_does_not_matter(
        pieces in prop::collection::vec(fragment(), 0..20),
        size in 1_usize..40,
    ) {
        let body = pieces.concat();
        prop_assert_eq!(transcribe(body.as_bytes().chunks(size)), transcribe([body.as_bytes()]));
    }

    /// However the events are mixed, each call occurs once and is either an object or unusable with
    /// a reason, and the recorded items match what was shown.
    #[test]
    fn calls_are_objects_or_unusable(pieces in prop::collection::vec(item_event(), 0..12)) {
        let body = pieces.concat();
        let (batch, outcome) = receive([body.as_bytes(), END]);
        let reply = match outcome {
            Ok(reply) => reply,
            Err(error) => {
                prop_assert!(matches!(error, LlmError::EmptyReply { .. }), "{}", error);
                return Ok(());
            }
        };
        for (position, call) in reply.calls.iter().enumerate() {
            prop_assert_eq!(call.slot, position);
            match &call.arguments {
                Arguments::Object(value) => prop_assert!(value.is_object()),
                Arguments::Unusable { reason, .. } => {
                    prop_assert!(reason.contains("Nothing was executed"));
                }
            }
            let name = batch.deltas.iter().rev().find_map(|delta| match delta {
                Delta::CallNamed { slot, name } if *slot == call.slot => Some(&**name),
                _ => None,
            });
            prop_assert_eq!(name.unwrap_or_default(), &call.name);
        }
        let text: String = batch.deltas.iter().filter_map(|delta| match delta {
            Delta::Text(words) => Some(&**words),
            _ => None,
        }).collect();
        let slots = reply.provider_state.blobs.iter().filter(|blob| blob["type"] == "function_call");
        prop_assert!(reply.provider_state.blobs.is_empty() || slots.count() == reply.calls.len());
        for mark in reply.provider_state.blobs.iter().filter(|blob| blob["type"] == "message") {
            let at = |key: &str| usize::try_from(mark[key].as_u64().unwrap()).unwrap();
            prop_assert!(text.get(at("start")..at("end")).is_some());
        }
    }

    /// Well-formed calls are assembled correctly, however their events are interleaved.
    #[test]
    fn well_formed_calls_are_assembled(
        order in prop::collection::vec(0_usize..3, 0..60),
        values in prop::array::uniform3("[a-z\"\\\\{}ä\n]{0,12}"),
    ) {
        // Calls with the same arguments would be taken for an endless repetition.
        let mut number = 0;
        let texts = values.map(|text| {
            number += 1;
            json!({ "x": text, "number": number }).to_string()
        });
        let mut left: Vec<_> = texts.iter().map(|text| text.chars()).collect();
        let mut body = String::new();
        let mut send = |event: Value| body.push_str(&format!("data: {event}\n\n"));
        let item = |index: usize, arguments: &str| json!({
            "type": "function_call", "id": format!("f{index}"), "call_id": format!("c{index}"),
            "name": "f", "arguments": arguments,
        });
        for index in 0..3 {
            let item = item(index, "");
            send(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        }
        let mut more = |index: usize, text: String| send(json!({
            "type": "response.function_call_arguments.delta", "output_index": index, "delta": text,
        }));
        for index in order {
            more(index, left[index].by_ref().take(2).collect());
        }
        for (index, rest) in left.into_iter().enumerate() {
            more(index, rest.collect());
        }
        for (index, text) in texts.iter().enumerate() {
            let item = item(index, text);
            send(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
        }
        let (_, outcome) = receive([body.as_bytes(), END]);
        let calls = outcome.unwrap().calls;
        let expected: Vec<_> =
            texts.iter().map(|text| Arguments::Object(serde_json::from_str(text).unwrap())).collect();
        prop_assert_eq!(calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>(), expected);
    }
}

/// Feeds events without end and returns the error that ends the reply.
fn error_of_endless_reply(event: impl Fn(usize) -> String) -> String {
    let mut reader = ReplyReader::new(assembler());
    for number in 0..100_000 {
        // Deltas are consumed; what the assembler keeps must stay bounded.
        match reader.feed(event(number).as_bytes(), &mut DeltaBatch::default()) {
            Ok(None) => {}
            Ok(Some(_)) => return "an answer".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
    "nothing".to_owned()
}

#[test]
fn an_endless_reply_is_stopped() {
    let long = "x".repeat(256 * 1024);
    let event = |word: &str, fields: Value| {
        let mut event = fields;
        event["type"] = json!(format!("response.{word}"));
        format!("data: {event}\n\n")
    };
    for word in [
        "output_text.delta",
        "refusal.delta",
        "reasoning_summary_text.delta",
        "function_call_arguments.delta",
    ] {
        let delta = event(word, json!({ "output_index": 0, "delta": long }));
        assert!(error_of_endless_reply(|_| delta.clone()).contains("more than 32 MiB"), "{word}");
    }
    let reasoning = |number: usize| {
        let item = json!({ "type": "reasoning", "encrypted_content": long });
        event("output_item.done", json!({ "output_index": number, "item": item }))
    };
    assert!(error_of_endless_reply(reasoning).contains("more than 32 MiB"));
    // Small JSON values take many times the memory of their text.
    let small = |number: usize| {
        let parts = vec![json!({ "text": "a" }); 1000];
        let item = json!({ "type": "reasoning", "content": parts, "encrypted_content": "x" });
        event("output_item.done", json!({ "output_index": number, "item": item }))
    };
    assert!(error_of_endless_reply(small).contains("more than"));
    let endless =
        event("completed", json!({ "response": { "output": vec![json!({ "": 0 }); 300_000] } }));
    assert!(error_of_endless_reply(|_| endless.clone()).contains("too many values"));
    let message =
        |number: usize| event("output_text.delta", json!({ "output_index": number, "delta": "a" }));
    assert!(error_of_endless_reply(message).contains("more than 1024 items"));
}

#[test]
fn of_more_than_128_calls_the_first_128_run_and_the_reply_ends() {
    let item = |number: usize| {
        json!({ "type": "function_call", "id": format!("f{number}"), "call_id": number.to_string(),
            "name": "f", "arguments": format!("{{\"x\":{number}}}") })
    };
    let event = |number: usize| {
        let item = item(number);
        let event =
            json!({ "type": "response.output_item.done", "output_index": number, "item": item });
        format!("data: {event}\n\n")
    };
    let one_by_one: String = (0..1000).map(event).collect();
    let output: Vec<_> = (0..1000).map(item).collect();
    let response = json!({ "status": "completed", "output": output });
    let at_the_end = json!({ "type": "response.completed", "response": response });
    for body in [one_by_one, format!("data: {at_the_end}\n\n")] {
        let (_, outcome) = receive([body.as_bytes()]);
        let calls = outcome.unwrap().calls;
        let (last, others) = calls.split_last().unwrap();
        assert_eq!(others.len(), 128);
        assert!(others.iter().all(|call| matches!(call.arguments, Arguments::Object(_))));
        let Arguments::Unusable { reason, .. } = &last.arguments else { panic!("{last:?}") };
        assert!(reason.contains("at most 128 calls"), "{reason}");
    }
}

#[test]
fn deep_nesting_is_harmless() {
    let deep = "[".repeat(100_000);
    for body in [
        deep.clone(),
        format!("data: {deep}\n\n"),
        format!("data: {{\"error\":{deep}\n\n"),
        format!("data: {{\"type\":\"response.output_text.delta\",\"delta\":{deep}\n\n"),
        format!(
            "data: {{\"type\":\"response.function_call_arguments.done\",\"arguments\":{deep:?}}}\n\n\
             data: [DONE]"
        ),
    ] {
        assert_eq!(transcribe(body.as_bytes().chunks(1000)), transcribe([body.as_bytes()]));
    }
}
