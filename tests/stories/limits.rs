//! Limits of a turn and of a session: a notice before the end, a last summary, and what to do next.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, says};
use crate::provider::{Answer, Provider, configured};

/// A reply with one call, after which the server counts this many tokens.
fn costly(tokens: u64) -> Value {
    json!([
        cards::call("list_dir", &json!({})),
        { "usage": { "prompt_tokens": tokens - 10, "completion_tokens": 10 } },
    ])
}

fn summary() -> Value {
    json!([{ "text": "It is half done. " }, { "usage": { "prompt_tokens": 90, "completion_tokens": 10 } }])
}

fn agent(settings: &str, replies: Value) -> TestAgent {
    let notices = json!({ "session": { "notices": {} } });
    TestAgent::builder()
        .own_file("config/config.toml", settings)
        .capabilities(notices)
        .model(replies)
        .start()
}

fn notices(agent: &TestAgent, words: &str) -> usize {
    let notices = agent.updates_of("notice");
    notices.iter().filter(|it| it.to_string().contains(words)).count()
}

#[test]
fn a_turn_at_its_limit_ends_with_a_summary_and_says_what_to_do_next() {
    let settings = "[limits]\nturn_tokens = 1000\n";
    let replies = json!([costly(500), costly(350), costly(350), summary(), says("More.")]);
    let mut agent = agent(settings, replies);
    assert_eq!(agent.turn("go"), "max_tokens");
    cards::check(&agent);
    assert_eq!(
        agent.text(),
        "It is half done. The limit of 1000 tokens for one turn is reached. Prompt again to go on, \
         or raise it in the settings for new sessions (`limits.turn_tokens`)."
    );
    assert_eq!(notices(&agent, "80 % of the limit of 1000 tokens"), 1);
    let asked = agent.model_transcript(3);
    let [.., result, _] = &asked[..] else { panic!("{asked:?}") };
    assert!(result.starts_with("tool Not executed: the limit of 1000 tokens"), "{result}");
    let body = agent.model_request(3).to_string();
    assert!(body.contains("what is done, what is not"), "{body}");
    assert_eq!(cards::card(&agent, 2)["status"], "failed");
    // The next turn has a limit of its own.
    assert_eq!(agent.turn("go on"), "end_turn");
    assert_eq!(agent.text().matches("More.").count(), 1);
}

#[test]
fn the_sums_of_a_session_survive_a_load_and_then_no_request_is_made() {
    let settings = "[limits]\nsession_tokens = 1000\n";
    let replies = json!([costly(600), [{ "text": "One." }, { "usage": { "prompt_tokens": 90 } }],
        costly(400), summary()]);
    let mut agent = agent(settings, replies);
    assert_eq!(agent.turn("one"), "end_turn");
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    assert_eq!(agent.turn("two"), "max_tokens");
    assert_eq!(agent.model().requests().len(), 4);
    assert!(agent.text().contains("for this session is reached. Start a new session"));
    agent.restart();
    agent.load(&session);
    assert_eq!(agent.turn("three"), "max_tokens");
    assert_eq!(agent.model().requests().len(), 4, "nothing is asked any more");
    assert!(agent.text().contains("limit of 1000 tokens for this session is reached"));
}

#[test]
fn a_limit_of_cost_without_a_price_is_told_to_have_no_effect() {
    let mut agent = agent("[limits]\nturn_cost = 0.5\n", json!([says("One."), says("Two.")]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(notices(&agent, "is not known, so"), 1);
}

#[test]
fn answers_that_a_limit_cannot_count_are_told_whenever_they_come() {
    let provider = Provider::answering(|body| {
        let words = json!({ "choices": [{ "index": 0, "delta": { "content": "Hi." },
            "finish_reason": "stop" }] });
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": 1000 } });
        let is_counted = body["model"] == "a";
        Answer::Events([words].into_iter().chain(is_counted.then_some(usage)).collect())
    });
    let models =
        "models = ['a', 'b']\n[providers.p.model.a]\nprice = { input = 1.0, output = 1.0 }";
    let limits = "[limits]\nsession_cost = 1.5\nsession_tokens = 100000\n";
    let settings = format!("model = 'p/a'\n{limits}{}", provider.section("p", models));
    let mut agent = configured(&settings).start();
    for (model, expected) in [("p/a", 0), ("p/b", 2)] {
        crate::provider::set(&mut agent, "model", model);
        assert_eq!(agent.turn("hi"), "end_turn");
        let told = crate::provider::notices(&agent);
        assert_eq!(told.matches("not known, so a limit").count(), expected, "{told}");
    }
}

#[test]
fn a_summary_that_fails_or_makes_calls_ends_the_turn_all_the_same() {
    let settings = "[limits]\nturn_tokens = 100\n";
    let failure = json!([{ "error": { "message": "no", "code": 400 } }]);
    for last in [failure, costly(50)] {
        let mut agent = agent(settings, json!([costly(500), last, says("Fine.")]));
        assert_eq!(agent.turn("go"), "max_tokens");
        cards::check(&agent);
        assert!(agent.text().starts_with("The limit of 100 tokens"), "{}", agent.text());
        assert_eq!(agent.turn("go on"), "end_turn");
    }
}

#[test]
fn money_is_counted_with_the_prices_of_the_settings() {
    let words = json!({ "choices": [{ "index": 0, "delta": { "content": "Hi." },
        "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 1_000_000 } });
    let provider = Provider::answering(move |_| Answer::Events(vec![words.clone(), usage.clone()]));
    let price = "[providers.p.model.m]\nprice = { input = 1.0, output = 1.0 }";
    let limits = "[limits]\nsession_cost = 1.5\n";
    let settings = format!("model = 'p/m'\n{limits}{}", provider.section("p", price));
    let mut agent = configured(&settings).start();
    assert_eq!(agent.turn("one"), "end_turn");
    // The limit is reached with this answer, which needs no further request.
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.turn("three"), "max_turn_requests");
    let text = agent.text();
    assert!(text.starts_with("Hi.Hi.The limit of $1.50 for this session is reached."), "{text}");
}

#[test]
fn money_that_the_server_counts_is_limited_without_a_price() {
    let words = |text: &str| json!([{ "text": text }, { "usage": { "cost": 0.75 } }]);
    let settings = "[limits]\nsession_cost = 1.5\n";
    let mut agent = agent(settings, json!([words("One."), words("Two."), words("Three.")]));
    assert_eq!(agent.turn("one"), "end_turn");
    assert_eq!(agent.turn("two"), "end_turn");
    assert_eq!(agent.turn("three"), "max_turn_requests");
    let text = agent.text();
    assert!(text.starts_with("One.Two.The limit of $1.50 for this session is reached."), "{text}");
    assert_eq!(notices(&agent, "is not known, so"), 0);
}

#[test]
fn a_session_that_has_used_up_its_limit_is_not_compacted() {
    let mut agent = agent("[limits]\nsession_requests = 1\n", json!([says("One.")]));
    agent.turn("go");
    let before = agent.model().requests().len();
    assert_eq!(agent.turn("/compact"), "end_turn");
    assert_eq!(agent.model().requests().len(), before);
    let said = agent.text();
    assert!(
        said.contains("Nothing was compacted. The limit of 1 request for this session is reached.")
            && said.contains("limits.session_requests"),
        "{said}"
    );
}
