//! Goals: `/goal` works until a command or a judge finds the proof. Most models here behave badly: they claim the goal,
//! make it smaller, or do nothing.

use serde_json::{Value, json};
use turnwright_testing::cards;
use turnwright_testing::session_requests::open;

use crate::agent::{TestAgent, TestAgentBuilder, eventually, says, writes};

/// A goal whose command succeeds once `a.txt` has the word.
const GOAL: &str = "/goal Write the word. --check grep good a.txt";
/// Words of the judge's tasks.
const LIST: &str = "List what must be true";
const VERDICT: &str = "Do not believe it";

fn when(words: &str, steps: &Value) -> Value {
    json!({ "when": words, "steps": steps })
}

/// The judge lists two files as requirements.
fn lists_two_files() -> Value {
    when(LIST, &says(r#"{"requirements": ["a.txt is there", "b.txt is there"]}"#))
}

fn verdict(text: &str) -> Value {
    when(VERDICT, &says(text))
}

fn agent(replies: Value) -> TestAgentBuilder {
    TestAgent::builder().permission("allow_once").model(replies)
}

fn last_prompt(body: &Value) -> String {
    let messages = body["messages"].as_array().unwrap();
    let last = messages.iter().rfind(|message| message["role"] == "user").unwrap();
    last["content"].as_str().unwrap_or_default().to_owned()
}

/// The requests to the model whose last prompt has these words.
fn requests_with(agent: &TestAgent, words: &str) -> Vec<Value> {
    let bodies = agent.model().requests().into_iter().map(|request| request.body);
    bodies.filter(|body| last_prompt(body).contains(words)).collect()
}

fn assert_told(agent: &TestAgent, words: &str) {
    assert!(agent.thoughts().contains(words), "{words}: {}", agent.thoughts());
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_goal_with_a_command_ends_when_the_command_succeeds() {
    let replies = json!([
        writes("a.txt", "bad\n"),
        says("It is done."),
        writes("a.txt", "good\n"),
        says("Now it is done."),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn(GOAL), "end_turn");
    cards::check(&agent);
    assert_eq!(agent.model().requests().len(), 4, "a command costs no request");
    let first = last_prompt(&agent.model_request(0));
    assert!(first.contains("```\ngrep good a.txt\n```"), "{first}");
    let second = last_prompt(&agent.model_request(2));
    for part in ["its check `grep good a.txt` has failed", "Write the word.", "Slice 2 of 20."] {
        assert!(second.contains(part), "{part}: {second}");
    }
    assert_told(&agent, "Goal, slice 2 of 20: the check fails.");
    assert_told(&agent, "The goal is met: `grep good a.txt` succeeds.");
    assert_eq!(agent.turn("/goal resume"), "end_turn");
    assert!(agent.text().ends_with("The goal is met already. `/goal WHAT` sets another one."));
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_command_that_succeeds_before_the_work_starts_nothing() {
    let mut agent = agent(json!([])).file("a.txt", "good\n").start();
    assert_eq!(agent.turn(GOAL), "end_turn");
    assert!(agent.text().contains("so it proves nothing. Nothing was started."));
    assert!(agent.model().requests().is_empty());
    agent.turn("/goal");
    assert!(agent.text().ends_with("There is no goal. `/goal WHAT` sets one."));
}

#[test]
fn a_model_that_claims_or_narrows_the_goal_is_contradicted_by_the_judge() {
    let replies = json!([
        lists_two_files(),
        writes("a.txt", "x\n"),
        says("The goal was only about a.txt, and it is met."),
        verdict(r#"{"met": true, "evidence": {"1": "a.txt:1"}, "missing": []}"#),
        writes("b.txt", "x\n"),
        says("Both are there."),
        verdict(r#"{"met": true, "evidence": {"1": "a.txt:1", "2": "b.txt:1"}}"#),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn("/goal Make both files."), "end_turn");
    cards::check(&agent);
    let told = last_prompt(&requests_with(&agent, "The goal is not proven")[0]);
    for part in [
        "- 2. b.txt is there: nothing proves it",
        "1. a.txt is there (proven: a.txt:1)\n2. b.txt is there\n",
        "Make both files.",
        "Do not make the goal smaller",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_told(&agent, "Goal, slice 2 of 20: 1 of 2 requirements are proven.");
    assert_told(&agent, "The goal is met: 2 of 2 requirements are proven.");
    let plans = agent.updates_of("plan");
    let statuses: Vec<_> = plans
        .iter()
        .map(|plan| format!("{} {}", plan["entries"][0]["status"], plan["entries"][1]["status"]))
        .collect();
    let expected =
        ["\"pending\" \"pending\"", "\"completed\" \"pending\"", "\"completed\" \"completed\""];
    assert_eq!(statuses, expected);
}

#[test]
fn the_judge_has_a_fresh_context_and_only_tools_that_read() {
    let replies = json!([
        lists_two_files(),
        writes("a.txt", "x\n"),
        says("Believe me."),
        verdict(r#"{"met": true, "evidence": {"1": "x", "2": "x"}}"#),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn("/goal Make both files."), "end_turn");
    for words in [LIST, VERDICT] {
        let request = &requests_with(&agent, words)[0];
        let tools = request["tools"].as_array().unwrap();
        let names: Vec<_> =
            tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["find_files", "grep", "list_dir", "read_file"]);
        assert!(last_prompt(request).contains("Make both files."));
    }
    let asked = requests_with(&agent, VERDICT)[0].to_string();
    assert!(!asked.contains("Believe me."), "{asked}");
    assert!(asked.contains("Files changed, with the number of calls: a.txt (1)"), "{asked}");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn three_slices_without_anything_new_pause_the_work_until_it_is_resumed() {
    let replies = json!([
        says("Done."),
        says("Done."),
        says("Done."),
        writes("a.txt", "good\n"),
        says("Really done."),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn(GOAL), "max_turn_requests");
    assert_eq!(agent.model().requests().len(), 3);
    let third = last_prompt(&agent.model_request(2));
    assert!(third.contains("The last slice has changed nothing: do something else."), "{third}");
    assert_told(&agent, "The goal is paused: three slices in a row have brought nothing new.");
    agent.turn("/goal");
    assert!(agent.text().ends_with("Slices: 3 of 20."), "{}", agent.text());
    assert_eq!(agent.turn("/goal resume"), "end_turn");
    assert_told(&agent, "The goal is met: `grep good a.txt` succeeds.");
}

#[test]
fn the_same_points_that_are_missing_three_times_pause_the_work() {
    let again = |number: usize| writes("a.txt", &"x\n".repeat(number));
    let replies = json!([
        lists_two_files(),
        again(1),
        says("Done."),
        again(2),
        says("Done."),
        again(3),
        says("Done."),
        verdict(r#"{"met": false, "evidence": {"1": "a.txt:1"}, "missing": ["make b.txt"]}"#),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn("/goal Make both files."), "max_turn_requests");
    assert_told(&agent, "The goal is paused: the same was missing three times in a row.");
    assert_eq!(requests_with(&agent, VERDICT).len(), 3, "one judgement a slice");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn at_its_limit_the_end_is_truthful_whatever_the_model_says() {
    let replies = json!([
        writes("a.txt", "bad\n"),
        says("It is done."),
        says("The goal is met."),
        says("Hello."),
    ]);
    let mut agent = agent(replies).start();
    let goal = "/goal Write the word. --turns 1 --check grep good a.txt";
    assert_eq!(agent.turn(goal), "max_turn_requests");
    let last = last_prompt(&agent.model_request(2));
    assert!(last.contains("Say truthfully what is proven") && last.contains("No tool runs"));
    assert_told(&agent, "The goal ended at its limit of 1 turn and is not met: the check fails.");
    assert!(!agent.text().contains("max_turn_requests"), "{}", agent.text());
    assert_eq!(agent.turn("hello"), "end_turn");
    let next = last_prompt(&agent.model_request(3));
    assert!(next.contains("go on with it only if the user says so"), "{next}");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_budget_of_its_own_ends_the_work() {
    let spends = json!([{ "text": "Done." }, { "usage": { "prompt_tokens": 900,
        "completion_tokens": 200, "total_tokens": 1_100 } }]);
    let mut agent = agent(json!([spends, says("Nothing is proven.")])).start();
    let goal = "/goal Write the word. --check grep good a.txt --budget tokens=1000";
    assert_eq!(agent.turn(goal), "max_tokens");
    assert_eq!(agent.model().requests().len(), 2);
    assert_told(&agent, "The goal ended at the limit of 1000 tokens for this goal and is not met");
}

#[test]
fn a_verdict_that_cannot_be_read_pauses_the_work() {
    let replies = json!([
        lists_two_files(),
        writes("a.txt", "x\n"),
        says("Done."),
        verdict("It looks good to me."),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn("/goal Make both files."), "max_turn_requests");
    assert_eq!(requests_with(&agent, VERDICT).len(), 1);
    assert_told(&agent, "The goal is paused: the answer of the judge could not be read.");
}

#[test]
fn an_obstacle_that_only_the_user_can_remove_pauses_and_an_impossible_goal_ends() {
    for (blocker, told) in [
        ("needs_user", "The goal is paused: you are needed: a key is missing."),
        ("impossible", "The goal ended because it cannot be reached (a key is missing)"),
    ] {
        let answer = json!({ "met": false, "missing": ["a key is missing"], "blocker": blocker })
            .to_string();
        let replies = json!([lists_two_files(), says("I cannot go on."), verdict(&answer)]);
        let mut agent = agent(replies).start();
        assert_eq!(agent.turn("/goal Make both files."), "max_turn_requests");
        assert_told(&agent, told);
    }
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_question_of_the_model_pauses_the_work_and_the_next_prompt_is_not_taken_for_a_part_of_it() {
    let mut agent = agent(json!([says("Which word shall it be?"), says("Hello.")])).start();
    assert_eq!(agent.turn(GOAL), "max_turn_requests");
    assert_eq!(agent.model().requests().len(), 1);
    assert_told(&agent, "The goal is paused: the model asks you something.");
    assert_eq!(agent.turn("hello"), "end_turn");
    let prompt = last_prompt(&agent.model_request(1));
    assert!(prompt.contains("if the user says so: Write the word."), "{prompt}");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_prompt_that_waits_comes_first() {
    let held = json!([{ "hold": true }, { "text": "Done." }]);
    let mut agent = agent(json!([held, says("Hello.")])).start();
    let goal = agent.prompt(GOAL);
    eventually("the first request", || !agent.model().requests().is_empty());
    let next = agent.prompt("hello");
    agent.sync();
    agent.model().release();
    assert_eq!(agent.stop_reason(&goal), "end_turn");
    assert_eq!(agent.stop_reason(&next), "end_turn");
    assert_told(&agent, "The goal is paused: your next prompt comes first.");
    let prompt = last_prompt(&agent.model_request(1));
    assert!(prompt.contains("The work on a goal has stopped"), "{prompt}");
}

#[test]
fn a_prompt_that_arrives_during_the_judgement_comes_first() {
    let held = json!([{ "hold": true }, { "text": r#"{"met": false}"# }]);
    let replies = json!([lists_two_files(), says("Done."), when(VERDICT, &held), says("Hello.")]);
    let mut agent = agent(replies).start();
    let goal = agent.prompt("/goal Make both files.");
    eventually("the question to the judge", || !requests_with(&agent, VERDICT).is_empty());
    let next = agent.prompt("hello");
    agent.sync();
    agent.model().release();
    assert_eq!(agent.stop_reason(&goal), "end_turn");
    assert_eq!(agent.stop_reason(&next), "end_turn");
    assert_told(&agent, "The goal is paused: your next prompt comes first.");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_cancel_and_an_error_pause_the_work_and_a_load_shows_it() {
    let refused = json!([{ "status": 400, "body": { "error": { "message": "no" } } }]);
    let held = json!([{ "hang": true }]);
    let mut agent = agent(json!([held, refused, says("Hello.")])).start();
    let goal = agent.prompt(GOAL);
    eventually("the first request", || !agent.model().requests().is_empty());
    agent.cancel();
    assert_eq!(agent.stop_reason(&goal), "cancelled");
    agent.turn("/goal");
    assert!(agent.text().contains("The goal is paused: you have cancelled it."));
    let resumed = agent.prompt("/goal resume");
    assert!(agent.answer_to(&resumed)["error"].is_object());
    let before = agent.text().len();
    agent.turn("/goal");
    let shown = agent.text()[before..].to_owned();
    assert!(shown.starts_with("The goal is paused: ") && !shown.contains("cancelled"), "{shown}");
    let session = agent.session.clone();
    agent.restart();
    open(&mut agent, "session/load", &session);
    assert_eq!(agent.turn("hello"), "end_turn");
    let number = agent.model().requests().len() - 1;
    let prompt = last_prompt(&agent.model_request(number));
    assert!(prompt.contains("if the user says so: Write the word."), "{prompt}");
    assert_told(&agent, "`/goal resume` goes on.");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_compaction_in_between_changes_nothing() {
    let replies = json!([
        says("Done."),
        says("Done."),
        says("Done."),
        says("A summary."),
        writes("a.txt", "good\n"),
        says("Done."),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn(GOAL), "max_turn_requests");
    agent.turn("/compact");
    assert_eq!(agent.turn("/goal resume"), "end_turn");
    assert_told(&agent, "The goal is met: `grep good a.txt` succeeds.");
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn after_a_summary_in_the_middle_of_the_work_the_model_is_told_its_goal_again() {
    let full = json!({ "code": "context_length_exceeded", "message":
        "This model's maximum context length is 32000 tokens. However, your messages resulted in \
         35000 tokens." });
    let replies = json!([
        // So long that nothing before it is kept beside the summary.
        writes("b.txt", &"x\n".repeat(4_000)),
        [{ "status": 400, "body": { "error": full } }],
        says("A summary."),
        writes("a.txt", "good\n"),
        says("Done."),
    ]);
    let mut agent = agent(replies).start();
    assert_eq!(agent.turn(GOAL), "end_turn");
    let told = last_prompt(&agent.model_request(3));
    for part in ["The user has set a goal.", "grep good a.txt", "Do not make the goal smaller"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "the commands are those of Unix")]
fn in_each_slice_the_model_is_told_anew_what_a_check_says() {
    let again = |number: usize| writes("b.txt", &"BAD\n".repeat(number));
    let replies = json!([
        again(1),
        says("Done."),
        again(2),
        says("Done."),
        says("It stays."),
        again(3),
        says("Done."),
        again(4),
        says("Done."),
        says("It stays."),
        says("Nothing is proven."),
    ]);
    let settings = "mode = 'auto-edit'\n[checks]\nmarks = 'sh check.sh'\n";
    let builder = agent(replies).file("check.sh", "! grep -Hn BAD b.txt\n");
    let mut agent = builder.own_file("config/config.toml", settings).start();
    let goal = "/goal Write the word. --turns 2 --check grep good a.txt";
    assert_eq!(agent.turn(goal), "max_turn_requests");
    let told = agent.thoughts();
    assert_eq!(told.matches("`marks` says something new. The model is told.").count(), 4, "{told}");
    assert!(!told.contains("The model is not told again."), "{told}");
}

#[test]
fn a_goal_can_be_changed_and_cleared_and_is_refused_in_plan_mode() {
    let replies = json!([lists_two_files(), says("Shall I?"), verdict(r#"{"met": false}"#)]);
    let mut agent = agent(replies).start();
    agent.turn("/goal Make both files.");
    agent.turn("/goal edit Make one file. --turns 3");
    let shown = agent.text();
    for part in ["it was changed", "Make one file.", "Slices: 0 of 3."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    agent.turn("/mode plan");
    assert_eq!(agent.turn("/goal resume"), "max_turn_requests");
    assert!(agent.text().contains("in mode `plan` nothing can be changed"), "{}", agent.text());
    agent.turn("/goal clear");
    agent.turn("/mode ask");
    assert_eq!(agent.turn("/goal resume"), "max_turn_requests");
    agent.turn("/goal");
    assert!(agent.text().ends_with("There is no goal. `/goal WHAT` sets one."));
}

#[test]
fn a_goal_has_the_files_that_are_mentioned_in_it_and_what_follows_them() {
    let replies = json!([lists_two_files(), says("Shall I?"), verdict(r#"{"met": false}"#)]);
    let mut agent = agent(replies).start();
    agent.turn("/goal Make both files.");
    let params = json!({ "sessionId": agent.session, "prompt": [
        { "type": "text", "text": "/goal edit Repair " },
        { "type": "resource_link", "uri": "file:///ws/a.rs", "name": "a.rs" },
        { "type": "text", "text": " at last --turns 3" },
    ] });
    let answer = agent.call("session/prompt", &params);
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    let shown = agent.text();
    for part in ["Repair /ws/a.rs at last\n", "Slices: 0 of 3."] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}
