//! Several calls of one answer (R-TOOL): what runs side by side, what waits, and who is asked
//! when.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, says};

fn write(path: &str) -> Value {
    call("write_file", &json!({ "path": path, "content": format!("new {path}") }))
}

fn read(path: &str) -> Value {
    call("read_file", &json!({ "path": path }))
}

/// The file that a question is about.
fn about(question: &Value) -> &str {
    let path = question["params"]["toolCall"]["locations"][0]["path"].as_str().unwrap();
    path.rsplit('/').next().unwrap()
}

#[test]
fn what_needs_no_question_runs_while_one_is_open() {
    let reply = json!([write("a"), read("b"), read("c")]);
    let mut agent = TestAgent::builder()
        .file("b", "1\n")
        .file("c", "2\n")
        .model(json!([reply, says("Done.")]))
        .start();
    let id = agent.prompt("go");
    for _ in 0..2 {
        agent.wait_for_status("completed");
    }
    let asked = |it: &&Value| it["method"] == "session/request_permission";
    let question = agent.log.iter().find(asked).cloned();
    let question = question.unwrap_or_else(|| agent.wait_for_request("session/request_permission"));
    assert_eq!(about(&question), "a");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    let results = cards::results(&agent, 1);
    assert!(results[0].starts_with("Created a"), "the order is that of the calls: {results:?}");
    assert!(results[1].ends_with("1| 1\n") && results[2].ends_with("1| 2\n"), "{results:?}");
}

#[test]
fn questions_come_one_at_a_time_and_a_no_stops_only_its_own_call() {
    let reply = json!([write("a"), write("b"), write("c")]);
    let mut agent = TestAgent::builder().model(json!([reply, says("Done.")])).start();
    let id = agent.prompt("go");
    for (number, (name, answer)) in
        [("a", "allow_once"), ("b", "reject_once"), ("c", "allow_once")].into_iter().enumerate()
    {
        let question = agent.wait_for_request("session/request_permission");
        agent.sync();
        assert_eq!((about(&question), cards::questions(&agent)), (name, number + 1));
        agent.choose(&question, answer);
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    assert_eq!((agent.read("a"), agent.read("c")), ("new a".to_owned(), "new c".to_owned()));
    assert!(!agent.path("b").exists());
    let results = cards::results(&agent, 1);
    assert!(results[1].starts_with("The user rejected this call"), "{results:?}");
}

#[test]
fn an_answer_for_the_session_spares_the_next_question() {
    let write = json!({ "path": "log", "content": "x\n", "mode": "append" });
    let same = || call("write_file", &write);
    let reply = json!([same(), same(), same()]);
    let mut agent = TestAgent::builder()
        .model(json!([reply, says("Done.")]))
        .permission("allow_always")
        .start();
    cards::turn(&mut agent);
    assert_eq!((agent.read("log").as_str(), cards::questions(&agent)), ("x\nx\nx\n", 1));
}

#[test]
fn of_many_calls_each_has_its_result() {
    let reply: Vec<_> = (0..30).map(|it| read(&format!("f{it}"))).collect();
    let mut builder = TestAgent::builder().model(json!([reply, says("Done.")]));
    for number in 0..30 {
        builder = builder.file(&format!("f{number}"), &format!("{number}\n"));
    }
    let mut agent = builder.start();
    cards::turn(&mut agent);
    for (number, result) in cards::results(&agent, 1).iter().enumerate() {
        assert!(result.ends_with(&format!("1| {number}\n")), "{number}: {result}");
    }
}

#[test]
fn eight_calls_are_at_work_at_a_time() {
    let reply: Vec<_> = (0..12).map(|it| read(&format!("f{it}"))).collect();
    let mut builder = TestAgent::builder().model(json!([reply, says("Done.")]));
    for number in 0..12 {
        builder = builder.file(&format!("f{number}"), "disk\n");
    }
    let mut agent = builder.capabilities(json!({ "fs": { "readTextFile": true } })).start();
    let id = agent.prompt("go");
    let mut open = Vec::new();
    for answered in 0..12 {
        while open.len() < (12 - answered).min(8) {
            open.push(agent.wait_for_request("fs/read_text_file"));
        }
        agent.sync();
        let asked = cards::requests(&agent).len();
        assert!(asked <= answered + 8, "{asked} questions, and {answered} answers");
        // The last one first: the order of the answers is nothing to the order of the results.
        let question: Value = open.pop().unwrap();
        let name = about_path(&question["params"]["path"]).to_owned();
        agent.respond(&question, &json!({ "content": name }));
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    for (number, result) in cards::results(&agent, 1).iter().enumerate() {
        assert!(result.ends_with(&format!("1| f{number}\n")), "{number}: {result}");
    }
}

fn about_path(path: &Value) -> &str {
    path.as_str().unwrap().rsplit('/').next().unwrap()
}

#[test]
fn edits_of_one_file_are_made_one_after_the_other_by_whatever_name() {
    let edit = |path: &str, number: usize| {
        let (old, new) = (format!("<{number}>"), format!("[{number}]"));
        call("edit_file", &json!({ "path": path, "edits": [{ "old_text": old, "new_text": new }] }))
    };
    let names = ["f", "./f", "sub/../f", "link"];
    let reply: Vec<_> = (0..20).map(|it| edit(names[it % 4], it)).collect();
    let lines: Vec<_> = (0..20).map(|it| format!("<{it}>\n")).collect();
    let mut agent = TestAgent::builder()
        .file("f", &lines.concat())
        .file("sub/x", "")
        .model(json!([reply, says("Done.")]))
        .permission("allow_once")
        .start();
    std::os::unix::fs::symlink("f", agent.path("link")).unwrap();
    cards::turn(&mut agent);
    let expected = lines.concat().replace('<', "[").replace('>', "]");
    assert_eq!(agent.read("f"), expected);
    assert!(cards::results(&agent, 1).iter().all(|it| it.starts_with("Applied 1 edit")));
}
