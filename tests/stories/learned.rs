//! What a refusal teaches (rule 8): a parameter that the server names is changed at once, the
//! user sees nothing of it, and nobody provokes the refusal again.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::TestAgent;
use crate::provider::{Answer, Provider, configured, notices, refuses, says};

/// Refuses a request that has one of these fields.
fn strict(fields: &'static [&'static str]) -> Provider {
    Provider::answering(move |body| {
        let refused = fields.iter().find(|it| body.get(**it).is_some());
        refused.map_or_else(|| says("Hello."), |it| refuses(&format!("Unknown parameter: '{it}'.")))
    })
}

/// A model whose server is known to take an effort and a limit.
fn settings(provider: &Provider) -> String {
    let quirks = "quirks = { cache = 'auto' }\n[providers.p.model.gpt-5]\nmax_output = 99";
    format!("model = 'p/gpt-5'\n{}", provider.section("p", quirks))
}

/// A new agent with the folders of another one, which it ends.
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
fn a_parameter_that_is_refused_is_left_out_unseen_and_remembered_by_this_process_and_the_next() {
    let provider = strict(&["stream_options"]);
    let mut agent = configured(&settings(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!((agent.text().as_str(), notices(&agent).as_str()), ("Hello.", ""));
    assert_eq!(provider.asked().len(), 2);
    let (first, second) = (&provider.asked()[0], &provider.asked()[1]);
    assert_eq!(first["messages"], second["messages"], "nothing else is changed");
    assert_eq!(agent.turn("again"), "end_turn");
    agent.session = agent.new_session();
    assert_eq!(agent.turn("again"), "end_turn");
    assert_eq!(provider.asked().len(), 4);
    let mut next = next(&mut agent);
    assert_eq!(profile(&agent)["learned"]["quirks"], json!({ "stream_options": false }));
    assert_eq!(next.turn("hi"), "end_turn");
    assert_eq!(provider.asked().len(), 5);
}

#[test]
fn two_parameters_are_refused_one_after_the_other_and_both_are_remembered() {
    let provider = strict(&["stream_options", "max_completion_tokens"]);
    let mut agent = configured(&settings(&provider)).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(provider.asked().len(), 3);
    assert_eq!(provider.asked()[2]["max_tokens"], 99);
    let mut next = next(&mut agent);
    assert_eq!(next.turn("hi"), "end_turn");
    assert_eq!(provider.asked().len(), 4);
}

#[test]
fn an_effort_that_is_refused_is_no_longer_offered() {
    let provider = strict(&["reasoning_effort"]);
    let mut agent = configured(&settings(&provider)).start();
    crate::provider::set(&mut agent, "thought_level", "high");
    assert_eq!(agent.turn("hi"), "end_turn");
    agent.sync();
    let told =
        agent.updates().into_iter().rfind(|it| it["sessionUpdate"] == "config_option_update");
    assert_eq!(crate::provider::currents(&told.unwrap()), ["model=p/gpt-5", "mode=ask"]);
}

#[test]
fn what_cannot_be_mended_is_told_once_and_teaches_nothing() {
    for (message, requests) in [
        ("There is something about you.", 1),
        // It is named, but what is sent of it is not the trouble.
        ("messages.1.content is required", 1),
        ("Parameter stream_options, or else reasoning_split", 2),
        // To and fro is not mended either.
        ("max_tokens and max_completion_tokens are both wrong", 2),
    ] {
        let provider = Provider::answering(move |_| refuses(message));
        let mut agent = configured(&settings(&provider)).start();
        let id = agent.prompt("hi");
        let answer = agent.answer_to(&id);
        let told = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(told.contains(message), "{told}");
        assert_eq!(provider.asked().len(), requests, "{message}");
        agent.close();
        assert!(profile_files(&agent).is_empty(), "{message}");
    }
}

#[test]
fn two_sessions_that_meet_the_same_refusal_both_get_their_answer() {
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
fn a_wish_of_the_user_stands_above_what_the_server_says() {
    let provider = strict(&["stream_options"]);
    let section = provider.section("p", "quirks = { stream_options = true }");
    let mut agent = configured(&format!("model = 'p/m'\n{section}")).start();
    let id = agent.prompt("hi");
    assert!(agent.answer_to(&id)["error"]["message"].as_str().unwrap().contains("stream_options"));
    assert_eq!(provider.asked().len(), 1);
}

/// A server with a window of 4096 tokens.
fn small() -> Provider {
    Provider::answering(|body| {
        if body.to_string().contains("too much") {
            return refuses("This model's maximum context length is 4096 tokens.");
        }
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20 });
        let choice = json!({ "index": 0, "delta": { "content": "Hi." }, "finish_reason": "stop" });
        Answer::Events(vec![json!({ "choices": [choice], "usage": usage })])
    })
}

fn size(agent: &TestAgent) -> Value {
    let gauge = agent.updates().into_iter().rfind(|it| it["sessionUpdate"] == "usage_update");
    gauge.map_or(Value::Null, |it| it["size"].clone())
}

#[test]
fn a_window_that_an_overflow_has_told_is_known_to_the_next_process_unless_the_user_sets_one() {
    let provider = small();
    let plain = format!("model = 'p/m'\n{}", provider.section("p", ""));
    let mut agent = configured(&plain).start();
    assert_eq!(agent.turn("too much"), "max_tokens");
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
    // The server knows better still.
    assert_eq!(third.turn("too much"), "max_tokens");
    assert_eq!(size(&third), 4096);
}

#[test]
fn a_profile_that_is_broken_is_as_good_as_none() {
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
        let before = provider.asked().len();
        let home = home.to_str().unwrap();
        let mut next = TestAgent::unconfigured().variable("TURNWRIGHT_HOME", home).start();
        assert_eq!(next.turn("hi"), "end_turn");
        next.close();
        assert_eq!(provider.asked().len(), before + 2, "{text}");
        assert_eq!(profile(&agent), whole, "it is mended");
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_does_no_harm() {
    let provider = strict(&["stream_options"]);
    for blocked in ["state/profiles", "state"] {
        let before = provider.asked().len();
        let builder = configured(&settings(&provider)).own_file(blocked, "in the way");
        let mut agent = builder.start();
        assert_eq!(agent.turn("hi"), "end_turn");
        assert_eq!(agent.turn("again"), "end_turn");
        assert_eq!(provider.asked().len(), before + 3, "{blocked}");
        assert_eq!(agent.turn("/models"), "end_turn");
    }
}
