//! What is made of answers.

use serde_json::{Value, json};

use super::*;
use crate::{End, LlmError, Reply, ReplyCall};
use turnwright_types::message::{Arguments, Echo, Usage};

fn heard(text: &str, calls: &[(&str, Value)]) -> Heard {
    let call = |(slot, (name, arguments)): (usize, &(&str, Value))| ReplyCall {
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
    };
    let reply = Reply {
        end: End::Complete,
        calls: calls.iter().enumerate().map(call).collect(),
        usage: None,
        echo: Echo::default(),
    };
    Heard { text: text.to_owned(), reply: Some(reply), ..Heard::default() }
}

fn refused() -> Heard {
    let mut heard = heard("", &[]);
    heard.reply.as_mut().unwrap().end = End::Refused("not this".to_owned());
    heard
}

fn status(status: u16, kind: Kind, message: &str) -> Trouble {
    let (host, message) = ("h".to_owned(), message.to_owned());
    Trouble::Model(LlmError::Status {
        host,
        status,
        message,
        retry_after: None,
        kind,
        leaked: None,
    })
}

fn city(name: &str) -> (&'static str, Value) {
    (plan::TOOL, json!({ "city": name }))
}

#[test]
fn an_answer_has_words() {
    for (heard, expected) in [
        (Ok(heard("1 2 3", &[])), State::Ok),
        (Ok(heard(" ", &[])), State::No),
        (Ok(refused()), State::No),
        (Err(status(503, Kind::Unavailable, "busy")), State::No),
        (Err(Trouble::TimeUp(TOTAL)), State::No),
    ] {
        assert_eq!(judge::answer(&heard).state, expected, "{heard:?}");
    }
}

#[test]
fn tools_are_judged_by_the_call_that_comes() {
    let table = [
        (Ok(heard("", &[city("Paris")])), Leak::None, State::Ok),
        (Ok(heard("", &[city("Paris")])), Leak::Readable, State::Ok),
        (Ok(heard("It is sunny.", &[])), Leak::None, State::No),
        (Ok(heard("It is sunny.", &[])), Leak::Readable, State::Unknown),
        (Ok(heard("<tool_call>", &[])), Leak::Unreadable, State::No),
        (Ok(heard("", &[("weather", json!({}))])), Leak::None, State::No),
        (Ok(heard("", &[(plan::TOOL, json!("{\"ci"))])), Leak::None, State::No),
        (Ok(heard("", &[(plan::TOOL, json!({ "town": "Paris" }))])), Leak::None, State::No),
        (Ok(refused()), Leak::None, State::No),
        (Err(status(400, Kind::BadRequest, "does not support tools")), Leak::None, State::No),
        (Err(status(429, Kind::RateLimit, "slow down")), Leak::None, State::Unknown),
        (Err(status(401, Kind::Auth, "key")), Leak::None, State::Unknown),
    ];
    for (heard, leak, expected) in table {
        assert_eq!(judge::tools(&heard, leak).state, expected, "{heard:?} {leak:?}");
    }
}

#[test]
fn a_call_in_the_words_is_found() {
    let call = "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}";
    let table = [
        (heard(&format!("{call}</tool_call>"), &[]), Leak::Readable),
        (heard("<tool_call>{\"name\":\"get_weather\",</tool_call>", &[]), Leak::Unreadable),
        (heard("It is sunny.", &[]), Leak::None),
        (heard("", &[city("Paris")]), Leak::None),
    ];
    let tools = plan::weather().tools;
    for (heard, expected) in table {
        assert_eq!(judge::leak(&heard, &tools), expected, "{heard:?}");
    }
}

#[test]
fn several_calls_are_for_several_cities() {
    for (calls, expected) in [
        (vec![city("Paris"), city("Oslo")], State::Ok),
        (vec![city("Paris")], State::No),
        (vec![city("Paris"), city("Paris")], State::Unknown),
        (vec![city("Paris"), (plan::TOOL, json!({}))], State::Unknown),
        (vec![], State::Unknown),
    ] {
        assert_eq!(judge::parallel(&Ok(heard("", &calls))).state, expected, "{calls:?}");
    }
}

#[test]
fn a_result_is_made_use_of() {
    for (heard, expected) in [
        (Ok(heard("17 °C and rain.", &[])), State::Ok),
        (Ok(heard("", &[city("Paris")])), State::Unknown),
        (Ok(heard("I cannot know.", &[])), State::Unknown),
        (Ok(refused()), State::No),
        (Err(status(400, Kind::BadRequest, "messages[3] is wrong")), State::No),
        (Err(status(502, Kind::Unavailable, "bad gateway")), State::Unknown),
    ] {
        assert_eq!(judge::result(&heard).state, expected, "{heard:?}");
    }
}

#[test]
fn pictures_are_known_only_when_they_were_seen_or_refused() {
    let bad = |message: &str| Err(status(400, Kind::BadRequest, message));
    for (heard, taken, expected) in [
        (Ok(heard("Orange.", &[])), true, State::Ok),
        (Ok(heard("Blue.", &[])), true, State::Unknown),
        (Ok(heard("Orange.", &[])), false, State::No),
        (bad("this model has no vision"), true, State::No),
        (bad("image input is not supported"), true, State::No),
        (bad("the image is smaller than 512 pixels"), true, State::Unknown),
        (bad("unknown field `content`"), true, State::Unknown),
        (Err(status(429, Kind::RateLimit, "too many images")), true, State::Unknown),
        (Err(Trouble::TimeUp(TOTAL)), true, State::Unknown),
    ] {
        assert_eq!(judge::images(&heard, taken).state, expected, "{heard:?} {taken}");
    }
}

#[test]
fn small_things_are_judged_as_well() {
    let mut one = heard("1 2 3", &[]);
    assert_eq!(judge::usage(&one).state, State::No);
    assert_eq!(judge::streaming(&Heard { pieces: 1, ..Heard::default() }).state, State::Unknown);
    assert_eq!(judge::streaming(&Heard { pieces: 2, ..Heard::default() }).state, State::Ok);
    one.reply.as_mut().unwrap().usage = Some(Usage { input: 9, output: 5, cached: 4 });
    assert_eq!(judge::usage(&one).text, "9 tokens in, 4 of them cached, 5 out");

    let mut thoughts = Thoughts::default();
    thoughts.note(&one);
    assert_eq!(judge::reasoning(&thoughts).state, State::No);
    "Hm.".clone_into(&mut one.thought);
    one.reply.as_mut().unwrap().echo.field = Some("reasoning_content".to_owned());
    thoughts.note(&one);
    assert_eq!(judge::reasoning(&thoughts).text, "in the field `reasoning_content`");

    for (low, none, expected) in [
        (Some(true), Some(false), State::Ok),
        (Some(false), Some(false), State::No),
        (None, Some(true), State::Unknown),
    ] {
        assert_eq!(judge::effort(low, none).state, expected);
    }
    let names = Ok(vec!["p/a".to_owned(), "p/b".to_owned()]);
    assert_eq!(judge::models(&names, "p/a").text, "2 listed, this one among them");
    assert_eq!(judge::models(&names, "p/c").text, "2 listed, this one is not among them");
    assert_eq!(judge::models(&Ok(Vec::new()), "p/c").state, State::No);
    assert_eq!(judge::window(None).state, State::Unknown);
}

#[test]
fn the_agent_needs_words_and_calls() {
    let checks = |answer, tools, result| {
        [("answer", answer), ("tools", tools), ("result", result)]
            .map(|(name, state)| Check::new(name, state, ""))
    };
    assert!(works(&checks(State::Ok, State::Ok, State::Ok)));
    assert!(works(&checks(State::Ok, State::Ok, State::Unknown)));
    assert!(!works(&checks(State::Ok, State::Ok, State::No)));
    assert!(!works(&checks(State::Ok, State::Unknown, State::Skipped)));
    assert!(!works(&checks(State::No, State::Skipped, State::Skipped)));
    assert!(!works(&[]));
}

#[test]
fn the_conversation_with_the_result_is_whole() {
    let request = plan::with_results(
        plan::two_cities(),
        &heard("Let me see.", &[city("Paris"), city("Oslo")]),
    );
    let kinds: Vec<_> = request.messages.iter().map(|it| format!("{it:?}")).collect();
    assert_eq!(kinds.len(), 4);
    for id in ["call-0", "call-1"] {
        assert_eq!(kinds.iter().filter(|it| it.contains(id)).count(), 2, "{kinds:?}");
    }
}
