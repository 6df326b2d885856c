//! `ask_user` (R-EL): the question is shown as a form, or asked in the conversation if the client has no
//! forms.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn start(capabilities: Value, arguments: &Value) -> TestAgent {
    let replies = json!([calls("ask_user", arguments), says("Thanks.")]);
    TestAgent::builder().model(replies).capabilities(capabilities).start()
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

fn which() -> Value {
    json!({ "question": "Which database?", "options": ["SQLite", "Postgres"] })
}

/// Waits for the end of the turn, and returns the result that the model received.
fn end(agent: &mut TestAgent, prompt: &Value) -> String {
    assert_eq!(agent.stop_reason(prompt), "end_turn");
    cards::check(agent);
    cards::results(agent, 1).remove(0)
}

#[test]
fn r_el_1_a_client_with_forms_gets_a_form_whose_answer_is_the_result() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    let params = &request["params"];
    assert_eq!(params["message"], "Which database?");
    assert_eq!((&params["mode"], &params["sessionId"]), (&json!("form"), &json!(agent.session)));
    assert_eq!(params["toolCallId"], cards::ids(&agent)[0].as_str());
    let field = &params["requestedSchema"]["properties"]["answer"];
    assert_eq!(
        (&field["type"], &field["enum"]),
        (&json!("string"), &json!(["SQLite", "Postgres"]))
    );
    agent.respond(&request, &json!({ "action": "accept", "content": { "answer": "Postgres" } }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Postgres");
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Which database?"), &json!("think")));
    assert_eq!(cards::card_text(&card), "Postgres");
}

#[test]
fn a_question_may_be_asked_as_in_claude_code() {
    let options = json!([{ "label": "SQLite", "description": "A file" }, "Postgres"]);
    let mut question = which();
    question["options"] = options;
    question["multiSelect"] = json!(true);
    let call = calls("AskUserQuestion", &json!({ "questions": [question] }));
    let builder = TestAgent::builder().model(json!([call, says("Thanks.")]));
    let mut agent = builder.capabilities(forms()).start();
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    assert_eq!(request["params"]["message"], "Which database?");
    let field = &request["params"]["requestedSchema"]["properties"]["answer"];
    assert_eq!(field["items"]["enum"], json!(["SQLite: A file", "Postgres"]));
    agent.respond(&request, &json!({ "action": "accept", "content": { "answer": ["Postgres"] } }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Postgres");
}

#[test]
fn a_form_accepts_text_or_several_choices() {
    let mut agent = start(forms(), &json!({ "question": "What is it called?" }));
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    assert_eq!(request["params"]["requestedSchema"]["properties"]["answer"]["type"], "string");
    agent.respond(&request, &json!({ "action": "accept", "content": { "answer": "Otto" } }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Otto");

    let mut arguments = which();
    arguments["several"] = json!(true);
    let mut agent = start(forms(), &arguments);
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    let field = &request["params"]["requestedSchema"]["properties"]["answer"];
    assert_eq!((&field["type"], &field["items"]["enum"]), (&json!("array"), &arguments["options"]));
    let both = json!({ "action": "accept", "content": { "answer": ["SQLite", "Postgres"] } });
    agent.respond(&request, &both);
    assert_eq!(end(&mut agent, &prompt), "The user answers: SQLite\nPostgres");
}

#[test]
fn a_form_with_options_also_takes_words_of_the_users_own() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    let schema = &request["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["answer_custom"]["title"], "Other");
    assert!(schema["required"].is_null(), "{schema}");
    let content = json!({ "answer_custom": "Neither, a file will do" });
    agent.respond(&request, &json!({ "action": "accept", "content": content }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Neither, a file will do");
}

#[test]
fn a_form_without_an_answer_fails_the_call() {
    for answer in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": { "answer": " " } }),
        json!({ "action": "accept" }),
    ] {
        let mut agent = start(forms(), &json!({ "question": "Well?" }));
        let prompt = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        agent.respond(&request, &answer);
        let result = end(&mut agent, &prompt);
        assert!(!result.contains("answers"), "{answer}: {result}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed");
    }
}

#[test]
fn without_forms_the_question_is_asked_in_the_conversation_and_ends_the_turn() {
    let mut several = which();
    several["several"] = json!(true);
    for (arguments, expected) in [
        (json!({ "question": "Well?" }), "Well?"),
        (
            which(),
            "Which database?\n\n1. SQLite\n2. Postgres\n\nAnswer with a number or in your own words.",
        ),
        (
            several,
            "Which database?\n\n1. SQLite\n2. Postgres\n\nAnswer with one or more numbers or in \
             your own words.",
        ),
    ] {
        let mut agent = start(json!({}), &arguments);
        assert_eq!(agent.turn("go"), "end_turn");
        cards::check(&agent);
        assert_eq!(agent.text(), expected);
        assert_eq!(cards::card(&agent, 0)["status"], "completed");
        // The question is in the conversation, and not on the card a second time.
        assert_eq!(cards::card_text(&cards::card(&agent, 0)), "Asked below.");
        assert_eq!(cards::card(&agent, 0)["rawOutput"], json!({ "message": "Asked below." }));
        assert_eq!(cards::requests(&agent), [""; 0], "it is no permission request");
        assert_eq!(agent.model().requests().len(), 1, "the answer is awaited");

        assert_eq!(agent.turn("2"), "end_turn");
        let transcript = agent.model_transcript(1);
        let [.., result, answer] = &transcript[..] else { panic!("{transcript:?}") };
        assert!(
            result.contains("the next message is the answer") && result.contains('?'),
            "{result}"
        );
        assert!(answer.ends_with('2'), "{answer}");
    }
}

#[test]
fn a_client_that_answers_a_form_with_an_error_or_nonsense_is_asked_in_the_conversation() {
    let nonsense = json!({ "action": "accept", "content": { "answer": 7 } });
    for answer in [None, Some(nonsense)] {
        let mut agent = start(forms(), &which());
        let prompt = agent.prompt("go");
        let request = agent.wait_for_request("elicitation/create");
        match &answer {
            Some(answer) => agent.respond(&request, answer),
            None => agent.refuse(&request, -32601, "no such method"),
        }
        assert_eq!(agent.stop_reason(&prompt), "end_turn");
        assert!(agent.text().contains("2. Postgres"), "{}", agent.text());
        assert_eq!(agent.model().requests().len(), 1);
    }
}

#[test]
fn a_cancel_withdraws_the_open_form() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let request = agent.wait_for_request("elicitation/create");
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    cards::check(&agent);
    let is_withdrawal = |message: &Value| {
        message["method"] == "$/cancel_request" && message["params"]["requestId"] == request["id"]
    };
    assert!(agent.log.iter().any(is_withdrawal), "{:?}", agent.log);
    // An answer after the cancel has no effect.
    agent.respond(&request, &json!({ "action": "accept", "content": { "answer": "SQLite" } }));
    agent.sync();
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
fn forms_and_permission_requests_are_sent_one_at_a_time() {
    let ask = cards::call("ask_user", &json!({ "question": "Which?" }));
    let write = cards::call("write_file", &json!({ "path": "a", "content": "x" }));
    let replies = json!([[ask, write, ask], says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).capabilities(forms()).start();
    let prompt = agent.prompt("go");
    for number in 1..=3 {
        let request = agent.wait_for("a question", |message| {
            let method = message["method"].as_str();
            matches!(method, Some("elicitation/create" | "session/request_permission"))
        });
        agent.sync();
        assert_eq!(cards::requests(&agent).len(), number, "{:?}", cards::requests(&agent));
        if request["method"] == "elicitation/create" {
            let answer = json!({ "action": "accept", "content": { "answer": "This." } });
            agent.respond(&request, &answer);
        } else {
            agent.choose(&request, "allow_once");
        }
    }
    end(&mut agent, &prompt);
    assert_eq!(agent.read("a"), "x");
}

#[test]
fn after_a_cancel_the_next_question_is_not_asked() {
    let ask = cards::call("ask_user", &json!({ "question": "Which?" }));
    let replies = json!([[ask, ask], says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).capabilities(forms()).start();
    let prompt = agent.prompt("go");
    agent.wait_for_request("elicitation/create");
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    cards::check(&agent);
    assert_eq!(cards::requests(&agent), ["elicitation/create"]);
}
