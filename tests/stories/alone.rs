//! Alone, with nobody who could answer a question, the model is told so and is not offered to ask.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says, writes};

fn builder(alone: &str, replies: &Value) -> TestAgentBuilder {
    TestAgent::builder().variable("TURNWRIGHT_ALONE", alone).model(replies.clone())
}

fn tool_names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

#[test]
fn alone_the_prompt_says_that_nobody_answers_and_ask_user_is_not_offered() {
    for (alone, is_alone) in [("1", true), ("0", false)] {
        let mut agent = builder(alone, &json!([says("Done.")])).start();
        agent.turn("go");
        let request = agent.model_request(0);
        let system = request["messages"][0]["content"].as_str().unwrap();
        assert_eq!(system.contains("- Nobody can answer: do not ask."), is_alone, "{system}");
        assert_eq!(!system.contains("If you are not sure"), is_alone, "{system}");
        assert_eq!(!tool_names(&request).contains(&"ask_user"), is_alone);
    }
}

#[test]
fn a_question_that_is_asked_all_the_same_is_answered_by_what_to_do() {
    let ask = calls("ask_user", &json!({ "question": "Which?" }));
    let forms = json!({ "elicitation": { "form": {} } });
    let mut agent = builder("1", &json!([ask, says("Done.")])).capabilities(forms).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(cards::requests(&agent), [""; 0]);
    let result = cards::results(&agent, 1).remove(0);
    assert!(result.starts_with("Nobody can answer. Choose the most reasonable"), "{result}");
}

#[test]
fn a_refused_call_is_not_told_to_ask() {
    for (alone, expected) in [
        ("1", "Nobody can answer, so this call was rejected."),
        ("0", "The user rejected this call."),
    ] {
        let replies = json!([writes("a.txt", "x\n"), says("Done.")]);
        let mut agent = builder(alone, &replies).permission("reject_once").start();
        assert_eq!(agent.turn("go"), "end_turn");
        cards::check(&agent);
        let result = cards::results(&agent, 1).remove(0);
        assert!(result.starts_with(expected), "{result}");
        assert_eq!(result.contains(": ask, or"), alone == "0", "{result}");
    }
}

#[test]
fn a_model_that_goes_round_in_circles_is_stopped_without_a_question() {
    let read = calls("read_file", &json!({ "path": "a.txt" }));
    let replies = json!([read, read, read, read, read, says("Done.")]);
    let forms = json!({ "elicitation": { "form": {} } });
    let mut agent = builder("1", &replies).file("a.txt", "x\n").capabilities(forms).start();
    assert_eq!(agent.turn("go"), "max_turn_requests");
    cards::check(&agent);
    assert_eq!(cards::requests(&agent), [""; 0]);
}
