//! Stories about models that cannot summarise a conversation, but go on answering.

use serde_json::{Value, json};
use turnwright_testing::mcp_http_stub::answer;
use turnwright_testing::raw_server::{RawServer, text_stream, write_stream};

use crate::agent::TestAgent;
use crate::provider::{
    Answer, Provider, SUMMARY_REQUEST, calls, configured, is_summary_request, says,
};

/// The start of what the user is told when there is no summary.
const LEFT_OUT: &str = "The older part of the conversation was left out";

/// A provider that answers each request for a summary like this, and its conversation of as many turns.
fn talk(summary: Answer, turns: usize) -> (TestAgent, Vec<Value>) {
    let provider =
        Provider::answering(
            move |body| {
                if is_summary_request(body) { summary.clone() } else { says("Yes.") }
            },
        );
    let model = "models = ['m']\n[providers.p.model.m]\nwindow = 16000\n";
    let mut agent = configured(&format!("model = 'p/m'\n{}", provider.section("p", model))).start();
    for turn in 0..turns {
        let prompt = format!("Never touch {turn}.txt. {}", "word ".repeat(1_600));
        assert_eq!(agent.turn(&prompt), "end_turn", "{turn}");
    }
    (agent, provider.chat_requests())
}

/// An answer whose end the filter of the provider has replaced by these words.
fn filtered(words: &str) -> Answer {
    let delta = json!({ "content": words });
    Answer::Events(vec![json!({ "choices": [
        { "index": 0, "delta": delta, "finish_reason": "content_filter" }
    ] })])
}

#[test]
fn after_three_failures_the_older_part_is_left_out_and_a_summary_is_asked_for_rarely() {
    for (name, summary) in [
        ("500", Answer::Refuses(500, "the template failed".to_owned())),
        ("400", Answer::Refuses(400, "two messages of the user in a row".to_owned())),
        ("empty", says("")),
        ("calls", calls("list_dir", &json!({}))),
        ("refusal", filtered("I cannot help with that.")),
    ] {
        let (agent, requests) = talk(summary, 24);
        let asked = requests.iter().filter(|it| is_summary_request(it)).count();
        let left_out = agent.thoughts().matches(LEFT_OUT).count();
        assert!(left_out > 2, "{name}: {left_out} {}", agent.thoughts());
        assert!((3..=5).contains(&asked), "{name}: {asked}");
        let last = requests.last().unwrap();
        assert!(last["messages"].to_string().len() / 4 < 16_000, "{name}");
        assert!(last["messages"].to_string().contains("Never touch 0.txt."), "{name}");
    }
}

#[test]
fn a_server_that_answers_nothing_loses_no_part_of_the_conversation() {
    let provider = Provider::answering(|body| {
        let is_down = body["messages"].to_string().contains("The server is down.");
        if is_down { Answer::Refuses(401, "no such key".to_owned()) } else { says("Yes.") }
    });
    let model = "models = ['m']\n[providers.p.model.m]\nwindow = 16000\n";
    let mut agent = configured(&format!("model = 'p/m'\n{}", provider.section("p", model))).start();
    assert_eq!(agent.turn(&format!("Begin. {}", "word ".repeat(6_000))), "end_turn");
    for _ in 0..4 {
        let id = agent.prompt(&format!("The server is down. {}", "word ".repeat(1_000)));
        assert!(agent.answer_to(&id)["error"].is_object());
    }
    assert!(!agent.thoughts().contains(LEFT_OUT), "{}", agent.thoughts());
}

#[test]
fn a_limit_of_requests_is_waited_for_as_before_an_answer() {
    let busy =
        json!([{ "status": 429, "body": { "error": { "message": "Rate limit reached." } } }]);
    let summary = json!([{ "text": "# Goal\nKeep b.txt." }]);
    let script = json!([[{ "text": "One." }], busy, summary, [{ "text": "Two." }]]);
    let mut agent = TestAgent::builder().model(script).start();
    assert_eq!(agent.turn("alpha"), "end_turn");
    assert_eq!(agent.turn("/compact"), "end_turn");
    let thoughts = agent.thoughts();
    assert!(thoughts.contains("Rate limit reached"), "{thoughts}");
    assert!(thoughts.contains("Trying again in 1 s."), "{thoughts}");
    assert_eq!(agent.turn("beta"), "end_turn");
    let last = agent.model().requests().pop().unwrap().body;
    assert!(last["messages"].to_string().contains("Keep b.txt."), "{last}");
}

/// The token of a gateway has expired while the user was away.
#[test]
fn a_summary_is_asked_for_with_the_key_that_has_replaced_a_refused_one() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "token-of-today-0123").unwrap();
    let server = RawServer::reading(|_, request, stream| {
        if request.contains(SUMMARY_REQUEST) && request.contains("Bearer token-of-today-0123") {
            return answer(stream, "401 Unauthorized", "", "The token has expired.");
        }
        write_stream(stream, &text_stream("Hello."));
    });
    let settings = format!(
        "model = 'p/m'\n[providers.p]\nbase_url = '{}'\nkey_file = '{}'\n",
        server.base_url(),
        key.display()
    );
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("alpha"), "end_turn");
    std::fs::write(&key, "token-of-tomorrow-4567").unwrap();
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert!(agent.text().contains("has a summary of the conversation now"), "{}", agent.text());
}
