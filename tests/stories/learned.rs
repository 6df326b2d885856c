//! What the agent learns from a refusal (rule 8): it changes the parameter that the server names
//! and sends the request again. The user sees nothing of it, and the agent does not cause the same
//! refusal again.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::{McpHttpStub, answer_json};
use turnwright_testing::model_failures::failure;

use crate::agent::TestAgent;
use crate::provider::{Answer, Provider, configured, notices, refuses, says};

/// Starts a provider that refuses requests with one of these fields.
fn strict(fields: &'static [&'static str]) -> Provider {
    Provider::answering(move |body| {
        let refused = fields.iter().find(|it| body.get(**it).is_some());
        refused.map_or_else(|| says("Hello."), |it| refuses(&format!("Unknown parameter: '{it}'.")))
    })
}

/// Returns settings for a model whose server is known to accept an effort and a limit.
fn settings(provider: &Provider) -> String {
    let quirks = "quirks = { cache = 'auto' }\n[providers.p.model.gpt-5]\nmax_output = 99";
    format!("model = 'p/gpt-5'\n{}", provider.section("p", quirks))
}

/// Ends the agent, and starts another one with the same folders.
fn next(agent: &mut TestAgent) -> TestAgent {
    let home = agent.home().to_owned();
    agent.close();
    TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home.to_str().unwrap()).start()
}

fn profile_files(agent: &TestAgent) -> Vec<PathBuf> {
    let folder = fs::read_dir(agent.home().join("state/profiles")).into_iter().flatten();
    folder.map(|it| it.unwrap().path()).collect()
}

fn profile(agent: &TestAgent) -> Value {
    let files = profile_files(agent);
    assert_eq!(files.len(), 1, "{files:?}");
    serde_json::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap()
}

#[test]
fn a_refused_parameter_is_left_out_and_remembered_by_this_process_and_the_next() {
    let provider = strict(&["stream_options"]);
    let mut agent = configured(&settings(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!((agent.text().as_str(), notices(&agent).as_str()), ("Hello.", ""));
    assert_eq!(provider.chat_requests().len(), 2);
    let (first, second) = (&provider.chat_requests()[0], &provider.chat_requests()[1]);
    assert_eq!(first["messages"], second["messages"], "the messages must not change");
    assert_eq!(agent.turn("again"), "end_turn");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 4);
    let mut next = next(&mut agent);
    assert_eq!(profile(&agent)["learned"]["quirks"], json!({ "stream_options": false }));
    assert_eq!(next.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 5);
}

#[test]
fn two_parameters_that_are_refused_one_after_the_other_are_both_remembered() {
    let provider = strict(&["stream_options", "max_completion_tokens"]);
    let mut agent = configured(&settings(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 3);
    assert_eq!(provider.chat_requests()[2]["max_tokens"], 99);
    let mut next = next(&mut agent);
    assert_eq!(next.turn("hi"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 4);
}

/// A gateway may call a model of Anthropic by a name of its own.
#[test]
fn arguments_whose_names_are_refused_are_described_from_then_on() {
    let server = McpHttpStub::start(|request, stream| {
        let is_list = request.method() == "tools/list";
        if is_list {
            let schema =
                json!({ "type": "object", "properties": { "ids[]": { "type": "string" } } });
            let tools = json!({ "tools": [{ "name": "list", "inputSchema": schema }] });
            answer_json(stream, "", &request.result(&tools));
        }
        is_list
    });
    let provider = Provider::answering(|body| {
        if body["tools"].to_string().contains(r#""ids[]":"#) {
            return refuses(
                "tools.9.custom.input_schema.properties: Property keys should match pattern \
                 '^[a-zA-Z0-9_.-]{1,64}$'",
            );
        }
        says("Hello.")
    });
    let mut agent = configured(&settings(&provider)).server_as(server.server("far", &[])).start();
    for _ in 0..2 {
        assert_eq!(agent.turn("hi"), "end_turn");
    }
    let requests = provider.chat_requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[2]["tools"].to_string().contains("Also takes `ids[]`"), "{}", requests[2]);
    agent.close();
    assert_eq!(profile(&agent)["learned"]["quirks"], json!({ "names": false }));
}

const EXPECTED_THINKING: &str = "litellm.BadRequestError: messages.1.content.0.type: Expected `thinking` or \
                                 `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a \
                                 final `assistant` message must start with a thinking block.";

const CHANGED_THINKING: &str = "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest \
                                assistant message cannot be modified. These blocks must remain as they were in \
                                the original response.";

/// Claude with thinking behind LiteLLM: it answers with a call, preceded by these blocks. It wants to have
/// them back, or does not know them again.
fn claude(blocks: Value, refusal: &'static str) -> Provider {
    Provider::answering(move |body| {
        let calls = body["messages"].as_array().unwrap().iter();
        let Some(last) = calls.rev().find(|it| !it["tool_calls"].is_null()) else {
            let call = json!({ "index": 0, "id": "c", "function": { "name": "list_dir", "arguments": "{}" } });
            let pieces = blocks.as_array().unwrap().iter();
            let thoughts =
                pieces.map(|it| json!({ "choices": [{ "delta": { "thinking_blocks": [it] } }] }));
            let call = json!({ "choices": [{ "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] });
            return Answer::Events(thoughts.chain([call]).collect());
        };
        let has_blocks = !last["thinking_blocks"].is_null();
        let is_refused = if refusal == EXPECTED_THINKING {
            body.get("reasoning_effort").is_some() && !has_blocks
        } else {
            has_blocks
        };
        if is_refused { refuses(refusal) } else { says("Done.") }
    })
}

#[test]
fn signed_thinking_is_sent_back() {
    let block = |text: &str, signature: &str| json!({ "type": "thinking", "thinking": text, "signature": signature });
    let blocks = json!([block("Hm", ""), block(".", ""), block("", "sig")]);
    let provider = claude(blocks, EXPECTED_THINKING);
    let more = "request = { reasoning_effort = 'high' }";
    let settings = format!("model = 'p/claude'\n{}", provider.section("p", more));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), "Done.");
    let requests = provider.chat_requests();
    assert_eq!(requests.len(), 2);
    let messages = requests[1]["messages"].as_array().unwrap();
    assert_eq!(messages[2]["thinking_blocks"], json!([block("Hm.", "sig")]));
}

#[test]
fn thinking_that_the_server_does_not_know_again_is_left_out_of_the_request_that_it_refuses() {
    let block = json!({ "type": "thinking", "thinking": "Hm.", "signature": "sig" });
    let provider = claude(json!([block]), CHANGED_THINKING);
    let settings = format!("model = 'p/claude'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.text(), "Done.");
    let requests = provider.chat_requests();
    let blocks = |request: usize| &requests[request]["messages"][2]["thinking_blocks"];
    assert_eq!(requests.len(), 3);
    assert!(!blocks(1).is_null() && blocks(2).is_null());
}

#[test]
fn without_the_thinking_that_the_server_wants_the_request_is_repeated_without_the_effort() {
    for more in
        ["request = { reasoning_effort = 'high' }", "quirks = { effort = 'reasoning_effort' }"]
    {
        let provider = claude(json!([]), EXPECTED_THINKING);
        let settings = format!("model = 'p/claude'\n{}", provider.section("p", more));
        let mut agent = configured(&settings).start();
        if more.starts_with("quirks") {
            crate::provider::set(&mut agent, "thought_level", "high");
        }
        assert_eq!(agent.turn("hi"), "end_turn", "{more}");
        assert_eq!(agent.text(), "Done.");
        let efforts = |from: usize| {
            let requests = provider.chat_requests();
            requests[from..].iter().map(|it| it["reasoning_effort"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(efforts(0), [json!("high"), json!("high"), Value::Null], "{more}");
        // It was about this conversation: the effort is not given up.
        agent.session = agent.new_session();
        if more.starts_with("quirks") {
            crate::provider::set(&mut agent, "thought_level", "high");
        }
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(efforts(3)[0], "high", "{more}");
    }
}

/// A gateway whose refusal does not name what it refuses.
#[test]
fn cache_markers_that_are_refused_in_unknown_words_are_left_out_and_remembered() {
    let provider = Provider::answering(|body| {
        let is_marked = body.to_string().contains("cache_control");
        if is_marked { refuses("schema violation at /messages/0") } else { says("Hello.") }
    });
    let settings = format!("model = 'p/claude-sonnet-4-5'\n{}", provider.section("p", ""));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(provider.chat_requests().len(), 3);
    agent.close();
    assert_eq!(profile(&agent)["learned"]["quirks"], json!({ "cache": "auto" }));
}

#[test]
fn a_refusal_for_another_reason_costs_one_request_more_and_none_after_an_answer() {
    const REFUSAL: &str = "schema violation at /messages/2";
    for has_answered in [false, true] {
        let provider = Provider::answering(move |body| {
            let is_refused = !has_answered || body.to_string().contains("Quince.");
            if is_refused { refuses(REFUSAL) } else { says("Quince.") }
        });
        let settings = format!("model = 'p/claude-sonnet-4-5'\n{}", provider.section("p", ""));
        let mut agent = configured(&settings).start();
        if has_answered {
            assert_eq!(agent.turn("hi"), "end_turn");
        }
        let error = failure(&mut agent, "bad_request", Some(400));
        assert!(error["message"].as_str().unwrap().contains(REFUSAL), "{error}");
        let requests = provider.chat_requests();
        assert_eq!(requests.len(), 2, "{has_answered}");
        let is_marked = requests[1].to_string().contains("cache_control");
        assert_eq!(is_marked, has_answered);
    }
}

#[test]
fn a_refused_effort_is_no_longer_offered() {
    let provider = strict(&["reasoning_effort"]);
    let mut agent = configured(&settings(&provider)).start();
    crate::provider::set(&mut agent, "thought_level", "high");
    assert_eq!(agent.turn("hi"), "end_turn");
    agent.sync();
    let update = agent.updates_of("config_option_update").pop().unwrap();
    assert_eq!(crate::provider::current_values(&update), ["model=p/gpt-5", "mode=ask"]);
}

/// github/copilot-cli#3823, claude-code#87788: the highest effort became the default, which is a low one.
#[test]
fn where_the_highest_effort_is_rejected_the_next_lower_one_is_asked_for() {
    for (accepted, expected) in [("high", json!("high")), ("medium", json!(null))] {
        let provider = Provider::answering(move |body| match body["reasoning_effort"].as_str() {
            Some(effort) if effort != accepted => refuses(&format!(
                "Unsupported value: 'reasoning_effort' does not support '{effort}' with this model. \
                 Supported values are: '{accepted}'."
            )),
            _ => says("Hello."),
        });
        let mut agent = configured(&settings(&provider)).start();
        crate::provider::set(&mut agent, "thought_level", "xhigh");
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(agent.turn("again"), "end_turn");
        let bodies = provider.chat_requests();
        let last_ones = &bodies[bodies.len() - 2..];
        assert!(last_ones.iter().all(|body| body["reasoning_effort"] == expected), "{accepted}");
        let used = expected.as_str().unwrap_or("default");
        let told = format!("does not have the reasoning effort `xhigh`; `{used}` is used.");
        assert_eq!(notices(&agent).matches(&told).count(), 1, "{}", notices(&agent));
    }
}

/// A gateway that relays what its provider wants, and does not have that API itself (crush#2913).
#[test]
fn a_gateway_without_the_api_that_it_asks_for_is_asked_without_the_effort() {
    const REFUSAL: &str = "Function tools with reasoning_effort are not supported for gpt-5.5 in \
                           /v1/chat/completions. Please use /v1/responses instead.";
    for status in [404, 403, 501] {
        let provider = Provider::answering(move |body| {
            if body.get("input").is_some() {
                return Answer::Fails(status, json!("no such page"));
            }
            if body.get("reasoning_effort").is_some() { refuses(REFUSAL) } else { says("Hello.") }
        });
        let mut agent = configured(&settings(&provider)).start();
        crate::provider::set(&mut agent, "thought_level", "high");
        assert_eq!(agent.turn("hi"), "end_turn", "{status}");
        assert_eq!(agent.turn("again"), "end_turn", "{status}");
        assert_eq!(agent.text(), "Hello.Hello.", "{status}");
    }
}

#[test]
fn a_refusal_that_cannot_be_avoided_is_reported_once_and_not_remembered() {
    for (message, requests) in [
        ("There is something about you.", 1),
        // The message names a field, but no parameter that can be left out.
        ("messages.1.content is required", 1),
        ("Parameter stream_options, or else reasoning_split", 2),
        // Switching between the two parameters does not help.
        ("max_tokens and max_completion_tokens are both wrong", 2),
    ] {
        let provider = Provider::answering(move |_| refuses(message));
        let mut agent = configured(&settings(&provider)).start();
        let id = agent.prompt("hi");
        let answer = agent.answer_to(&id);
        let text = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.contains(message), "{text}");
        assert_eq!(provider.chat_requests().len(), requests, "{message}");
        agent.close();
        assert!(profile_files(&agent).is_empty(), "{message}");
    }
}

/// An answer that the server has cut off after this many tokens.
fn cut_off(tokens: u64) -> Answer {
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": tokens });
    let delta = json!({ "content": "Half." });
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": "length" });
    Answer::Events(vec![json!({ "choices": [choice], "usage": usage })])
}

/// NVIDIA NIM, MLX, SiliconFlow, and LiteLLM for Claude have such limits.
#[test]
fn a_long_answer_is_asked_for_once_one_was_cut_off_at_a_limit_that_nobody_has_set() {
    let too_long =
        "This model's maximum context length is 9000 tokens. You requested 16484 tokens.";
    for refusal in
        [None, Some("max_tokens must be at most 8192"), Some("Integer too large"), Some(too_long)]
    {
        let provider = Provider::answering(move |body| {
            if body["max_tokens"].is_null() {
                return cut_off(512);
            }
            refusal.map_or_else(|| says("All."), refuses)
        });
        let plain = format!("model = 'p/m'\n{}", provider.section("p", ""));
        let mut agent = configured(&plain).start();
        assert_eq!(agent.turn("one"), "max_tokens");
        assert!(notices(&agent).contains("after 512 tokens"), "{}", notices(&agent));
        let (stop, text, requests) = match refusal {
            None => ("end_turn", "Half.All.All.", 3),
            Some(_) => ("max_tokens", "Half.Half.Half.", 4),
        };
        assert_eq!((agent.turn("two").as_str(), agent.turn("three").as_str()), (stop, stop));
        assert_eq!(agent.text(), text, "{refusal:?}");
        assert_eq!(provider.chat_requests().len(), requests, "{refusal:?}");
    }
}

#[test]
fn a_shorter_answer_than_the_server_gives_unasked_is_never_asked_for() {
    for tokens in [16_384, 32_768] {
        let provider = Provider::answering(move |_| cut_off(tokens));
        let settings = format!("model = 'p/m'\n{}", provider.section("p", ""));
        let mut agent = configured(&settings).start();
        for prompt in ["one", "two"] {
            assert_eq!(agent.turn(prompt), "max_tokens");
        }
        let requests = provider.chat_requests();
        assert!(requests.iter().all(|body| body["max_tokens"].is_null()), "{requests:?}");
        assert!(!notices(&agent).contains("ends answers"), "{}", notices(&agent));
    }
}

#[test]
fn two_sessions_with_the_same_refusal_both_get_their_answer() {
    let provider = strict(&["stream_options"]);
    let mut agent = configured(&settings(&provider)).start();
    let other = agent.new_session();
    let both = [agent.session.clone(), other];
    let ids = both.map(|it| agent.request("session/prompt", &crate::agent::prompt(&it, "hi")));
    for id in ids {
        assert_eq!(agent.stop_reason(&id), "end_turn");
    }
}

#[test]
fn a_setting_of_the_user_takes_precedence_over_a_refusal() {
    let provider = strict(&["stream_options"]);
    let section = provider.section("p", "quirks = { stream_options = true }");
    let mut agent = configured(&format!("model = 'p/m'\n{section}")).start();
    let id = agent.prompt("hi");
    assert!(agent.answer_to(&id)["error"]["message"].as_str().unwrap().contains("stream_options"));
    assert_eq!(provider.chat_requests().len(), 1);
}

/// Starts a server with a context window of 4096 tokens.
fn small() -> Provider {
    Provider::answering(|body| {
        let body = body.to_string();
        if body.contains("too much") && !body.contains("State at this point") {
            return refuses("This model's maximum context length is 4096 tokens.");
        }
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20 });
        let choice = json!({ "index": 0, "delta": { "content": "Hi." }, "finish_reason": "stop" });
        Answer::Events(vec![json!({ "choices": [choice], "usage": usage })])
    })
}

fn size(agent: &TestAgent) -> Value {
    agent.updates_of("usage_update").pop().map_or(Value::Null, |it| it["size"].clone())
}

#[test]
fn a_window_learned_from_an_overflow_is_remembered_unless_the_user_sets_one() {
    let provider = small();
    let plain = format!("model = 'p/m'\n{}", provider.section("p", ""));
    let mut agent = configured(&plain).start();
    assert_eq!(agent.turn("too much"), "end_turn");
    let mut second = next(&mut agent);
    assert_eq!(profile(&agent)["learned"]["window"], 4096);
    assert_eq!(second.turn("hi"), "end_turn");
    assert_eq!(size(&second), 4096);
    second.close();
    let set = format!("{plain}[providers.p.model.m]\nwindow = 8192");
    fs::write(agent.home().join("config/config.toml"), set).unwrap();
    let home = agent.home().to_str().unwrap().to_owned();
    let mut third = TestAgent::unconfigured().variable("TURNWRIGHT_HOME", &home).start();
    assert_eq!(third.turn("hi"), "end_turn");
    assert_eq!(size(&third), 8192);
    // An overflow takes precedence over the setting of the user.
    assert_eq!(third.turn("too much"), "end_turn");
    assert_eq!(size(&third), 4096);
}

#[test]
fn a_broken_profile_is_ignored_and_replaced() {
    let provider = strict(&["stream_options"]);
    let mut agent = configured(&settings(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    let home = agent.home().to_owned();
    agent.close();
    let file = profile_files(&agent).remove(0);
    let whole = profile(&agent);
    let mut odd = whole.clone();
    odd["learned"] = json!({ "quirks": { "ids": "eleven" }, "window": "large" });
    for text in ["", "{", "[]", &odd.to_string()] {
        fs::write(&file, text).unwrap();
        let before = provider.chat_requests().len();
        let home = home.to_str().unwrap();
        let mut next = TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home).start();
        assert_eq!(next.turn("hi"), "end_turn");
        next.close();
        assert_eq!(provider.chat_requests().len(), before + 2, "{text}");
        assert_eq!(profile(&agent), whole, "the profile must be repaired");
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_does_no_harm() {
    let provider = strict(&["stream_options"]);
    for blocked in ["state/profiles", "state"] {
        let before = provider.chat_requests().len();
        let builder = configured(&settings(&provider)).own_file(blocked, "in the way");
        let mut agent = builder.start();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(agent.turn("again"), "end_turn");
        assert_eq!(provider.chat_requests().len(), before + 3, "{blocked}");
        assert_eq!(agent.turn("/models"), "end_turn");
    }
}
