//! Properties that hold for any stream.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::receive;
use crate::chat::assembler::ChatAssembler;
use crate::chat::recorded_context;
use crate::exchange::ReplyContext;
use crate::internals::read_reply;
use crate::reply::ReplyReader;
use crate::{Delta, DeltaBatch, LlmError, Protocol};
use turnwright_types::message::Arguments;

/// Reads a reply and describes all of it.
fn transcribe<'a>(
    model: &str,
    tools: &[String],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> String {
    format!("{:?}", read_reply(Protocol::Chat, model, tools, pieces))
}

/// Valid and invalid fragments of streams.
fn fragment() -> impl Strategy<Value = String> {
    let fragment = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "\"",
        ":",
        ",",
        "null",
        "\\",
        "\\ud83d",
        "1",
        "data: ",
        "data:",
        "error: ",
        "event: error\n",
        "\n",
        "\n\n",
        "\r\n\r\n",
        "\r",
        ": c\n",
        "[DONE]",
        "\u{feff}",
        "\"choices\":[{\"delta\":{",
        "}}]}\n\n",
        "\"content\":\"ä😀\"",
        "\"finish_reason\":\"stop\"",
        "\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":",
        "\"error\":{\"message\":\"no\",\"code\":500}",
        "\"usage\":{\"prompt_tokens\":1}",
        "<html>",
    ]);
    let event = prop::sample::select(vec![
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n",
        "data: {\"error\":\"no\"}\n\n",
    ]);
    prop_oneof![
        4 => fragment.prop_map(str::to_owned),
        4 => event.prop_map(str::to_owned),
        4 => call_delta().prop_map(|delta| delta.event()),
        1 => "\\PC{0,8}",
    ]
}

#[derive(Clone, Debug)]
struct CallDeltaSpec {
    index: Option<u8>,
    id: Option<&'static str>,
    name: Option<&'static str>,
    arguments: Option<String>,
}

impl CallDeltaSpec {
    fn event(&self) -> String {
        let function = json!({ "name": self.name, "arguments": self.arguments });
        let call = json!({ "index": self.index, "id": self.id, "function": function });
        let chunk = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
        format!("data: {chunk}\n\n")
    }
}

fn call_delta() -> impl Strategy<Value = CallDeltaSpec> {
    let arguments = prop_oneof![
        Just("{}".to_owned()),
        Just("{\"x\":1}".to_owned()),
        Just("{\"x\"".to_owned()),
        Just(":1}".to_owned()),
        "[{}\\[\\]\":,0-9a-z\\\\\n]{0,6}",
    ];
    (
        prop::option::of(0_u8..3),
        prop::option::of(prop::sample::select(vec!["", "a", "b", "0"])),
        prop::option::of(prop::sample::select(vec!["", "f", "fg", "g"])),
        prop::option::of(arguments),
    )
        .prop_map(|(index, id, name, arguments)| CallDeltaSpec { index, id, name, arguments })
}

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
        let tools = ["f".to_owned()];
        prop_assert_eq!(transcribe("qwq", &tools, body.as_bytes().chunks(size)), transcribe("qwq", &tools, [body.as_bytes()]));
    }

    /// However call deltas are mixed, each resulting call is either an object or unusable with a
    /// reason, and its arguments are what was shown.
    #[test]
    fn calls_are_objects_or_unusable(pieces in prop::collection::vec(call_delta(), 0..12)) {
        let body: String = pieces.iter().map(CallDeltaSpec::event).collect();
        let (batch, outcome) = receive([body.as_bytes(), b"data: [DONE]\n\n"]);
        match outcome {
            Ok(reply) => {
                for call in &reply.calls {
                    let shown: String = batch.deltas.iter().filter_map(|delta| match delta {
                        Delta::CallArguments { slot, text } if *slot == call.slot => Some(&**text),
                        _ => None,
                    }).collect();
                    match &call.arguments {
                        Arguments::Object(value) => prop_assert!(value.is_object()),
                        Arguments::Unusable { text, reason } => {
                            prop_assert!(reason.contains("Nothing was executed"));
                            prop_assert_eq!(text, &shown);
                        }
                    }
                    let name = batch.deltas.iter().rev().find_map(|delta| match delta {
                        Delta::CallNamed { slot, name } if *slot == call.slot => Some(&**name),
                        _ => None,
                    });
                    prop_assert_eq!(name.unwrap_or_default(), &call.name);
                }
            }
            Err(error) => prop_assert!(matches!(error, LlmError::EmptyReply { .. }), "{}", error),
        }
    }

    /// Arguments that were cut off never run, wherever the server cuts them into pieces.
    #[test]
    fn cut_arguments_never_run(
        names in prop::collection::vec(prop::sample::select(vec!["a", "b", "{", "{}"]), 1..4),
        value in prop::sample::select(vec!["1", "\"x\"", "[{\"a\":1},{\"a\":1}]", "{}", "\"{}\""]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let whole = names
            .iter()
            .fold(value.to_owned(), |inner, name| format!("{{{name:?}:{inner}}}"));
        let mut places: Vec<_> = cuts.iter().chain([&end]).map(|cut| cut.index(whole.len())).collect();
        places.sort_unstable();
        let mut body = String::new();
        let mut from = 0;
        for to in places {
            let function = json!({ "name": "f", "arguments": &whole[from..to] });
            let call = json!({ "index": 0, "id": "c", "function": function });
            let chunk = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
            body.push_str(&format!("data: {chunk}\n\n"));
            from = to;
        }
        let (_, outcome) = receive([body.as_bytes(), b"data: [DONE]\n\n"]);
        let calls = outcome.unwrap().calls;
        let text = &whole[..from];
        let runs = matches!(calls[0].arguments, Arguments::Object(_));
        prop_assert!(text.is_empty() || !runs, "{text}");
    }

    /// Well-formed calls are assembled correctly, however their deltas are interleaved.
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
        let mut send = |call: Value| {
            let chunk = json!({ "choices": [{ "delta": { "tool_calls": [call] } }] });
            body.push_str(&format!("data: {chunk}\n\n"));
        };
        for index in 0..3 {
            let id = format!("c{index}");
            send(json!({ "index": index, "id": id, "function": { "name": "f" } }));
        }
        let mut more = |index: usize, text: String| {
            send(json!({ "index": index, "function": { "arguments": text } }));
        };
        for index in order {
            more(index, left[index].by_ref().take(2).collect());
        }
        for (index, rest) in left.into_iter().enumerate() {
            more(index, rest.collect());
        }
        let (_, outcome) = receive([body.as_bytes(), b"data: [DONE]\n\n"]);
        let calls = outcome.unwrap().calls;
        let expected: Vec<_> =
            texts.iter().map(|text| Arguments::Object(serde_json::from_str(text).unwrap())).collect();
        prop_assert_eq!(calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>(), expected);
    }
}

/// Feeds the same event over and over and returns the error that ends the reply.
fn error_of_endless_reply(event: &str) -> String {
    error_of_endless_reply_in(ReplyContext::default(), event)
}

fn error_of_endless_reply_in(context: ReplyContext, event: &str) -> String {
    let mut reader = ReplyReader::new(ChatAssembler::new(context));
    let megabyte = event.repeat(1024 * 1024 / event.len() + 1);
    for _ in 0..100 {
        // Deltas are consumed; what the assembler keeps must stay bounded.
        match reader.feed(megabyte.as_bytes(), &mut DeltaBatch::default()) {
            Ok(None) => {}
            Ok(Some(_)) => return "an answer".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
    "nothing".to_owned()
}

#[test]
fn an_endless_reply_is_stopped() {
    // Distinct numbers, because repetition would be detected earlier.
    let long = (0..40_000).fold(String::new(), |text, number| text + &number.to_string() + " ");
    let delta = |fields: &str| format!("data: {{\"choices\":[{{\"delta\":{{{fields}}}}}]}}\n\n");
    let call =
        format!("\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{long}\"}}}}]");
    let table = [
        delta(&format!("\"content\":\"{long}\"")),
        delta(&format!("\"refusal\":\"{long}\"")),
        delta(&call),
    ];
    for event in table {
        assert!(error_of_endless_reply(&event).contains("more than 32 MiB"));
    }
    let calls = delta(&format!("\"tool_calls\":[{}{{}}]", "{},".repeat(2000)));
    assert!(error_of_endless_reply(&calls).contains("invalid chunk"));
    let call =
        |name: usize| format!("{{\"function\":{{\"name\":\"f{name}\",\"arguments\":\"{{}}\"}}}}");
    // The same call again and again is an answer of one call.
    let same = delta(&format!("\"tool_calls\":[{}]", call(0)));
    assert_eq!(error_of_endless_reply(&same), "an answer");
}

#[test]
fn of_more_than_128_calls_the_first_128_run_and_the_reply_ends() {
    let chunk = |calls: std::ops::Range<usize>| {
        let calls = calls.map(|number| {
            json!({ "index": number, "id": format!("c{number}"),
                "function": { "name": "f", "arguments": format!("{{\"x\":{number}}}") } })
        });
        let calls: Vec<_> = calls.collect();
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "tool_calls": calls } }] }))
    };
    let one_by_one: String = (0..1000).map(|number| chunk(number..number + 1)).collect();
    for body in [one_by_one, chunk(0..1000)] {
        let (batch, outcome) = receive([body.as_bytes()]);
        let calls = outcome.unwrap().calls;
        let (last, others) = calls.split_last().unwrap();
        assert_eq!(others.len(), 128);
        assert!(others.iter().all(|call| matches!(call.arguments, Arguments::Object(_))));
        let Arguments::Unusable { reason, .. } = &last.arguments else { panic!("{last:?}") };
        assert!(reason.contains("at most 128 calls"), "{reason}");
        let named = batch.deltas.iter().filter(|delta| matches!(delta, Delta::CallNamed { .. }));
        assert_eq!(named.count(), 129);
    }
}

#[test]
fn an_endless_reply_of_a_leaking_model_is_stopped() {
    let tools = ["f".to_owned()];
    let long = (0..40_000).fold(String::new(), |text, number| text + &number.to_string() + " ");
    for (model, begin) in [("qwen3", "<tool_call>"), ("qwq", "")] {
        let delta = json!({ "choices": [{ "delta": { "content": format!("{begin}{long}") } }] });
        let why = error_of_endless_reply_in(
            recorded_context(model, &tools),
            &format!("data: {delta}\n\n"),
        );
        assert!(why.contains("more than 32 MiB"), "{model} {begin}: {why}");
    }
}

#[test]
fn provider_state_is_bounded() {
    let delta = |delta: &Value| format!("data: {}\n\n", json!({ "choices": [{ "delta": delta }] }));
    let details = |pieces: Value| delta(&json!({ "reasoning_details": pieces }));
    let secrets = json!({ "type": "reasoning.encrypted", "data": "x".repeat(100_000) });
    assert!(error_of_endless_reply(&details(json!([secrets]))).contains("more than 32 MiB"));
    // Distinct numbers, because repetition would be detected earlier.
    let long = (0..20_000).fold(String::new(), |text, number| text + &number.to_string() + " ");
    let text = json!({ "type": "reasoning.text", "text": long });
    assert!(error_of_endless_reply(&details(json!([text]))).contains("more than 32 MiB"));
    // Small JSON values take many times the memory of their text.
    let small = details(vec![json!({ "": 0 }); 500].into());
    assert!(error_of_endless_reply(&small).contains("more than 32 MiB"));
    let nested = json!({ "data": vec![json!({ "": 0 }); 300_000] });
    assert!(error_of_endless_reply(&details(json!([nested]))).contains("too many values"));
    let call = json!({ "index": 0, "id": "a", "extra_content": nested });
    assert!(
        error_of_endless_reply(&delta(&json!({ "tool_calls": [call] })))
            .contains("too many values")
    );
    let call = json!({ "index": 0, "function": { "arguments": "1" } });
    let first = json!({ "index": 0, "extra_content": { "x": vec![json!({ "": 0 }); 80_000] } });
    assert!(
        error_of_endless_reply(&delta(&json!({ "tool_calls": [call, first] })))
            .contains("more than 32 MiB")
    );
}

#[test]
fn a_document_that_never_ends_is_stopped() {
    let mut reader = ReplyReader::new(ChatAssembler::new(ReplyContext::default()));
    let mut batch = DeltaBatch::default();
    let megabyte = vec![b'['; 1024 * 1024];
    let failed = (0..40).any(|_| reader.feed(&megabyte, &mut batch).is_err());
    assert!(failed);
}

/// Blank input is not kept: a server may send line feeds while it loads a model.
#[test]
fn endless_white_space_is_accepted() {
    assert_eq!(error_of_endless_reply("\n\r\n "), "nothing");
}

#[test]
fn deep_nesting_is_harmless() {
    let deep = "[".repeat(100_000);
    let call = format!("{{\"function\":{{\"name\":\"f\",\"arguments\":{deep:?}}}}}");
    for body in [
        deep.clone(),
        format!("data: {deep}\n\n"),
        format!("data: {{\"error\":{deep}\n\n"),
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":{deep}\n\n"),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\ndata: [DONE]"
        ),
    ] {
        assert_eq!(
            transcribe("", &[], body.as_bytes().chunks(1000)),
            transcribe("", &[], [body.as_bytes()])
        );
    }
}

/// C.1 #23 after text that was already shown.
#[test]
fn text_before_a_failed_generation_is_shown_once() {
    let call = "<function=f>{}</function>";
    let body = format!(
        "data: {}\n\ndata: {}\n\n",
        json!({ "choices": [{ "delta": { "content": "Let me look." } }] }),
        json!({ "error": { "message": "m", "code": "tool_use_failed",
            "failed_generation": format!("Let me look.\n{call}") } }),
    );
    let (deltas, _) = read_reply(Protocol::Chat, "llama", &["f".to_owned()], [body.as_bytes()]);
    assert_eq!(deltas.first(), Some(&Delta::Text("Let me look.".to_owned())));
}
