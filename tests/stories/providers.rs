//! Any provider (issue "the model layer"): a long session with tools against each of the strict
//! mocks, with a cancel and a change of the model, in which no prompt fails. What a refusal
//! teaches is learned the first time.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::TestAgent;
use crate::strict::script::{BOTH, FORBIDDEN, PONDER, WAIT, WAITING};
use crate::strict::{
    ALL, MockProvider, ProviderDialect, deepseek, gemini, glm, groq, kimi, minimax, mistral,
};

/// Whether a session can change its model yet, by `session/set_config_option` between the
/// providers of the configuration file. Until then nobody is switched to, and what is about
/// nothing else is left out.
const CAN_SWITCH: bool = true;

/// A session that can go from one mock to another.
struct Session {
    mocks: Vec<MockProvider>,
    /// Where the mock of the running prompts is.
    now: usize,
    agent: TestAgent,
    _home: TempDir,
}

impl Session {
    /// Begins with the first of these.
    fn start(providers: &[&'static ProviderDialect]) -> Session {
        let mocks: Vec<MockProvider> = providers.iter().map(|it| MockProvider::start(it)).collect();
        let home = tempfile::tempdir().unwrap();
        let mut builder = TestAgent::unconfigured()
            .variable("TURNWRIGHT_HOME", home.path().to_str().unwrap())
            .file("a.txt", "alpha\n")
            .file("b.txt", "beta\n");
        if CAN_SWITCH {
            std::fs::create_dir(home.path().join("config")).unwrap();
            std::fs::write(home.path().join("config/config.toml"), settings(&mocks)).unwrap();
        } else {
            builder = builder
                .variable("OPENAI_BASE_URL", &mocks[0].base_url())
                .variable("TURNWRIGHT_MODEL", mocks[0].provider.model);
        }
        Session { agent: builder.start(), mocks, now: 0, _home: home }
    }

    fn mock(&self) -> &MockProvider {
        &self.mocks[self.now]
    }

    /// The next prompts go to another model.
    fn switch(&mut self, to: usize) {
        if !CAN_SWITCH {
            return;
        }
        self.now = to;
        let value = full_name(self.mocks[to].provider);
        let params =
            json!({ "sessionId": self.agent.session, "configId": "model", "value": value });
        let answer = self.agent.call("session/set_config_option", &params);
        assert!(answer["result"]["configOptions"].is_array(), "{answer}");
    }

    /// A prompt that is to have a tool read something and to say what it was.
    fn read(&mut self, number: usize, how: &str) -> Result<(), String> {
        let found = if how == BOTH { "It says alpha and beta." } else { "It says alpha." };
        let before = self.agent.text().len();
        let id = self.agent.prompt(&format!("Turn {number}: read {how}"));
        let answer = self.agent.answer_to(&id);
        let said = self.agent.text().split_off(before);
        let who = self.mock().provider.name;
        if answer["result"]["stopReason"] != "end_turn" {
            return Err(format!("{who}, turn {number}: {}", told(&answer)));
        }
        // What was thought is no answer.
        if !said.contains(found) || said.contains("think") {
            return Err(format!("{who}, turn {number}: the user has read {said:?}"));
        }
        Ok(())
    }

    /// What there is to complain about after all.
    fn complaints(&self) -> Vec<String> {
        self.mocks.iter().flat_map(MockProvider::complaints).collect()
    }
}

fn told(answer: &Value) -> String {
    let error = &answer["error"];
    error["message"].as_str().map_or_else(|| answer.to_string(), str::to_owned)
}

/// The name of a provider's model in the configuration.
fn full_name(provider: &ProviderDialect) -> String {
    format!("{}/{}", provider.name, provider.model)
}

/// The configuration file with all of them, which begins with the first.
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

/// Ten turns, a tool call in each and two in the third, a cancel in the fifth, another model
/// after the seventh.
fn story(first: &'static ProviderDialect, second: &'static ProviderDialect) {
    let mut session = Session::start(&[first, second]);
    for number in 1..=10 {
        match number {
            3 => session.read(number, BOTH).unwrap(),
            5 => {
                let id = session.agent.prompt(&format!("Turn {number}: read and {WAIT}"));
                session.agent.wait_for("words", |it| it.to_string().contains(WAITING));
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
    assert_eq!(session.mocks[1].requests().is_empty(), !CAN_SWITCH);
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

/// There and back: what one has said the other takes, and its own it still takes afterwards.
#[test]
fn what_was_said_to_one_model_is_taken_by_each_other() {
    if !CAN_SWITCH {
        return;
    }
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

/// One session that goes from each to each other. Seven is a prime, so steps of one length visit
/// all of them before they come back.
#[test]
fn one_session_goes_from_each_model_to_each_other() {
    if !CAN_SWITCH {
        return;
    }
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

/// The next prompt comes right behind a result: some servers want words of the model between.
#[test]
fn a_cancel_before_the_first_word_leaves_a_history_that_each_takes() {
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
            failures.push(format!("{}, turn 1: {}", provider.name, told(&answer)));
            continue;
        }
        failures.extend(session.read(2, "").err());
        failures.extend(session.complaints());
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// GLM ends what it does not like with a word of its own (C.1 row 28). That is a refusal, and
/// the session goes on without it.
#[test]
fn what_glm_finds_sensitive_is_a_refusal_and_the_session_goes_on() {
    let mut session = Session::start(&[&glm::PROVIDER]);
    assert_eq!(session.agent.turn(&format!("Turn 1: something {FORBIDDEN}")), "refusal");
    session.read(2, "").unwrap();
    assert_eq!(session.complaints(), [""; 0]);
}
