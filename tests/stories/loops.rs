//! A model that goes round in circles: it is told, then the user is asked, and what changes is never
//! stopped.

use serde_json::{Value, json};
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn read() -> Value {
    calls("read_file", &json!({ "path": "a.txt" }))
}

fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// Returns an agent whose model makes the same call this often.
fn reads(times: usize, capabilities: Value) -> TestAgent {
    let mut replies = vec![read(); times];
    replies.push(says("Done."));
    let builder = TestAgent::builder().file("a.txt", "x\n").model(json!(replies));
    builder.capabilities(capabilities).start()
}

#[test]
fn the_third_equal_result_has_a_word_for_the_model_which_stays_after_a_load() {
    let mut agent = reads(4, json!({}));
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    let check = |results: &[String]| {
        let told: Vec<_> = results.iter().map(|it| it.contains("made this call 3 times")).collect();
        assert_eq!(told, [false, false, true, false], "{results:?}");
        assert!(results[2].contains("let a command sleep before you look again"), "{results:?}");
    };
    check(&cards::results(&agent, 4));
    let shown = cards::card_text(&cards::card(&agent, 2));
    assert!(!shown.contains("3 times"), "it is not for the user: {shown}");
    agent.restart();
    let session = agent.session.clone();
    agent.load(&session);
    agent.turn("and now?");
    check(&cards::results(&agent, 5));
}

#[test]
fn after_the_fifth_the_user_decides_whether_it_goes_on() {
    for (answer, expected) in [("Go on", "end_turn"), ("Stop", "end_turn")] {
        let mut agent = reads(6, forms());
        let prompt = agent.prompt("go");
        let form = agent.wait_for_request("elicitation/create");
        let question = form["params"]["message"].as_str().unwrap();
        assert!(question.contains("5 times") && question.contains("a.txt"), "{question}");
        agent.respond(&form, &json!({ "action": "accept", "content": { "answer": answer } }));
        assert_eq!(agent.stop_reason(&prompt), expected);
        cards::check(&agent);
        let requests = if answer == "Stop" { 5 } else { 7 };
        assert_eq!(agent.model().requests().len(), requests, "{answer}");
    }
}

#[test]
fn a_client_without_forms_is_asked_in_the_conversation() {
    let mut agent = reads(6, json!({}));
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.text().contains("made the same call 5 times"), "{}", agent.text());
    assert_eq!(agent.model().requests().len(), 5);
    // The answer is a prompt, with which the count begins anew.
    assert_eq!(agent.turn("yes, once more"), "end_turn");
    assert_eq!(agent.model().requests().len(), 7);
    let transcript = agent.model_transcript(5);
    let [.., note, prompt] = &transcript[..] else { panic!("{transcript:?}") };
    assert!(note.contains("Stopped here") && prompt == "user yes, once more", "{transcript:?}");
}

#[test]
fn without_an_answer_the_turn_stops_and_says_why() {
    let mut agent = reads(6, forms());
    let prompt = agent.prompt("go");
    let form = agent.wait_for_request("elicitation/create");
    agent.respond(&form, &json!({ "action": "decline" }));
    assert_eq!(agent.stop_reason(&prompt), "max_turn_requests");
    assert!(agent.text().starts_with("Stopped: The model has made"), "{}", agent.text());
}

#[test]
fn a_question_about_a_loop_can_be_cancelled() {
    let mut agent = reads(6, forms());
    let prompt = agent.prompt("go");
    agent.wait_for_request("elicitation/create");
    agent.cancel();
    assert_eq!(agent.stop_reason(&prompt), "cancelled");
    cards::check(&agent);
}

#[test]
fn a_setting_switches_it_off() {
    let replies = [vec![read(); 8], vec![says("Done.")]].concat();
    let mut agent = TestAgent::builder()
        .file("a.txt", "x\n")
        .own_file("config/config.toml", "[limits]\nstop_loops = false\n")
        .model(json!(replies))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(!cards::results(&agent, 8).join("\n").contains("3 times"));
}

#[test]
fn what_a_failed_edit_says_again_and_again_is_not_there_to_be_copied() {
    let edit = calls(
        "edit_file",
        &json!({ "path": "a.txt", "old_string": "no such", "new_string": "text" }),
    );
    let replies = [vec![edit; 4], vec![says("I give up.")]].concat();
    let mut agent = TestAgent::builder().file("a.txt", "x\n").model(json!(replies)).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let arguments = |request: usize| -> Vec<String> {
        let messages = agent.model_request(request)["messages"].as_array().unwrap().clone();
        let calls = messages.iter().filter_map(|it| it["tool_calls"][0]["function"].as_object());
        calls.map(|it| it["arguments"].as_str().unwrap().to_owned()).collect()
    };
    assert!(arguments(2).iter().all(|it| it.contains("no such")));
    assert_eq!(arguments(3), ["{}", "{}", "{}"]);
    assert_eq!(arguments(4), ["{}", "{}", "{}", "{}"]);
}

#[test]
fn an_edit_that_fails_four_times_is_told_what_is_there_now() {
    let lines: Vec<_> = (1..=60).map(|it| format!("line number {it}\n")).collect();
    let text = lines.concat();
    let edit = |number: usize| {
        let old = format!("line number 41\nnot there {number}");
        calls("edit_file", &json!({ "path": "a.txt", "old_text": old, "new_text": "x" }))
    };
    let edits: Vec<_> = (0..4).map(edit).collect();
    let replies = [vec![read()], edits, vec![says("Done.")]].concat();
    let mut agent = TestAgent::builder()
        .file("a.txt", &text)
        .permission("allow_once")
        .model(json!(replies))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 5);
    assert!(!results[3].contains("in a row"), "{}", results[3]);
    assert!(results[4].contains("4 edits of this file have failed in a row"), "{}", results[4]);
    assert!(results[4].contains("   41| line number 41\n"), "{}", results[4]);
}

#[test]
fn an_answer_that_repeats_a_call_ends_with_the_third_and_runs_the_first() {
    let call = cards::call("read_file", &json!({ "path": "a.txt" }));
    let endless = [vec![json!({ "text": "Reading." })], vec![call; 100]].concat();
    let mut agent =
        TestAgent::builder().file("a.txt", "x\n").model(json!([endless, says("Done.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cards::check(&agent);
    assert_eq!(cards::results(&agent, 1).len(), 1);
    assert_eq!(cards::card(&agent, 0)["status"], "completed");
    let skipped = agent.transcript().iter().filter(|it| it.contains("repeats this call")).count();
    assert!(skipped <= 2, "{:?}", agent.transcript());
}

#[test]
fn answers_with_only_calls_that_cannot_run_are_a_circle_and_the_user_can_guide() {
    let mut replies: Vec<_> =
        (0..6).map(|it| calls(&format!("no_such_{it}"), &json!({ "a": it }))).collect();
    replies.push(says("Done."));
    let mut agent = TestAgent::builder().model(json!(replies)).capabilities(forms()).start();
    let prompt = agent.prompt("go");
    let form = agent.wait_for_request("elicitation/create");
    let question = form["params"]["message"].as_str().unwrap();
    assert!(question.contains("6 answers in a row"), "{question}");
    let options = &form["params"]["requestedSchema"]["properties"]["answer"]["enum"];
    let guide = "Tell it what to do instead";
    assert_eq!(options, &json!(["Go on", "Stop", guide]));
    agent.respond(&form, &json!({ "action": "accept", "content": { "answer": guide } }));
    let form = agent.wait_for_request("elicitation/create");
    let words = json!({ "answer": "Call list_dir." });
    agent.respond(&form, &json!({ "action": "accept", "content": words }));
    assert_eq!(agent.stop_reason(&prompt), "end_turn");
    cards::check(&agent);
    let told: Vec<_> = cards::results(&agent, 6)
        .iter()
        .map(|it| it.contains("answers in a row had only calls"))
        .collect();
    assert_eq!(told, [false, false, false, true, false, false]);
    let last = agent.model_transcript(6).pop().unwrap();
    assert!(last.contains("Call list_dir."), "{last}");
}

#[test]
fn whoever_wants_to_guide_later_ends_the_turn() {
    let mut agent = reads(6, forms());
    let prompt = agent.prompt("go");
    let form = agent.wait_for_request("elicitation/create");
    let guide = json!({ "answer": "Tell it what to do instead" });
    agent.respond(&form, &json!({ "action": "accept", "content": guide }));
    let form = agent.wait_for_request("elicitation/create");
    agent.respond(&form, &json!({ "action": "decline" }));
    assert_eq!(agent.stop_reason(&prompt), "end_turn");
    assert!(agent.text().contains("Your next prompt tells it"), "{}", agent.text());
}

#[test]
fn what_is_looked_at_between_different_edits_is_no_circle() {
    // A specification that is read again, and a test that still fails, after each edit.
    let round = |number: usize| {
        let edit = json!({ "path": "b.txt", "content": format!("{number}\n") });
        [calls("write_file", &edit), read(), calls("read_file", &json!({ "path": "none.txt" }))]
    };
    let replies: Vec<_> = (0..8).flat_map(round).chain([says("Done.")]).collect();
    let mut agent = TestAgent::builder()
        .file("a.txt", "x\n")
        .permission("allow_once")
        .model(json!(replies))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert_eq!(agent.text(), "Done.");
    let results = cards::results(&agent, 24).join("\n");
    assert!(!results.contains("times"), "{results}");
}

#[test]
fn edits_that_are_made_and_undone_again_and_again_are_a_circle() {
    let edit = |text: &str| calls("write_file", &json!({ "path": "b.txt", "content": text }));
    let replies: Vec<_> = (0..9).flat_map(|_| [edit("1\n"), read(), edit("2\n")]).collect();
    let mut agent = TestAgent::builder()
        .file("a.txt", "x\n")
        .permission("allow_once")
        .model(json!(replies))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    assert!(agent.text().contains("had only results that it had before"), "{}", agent.text());
}

#[test]
fn the_second_failure_of_a_kind_has_a_hint_unless_the_settings_say_no() {
    let read = |path: &str| calls("exec_output", &json!({ "id": path }));
    for (settings, hints) in [("", 1), ("[agent]\nhints = false\n", 0)] {
        let replies = json!([read("p7"), read("p8"), read("p9"), says("Done.")]);
        let builder = TestAgent::builder().own_file("config/config.toml", settings);
        let mut agent = builder.model(replies).start();
        assert_eq!(agent.turn("go"), "end_turn");
        cards::check(&agent);
        let results = cards::results(&agent, 3);
        let told: Vec<_> = results
            .iter()
            .map(|result| result.matches("[This failed in the same way before.").count())
            .collect();
        assert_eq!(told, [0, hints, 0], "{results:?}");
    }
}
