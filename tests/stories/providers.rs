//! Long sessions with tools against the strict mock providers (issue "the model layer"), with a
//! cancel and a change of the model. No prompt may fail, and the agent must learn from the first
//! refusal of each kind.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::TestAgent;
use crate::strict::script::{ASK, BOTH, FORBIDDEN, PONDER, SUMMARISE, WAIT, WAITING};
use crate::strict::{
    ALL, MockProvider, ProviderDialect, deepseek, gemini, glm, groq, kimi, minimax, mistral,
};

/// A session that can switch from one mock to another.
struct Session {
    mocks: Vec<MockProvider>,
    /// The index of the mock that gets the prompts.
    now: usize,
    agent: TestAgent,
    _home: TempDir,
}

impl Session {
    /// Starts a session with the model of the first provider.
    fn start(providers: &[&'static ProviderDialect]) -> Session {
        let mocks: Vec<MockProvider> = providers.iter().map(|it| MockProvider::start(it)).collect();
        let home = turnwright_testing::temporary_folder();
        std::fs::create_dir(home.path().join("config")).unwrap();
        std::fs::write(home.path().join("config/config.toml"), settings(&mocks)).unwrap();
        let agent = TestAgent::unconfigured()
            .variable("TURNWRIGHT_HOME", home.path().to_str().unwrap())
            .file("a.txt", "alpha\n")
            .file("b.txt", "beta\n")
            .start();
        Session { agent, mocks, now: 0, _home: home }
    }

    fn mock(&self) -> &MockProvider {
        &self.mocks[self.now]
    }

    /// Switches to the model of another mock.
    fn switch(&mut self, to: usize) {
        self.now = to;
        let value = full_name(self.mocks[to].provider);
        let params =
            json!({ "sessionId": self.agent.session, "configId": "model", "value": value });
        let answer = self.agent.call("session/set_config_option", &params);
        assert!(answer["result"]["configOptions"].is_array(), "{answer}");
    }

    /// Sends a prompt for which the mock calls a tool and then reports the content, and checks the
    /// answer.
    fn read(&mut self, number: usize, how: &str) -> Result<(), String> {
        let found = if how == BOTH { "It says alpha and beta." } else { "It says alpha." };
        let before = self.agent.text().len();
        let id = self.agent.prompt(&format!("Turn {number}: read {how}"));
        let answer = self.agent.answer_to(&id);
        let text = self.agent.text().split_off(before);
        let who = self.mock().provider.name;
        if answer["result"]["stopReason"] != "end_turn" {
            return Err(format!("{who}, turn {number}: {}", error_text(&answer)));
        }
        // The reasoning must not be part of the answer.
        if !text.contains(found) || text.contains("think") {
            return Err(format!("{who}, turn {number}: the answer is {text:?}"));
        }
        Ok(())
    }

    /// Returns the complaints of all mocks.
    fn complaints(&self) -> Vec<String> {
        self.mocks.iter().flat_map(MockProvider::complaints).collect()
    }
}

fn error_text(answer: &Value) -> String {
    let error = &answer["error"];
    error["message"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// Returns the name of a provider's model in the configuration.
fn full_name(provider: &ProviderDialect) -> String {
    format!("{}/{}", provider.name, provider.model)
}

/// Returns a configuration file with all mocks, which selects the model of the first.
fn settings(mocks: &[MockProvider]) -> String {
    let mut text = format!("model = \"{}\"\n", full_name(mocks[0].provider));
    for mock in mocks {
        let ProviderDialect { name, model, .. } = mock.provider;
        let url = mock.base_url();
        text.push_str(&format!("\n[providers.{name}]\nbase_url = \"{url}\"\napi = \"chat\"\n"));
        text.push_str(&format!("models = [\"{model}\"]\n"));
    }
    text
}

/// Runs ten turns. Each makes one tool call, but the third makes two. The fifth turn is cancelled,
/// and the model is changed after the seventh.
fn story(first: &'static ProviderDialect, second: &'static ProviderDialect) {
    let mut session = Session::start(&[first, second]);
    for number in 1..=10 {
        match number {
            3 => session.read(number, BOTH).unwrap(),
            5 => {
                let id = session.agent.prompt(&format!("Turn {number}: read and {WAIT}"));
                session.agent.wait_for("the waiting text", |it| it.to_string().contains(WAITING));
                session.agent.cancel();
                assert_eq!(session.agent.stop_reason(&id), "cancelled");
            }
            _ => session.read(number, "").unwrap(),
        }
        if number == 7 {
            session.switch(1);
        }
    }
    assert_eq!(session.complaints(), [""; 0]);
    assert!(!session.mocks[1].requests().is_empty());
}

#[test]
fn ten_turns_with_deepseek_and_then_with_mistral() {
    story(&deepseek::PROVIDER, &mistral::PROVIDER);
}

#[test]
fn ten_turns_with_kimi_and_then_with_groq() {
    story(&kimi::PROVIDER, &groq::PROVIDER);
}

#[test]
fn ten_turns_with_glm_and_then_with_gemini() {
    story(&glm::PROVIDER, &gemini::PROVIDER);
}

#[test]
fn ten_turns_with_minimax_and_then_with_deepseek() {
    story(&minimax::PROVIDER, &deepseek::PROVIDER);
}

#[test]
fn ten_turns_with_gemini_and_then_with_kimi() {
    story(&gemini::PROVIDER, &kimi::PROVIDER);
}

#[test]
fn ten_turns_with_mistral_and_then_with_minimax() {
    story(&mistral::PROVIDER, &minimax::PROVIDER);
}

#[test]
fn ten_turns_with_groq_and_then_with_glm() {
    story(&groq::PROVIDER, &glm::PROVIDER);
}

/// Each pair of models switches there and back: the second must accept the messages of the first,
/// and the first must still accept its own.
#[test]
fn each_model_accepts_the_messages_of_each_other_model() {
    let pairs = ALL.iter().flat_map(|from| ALL.iter().map(move |to| (*from, *to)));
    let mut failures = Vec::new();
    for (from, to) in pairs.filter(|(from, to)| from.name != to.name) {
        let mut session = Session::start(&[from, to]);
        let mut run = || {
            session.read(1, BOTH)?;
            session.switch(1);
            session.read(2, "")?;
            session.switch(0);
            session.read(3, "")
        };
        let outcome = run();
        let complaints = session.complaints().into_iter().chain(outcome.err());
        failures.extend(complaints.map(|it| format!("{} → {}: {it}", from.name, to.name)));
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Seven is a prime number, so steps of one length visit all models before they come back to the
/// first.
#[test]
fn one_session_switches_from_each_model_to_each_other() {
    let mut session = Session::start(&ALL);
    session.read(0, BOTH).unwrap();
    let count = ALL.len();
    for turn in 0..count * (count - 1) {
        let step = 1 + turn / count;
        session.switch((session.now + step) % count);
        session.read(turn + 1, if turn % 3 == 0 { BOTH } else { "" }).unwrap();
    }
    assert_eq!(session.complaints(), [""; 0]);
}

/// After the cancel, the next prompt directly follows a tool result. Some servers require a message
/// of the model in between.
#[test]
fn a_cancel_before_any_text_leaves_a_history_that_each_provider_accepts() {
    let mut failures = Vec::new();
    for provider in ALL {
        let mut session = Session::start(&[provider]);
        let id = session.agent.prompt(&format!("Turn 1: read and {PONDER}"));
        let has_ended = |it: &Value| it.get("method").is_none() && it["id"] == id;
        let has_read = |it: &Value| it["params"]["update"]["status"] == "completed";
        session.agent.wait_for("the result", |it| has_read(it) || has_ended(it));
        session.agent.cancel();
        let answer = session.agent.answer_to(&id);
        if answer["result"]["stopReason"] != "cancelled" {
            failures.push(format!("{}, turn 1: {}", provider.name, error_text(&answer)));
            continue;
        }
        failures.extend(session.read(2, "").err());
        failures.extend(session.complaints());
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_question_in_the_conversation_leaves_a_history_that_each_provider_accepts() {
    for provider in ALL {
        let mut session = Session::start(&[provider]);
        for number in [1, 3] {
            let text = session.agent.text().len();
            assert_eq!(session.agent.turn(&format!("Turn {number}: {ASK}")), "end_turn");
            let shown = session.agent.text().split_off(text);
            assert!(shown.contains("1. This"), "{}: {shown}", provider.name);
            session.read(number + 1, "").unwrap();
        }
        assert_eq!(session.complaints(), [""; 0], "{}", provider.name);
        session.agent.close();
    }
}

/// GLM ends an answer that it filters with a finish reason of its own (C.1 row 28). The agent
/// reports it as a refusal, and the session goes on without that prompt.
#[test]
fn content_that_glm_filters_is_a_refusal_and_the_session_goes_on() {
    let mut session = Session::start(&[&glm::PROVIDER]);
    assert_eq!(session.agent.turn(&format!("Turn 1: something {FORBIDDEN}")), "refusal");
    session.read(2, "").unwrap();
    assert_eq!(session.complaints(), [""; 0]);
}

#[test]
fn every_provider_accepts_twenty_compactions() {
    for provider in ALL {
        let mut session = Session::start(&[provider]);
        for number in 1..=20 {
            session.read(number, if number % 2 == 0 { BOTH } else { "one" }).unwrap();
            assert_eq!(session.agent.turn("/compact"), "end_turn");
        }
        let compacted = session.mock().requests();
        let compacted =
            compacted.iter().filter(|it| it["messages"].to_string().contains(SUMMARISE));
        assert_eq!(compacted.count(), 20, "{}", provider.name);
        assert_eq!(session.complaints(), [""; 0]);
    }
}
