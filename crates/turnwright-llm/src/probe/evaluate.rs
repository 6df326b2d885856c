//! Evaluates observed replies. Does no I/O. Each rule is a row in the tests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::questions::{EXPECTED_COLOUR, EXPECTED_FACT, ObservedReply, TOOL_NAME};
use super::{Check, CheckState};
use crate::errors::has_any;
use crate::reply::leaked_calls;
use crate::{EndReason, ErrorKind, LlmError, ReplyCall};
use turnwright_types::message::{Arguments, TokenUsage, ToolSpec};

const PARSER_ADVICE: &str = "Start the server with a parser for this model's calls (vLLM and \
                             SGLang: \
                      --tool-call-parser, llama.cpp: --jinja)";
const OTHER_MODEL_ADVICE: &str = "The agent needs tools: choose another model, or start the \
                                  server with \
                           tools (vLLM: --enable-auto-tool-choice, llama.cpp: --jinja)";

/// A call that the model wrote into its text, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallLeak {
    None,
    Readable,
    Unreadable,
}

/// The observations of the model's reasoning.
#[derive(Debug, Default)]
pub(super) struct ReasoningSeen {
    pub(super) was_seen: bool,
    /// The field of the reasoning; `think` for tags in the text.
    pub(super) field: Option<String>,
}

impl ReasoningSeen {
    pub(super) fn record(&mut self, observed: &ObservedReply) {
        let provider_state = observed.reply.as_ref().map(|reply| &reply.provider_state);
        let hidden = provider_state.is_some_and(|state| !state.blobs.is_empty());
        if observed.thought.is_empty() && !hidden {
            return;
        }
        self.was_seen = true;
        self.field = self.field.take().or_else(|| provider_state?.field.clone());
    }
}

pub(super) fn answer(observed: &Result<ObservedReply, LlmError>) -> Check {
    let observed = match observed {
        Ok(observed) => observed,
        // Whatever the error was, there is no answer.
        Err(error) => return Check { state: CheckState::No, ..failed_check("answer", error) },
    };
    if let Some(refused) = refused_check("answer", observed) {
        return refused;
    }
    if observed.text.trim().is_empty() {
        return Check::no("answer", "it sends reasoning but no answer")
            .advise("Choose another model, or one that reasons less");
    }
    let first_delta = observed.first_delta.unwrap_or(observed.first_byte);
    let text = format!(
        "first byte after {}, first word after {}",
        seconds(observed.first_byte),
        seconds(first_delta)
    );
    Check::ok("answer", text)
        .fact("first_byte_ms", milliseconds(observed.first_byte))
        .fact("first_word_ms", milliseconds(first_delta))
}

pub(super) fn streaming(observed: &ObservedReply) -> Check {
    let check = match observed.pieces {
        0 | 1 => Check::unknown("streaming", "the answer came in one piece")
            .advise("If this is always so, text appears only when the reply is complete"),
        count => Check::ok("streaming", format!("in {count} pieces")),
    };
    check.fact("pieces", observed.pieces)
}

pub(super) fn usage(observed: &ObservedReply) -> Check {
    let Some(usage) = observed.reply.as_ref().and_then(|reply| reply.usage) else {
        return Check::no("usage", "no token counts: usage can't be shown");
    };
    let TokenUsage { input, cached, output, .. } = usage;
    let text = format!("{input} tokens in, {cached} of them cached, {output} out");
    Check::ok("usage", text).fact("input", input).fact("cached", cached).fact("output", output)
}

pub(super) fn leak(observed: &ObservedReply, tools: &[Arc<ToolSpec>]) -> CallLeak {
    if observed.reply.as_ref().is_none_or(|reply| !reply.calls.is_empty()) {
        return CallLeak::None;
    }
    let declared: Vec<_> =
        tools.iter().map(|tool| (tool.name.as_ref(), &tool.parameters)).collect();
    if leaked_calls::find_leaked_calls(&observed.text, &declared).is_some() {
        CallLeak::Readable
    } else if leaked_calls::looks_like_leaked_call(&observed.text) {
        CallLeak::Unreadable
    } else {
        CallLeak::None
    }
}

/// `leak` is what was found in the text of the first attempt.
pub(super) fn tools(observed: &Result<ObservedReply, LlmError>, leak: CallLeak) -> Check {
    let observed = match observed {
        Ok(observed) => observed,
        Err(error) => return failed_check("tools", error),
    };
    if let Some(refused) = refused_check("tools", observed) {
        return refused;
    }
    let Some(call) = calls(observed).first() else {
        return match leak {
            CallLeak::None => {
                Check::no("tools", "it answers with text instead of calling the tool")
                    .advise(OTHER_MODEL_ADVICE)
            }
            CallLeak::Readable => {
                Check::unknown("tools", "it writes calls into its text, and not every time")
                    .advise(PARSER_ADVICE)
            }
            CallLeak::Unreadable => {
                Check::no("tools", "it writes calls into its text that can't be parsed")
                    .advise(PARSER_ADVICE)
            }
        };
    };
    let invalid = |text: String| Check::no("tools", text).advise("Choose another model");
    match &call.arguments {
        _ if call.name != TOOL_NAME => {
            invalid(format!("it calls `{}`, which doesn't exist", call.name))
        }
        Arguments::Unusable { reason, .. } => {
            invalid(format!("its arguments are invalid: {reason}"))
        }
        Arguments::Object(_) if city(call).is_none() => {
            invalid("its arguments don't match the schema".to_owned())
        }
        Arguments::Object(_) if leak == CallLeak::Readable => {
            Check::ok("tools", "it writes calls into its text, which the agent parses")
                .advise(PARSER_ADVICE)
                .fact("leaked", true)
        }
        Arguments::Object(_) => {
            let is_streamed = observed.argument_pieces > 1;
            let how = if is_streamed { "streamed" } else { "not streamed" };
            Check::ok("tools", format!("it calls tools with valid arguments, {how}"))
                .fact("leaked", false)
                .fact("streamed_arguments", is_streamed)
        }
    }
}

pub(super) fn result(observed: &Result<ObservedReply, LlmError>) -> Check {
    match observed {
        Err(error) => failed_check("result", error),
        Ok(observed) if observed.text.contains(EXPECTED_FACT) => {
            Check::ok("result", "it uses the tool's result")
        }
        Ok(observed) if !calls(observed).is_empty() => {
            Check::unknown("result", "it calls the tool again instead of answering")
        }
        Ok(observed) => refused_check("result", observed)
            .unwrap_or_else(|| Check::unknown("result", "it doesn't use the tool's result")),
    }
}

pub(super) fn parallel(observed: &Result<ObservedReply, LlmError>) -> Check {
    let observed = match observed {
        Ok(observed) => observed,
        Err(error) => return failed_check("parallel", error),
    };
    let cities: Vec<_> = calls(observed).iter().map(city).collect();
    match cities.as_slice() {
        [] => Check::unknown("parallel", "it didn't call the tool"),
        [_] => Check::no("parallel", "one call at a time, which is slower"),
        [first, second, ..] if first.is_some() && second.is_some() && first != second => {
            Check::ok("parallel", "several calls in one reply")
        }
        _ => Check::unknown("parallel", "several calls, but not the requested ones"),
    }
}

/// `taken` is true if the final request still contained the image.
pub(super) fn images(observed: &Result<ObservedReply, LlmError>, taken: bool) -> Check {
    let refused = || Check::no("images", "rejected; images are left out of prompts");
    match observed {
        Ok(_) if !taken => refused(),
        Ok(observed) if observed.text.to_lowercase().contains(EXPECTED_COLOUR) => {
            Check::ok("images", "it recognises what is in an image")
        }
        Ok(_) => Check::unknown(
            "images",
            "accepted, but it doesn't recognise what is in the image",
        )
        .advise(
            "If the model does not support images, set `quirks = { images = false }` for it in \
                     the settings",
        ),
        Err(error) if is_about_images(error) => refused(),
        Err(error) => Check { state: CheckState::Unknown, ..failed_check("images", error) },
    }
}

/// True if images are rejected in general. An error about one that is too small or cannot be
/// decoded shows that others are accepted.
fn is_about_images(error: &LlmError) -> bool {
    let text = error.message().unwrap_or_default().to_lowercase();
    let subjects = ["image", "vision", "multimodal"];
    let refusals = ["support", "unknown", "unexpected", "no vision", "only text", "text only"];
    matches!(error.status(), Some(400 | 404 | 415 | 422 | 500 | 501))
        && has_any(&text, &subjects)
        && has_any(&text, &refusals)
}

pub(super) fn reasoning(reasoning: &ReasoningSeen) -> Check {
    match reasoning.field.as_deref() {
        _ if !reasoning.was_seen => Check::no("reasoning", "not shown"),
        Some("think") => Check::ok("reasoning", "in tags within the text").fact("field", "think"),
        Some(field) => {
            Check::ok("reasoning", format!("in the field `{field}`")).fact("field", field)
        }
        None => Check::ok("reasoning", "sent with the replies"),
    }
}

pub(super) fn effort(low: Option<bool>, none: Option<bool>) -> Check {
    let check = match (low, none) {
        (Some(true), Some(true)) => Check::ok("effort", "`low` and `none` are accepted"),
        (Some(true), Some(false)) => Check::ok("effort", "`low` is accepted, `none` is not"),
        (Some(true), None) => Check::ok("effort", "`low` is accepted"),
        (Some(false), _) => Check::no("effort", "rejected; it is no longer sent"),
        (None, _) => Check::unknown("effort", "no reply"),
    };
    check
        .fact("low", low.map_or(Value::Null, Value::Bool))
        .fact("none", none.map_or(Value::Null, Value::Bool))
}

pub(super) fn models(names: &Result<Vec<String>, LlmError>, model: &str) -> Check {
    match names {
        Err(error) => {
            let text = failed_check("models", error).text;
            Check::no("models", format!("not listed (this is optional): {text}"))
        }
        Ok(names) if names.is_empty() => Check::no("models", "the list is empty"),
        Ok(names) => {
            // The name that users see may begin with the provider's.
            let is_listed = names.iter().any(|name| {
                let prefix = model.strip_suffix(name.as_str());
                prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('/'))
            });
            let including = if is_listed { "including" } else { "not including" };
            let text = format!("{} listed, {including} this one", names.len());
            Check::ok("models", text).fact("count", names.len()).fact("listed", is_listed)
        }
    }
}

pub(super) fn window(window: Option<u64>, assumed: u64) -> Check {
    match window {
        Some(tokens) => Check::ok("window", format!("{tokens} tokens")).fact("tokens", tokens),
        None => Check::unknown("window", format!("unknown: {assumed} tokens are assumed"))
            .advise("Set `window` for the model in the settings, or TURNWRIGHT_CONTEXT_WINDOW"),
    }
}

fn failed_check(name: &'static str, error: &LlmError) -> Check {
    if let LlmError::Silent { limit, .. } = error {
        return Check::unknown(name, format!("no complete reply within {} s", limit.as_secs()))
            .advise("A server may have to load the model first: try again");
    }
    let kind = error.kind();
    // A transient or account problem says nothing about the model.
    let is_passing = kind.is_transient() || matches!(kind, ErrorKind::Auth | ErrorKind::Quota);
    let state = if is_passing { CheckState::Unknown } else { CheckState::No };
    let advice = match kind {
        ErrorKind::Network => Some("Check that the server is running and listens at this address"),
        ErrorKind::UrlNotFound | ErrorKind::Malformed => Some("Most base URLs end in /v1"),
        ErrorKind::RateLimit | ErrorKind::Unavailable | ErrorKind::EmptyReply => {
            Some("Try again later")
        }
        _ => None,
    };
    let advice = advice.map(str::to_owned);
    Check { kind: Some(kind), advice, ..Check::new(name, state, error.to_string()) }
}

/// The outcome of a check whose question the provider refuses to answer.
fn refused_check(name: &'static str, observed: &ObservedReply) -> Option<Check> {
    let EndReason::Refused(why) = &observed.reply.as_ref()?.end else { return None };
    let reason = if why.trim().is_empty() { "no reason given" } else { why };
    Some(Check::no(name, format!("the provider refuses to answer: {reason}")))
}

fn calls(observed: &ObservedReply) -> &[ReplyCall] {
    observed.reply.as_ref().map_or(&[], |reply| reply.calls.as_slice())
}

fn city(call: &ReplyCall) -> Option<&str> {
    match &call.arguments {
        Arguments::Object(arguments) => arguments["city"].as_str(),
        Arguments::Unusable { .. } => None,
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
