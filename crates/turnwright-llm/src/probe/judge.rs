//! What was heard → what it means. Pure; each rule is a row in the tests.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::ask::{Heard, Trouble};
use super::plan::{COLOUR, MARK, TOOL};
use super::{Check, State};
use crate::{End, Kind, LlmError, ReplyCall, leaked};
use turnwright_types::message::{Arguments, ToolSpec};

const PARSER: &str = "Start the server with a parser for this model's calls (vLLM and SGLang: \
                      --tool-call-parser, llama.cpp: --jinja)";
const OTHER_MODEL: &str = "The agent needs tools: choose another model, or start the server with \
                           tools (vLLM: --enable-auto-tool-choice, llama.cpp: --jinja)";

/// Whether a call stands in the words of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leak {
    None,
    Readable,
    Unreadable,
}

/// What was seen of the reasoning.
#[derive(Debug, Default)]
pub(super) struct Thoughts {
    pub(super) came: bool,
    /// The field that they came in; `think` for tags.
    pub(super) field: Option<String>,
}

impl Thoughts {
    pub(super) fn note(&mut self, heard: &Heard) {
        let echo = heard.reply.as_ref().map(|it| &it.echo);
        let hidden = echo.is_some_and(|it| !it.blobs.is_empty());
        if heard.thought.is_empty() && !hidden {
            return;
        }
        self.came = true;
        self.field = self.field.take().or_else(|| echo?.field.clone());
    }
}

pub(super) fn answer(heard: &Result<Heard, Trouble>) -> Check {
    let check = |state, text: String| Check::new("answer", state, text);
    let heard = match heard {
        Ok(heard) => heard,
        // Whatever it was, there is no answer.
        Err(trouble) => return Check { state: State::No, ..failure("answer", trouble) },
    };
    if let Some(why) = refusal(heard) {
        return check(State::No, format!("the provider refuses to answer: {why}"));
    }
    if heard.text.trim().is_empty() {
        return check(State::No, "it thinks and says nothing".to_owned())
            .advise("Choose another model, or one with less reasoning");
    }
    let word = heard.first_word.unwrap_or(heard.first_byte);
    let text =
        format!("first byte after {}, first word after {}", time(heard.first_byte), time(word));
    check(State::Ok, text)
        .fact("first_byte_ms", milliseconds(heard.first_byte))
        .fact("first_word_ms", milliseconds(word))
}

pub(super) fn streaming(heard: &Heard) -> Check {
    let (state, text) = match heard.pieces {
        0 | 1 => (State::Unknown, "the answer came in one piece".to_owned()),
        count => (State::Ok, format!("in {count} pieces")),
    };
    let check = Check::new("streaming", state, text).fact("pieces", heard.pieces);
    match state {
        State::Ok => check,
        _ => check.advise("Words appear only when the answer is whole, if it is always so"),
    }
}

pub(super) fn usage(heard: &Heard) -> Check {
    let Some(usage) = heard.reply.as_ref().and_then(|it| it.usage) else {
        return Check::new("usage", State::No, "tokens are not counted: there will be no gauge");
    };
    let (input, output, cached) = (usage.input, usage.output, usage.cached);
    let text = format!("{input} tokens in, {cached} of them cached, {output} out");
    Check::new("usage", State::Ok, text)
        .fact("input", input)
        .fact("cached", cached)
        .fact("output", output)
}

pub(super) fn leak(heard: &Heard, tools: &[Arc<ToolSpec>]) -> Leak {
    if heard.reply.as_ref().is_none_or(|it| !it.calls.is_empty()) {
        return Leak::None;
    }
    let declared: Vec<_> = tools.iter().map(|it| (it.name.as_ref(), &it.parameters)).collect();
    if leaked::find(&heard.text, &declared).is_some() {
        Leak::Readable
    } else if leaked::looks_leaked(&heard.text) {
        Leak::Unreadable
    } else {
        Leak::None
    }
}

/// `leak` is what was found in the words of the first try.
pub(super) fn tools(heard: &Result<Heard, Trouble>, leak: Leak) -> Check {
    let check = |state, text: &str| Check::new("tools", state, text);
    let heard = match heard {
        Ok(heard) => heard,
        Err(trouble) => return failure("tools", trouble),
    };
    if let Some(why) = refusal(heard) {
        return check(State::No, &format!("the provider refuses to answer: {why}"));
    }
    let Some(call) = calls(heard).first() else {
        return match leak {
            Leak::None => {
                check(State::No, "it answers in words instead of calling").advise(OTHER_MODEL)
            }
            Leak::Readable => {
                check(State::Unknown, "it calls in its words, and not each time").advise(PARSER)
            }
            Leak::Unreadable => {
                check(State::No, "it calls in words that cannot be read").advise(PARSER)
            }
        };
    };
    let wrong = |text: String| check(State::No, &text).advise("Choose another model");
    match &call.arguments {
        _ if call.name != TOOL => wrong(format!("it calls `{}`, which there is not", call.name)),
        Arguments::Unusable { reason, .. } => wrong(format!("its arguments are wrong: {reason}")),
        Arguments::Object(_) if city(call).is_none() => {
            wrong("its arguments are not those of the function".to_owned())
        }
        Arguments::Object(_) if leak == Leak::Readable => {
            check(State::Ok, "it calls in its words, which the agent understands")
                .advise(PARSER)
                .fact("leaked", true)
        }
        Arguments::Object(_) => {
            let is_streamed = heard.argument_pieces > 1;
            let how = if is_streamed { "that are streamed" } else { "that come whole" };
            check(State::Ok, &format!("it calls, with valid arguments {how}"))
                .fact("leaked", false)
                .fact("streamed_arguments", is_streamed)
        }
    }
}

pub(super) fn result(heard: &Result<Heard, Trouble>) -> Check {
    let check = |state, text: &str| Check::new("result", state, text);
    match heard {
        Err(trouble) => failure("result", trouble),
        Ok(heard) if heard.text.contains(MARK) => {
            check(State::Ok, "the answer makes use of what the call gave")
        }
        Ok(heard) if !calls(heard).is_empty() => {
            check(State::Unknown, "it calls once more instead of answering")
        }
        Ok(heard) => match refusal(heard) {
            Some(why) => check(State::No, &format!("the provider refuses to answer: {why}")),
            None => check(State::Unknown, "the answer makes no use of what the call gave"),
        },
    }
}

pub(super) fn parallel(heard: &Result<Heard, Trouble>) -> Check {
    let check = |state, text: &str| Check::new("parallel", state, text);
    let heard = match heard {
        Ok(heard) => heard,
        Err(trouble) => return failure("parallel", trouble),
    };
    let cities: Vec<_> = calls(heard).iter().map(city).collect();
    match cities.as_slice() {
        [] => check(State::Unknown, "it did not call"),
        [_] => check(State::No, "one call at a time, which takes longer"),
        [first, second, ..] if first.is_some() && second.is_some() && first != second => {
            check(State::Ok, "several calls in one answer")
        }
        _ => check(State::Unknown, "several calls, but not those that were wanted"),
    }
}

/// `taken` is whether the picture has gone out to the end.
pub(super) fn images(heard: &Result<Heard, Trouble>, taken: bool) -> Check {
    let check = |state, text: &str| Check::new("images", state, text);
    let refused = || check(State::No, "refused; prompts go out without their pictures");
    match heard {
        Ok(_) if !taken => refused(),
        Ok(heard) if heard.text.to_lowercase().contains(COLOUR) => {
            check(State::Ok, "it sees what is in a picture")
        }
        Ok(_) => check(State::Unknown, "taken, but it does not say what is in the picture")
            .advise("If the model sees, set `quirks = { images = true }` for it in the settings"),
        Err(Trouble::Model(error)) if is_about_pictures(error) => refused(),
        Err(trouble) => Check { state: State::Unknown, ..failure("images", trouble) },
    }
}

/// Whether pictures are refused as such. One that is too small or cannot be decoded would show
/// that others are taken.
fn is_about_pictures(error: &LlmError) -> bool {
    let text = error.message().unwrap_or_default().to_lowercase();
    let has = |words: &[&str]| words.iter().any(|it| text.contains(it));
    matches!(error.status(), Some(400 | 404 | 415 | 422 | 500 | 501))
        && has(&["image", "vision", "multimodal"])
        && has(&["support", "unknown", "unexpected", "no vision", "only text", "text only"])
}

pub(super) fn reasoning(thoughts: &Thoughts) -> Check {
    let check = |state, text: &str| Check::new("reasoning", state, text);
    match thoughts.field.as_deref() {
        _ if !thoughts.came => check(State::No, "none is shown"),
        Some("think") => check(State::Ok, "in tags within the words").fact("field", "think"),
        Some(field) => check(State::Ok, &format!("in the field `{field}`")).fact("field", field),
        None => check(State::Ok, "it comes with the answers"),
    }
}

pub(super) fn effort(low: Option<bool>, none: Option<bool>) -> Check {
    let check = |state, text: &str| Check::new("effort", state, text);
    let check = match (low, none) {
        (Some(true), Some(true)) => check(State::Ok, "`low` and `none` are taken"),
        (Some(true), Some(false)) => check(State::Ok, "`low` is taken, `none` is not"),
        (Some(true), None) => check(State::Ok, "`low` is taken"),
        (Some(false), _) => check(State::No, "refused; it is not sent any more"),
        (None, _) => check(State::Unknown, "no answer to that"),
    };
    let value = |taken: Option<bool>| taken.map_or(Value::Null, Value::Bool);
    check.fact("low", value(low)).fact("none", value(none))
}

pub(super) fn models(names: &Result<Vec<String>, Trouble>, own: &str) -> Check {
    match names {
        Err(trouble) => {
            let text = failure("models", trouble).text;
            Check::new("models", State::No, format!("no list, and none is needed: {text}"))
        }
        Ok(names) if names.is_empty() => Check::new("models", State::No, "the list is empty"),
        Ok(names) => {
            let is_listed = names.iter().any(|it| it == own);
            let this = if is_listed { "this one" } else { "this one is not" };
            let text = format!("{} listed, {this} among them", names.len());
            Check::new("models", State::Ok, text)
                .fact("count", names.len())
                .fact("listed", is_listed)
        }
    }
}

pub(super) fn window(window: Option<u64>) -> Check {
    match window {
        Some(tokens) => {
            Check::new("window", State::Ok, format!("{tokens} tokens")).fact("tokens", tokens)
        }
        None => Check::new("window", State::Unknown, "not known: there will be no gauge")
            .advise("Set `window` for the model in the settings, or TURNWRIGHT_CONTEXT_WINDOW"),
    }
}

fn failure(name: &'static str, trouble: &Trouble) -> Check {
    let error = match trouble {
        Trouble::Model(error) => error,
        Trouble::TimeUp(limit) => {
            let text = format!("there was no whole answer within {} s", limit.as_secs());
            return Check::new(name, State::Unknown, text)
                .advise("A server may have to load the model first: try again");
        }
    };
    let kind = error.kind();
    // What has to do with the day tells nothing about the model.
    let is_passing = kind.may_pass() || matches!(kind, Kind::Auth | Kind::Quota);
    let state = if is_passing { State::Unknown } else { State::No };
    let advice = match kind {
        Kind::Network => Some("Is the server running, and is this where it listens?"),
        Kind::UrlNotFound | Kind::Malformed => Some("Most base URLs end in /v1"),
        Kind::RateLimit | Kind::Unavailable | Kind::Empty => Some("Try again in a while"),
        _ => None,
    };
    let advice = advice.map(str::to_owned);
    Check { kind: Some(kind), advice, ..Check::new(name, state, sentence(error)) }
}

/// What went wrong, and the system's word for it.
fn sentence(error: &LlmError) -> String {
    let mut deepest = error.source();
    while let Some(cause) = deepest.and_then(Error::source) {
        deepest = Some(cause);
    }
    deepest.map_or_else(|| error.to_string(), |cause| format!("{error} ({cause})"))
}

fn refusal(heard: &Heard) -> Option<String> {
    match heard.reply.as_ref().map(|it| &it.end) {
        Some(End::Refused(why)) if why.trim().is_empty() => Some("it does not say why".to_owned()),
        Some(End::Refused(why)) => Some(why.clone()),
        _ => None,
    }
}

fn calls(heard: &Heard) -> &[ReplyCall] {
    heard.reply.as_ref().map_or(&[], |it| it.calls.as_slice())
}

fn city(call: &ReplyCall) -> Option<&str> {
    match &call.arguments {
        Arguments::Object(arguments) => arguments["city"].as_str(),
        Arguments::Unusable { .. } => None,
    }
}

fn time(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
