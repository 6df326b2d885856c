//! `ask_user` (R-EL): as a form, as buttons, or as text, whatever the client can show.

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

/// Ends the turn and returns what the model has heard.
fn end(agent: &mut TestAgent, prompt: &Value) -> String {
    assert_eq!(agent.stop_reason(prompt), "end_turn");
    cards::check(agent);
    cards::results(agent, 1).remove(0)
}

#[test]
fn r_el_1_a_client_with_forms_shows_one_and_its_answer_is_the_result() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let asked = agent.wait_for_request("elicitation/create");
    let params = &asked["params"];
    assert_eq!(params["message"], "Which database?");
    assert_eq!((&params["mode"], &params["sessionId"]), (&json!("form"), &json!(agent.session)));
    assert_eq!(params["toolCallId"], cards::ids(&agent)[0].as_str());
    let field = &params["requestedSchema"]["properties"]["answer"];
    assert_eq!(
        (&field["type"], &field["enum"]),
        (&json!("string"), &json!(["SQLite", "Postgres"]))
    );
    agent.respond(&asked, &json!({ "action": "accept", "content": { "answer": "Postgres" } }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Postgres");
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Which database?"), &json!("think")));
    assert_eq!(cards::card_text(&card), "Postgres");
}

#[test]
fn a_form_takes_words_or_several_choices() {
    let mut agent = start(forms(), &json!({ "question": "What is it called?" }));
    let prompt = agent.prompt("go");
    let asked = agent.wait_for_request("elicitation/create");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["answer"]["type"], "string");
    agent.respond(&asked, &json!({ "action": "accept", "content": { "answer": "Otto" } }));
    assert_eq!(end(&mut agent, &prompt), "The user answers: Otto");

    let mut arguments = which();
    arguments["several"] = json!(true);
    let mut agent = start(forms(), &arguments);
    let prompt = agent.prompt("go");
    let asked = agent.wait_for_request("elicitation/create");
    let field = &asked["params"]["requestedSchema"]["properties"]["answer"];
    assert_eq!((&field["type"], &field["items"]["enum"]), (&json!("array"), &arguments["options"]));
    let both = json!({ "action": "accept", "content": { "answer": ["SQLite", "Postgres"] } });
    agent.respond(&asked, &both);
    assert_eq!(end(&mut agent, &prompt), "The user answers: SQLite\nPostgres");
}

#[test]
fn no_answer_is_never_an_empty_one() {
    for answer in [
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
        json!({ "action": "accept", "content": { "answer": " " } }),
        json!({ "action": "accept" }),
        json!({ "action": "shrug" }),
        json!({}),
    ] {
        let mut agent = start(forms(), &json!({ "question": "Well?" }));
        let prompt = agent.prompt("go");
        let asked = agent.wait_for_request("elicitation/create");
        agent.respond(&asked, &answer);
        let result = end(&mut agent, &prompt);
        assert!(!result.contains("answers"), "{answer}: {result}");
        assert_eq!(cards::card(&agent, 0)["status"], "failed");
    }
}

#[test]
fn a_client_without_forms_shows_buttons() {
    for (option, expected) in
        [("option_1", "The user answers: SQLite"), ("none", "The user does not want to answer")]
    {
        let mut agent = start(json!({}), &which());
        let prompt = agent.prompt("go");
        let asked = agent.wait_for_request("session/request_permission");
        let options = asked["params"]["options"].as_array().unwrap();
        let names: Vec<_> = options.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["SQLite", "Postgres", "None of these"]);
        agent.choose(&asked, option);
        let result = end(&mut agent, &prompt);
        assert!(result.starts_with(expected), "{result}");
    }
}

#[test]
fn a_client_that_refuses_its_form_gets_buttons() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let asked = agent.wait_for_request("elicitation/create");
    agent.refuse(&asked, -32601, "no such method");
    let asked = agent.wait_for_request("session/request_permission");
    agent.choose(&asked, "option_2");
    assert_eq!(end(&mut agent, &prompt), "The user answers: Postgres");
}

#[test]
fn a_client_that_can_show_nothing_is_asked_in_the_text() {
    let mut agent = start(json!({ "elicitation": {} }), &json!({ "question": "Well?" }));
    let prompt = agent.prompt("go");
    let result = end(&mut agent, &prompt);
    assert!(result.contains("in the text of your answer"), "{result}");
    assert_eq!(cards::requests(&agent), [""; 0]);
}

#[test]
fn a_cancel_withdraws_the_question() {
    let mut agent = start(forms(), &which());
    let prompt = agent.prompt("go");
    let asked = agent.wait_for_request("elicitation/create");
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    cards::check(&agent);
    let withdrawn =
        |it: &Value| it["method"] == "$/cancel_request" && it["params"]["requestId"] == asked["id"];
    assert!(agent.log.iter().any(withdrawn), "{:?}", agent.log);
    // An answer that comes too late changes nothing.
    agent.respond(&asked, &json!({ "action": "accept", "content": { "answer": "SQLite" } }));
    agent.sync();
    assert_eq!(agent.model().requests().len(), 1);
}

#[test]
fn the_user_is_asked_one_question_at_a_time_of_whatever_sort() {
    let ask = cards::call("ask_user", &json!({ "question": "Which?" }));
    let write = cards::call("write_file", &json!({ "path": "a", "content": "x" }));
    let replies = json!([[ask, write, ask], says("Done.")]);
    let mut agent = TestAgent::builder().model(replies).capabilities(forms()).start();
    let prompt = agent.prompt("go");
    for number in 1..=3 {
        let asked = agent.wait_for("a question", |it| {
            let method = it["method"].as_str();
            matches!(method, Some("elicitation/create" | "session/request_permission"))
        });
        agent.sync();
        assert_eq!(cards::requests(&agent).len(), number, "{:?}", cards::requests(&agent));
        if asked["method"] == "elicitation/create" {
            let answer = json!({ "action": "accept", "content": { "answer": "This." } });
            agent.respond(&asked, &answer);
        } else {
            agent.choose(&asked, "allow_once");
        }
    }
    end(&mut agent, &prompt);
    assert_eq!(agent.read("a"), "x");
}

#[test]
fn a_cancel_withdraws_one_question_and_the_next_is_not_asked() {
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
