//! Files that the client serves (R-FS): unsaved buffers take precedence over the disk, and a client
//! that misbehaves makes at most one call fail.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};

use crate::agent::{TestAgent, TestAgentBuilder, calls, says, writes};

fn client(read: bool, write: bool) -> TestAgentBuilder {
    let fs = json!({ "readTextFile": read, "writeTextFile": write });
    TestAgent::builder().capabilities(json!({ "fs": fs })).permission("allow_once")
}

/// Runs a turn in which the client answers file requests with the result of `answer`, which gets
/// the method and the name of the file. An `Err` is the code of an error. Returns the tool results
/// of the turn.
fn serve(
    agent: &mut TestAgent,
    reply: &Value,
    answer: impl Fn(&str, &str) -> Result<Value, i64>,
) -> Vec<String> {
    let answer = |method: &str, name: &str| {
        answer(method, name).map_err(|code| (code, "the buffer is locked"))
    };
    serve_refusing(agent, reply, answer)
}

/// The same with the text of an error.
fn serve_refusing(
    agent: &mut TestAgent,
    reply: &Value,
    answer: impl Fn(&str, &str) -> Result<Value, (i64, &'static str)>,
) -> Vec<String> {
    agent.model().push(reply.clone()).unwrap();
    agent.model().push(says("Done.")).unwrap();
    let before = agent.model().requests().len();
    let id = agent.prompt("go");
    let is_end = |it: &Value| it.get("method").is_none() && it["id"] == id;
    loop {
        let is_file_request =
            |it: &Value| it["method"].as_str().is_some_and(|it| it.starts_with("fs/"));
        let message = agent.wait_for("a file request or the answer to the prompt", |message| {
            is_file_request(message) || is_end(message)
        });
        let Some(method) = message["method"].as_str() else { break };
        let path = message["params"]["path"].as_str().unwrap();
        assert!(Path::new(path).is_absolute(), "R-FS-2: {message}");
        assert_eq!(message["params"]["sessionId"], agent.session.as_str(), "R-FS-2");
        // R-FS-3: the lines of a requested range are counted from 1.
        assert!(message["params"]["line"].as_u64().is_none_or(|it| it >= 1), "{message}");
        match answer(method, path.rsplit(['/', '\\']).next().unwrap_or_default()) {
            Ok(result) => agent.respond(&message, &result),
            Err((code, text)) => agent.refuse(&message, code, text),
        }
    }
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(agent);
    let results = cards::results(agent, before + 1);
    let earlier = if before == 0 { 0 } else { cards::results(agent, before).len() };
    results[earlier..].to_vec()
}

fn read(path: &str) -> Value {
    calls("read_file", &json!({ "path": path }))
}

fn last_card(agent: &TestAgent) -> Value {
    cards::card(agent, cards::ids(agent).len() - 1)
}

#[test]
fn r_fs_1_and_6_only_the_offered_methods_are_called_and_the_disk_serves_the_rest() {
    for (can_read, can_write) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut agent = client(can_read, can_write).file("a.txt", "same\n").start();
        let both = json!([
            call("read_file", &json!({ "path": "a.txt" })),
            call("write_file", &json!({ "path": "a.txt", "content": "new\n" })),
        ]);
        let results = serve(&mut agent, &both, |method, _| {
            Ok(if method == "fs/read_text_file" {
                json!({ "content": "same\n" })
            } else {
                json!(null)
            })
        });
        assert_eq!(results[0], "[File: a.txt | Lines: 1]\n    1| same\n");
        assert!(results[1].starts_with("Replaced a.txt"), "{results:?}");
        let methods = cards::requests(&agent);
        let has = |method: &str| methods.iter().any(|it| it == method);
        assert_eq!(has("fs/read_text_file"), can_read, "{methods:?}");
        assert_eq!(has("fs/write_text_file"), can_write, "{methods:?}");
        // This client writes nothing, so the content of the disk shows whether the agent has
        // written the file.
        assert_eq!(agent.read("a.txt"), if can_write { "same\n" } else { "new\n" });
        let card = last_card(&agent);
        let diff = json!({ "type": "diff", "path": agent.path("a.txt"),
            "oldText": "same\n", "newText": "new\n" });
        assert_eq!(card["content"], json!([diff]));
        assert_eq!(card["locations"], json!([{ "path": agent.path("a.txt"), "line": 1 }]));
    }
}

#[test]
fn r_fs_1_without_capabilities_no_method_of_the_client_is_called() {
    for capabilities in [json!({}), json!({ "fs": {} }), json!({ "fs": null })] {
        let builder = TestAgent::builder().file("a.txt", "disk\n").capabilities(capabilities);
        let (agent, result) = cards::run(builder, "read_file", &json!({ "path": "a.txt" }));
        assert!(result.ends_with("1| disk\n"), "{result}");
        assert!(cards::requests(&agent).is_empty());
    }
}

#[test]
fn r_fs_2_a_write_has_the_path_and_the_whole_text() {
    let mut agent = client(false, true).file("a.txt", "one\n").start();
    let append = json!({ "path": "a.txt", "content": "two\n", "mode": "append" });
    serve(&mut agent, &calls("write_file", &append), |_, _| Ok(json!({})));
    let sent = agent.log.iter().find(|it| it["method"] == "fs/write_text_file").unwrap();
    assert_eq!(sent["params"]["path"], json!(agent.path("a.txt")));
    assert_eq!(sent["params"]["content"], "one\ntwo\n");
    assert_eq!(last_card(&agent)["status"], "completed");
}

#[test]
fn r_fs_3_a_range_is_read_from_the_buffer() {
    let mut agent = client(true, false).file("a.txt", "x\n").start();
    let range = json!({ "path": "a.txt", "start_line": 2, "end_line": 3 });
    let content = json!({ "content": "1\n2\n3\n4\n" });
    let results = serve(&mut agent, &calls("read_file", &range), |_, _| Ok(content.clone()));
    assert_eq!(results, ["[File: a.txt | Lines: 4]\n    2| 2\n    3| 3\n"]);
}

#[test]
fn r_fs_4_unsaved_text_takes_precedence_over_the_disk() {
    let mut agent = client(true, true).file("a.txt", "disk\n").start();
    let results = serve(&mut agent, &read("a.txt"), |_, _| Ok(json!({ "content": "unsaved\n" })));
    assert_eq!(results, ["[File: a.txt | Lines: 1]\n    1| unsaved\n"]);
    serve(&mut agent, &writes("a.txt", "new\n"), |method, _| {
        Ok(if method == "fs/read_text_file" {
            json!({ "content": "unsaved\n" })
        } else {
            json!(null)
        })
    });
    assert_eq!(last_card(&agent)["content"][0]["oldText"], "unsaved\n");
    // The file `new.txt` has never been saved.
    let results = serve(&mut agent, &read("new.txt"), |_, _| Ok(json!({ "content": "draft\n" })));
    assert_eq!(results, ["[File: new.txt | Lines: 1]\n    1| draft\n"]);
}

#[test]
fn r_fs_4_without_a_usable_answer_the_file_is_read_from_the_disk() {
    let answers: [Result<Value, i64>; 7] = [
        Err(-32603),
        Err(-32002),
        Err(-32601),
        Ok(json!(null)),
        Ok(json!({})),
        Ok(json!({ "content": 5 })),
        Ok(json!([])),
    ];
    let mut agent = client(true, false).file("a.txt", "disk\n").start();
    for answer in answers {
        let results = serve(&mut agent, &read("a.txt"), |_, _| answer.clone());
        assert_eq!(results, ["[File: a.txt | Lines: 1]\n    1| disk\n"], "{answer:?}");
    }
    let results = serve(&mut agent, &read("a.txt"), |_, _| Ok(json!("a bare text\n")));
    assert_eq!(results, ["[File: a.txt | Lines: 1]\n    1| a bare text\n"]);
}

#[test]
fn r_fs_4_a_read_that_the_client_denies_is_not_read_from_the_disk() {
    let mut agent = client(true, true).file("a.txt", "secret\n").start();
    for message in ["Permission denied", "Path is outside the allowed folders", "Access forbidden"]
    {
        for code in [-32603, -32000, -32602, -32002] {
            for reply in [read("a.txt"), writes("a.txt", "new\n")] {
                let results = serve_refusing(&mut agent, &reply, |_, _| Err((code, message)));
                let told = format!("was not read: the editor refused: {message}. Do not");
                assert!(results[0].contains(&told), "{code}: {results:?}");
                assert!(!last_card(&agent).to_string().contains("secret"), "{code}");
                assert_eq!(last_card(&agent)["status"], "failed", "{code}");
            }
        }
    }
    assert_eq!(agent.read("a.txt"), "secret\n");
    // Words in the name of the file are no denial.
    std::fs::write(agent.path("permission.txt"), "disk\n").unwrap();
    let missing = |_: &str, _: &str| Err((-32002, "Resource not found: /ws/permission.txt"));
    let results = serve_refusing(&mut agent, &read("permission.txt"), missing);
    assert!(results[0].ends_with("1| disk\n"), "{results:?}");
}

#[test]
fn r_fs_4_a_missing_file_is_missing_whatever_the_client_answers() {
    let mut agent = client(true, false).start();
    for answer in [Err(-32002), Err(-32603), Ok(json!({ "content": "" })), Ok(json!(null))] {
        let results = serve(&mut agent, &read("none.txt"), |_, _| answer.clone());
        assert!(results[0].contains("does not exist"), "{answer:?}: {results:?}");
        serve(&mut agent, &writes("none.txt", "new\n"), |_, _| answer.clone());
        assert!(last_card(&agent)["content"][0]["oldText"].is_null(), "{answer:?}");
        assert_eq!(last_card(&agent)["title"], "Create none.txt");
        std::fs::remove_file(agent.path("none.txt")).unwrap();
    }
}

#[test]
fn r_fs_4_an_empty_text_of_the_client_is_no_text_of_a_file_that_has_one() {
    #[expect(clippy::unnecessary_wraps, reason = "the form of all answers")]
    fn answer(method: &str, _: &str) -> Result<Value, i64> {
        let is_read = method == "fs/read_text_file";
        Ok(if is_read { json!({ "content": "" }) } else { json!({}) })
    }
    let mut agent = client(true, true)
        .file("a.txt", "one\ntwo\n")
        .file("bom.txt", "\u{feff}one\n")
        .file("empty.txt", "")
        .start();
    let results = serve(&mut agent, &read("a.txt"), answer);
    assert_eq!(results, ["[File: a.txt | Lines: 2]\n    1| one\n    2| two\n"]);
    let edit = json!({ "path": "a.txt", "old_text": "two", "new_text": "2" });
    serve(&mut agent, &calls("edit_file", &edit), answer);
    assert_eq!(agent.read("a.txt"), "one\n2\n");
    // The user may have emptied the buffer.
    let methods = cards::requests(&agent);
    assert!(!methods.iter().any(|method| method == "fs/write_text_file"), "{methods:?}");
    // A file that the client would alter is written to the disk.
    serve(&mut agent, &writes("bom.txt", "new\n"), answer);
    assert_eq!(agent.read("bom.txt"), "\u{feff}new\n");
    let results = serve(&mut agent, &read("empty.txt"), answer);
    assert!(results[0].starts_with("[File: empty.txt | Lines: 0]"), "{results:?}");
}

#[test]
fn r_fs_4_a_buffer_that_the_user_has_emptied_is_empty_if_the_client_shows_other_texts() {
    #[expect(clippy::unnecessary_wraps, reason = "the form of all answers")]
    fn answer(_: &str, name: &str) -> Result<Value, i64> {
        Ok(json!({ "content": if name == "emptied.txt" { "" } else { "shown\n" } }))
    }
    let builder = client(true, true).file("a.txt", "shown\n").file("emptied.txt", "old\n");
    let mut agent = builder.start();
    serve(&mut agent, &read("a.txt"), answer);
    let results = serve(&mut agent, &read("emptied.txt"), answer);
    assert!(results[0].starts_with("[File: emptied.txt | Lines: 0]"), "{results:?}");
    let edit = json!({ "path": "emptied.txt", "old_text": "old", "new_text": "new" });
    serve(&mut agent, &calls("edit_file", &edit), answer);
    assert_eq!(last_card(&agent)["status"], "failed");
    assert_eq!(agent.read("emptied.txt"), "old\n");
}

#[test]
fn r_fs_4_a_read_that_is_never_answered_is_served_by_the_disk_after_five_seconds() {
    let mut agent = client(true, false)
        .file("a.txt", "disk\n")
        .model(json!([read("a.txt"), says("Done.")]))
        .start();
    let started = Instant::now();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("fs/read_text_file");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    assert!(
        started.elapsed() > Duration::from_secs(4),
        "the agent has not waited long enough: {:?}",
        started.elapsed()
    );
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert!(cards::results(&agent, 1)[0].ends_with("1| disk\n"));
    let withdrawn = agent.log.iter().find(|it| it["method"] == "$/cancel_request").unwrap();
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    // The agent ignores an answer that comes much too late.
    agent.respond(&question, &json!({ "content": "too late\n" }));
    agent.sync();
    cards::check(&agent);
}

#[test]
fn r_fs_4_a_client_that_has_not_answered_a_read_is_asked_for_no_file_before_the_next_prompt() {
    let mut agent = client(true, false)
        .file("a.txt", "disk\n")
        .file("b.txt", "other\n")
        .file("c.txt", "saved\n")
        .start();
    for reply in [read("a.txt"), read("b.txt"), says("Done.")] {
        agent.model().push(reply).unwrap();
    }
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 2);
    assert!(results[1].ends_with("1| other\n"), "{results:?}");
    let methods = cards::requests(&agent);
    assert_eq!(methods.iter().filter(|it| *it == "fs/read_text_file").count(), 1, "{methods:?}");
    // It was only busy: what it has not saved counts again.
    let content = json!({ "content": "unsaved\n" });
    let results = serve(&mut agent, &read("c.txt"), |_, _| Ok(content.clone()));
    assert!(results[0].contains("1| unsaved\n"), "{results:?}");
}

#[test]
fn r_fs_4_a_new_file_is_not_requested_from_the_client_before_it_is_written() {
    let add = "*** Begin Patch\n*** Add File: b.txt\n+new\n*** End Patch\n";
    for reply in [writes("a.txt", "new\n"), calls("apply_patch", &json!({ "patch": add }))] {
        let mut agent = client(true, true).start();
        let asked = std::cell::RefCell::new(Vec::new());
        serve(&mut agent, &reply, |method, _| {
            asked.borrow_mut().push(method.to_owned());
            Ok(json!({ "content": "new\n" }))
        });
        // It is read back, because the editor may have formatted it.
        assert_eq!(*asked.borrow(), ["fs/write_text_file", "fs/read_text_file"]);
    }
}

#[test]
fn an_edit_that_the_client_takes_and_does_not_make_is_said_not_to_be_there() {
    let edit = json!({ "path": "a.txt", "old_text": "one", "new_text": "two" });
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
    for reply in [calls("edit_file", &edit), calls("apply_patch", &json!({ "patch": patch }))] {
        for makes_it in [false, true] {
            let mut agent = client(true, true).file("a.txt", "one\n").start();
            let is_made = std::cell::Cell::new(false);
            let results = serve(&mut agent, &reply, |method, _| {
                is_made.set(is_made.get() || makes_it && method == "fs/write_text_file");
                Ok(json!({ "content": if is_made.get() { "two\n" } else { "one\n" } }))
            });
            assert_eq!(results[0].contains("is not there yet"), !makes_it, "{results:?}");
        }
    }
}

#[test]
fn a_missing_folder_is_made_only_after_the_approval() {
    for can_write in [false, true] {
        let fs = json!({ "fs": { "readTextFile": true, "writeTextFile": can_write } });
        let mut agent = TestAgent::builder().capabilities(fs).start();
        agent.model().push(writes("new/deep/a.txt", "new\n")).unwrap();
        agent.model().push(says("Done.")).unwrap();
        let id = agent.prompt("go");
        let question = agent.wait_for_request("session/request_permission");
        assert!(!agent.path("new").exists());
        agent.choose(&question, "reject_once");
        assert_eq!(agent.stop_reason(&id), "end_turn");
        assert!(!agent.path("new").exists());
        assert!(cards::requests(&agent).iter().all(|it| it == "session/request_permission"));
    }
}

#[test]
fn an_editor_that_makes_no_folders_can_write_a_new_file() {
    let mut agent = client(false, true).start();
    let folder = agent.path("new/deep");
    let results = serve(&mut agent, &writes("new/deep/a.txt", "new\n"), |_, name| {
        std::fs::write(folder.join(name), "new\n").map_or(Err(-32603), |()| Ok(json!(null)))
    });
    assert!(results[0].starts_with("Created new/deep/a.txt"), "{results:?}");
    assert_eq!(agent.read("new/deep/a.txt"), "new\n");
    std::fs::remove_dir_all(agent.path("new")).unwrap();
    serve(&mut agent, &writes("new/deep/a.txt", "new\n"), |_, _| Err(-32603));
    assert!(!agent.path("new").exists(), "a refused write leaves no folders");
}

#[test]
fn r_fs_5_a_write_may_be_answered_with_an_empty_result() {
    for answer in [json!(null), json!({}), json!("")] {
        let mut agent = client(false, true).start();
        let results = serve(&mut agent, &writes("a.txt", "new\n"), |_, _| Ok(answer.clone()));
        assert!(results[0].starts_with("Created a.txt"), "{answer}: {results:?}");
        assert_eq!(last_card(&agent)["status"], "completed", "{answer}");
    }
}

#[test]
fn r_fs_5_a_write_that_the_client_refuses_fails_the_call_but_not_the_turn() {
    for answer in [Err(-32603), Err(-32000), Ok(json!("could not save: the buffer is locked"))] {
        let mut agent = client(false, true).file("a.txt", "old\n").start();
        let results = serve(&mut agent, &writes("a.txt", "new\n"), |_, _| answer.clone());
        assert!(results[0].contains("the buffer is locked"), "{answer:?}: {results:?}");
        assert_eq!(last_card(&agent)["status"], "failed", "{answer:?}");
        assert_eq!(agent.read("a.txt"), "old\n", "the file must not be written without the client");
    }
}

#[test]
fn r_fs_5_a_file_that_the_client_does_not_know_is_written_to_the_disk() {
    for code in [-32002, -32601] {
        let mut agent = client(false, true).file("a.txt", "old\n").start();
        serve(&mut agent, &writes("a.txt", "new\n"), |_, _| Err(code));
        assert_eq!(last_card(&agent)["status"], "completed", "{code}");
        assert_eq!(agent.read("a.txt"), "new\n", "{code}");
    }
}

#[test]
fn no_file_outside_the_project_is_requested_from_the_client() {
    let elsewhere = turnwright_testing::temporary_folder();
    let path = elsewhere.path().join("a.txt").display().to_string();
    std::fs::write(&path, "outside\n").unwrap();
    let mut agent = client(true, true).start();
    let refuse = |method: &str, _: &str| panic!("{method} was called");
    let results = serve(&mut agent, &read(&path), refuse);
    assert!(results[0].ends_with("1| outside\n"), "{results:?}");
    serve(&mut agent, &writes(&path, "new\n"), refuse);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
}

#[test]
fn no_large_or_special_file_is_requested_from_the_client() {
    let mut agent = client(true, true).file("folder/x", "").start();
    #[cfg(unix)]
    crate::agent::make_fifo(&agent.path("fifo"));
    std::fs::write(agent.path("big"), "x\n".repeat(2 << 20)).unwrap();
    let refuse = |method: &str, name: &str| panic!("{method} was called for {name}");
    for (path, expected) in [
        ("big", "Lines: 2097152"),
        ("folder", "[Folder: folder]"),
        #[cfg(unix)]
        ("fifo", "is a FIFO"),
    ] {
        let results = serve(&mut agent, &read(path), refuse);
        assert!(results[0].contains(expected), "{path}: {results:?}");
    }
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_path_in_a_linked_project_has_the_name_that_the_client_knows() {
    let mut agent = client(true, false).file("real/a.txt", "disk\n").start();
    std::os::unix::fs::symlink(agent.path("real"), agent.path("named")).unwrap();
    let named = agent.path("named");
    let answer = agent.call("session/new", &json!({ "cwd": named, "mcpServers": [] }));
    answer["result"]["sessionId"].as_str().unwrap().clone_into(&mut agent.session);
    serve(&mut agent, &read("a.txt"), |_, _| Ok(json!({ "content": "unsaved\n" })));
    let sent = agent.log.iter().find(|it| it["method"] == "fs/read_text_file").unwrap();
    assert_eq!(sent["params"]["path"], json!(named.join("a.txt")));
    assert_eq!(last_card(&agent)["locations"][0]["path"], json!(named.join("a.txt")));
}
