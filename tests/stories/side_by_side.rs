//! Several calls in one answer (R-TOOL): which of them run in parallel, which wait, and the order
//! of permission requests and results.

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, says};

fn write(path: &str) -> Value {
    call("write_file", &json!({ "path": path, "content": format!("new {path}") }))
}

fn read(path: &str) -> Value {
    call("read_file", &json!({ "path": path }))
}

/// Returns the name of the file that a permission request is about.
fn about(question: &Value) -> &str {
    let path = question["params"]["toolCall"]["locations"][0]["path"].as_str().unwrap();
    path.rsplit(['/', '\\']).next().unwrap()
}

#[test]
fn calls_without_permission_requests_run_while_a_permission_request_is_open() {
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
    let is_permission_request = |it: &&Value| it["method"] == "session/request_permission";
    let question = agent.log.iter().find(is_permission_request).cloned();
    let question = question.unwrap_or_else(|| agent.wait_for_request("session/request_permission"));
    assert_eq!(about(&question), "a");
    agent.choose(&question, "allow_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    let results = cards::results(&agent, 1);
    assert!(
        results[0].starts_with("Created a"),
        "the results must be in the order of the calls: {results:?}"
    );
    assert!(results[1].ends_with("1| 1\n") && results[2].ends_with("1| 2\n"), "{results:?}");
}

#[test]
fn permission_requests_come_one_at_a_time_and_a_rejection_fails_only_its_own_call() {
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
fn an_answer_for_the_session_covers_the_next_calls() {
    let line = |text: &str| {
        call("write_file", &json!({ "path": "log", "content": text, "mode": "append" }))
    };
    let reply = json!([line("x\n"), line("y\n"), line("z\n")]);
    let mut agent = TestAgent::builder()
        .model(json!([reply, says("Done.")]))
        .permission("allow_always")
        .start();
    cards::turn(&mut agent);
    assert_eq!((agent.read("log").as_str(), cards::questions(&agent)), ("x\ny\nz\n", 1));
}

#[test]
fn each_of_many_calls_has_its_result() {
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
fn at_most_eight_calls_run_at_a_time() {
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
        let sent = cards::requests(&agent).len();
        assert!(sent <= answered + 8, "{sent} requests were sent after {answered} answers");
        // The last request is answered first, because the order of the answers must not affect the
        // order of the results.
        let question: Value = open.pop().unwrap();
        let name = file_name(&question["params"]["path"]).to_owned();
        agent.respond(&question, &json!({ "content": name }));
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
    for (number, result) in cards::results(&agent, 1).iter().enumerate() {
        assert!(result.ends_with(&format!("1| f{number}\n")), "{number}: {result}");
    }
}

fn file_name(path: &Value) -> &str {
    path.as_str().unwrap().rsplit(['/', '\\']).next().unwrap()
}

#[test]
fn edits_of_one_file_run_one_after_the_other_under_all_of_its_names() {
    let edit = |path: &str, number: usize| {
        let (old, new) = (format!("<{number}>"), format!("[{number}]"));
        call("edit_file", &json!({ "path": path, "edits": [{ "old_text": old, "new_text": new }] }))
    };
    let names = ["f", "./f", "sub/../f", if cfg!(unix) { "link" } else { ".\\f" }];
    let reply: Vec<_> = (0..20).map(|it| edit(names[it % 4], it)).collect();
    let lines: Vec<_> = (0..20).map(|it| format!("<{it}>\n")).collect();
    let mut agent = TestAgent::builder()
        .file("f", &lines.concat())
        .file("sub/x", "")
        .model(json!([reply, says("Done.")]))
        .permission("allow_once")
        .start();
    #[cfg(unix)]
    std::os::unix::fs::symlink("f", agent.path("link")).unwrap();
    cards::turn(&mut agent);
    let expected = lines.concat().replace('<', "[").replace('>', "]");
    assert_eq!(agent.read("f"), expected);
    assert!(cards::results(&agent, 1).iter().all(|it| it.starts_with("Applied 1 edit")));
}
