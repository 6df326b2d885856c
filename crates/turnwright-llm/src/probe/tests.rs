//! Tests of how observed replies are evaluated.

use serde_json::{Value, json};

use super::*;
use crate::{EndReason, Reply, ReplyCall};
use turnwright_types::message::{Arguments, ProviderState, TokenUsage};

fn observed(text: &str, calls: &[(&str, Value)]) -> ObservedReply {
    let calls = calls.iter().enumerate().map(|(slot, (name, arguments))| ReplyCall {
        slot,
        provider_id: String::new(),
        name: (*name).to_owned(),
        arguments: match arguments.as_str() {
            Some(text) => {
                Arguments::Unusable { text: text.to_owned(), reason: "no JSON".to_owned() }
            }
            None => Arguments::Object(arguments.clone()),
        },
        extra: None,
    });
    let reply = Reply {
        end: EndReason::Complete,
        calls: calls.collect(),
        has_lost_calls: false,
        usage: None,
        cost: None,
        served: String::new(),
        provider_state: ProviderState::default(),
    };
    ObservedReply { text: text.to_owned(), reply: Some(reply), ..ObservedReply::default() }
}

fn refused() -> ObservedReply {
    let mut observed = observed("", &[]);
    observed.reply.as_mut().unwrap().end = EndReason::Refused("not this".to_owned());
    observed
}

fn status(status: u16, kind: ErrorKind, message: &str) -> LlmError {
    LlmError::Status {
        host: "h".into(),
        status,
        proxy: None,
        message: message.to_owned(),
        retry_after: None,
        kind,
        key_advice: None,
        failed_generation: None,
    }
}

fn silent() -> LlmError {
    LlmError::Silent { host: "h".to_owned(), limit: TOTAL_TIMEOUT }
}

fn city(name: &str) -> (&'static str, Value) {
    (questions::TOOL_NAME, json!({ "city": name }))
}

#[test]
fn an_answer_needs_text() {
    for (observed, expected) in [
        (Ok(observed("1 2 3", &[])), CheckState::Ok),
        (Ok(observed(" ", &[])), CheckState::No),
        (Ok(refused()), CheckState::No),
        (Err(status(503, ErrorKind::Unavailable, "busy")), CheckState::No),
        (Err(silent()), CheckState::No),
    ] {
        assert_eq!(evaluate::answer(&observed).state, expected, "{observed:?}");
    }
}

#[test]
fn tools_are_evaluated_by_the_call() {
    let table = [
        (Ok(observed("", &[city("Paris")])), CallLeak::None, CheckState::Ok),
        (Ok(observed("", &[city("Paris")])), CallLeak::Readable, CheckState::Ok),
        (Ok(observed("It is sunny.", &[])), CallLeak::None, CheckState::No),
        (Ok(observed("It is sunny.", &[])), CallLeak::Readable, CheckState::Unknown),
        (Ok(observed("<tool_call>", &[])), CallLeak::Unreadable, CheckState::No),
        (Ok(observed("", &[("weather", json!({}))])), CallLeak::None, CheckState::No),
        (
            Ok(observed("", &[(questions::TOOL_NAME, json!("{\"ci"))])),
            CallLeak::None,
            CheckState::No,
        ),
        (
            Ok(observed("", &[(questions::TOOL_NAME, json!({ "town": "Paris" }))])),
            CallLeak::None,
            CheckState::No,
        ),
        (Ok(refused()), CallLeak::None, CheckState::No),
        (
            Err(status(400, ErrorKind::BadRequest, "does not support tools")),
            CallLeak::None,
            CheckState::No,
        ),
        (Err(status(429, ErrorKind::RateLimit, "slow down")), CallLeak::None, CheckState::Unknown),
        (Err(status(401, ErrorKind::Auth, "key")), CallLeak::None, CheckState::Unknown),
    ];
    for (observed, leak, expected) in table {
        assert_eq!(evaluate::tools(&observed, leak).state, expected, "{observed:?} {leak:?}");
    }
}

#[test]
fn a_call_in_the_text_is_found() {
    let call = "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}";
    let table = [
        (observed(&format!("{call}</tool_call>"), &[]), CallLeak::Readable),
        (observed("<tool_call>{\"name\":\"get_weather\",</tool_call>", &[]), CallLeak::Unreadable),
        (observed("It is sunny.", &[]), CallLeak::None),
        (observed("", &[city("Paris")]), CallLeak::None),
    ];
    let tools = questions::weather().tools;
    for (observed, expected) in table {
        assert_eq!(evaluate::leak(&observed, &tools), expected, "{observed:?}");
    }
}

#[test]
fn parallel_calls_need_different_cities() {
    for (calls, expected) in [
        (vec![city("Paris"), city("Oslo")], CheckState::Ok),
        (vec![city("Paris")], CheckState::No),
        (vec![city("Paris"), city("Paris")], CheckState::Unknown),
        (vec![city("Paris"), (questions::TOOL_NAME, json!({}))], CheckState::Unknown),
        (vec![], CheckState::Unknown),
    ] {
        assert_eq!(evaluate::parallel(&Ok(observed("", &calls))).state, expected, "{calls:?}");
    }
}

#[test]
fn the_result_must_be_used() {
    for (observed, expected) in [
        (Ok(observed("17 °C and rain.", &[])), CheckState::Ok),
        (Ok(observed("", &[city("Paris")])), CheckState::Unknown),
        (Ok(observed("I cannot know.", &[])), CheckState::Unknown),
        (Ok(refused()), CheckState::No),
        (Err(status(400, ErrorKind::BadRequest, "messages[3] is wrong")), CheckState::No),
        (Err(status(502, ErrorKind::Unavailable, "bad gateway")), CheckState::Unknown),
    ] {
        assert_eq!(evaluate::result(&observed).state, expected, "{observed:?}");
    }
}

#[test]
fn image_support_is_known_only_if_recognised_or_rejected() {
    let bad = |message: &str| status(400, ErrorKind::BadRequest, message);
    for (observed, taken, expected) in [
        (Ok(observed("Orange.", &[])), true, CheckState::Ok),
        (Ok(observed("Blue.", &[])), true, CheckState::Unknown),
        (Ok(observed("Orange.", &[])), false, CheckState::No),
        (Err(bad("this model has no vision")), true, CheckState::No),
        (Err(bad("image input is not supported")), true, CheckState::No),
        (Err(bad("the image is smaller than 512 pixels")), true, CheckState::Unknown),
        (Err(bad("unknown field `content`")), true, CheckState::Unknown),
        (Err(status(429, ErrorKind::RateLimit, "too many images")), true, CheckState::Unknown),
        (Err(silent()), true, CheckState::Unknown),
    ] {
        assert_eq!(evaluate::images(&observed, taken).state, expected, "{observed:?} {taken}");
    }
}

#[test]
fn the_other_checks_are_evaluated() {
    let mut one = observed("1 2 3", &[]);
    assert_eq!(evaluate::usage(&one).state, CheckState::No);
    assert_eq!(
        evaluate::streaming(&ObservedReply { pieces: 1, ..ObservedReply::default() }).state,
        CheckState::Unknown
    );
    assert_eq!(
        evaluate::streaming(&ObservedReply { pieces: 2, ..ObservedReply::default() }).state,
        CheckState::Ok
    );
    one.reply.as_mut().unwrap().usage =
        Some(TokenUsage { input: 9, output: 5, cached: 4, ..TokenUsage::default() });
    assert_eq!(evaluate::usage(&one).text, "9 tokens in, 4 of them cached, 5 out");

    let mut reasoning = ReasoningSeen::default();
    reasoning.record(&one);
    assert_eq!(evaluate::reasoning(&reasoning).state, CheckState::No);
    "Hm.".clone_into(&mut one.thought);
    one.reply.as_mut().unwrap().provider_state.field = Some("reasoning_content".to_owned());
    reasoning.record(&one);
    assert_eq!(evaluate::reasoning(&reasoning).text, "in the field `reasoning_content`");

    for (low, none, expected) in [
        (Some(true), Some(false), CheckState::Ok),
        (Some(false), Some(false), CheckState::No),
        (None, Some(true), CheckState::Unknown),
    ] {
        assert_eq!(evaluate::effort(low, none).state, expected);
    }
    let names = Ok(vec!["p/a".to_owned(), "p/b".to_owned()]);
    assert_eq!(evaluate::models(&names, "p/a").text, "2 listed, including this one");
    assert_eq!(evaluate::models(&names, "lmstudio/p/a").text, "2 listed, including this one");
    for missing in ["p/c", "lmstudio/p/c", "xp/a"] {
        assert_eq!(evaluate::models(&names, missing).text, "2 listed, not including this one");
    }
    assert_eq!(evaluate::models(&Ok(Vec::new()), "p/c").state, CheckState::No);
    assert_eq!(evaluate::window(None, 128_000).state, CheckState::Unknown);
}

#[test]
fn a_usable_model_answers_and_calls_tools() {
    let checks = |answer, tools, result| {
        [("answer", answer), ("tools", tools), ("result", result)]
            .map(|(name, state)| Check::new(name, state, ""))
    };
    assert!(is_usable(&checks(CheckState::Ok, CheckState::Ok, CheckState::Ok)));
    assert!(is_usable(&checks(CheckState::Ok, CheckState::Ok, CheckState::Unknown)));
    assert!(!is_usable(&checks(CheckState::Ok, CheckState::Ok, CheckState::No)));
    assert!(!is_usable(&checks(CheckState::Ok, CheckState::Unknown, CheckState::Skipped)));
    assert!(!is_usable(&checks(CheckState::No, CheckState::Skipped, CheckState::Skipped)));
    assert!(!is_usable(&[]));
}

#[test]
fn the_continued_conversation_is_valid() {
    let request = questions::with_results(
        questions::two_cities(),
        &observed("Let me see.", &[city("Paris"), city("Oslo")]),
    );
    let kinds: Vec<_> = request.messages.iter().map(|message| format!("{message:?}")).collect();
    assert_eq!(kinds.len(), 4);
    for id in ["call-0", "call-1"] {
        assert_eq!(kinds.iter().filter(|kind| kind.contains(id)).count(), 2, "{kinds:?}");
    }
}
