//! Tests of chat completions that a recorded stream cannot express. Each quirk of a server's stream
//! is a file in `tests/data/sse`.

mod quirky_requests;
mod properties;
mod requests;

use serde_json::{Value, json};

use super::assembler::{ChatAssembler, parse_usage};
use crate::exchange::ReplyContext;
use crate::internals::{assemble, read_reply};
use crate::{DeltaBatch, EndReason, LlmError, Price, Protocol, Reply};
use turnwright_types::message::Arguments;

fn receive<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (DeltaBatch, Result<Reply, LlmError>) {
    let assembler =
        ChatAssembler::new(ReplyContext { host: "host".to_owned(), ..ReplyContext::default() });
    assemble(assembler, pieces)
}

/// C.1 #31: a proxy may send the end mark although the server behind it has broken off.
#[test]
fn an_end_mark_without_a_finish_reason_is_a_cut_if_the_server_sends_reasons() {
    let event = |delta: &str, reason: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n")
    };
    let call = |arguments: &str| {
        let function = format!("{{\"name\":\"f\",\"arguments\":{arguments:?}}}");
        format!("{{\"tool_calls\":[{{\"index\":0,\"id\":\"c\",\"function\":{function}}}]}}")
    };
    let table = [
        (r#"{"content":"Half a"}"#.to_owned(), "complete", "cut"),
        (r#"{"reasoning":"Half a"}"#.to_owned(), "empty", "cut"),
        ("{}".to_owned(), "empty", "empty"),
        (call("{}"), "complete", "complete"),
        (call("{\"x\":"), "complete", "cut"),
        (call(""), "complete", "cut"),
    ];
    for (delta, at_first, afterwards) in table {
        let context = ReplyContext::default();
        let read = |body: &str| {
            let assembler = ChatAssembler::new(context.clone());
            match assemble(assembler, [body.as_bytes(), b"data: [DONE]\n\n"]).1 {
                Ok(_) => "complete",
                Err(LlmError::Truncated { .. }) => "cut",
                Err(LlmError::EmptyReply { .. }) => "empty",
                Err(error) => panic!("{error}"),
            }
        };
        let body = event(&delta, "null");
        assert_eq!(read(&body), at_first, "{delta}");
        assert_eq!(read(&event(r#"{"content":"Whole."}"#, "\"stop\"")), "complete");
        assert_eq!(read(&body), afterwards, "{delta}");
    }
}

#[test]
fn calls_of_an_answer_that_ends_at_a_limit_are_cut_whatever_the_server_says() {
    let function = json!({ "name": "write_file", "arguments": "{\"content\":\"Half a\"}" });
    let delta = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": function }] });
    let call = json!({ "choices": [{ "delta": delta, "finish_reason": "tool_calls" }] });
    for (input, output, is_cut) in [(10, 98, false), (10, 99, true), (950, 50, true)] {
        let counts = json!({ "prompt_tokens": input, "completion_tokens": output });
        let usage = json!({ "choices": [], "usage": counts });
        let events = [&call, &usage].map(|event| format!("data: {event}\n\n"));
        let context =
            ReplyContext { max_output: Some(99), window: Some(1000), ..ReplyContext::default() };
        let assembler = ChatAssembler::new(context);
        let reply = assemble(assembler, events.iter().map(String::as_bytes)).1.unwrap();
        assert_eq!(reply.end == EndReason::Length, is_cut, "{counts}");
        let is_usable = matches!(reply.calls[0].arguments, Arguments::Object(_));
        assert_eq!(is_usable, !is_cut, "{counts}");
    }
}

#[test]
fn the_word_of_gemini_for_a_malformed_call_counts_behind_openrouter() {
    for (reason, native) in [("error", "MALFORMED_FUNCTION_CALL"), ("stop", "UNEXPECTED_TOOL_CALL")]
    {
        let delta = json!({ "content": ",patch:true})" });
        let ends = json!({ "finish_reason": reason, "native_finish_reason": native });
        let events = [json!({ "delta": delta }), ends]
            .map(|choice| format!("data: {}\n\n", json!({ "choices": [choice] })));
        let error = receive(events.iter().map(String::as_bytes)).1.unwrap_err();
        assert!(error.is_reply_specific(), "{error}");
    }
}

/// ellmer#822: Databricks.
#[test]
fn parts_that_are_called_reasoning_are_no_answer() {
    let summary = json!([{ "type": "summary_text", "text": "Hm." }]);
    let chunks = [
        (json!({ "type": "reasoning", "summary": summary }), None),
        (json!({ "type": "text", "text": "Yes." }), Some("stop")),
    ];
    let events = chunks.map(|(part, reason)| {
        let choice = json!({ "delta": { "content": [part] }, "finish_reason": reason });
        format!("data: {}\n\n", json!({ "choices": [choice] }))
    });
    let (batch, outcome) = receive(events.iter().map(String::as_bytes));
    outcome.unwrap();
    assert_eq!(format!("{:?}", batch.deltas), r#"[Thought("Hm."), Text("Yes.")]"#);
}

#[test]
fn tokens_that_only_the_total_has_are_reasoning_or_what_the_cache_gave_and_took() {
    let thinking = json!({ "reasoning_tokens": 131 });
    for (name, usage, expected) in [
        (
            "Gemini",
            json!({ "prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623 }),
            (20, 603, 0),
        ),
        (
            "xAI",
            json!({ "prompt_tokens": 39, "completion_tokens": 1, "total_tokens": 171,
                "completion_tokens_details": thinking }),
            (39, 132, 131),
        ),
        (
            "nothing but reasoning",
            json!({ "prompt_tokens": 21, "completion_tokens": 0, "total_tokens": 81 }),
            (21, 60, 0),
        ),
        (
            "Gemini with a cached beginning",
            json!({ "prompt_tokens": 5000, "completion_tokens": 100, "total_tokens": 5400,
                "prompt_tokens_details": { "cached_tokens": 4096 } }),
            (5000, 400, 0),
        ),
        (
            "Bedrock, which fills its cache",
            json!({ "prompt_tokens": 368, "completion_tokens": 19, "total_tokens": 10_923,
                "cache_read_input_tokens": 0, "cache_creation_input_tokens": 10_536 }),
            (10_904, 19, 0),
        ),
        (
            "Bedrock, whose cache gave a little",
            json!({ "prompt_tokens": 368, "completion_tokens": 19, "total_tokens": 987,
                "cache_read_input_tokens": 200, "cache_creation_input_tokens": 400 }),
            (968, 19, 0),
        ),
        (
            "Bedrock, with more new tokens than its cache gave",
            json!({ "prompt_tokens": 5000, "completion_tokens": 19, "total_tokens": 9019,
                "prompt_tokens_details": { "cached_tokens": 4000 } }),
            (9000, 19, 0),
        ),
        (
            "OpenAI",
            json!({ "prompt_tokens": 39, "completion_tokens": 132, "total_tokens": 171,
                "completion_tokens_details": thinking }),
            (39, 132, 131),
        ),
        (
            "Anthropic's fields, whose total lacks the cache",
            json!({ "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90,
                "total_tokens": 15 }),
            (100, 5, 0),
        ),
        (
            "Anthropic's fields, whose total has the cache",
            json!({ "input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90,
                "total_tokens": 105 }),
            (100, 5, 0),
        ),
    ] {
        let counted = parse_usage(&usage).unwrap();
        assert_eq!((counted.input, counted.output, counted.thought), expected, "{name}");
    }
}

#[test]
fn tokens_that_a_cache_has_stored_cost_a_quarter_more() {
    let price = Price { input: 1.0, cached: 0.1, output: 2.0 };
    for (name, usage) in [
        (
            "OpenAI",
            json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
                "prompt_tokens_details": { "cached_tokens": 500, "cache_write_tokens": 400 } }),
        ),
        (
            "OpenAI's Responses API",
            json!({ "input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100,
                "input_tokens_details": { "cached_tokens": 500, "cache_write_tokens": 400 } }),
        ),
        (
            "Claude behind LiteLLM",
            json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
                "cache_read_input_tokens": 500, "cache_creation_input_tokens": 400 }),
        ),
        (
            "Alibaba",
            json!({ "prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details":
                { "cached_tokens": 500, "cache_creation_input_tokens": 400 } }),
        ),
    ] {
        let cost = price.cost(&parse_usage(&usage).unwrap()) * 1e6;
        assert!((cost - 850.0).abs() < 1e-6, "{name}: {cost}");
    }
}

#[test]
fn a_name_may_come_in_pieces_and_with_a_tag_behind_it() {
    let event = |function: Value| {
        let call = json!({ "index": 0, "function": function });
        format!("data: {}\n\n", json!({ "choices": [{ "delta": { "tool_calls": [call] } }] }))
    };
    let tools = ["exec".to_owned(), "exec_output".to_owned()];
    for (names, expected) in [
        (vec!["exec", "_output"], "exec_output"),
        (vec!["ex", "ec"], "exec"),
        (vec!["exec", "exec"], "exec"),
        (vec!["exec", "exec_output"], "exec_output"),
        (vec!["exec</arg_value>"], "exec"),
    ] {
        let mut body: String = names.iter().map(|name| event(json!({ "name": name }))).collect();
        body.push_str(&event(json!({ "arguments": "{}" })));
        body.push_str("data: [DONE]\n\n");
        let (_, reply) = read_reply(Protocol::Chat, "m", &tools, [body.as_bytes()]);
        assert_eq!(reply.unwrap().calls[0].name, expected, "{names:?}");
    }
}
