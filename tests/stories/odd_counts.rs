//! Stories about servers whose counts of tokens are not the size of the request.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::agent::TestAgent;
use crate::provider::{Answer, Provider, configured, is_summary_request, tokens};

/// A part of what the user is told of a server that reads only a part of each request.
const CUT: &str = "seems to have cut the prompt";

/// A provider whose usage for the request with this number, from 0, is made by `usage` of the true count.
fn counting(usage: impl Fn(usize, u64) -> Value + Send + Sync + 'static) -> Provider {
    let number = AtomicUsize::new(0);
    Provider::answering(move |body| {
        let text = if is_summary_request(body) { "The summary." } else { "Yes." };
        let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": "stop" });
        let usage = usage(number.fetch_add(1, Ordering::Relaxed), tokens(body));
        Answer::Events(vec![json!({ "choices": [choice], "usage": usage })])
    })
}

fn count(tokens: u64) -> Value {
    json!({ "prompt_tokens": tokens, "completion_tokens": 5 })
}

fn start(provider: &Provider, more: &str) -> TestAgent {
    configured(&format!("model = 'p/m'\n{}{more}", provider.section("p", ""))).start()
}

/// A prompt of this many tokens.
fn prompt(number: usize, tokens: usize) -> String {
    format!("Turn {number}. {}", "word ".repeat(tokens * 4 / 5))
}

/// The sizes of the window that the client was told, one after each answer.
fn sizes(agent: &TestAgent) -> Vec<u64> {
    let usage = agent.updates_of("usage_update");
    usage.iter().map(|it| it["size"].as_u64().unwrap()).collect()
}

/// The number of tools in each request that is none for a summary.
fn tool_counts(provider: &Provider) -> Vec<usize> {
    let requests = provider.chat_requests();
    let own = requests.iter().filter(|it| !is_summary_request(it));
    own.map(|it| it["tools"].as_array().unwrap().len()).collect()
}

#[test]
fn a_server_that_counts_oddly_keeps_its_window_its_tools_and_the_conversation() {
    type Usage = fn(usize, u64) -> Value;
    let table: [(&str, Usage); 7] = [
        ("only what is new", |number, whole| count(if number == 0 { whole } else { 1_230 })),
        ("only what is new, from the first", |_, _| count(1_230)),
        ("one low count", |number, whole| count(if number == 4 { 77 } else { whole })),
        ("one low count at the end", |number, whole| {
            count(if number == 7 { 2_500 } else { whole })
        }),
        ("one huge count", |number, whole| count(if number == 3 { 9_000_000_000 } else { whole })),
        ("all requests together", |number, whole| count(whole * (number as u64 + 1))),
        ("what comes from the cache twice", |number, whole| {
            let cached = if number == 0 { 0 } else { whole - 1_250 };
            json!({ "prompt_tokens": whole + cached, "completion_tokens": 5,
                "prompt_tokens_details": { "cached_tokens": cached } })
        }),
    ];
    for (name, usage) in table {
        let provider = counting(usage);
        let mut agent = start(&provider, "[limits]\nsession_tokens = 2000000\n");
        for number in 0..8 {
            assert_eq!(agent.turn(&prompt(number, 1_200)), "end_turn", "{name}");
        }
        assert!(!agent.thoughts().contains(CUT), "{name}: {}", agent.thoughts());
        assert!(!provider.chat_requests().iter().any(is_summary_request), "{name}");
        let tools = tool_counts(&provider);
        assert!(tools.iter().all(|it| *it == tools[0]) && tools.len() == 8, "{name}: {tools:?}");
        assert_eq!(sizes(&agent), [128_000; 8], "{name}");
    }
}

/// Counts of a server that reads no more than 4 096 tokens.
fn cut_at_4096(_: usize, whole: u64) -> Value {
    count(whole.min(4_091))
}

#[test]
fn a_window_that_the_user_has_set_stays_and_the_user_is_told_that_requests_are_cut() {
    let provider = counting(cut_at_4096);
    let mut agent = start(&provider, "[providers.p.model.m]\nwindow = 60000\n");
    for number in 0..8 {
        assert_eq!(agent.turn(&prompt(number, 2_000)), "end_turn");
    }
    assert_eq!(sizes(&agent), [60_000; 8]);
    assert!(!provider.chat_requests().iter().any(is_summary_request));
    assert_eq!(agent.thoughts().matches(CUT).count(), 1, "{}", agent.thoughts());
    assert!(agent.thoughts().contains("60000"), "{}", agent.thoughts());
}

#[test]
fn a_limit_that_only_counts_have_shown_is_lifted_when_they_are_sane_again() {
    // Two equal counts in a row that are far too low, and honest ones before and after them.
    let provider =
        counting(|number, whole| count(if (6..8).contains(&number) { 6_100 } else { whole }));
    let mut agent = start(&provider, "");
    for number in 0..16 {
        assert_eq!(agent.turn(&prompt(number, if number < 6 { 900 } else { 7_000 })), "end_turn");
    }
    assert_eq!(sizes(&agent).last(), Some(&128_000), "{:?}", sizes(&agent));
    assert_eq!(tool_counts(&provider).last(), tool_counts(&provider).first());
}

#[test]
fn a_learned_window_has_room_for_the_prompt_and_the_tools() {
    // No model works with this: it is a wrong count, whatever else.
    let provider = counting(|_, _| count(700));
    let mut agent = start(&provider, "");
    for number in 0..5 {
        assert_eq!(agent.turn(&prompt(number, 6_000)), "end_turn");
    }
    assert_eq!(sizes(&agent), [128_000; 5]);
    assert!(!agent.thoughts().contains(CUT), "{}", agent.thoughts());
}
