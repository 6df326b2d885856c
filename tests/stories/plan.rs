//! Plans (R-PLAN): each update has the whole plan, and a plan has no card.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn step(content: &str, status: &str) -> Value {
    json!({ "content": content, "status": status, "priority": "medium" })
}

#[test]
fn r_plan_1_to_4_each_update_has_the_whole_plan_and_steps_can_change() {
    let first = json!([step("look", "in_progress"), step("change", "pending")]);
    let second =
        json!([step("look", "completed"), step("change", "in_progress"), step("test", "pending")]);
    let third = json!([step("test", "completed")]);
    let plan = |entries: &Value| calls("plan", &json!({ "entries": entries }));
    let mut agent = TestAgent::builder()
        .model(json!([plan(&first), plan(&second), plan(&third), says("Done.")]))
        .start();
    assert_eq!(agent.turn("three steps"), "end_turn");
    let shown: Vec<_> = agent.updates_of("plan").iter().map(|it| it["entries"].clone()).collect();
    assert_eq!(shown, [first, second, third]);
    assert!(cards::ids(&agent).is_empty(), "a plan must have no card");
    assert_eq!(cards::requests(&agent), [""; 0], "a plan needs no permission");
    assert_eq!(cards::results(&agent, 3).len(), 3);
}

#[test]
fn a_client_that_knows_plans_with_an_id_gets_one_that_each_update_replaces() {
    let plan = |content: &str| calls("plan", &json!({ "entries": [step(content, "pending")] }));
    let mut agent = TestAgent::builder()
        .capabilities(json!({ "plan": {} }))
        .model(json!([plan("look"), plan("change"), says("Done.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.updates_of("plan").is_empty());
    let items = |content: &str| json!({ "type": "items", "planId": "plan", "entries": [step(content, "pending")] });
    let shown = agent.updates_of("plan_update");
    let shown: Vec<_> = shown.iter().map(|it| it["plan"].clone()).collect();
    assert_eq!(shown, [items("look"), items("change")]);
}

#[test]
fn a_plan_may_leave_out_status_and_priority_or_come_as_text() {
    for entries in [
        json!([{ "content": "look" }]),
        json!("[{\"content\": \"look\"}]"),
        json!([{ "step": "look" }]),
    ] {
        let replies = json!([calls("plan", &json!({ "entries": entries })), says("Done.")]);
        let mut agent = TestAgent::builder().model(replies).start();
        assert_eq!(agent.turn("go"), "end_turn");
        assert_eq!(
            agent.updates_of("plan")[0]["entries"],
            json!([step("look", "pending")]),
            "{entries}"
        );
    }
}

#[test]
fn in_plan_mode_the_answer_to_a_plan_names_no_step_to_do() {
    let plan = calls("plan", &json!({ "entries": [step("change", "pending")] }));
    let mut agent = TestAgent::builder()
        .own_file("config/config.toml", "mode = 'plan'\n")
        .model(json!([plan, says("Done.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 1);
    assert_eq!(results, ["The plan is shown. When it is complete, call exit_plan."]);
}

#[test]
fn an_invalid_plan_is_not_shown_and_the_model_is_told() {
    let entries = json!({ "entries": [{ "content": "look", "status": "dreaming" }] });
    let mut agent =
        TestAgent::builder().model(json!([calls("plan", &entries), says("Sorry.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.updates_of("plan").is_empty());
    let results = cards::results(&agent, 1);
    assert!(results[0].contains("Invalid arguments for plan"), "{results:?}");
}
