//! `read_file` and `list_dir` (S4-3, S4-4): what the model gets to read, and what never hangs.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{TestAgent, calls, says};
use crate::cards;

fn three_lines() -> crate::agent::Builder {
    TestAgent::builder().file("a.txt", "one\ntwo\nthree\n")
}

/// What each of these arguments reads, in one agent.
fn read_all(agent: &mut TestAgent, tool: &str, all: &[Value]) -> Vec<String> {
    let read = |arguments: &Value| {
        agent.model().push(calls(tool, arguments)).unwrap();
        agent.model().push(says("Read.")).unwrap();
        cards::turn(agent)
    };
    all.iter().map(read).collect()
}

#[test]
fn the_stored_login_is_no_part_of_the_project() {
    let roots = |home: &std::path::Path| turnwright::files::Roots::new(home).unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join(".config/turnwright");
    let roots = roots(home.path()).without(&config);
    let place = |it: &str| roots.resolve(it).place;
    assert_eq!(place(".config/turnwright/login.json"), turnwright::effect::Place::Outside);
    assert_eq!(place(".config/other.json"), turnwright::effect::Place::Inside);
}

#[test]
fn s4_4_a_header_with_name_and_count_stands_above_numbered_lines() {
    let (agent, result) = cards::run(three_lines(), "read_file", &json!({ "path": "a.txt" }));
    assert_eq!(result, "[File: a.txt | Lines: 3]\n    1| one\n    2| two\n    3| three\n");
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!(cards::card(&agent, 0)["title"], "Read a.txt");
}

#[test]
fn s4_3_a_range_is_counted_from_1_and_inclusive_and_a_negative_start_from_the_end() {
    let table = [
        (json!({ "start_line": 2 }), "    2| two\n    3| three\n"),
        (json!({ "start_line": 2, "end_line": 2 }), "    2| two\n"),
        (json!({ "end_line": 2 }), "    1| one\n    2| two\n"),
        (json!({ "start_line": 1, "end_line": 99 }), "    1| one\n    2| two\n    3| three\n"),
        (json!({ "start_line": -1 }), "    3| three\n"),
        (json!({ "start_line": -2, "end_line": -2 }), "    2| two\n"),
        (json!({ "start_line": -99 }), "    1| one\n    2| two\n    3| three\n"),
        (json!({ "start_line": 0 }), "    1| one\n    2| two\n    3| three\n"),
        (json!({ "start_line": 4 }), "[line 4 is after the end: there are 3 lines]\n"),
        (json!({ "start_line": 2, "show_line_numbers": false }), "two\nthree\n"),
    ];
    let mut agent = three_lines().start();
    for (mut arguments, expected) in table {
        arguments["path"] = json!("a.txt");
        let result = read_all(&mut agent, "read_file", &[arguments.clone()]).remove(0);
        // A start of 0 has a test of its own.
        assert_eq!(result, format!("[File: a.txt | Lines: 3]\n{expected}"), "{arguments}");
    }
}

#[test]
fn s4_3_a_batch_has_a_header_each_ignores_ranges_and_survives_a_missing_file() {
    let arguments = json!({ "paths": ["a.txt", "missing", "b.txt"], "start_line": 2 });
    let builder = three_lines().file("b.txt", "b\n");
    let (agent, result) = cards::run(builder, "read_file", &arguments);
    assert_eq!(
        result,
        "[File: a.txt | Lines: 3]\n    1| one\n    2| two\n    3| three\n\n\
         [File: missing | Error: does not exist]\n\n\
         [File: b.txt | Lines: 1]\n    1| b\n"
    );
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["status"]), (&json!("Read 3 files"), &json!("completed")));
    assert_eq!(card["locations"].as_array().unwrap().len(), 3);
}

#[test]
fn a_batch_of_nothing_but_failures_fails() {
    let arguments = json!({ "paths": ["x.txt", "y.txt"] });
    let (agent, result) = cards::run(three_lines(), "read_file", &arguments);
    assert!(result.contains("x.txt | Error") && result.contains("y.txt | Error"), "{result}");
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
}

#[test]
fn a_batch_that_is_too_large_says_what_was_left_out() {
    let names: Vec<_> = (0..25).map(|number| format!("f{number}")).collect();
    let builder = names.iter().fold(TestAgent::builder(), |it, name| it.file(name, "x\n"));
    let (_, result) = cards::run(builder, "read_file", &json!({ "paths": names }));
    assert!(result.contains("[File: f19 |"), "{result}");
    assert!(
        result.contains("f24") || result.contains("20"),
        "five files are missing and the model does not know: {result}"
    );
}

#[test]
fn a_missing_file_names_those_that_resemble_it() {
    let builder = three_lines().file("src/main.rs", "").file("src/mail.rs", "").file("src/x", "");
    let (agent, result) = cards::run(builder, "read_file", &json!({ "path": "src/mian.rs" }));
    assert!(result.contains("[File: src/mian.rs | Error: does not exist]"), "{result}");
    assert!(result.contains("Similar names:") && result.contains("src/main.rs"), "{result}");
    assert!(!result.contains("src/x"), "{result}");
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
}

#[test]
fn what_is_no_text_file_is_refused_with_a_reason_and_nothing_hangs() {
    let mut agent = three_lines().start();
    fs::write(agent.path("nul"), b"ab\0cd").unwrap();
    fs::write(agent.path("latin"), b"caf\xe9\n").unwrap();
    fs::create_dir(agent.path("folder")).unwrap();
    let fifo = agent.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(agent.path("socket")).unwrap();
    std::os::unix::fs::symlink("loop", agent.path("loop")).unwrap();
    let table = [
        ("nul", "is binary (5 bytes)"),
        ("latin", "is binary"),
        ("folder", "is a folder"),
        ("fifo", "is a FIFO"),
        ("socket", "is a socket"),
        ("loop", "Error: "),
        ("a.txt/b", "Error: is not a folder"),
    ];
    for (path, reason) in table {
        let result = read_all(&mut agent, "read_file", &[json!({ "path": path })]).remove(0);
        assert!(result.contains(reason), "{path}: {result}");
    }
}

#[test]
fn a_file_without_lines_is_not_an_error() {
    let builder = TestAgent::builder().file("empty", "").file("bare", "x").file("crlf", "a\r\nb");
    let mut agent = builder.start();
    let all = [json!({ "path": "empty" }), json!({ "path": "bare" }), json!({ "path": "crlf" })];
    assert_eq!(
        read_all(&mut agent, "read_file", &all),
        [
            "[File: empty | Lines: 0]\n",
            "[File: bare | Lines: 1]\n    1| x\n",
            "[File: crlf | Lines: 2]\n    1| a\n    2| b\n"
        ]
    );
}

#[test]
fn a_long_file_is_cut_and_says_how_to_go_on() {
    let lines: Vec<_> = (1..=5000).map(|number| format!("line {number}\n")).collect();
    let text = lines.concat();
    let mut agent = TestAgent::builder().file("long", &text).start();
    let mut start = 1;
    let mut seen = Vec::new();
    while start <= 5000 {
        let arguments = json!({ "path": "long", "start_line": start });
        let result = read_all(&mut agent, "read_file", &[arguments]).remove(0);
        assert!(result.len() < 60 * 1024, "{} bytes", result.len());
        let lines = result.lines().filter_map(|it| it.split_once("| line "));
        seen.extend(lines.map(|it| it.1.to_owned()));
        let next = result.split("continue with start_line=").nth(1);
        let Some(next) = next else { break };
        start = next.trim_end().trim_end_matches(']').parse().unwrap();
    }
    let all: Vec<_> = (1..=5000).map(|it| it.to_string()).collect();
    assert_eq!(seen, all, "a line is missing or comes twice");
}

#[test]
fn a_long_line_is_cut_and_says_by_how_much() {
    let line = "ä".repeat(5000);
    let builder = TestAgent::builder().file("wide", &format!("{line}\nshort\n"));
    let (_, result) = cards::run(builder, "read_file", &json!({ "path": "wide" }));
    assert!(result.contains("ä…[+3000 characters]\n    2| short\n"), "{}", result.len());
}

#[test]
fn a_huge_file_is_refused_without_being_read() {
    let mut agent = TestAgent::builder().start();
    // A hole: it costs no disk.
    fs::File::create(agent.path("huge")).unwrap().set_len(8 << 30).unwrap();
    let result = read_all(&mut agent, "read_file", &[json!({ "path": "huge" })]).remove(0);
    assert!(result.contains("8589934592 bytes, more than the 32 MiB"), "{result}");
}

#[test]
fn paths_may_be_relative_absolute_or_with_dots_and_through_links_inside() {
    let mut agent = three_lines().file("sub/b.txt", "b\n").start();
    std::os::unix::fs::symlink("a.txt", agent.path("sub/link")).unwrap();
    std::os::unix::fs::symlink("../a.txt", agent.path("sub/good")).unwrap();
    let absolute = agent.path("a.txt").display().to_string();
    for path in ["a.txt", "./a.txt", "sub/../a.txt", "sub/good", &absolute] {
        let result = read_all(&mut agent, "read_file", &[json!({ "path": path })]).remove(0);
        assert!(result.starts_with(&format!("[File: {path} | Lines: 3]\n")), "{path}: {result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    let result = read_all(&mut agent, "read_file", &[json!({ "path": "sub/link" })]).remove(0);
    assert!(result.contains("does not exist"), "{result}");
}

#[test]
fn list_dir_shows_folders_sizes_and_links_in_order() {
    let mut agent = three_lines().file("sub/deep/er/x", "").file(".hidden", "").start();
    fs::create_dir(agent.path("empty")).unwrap();
    std::os::unix::fs::symlink("/etc", agent.path("link")).unwrap();
    let all = [
        json!({}),
        json!({ "depth": 1 }),
        json!({ "depth": 4, "path": "sub" }),
        json!({ "depth": 1, "hidden": true }),
        json!({ "path": "empty" }),
    ];
    assert_eq!(
        read_all(&mut agent, "list_dir", &all),
        [
            "a.txt (14 B)\nempty/\nlink (link)\nsub/\nsub/deep/\n",
            "a.txt (14 B)\nempty/\nlink (link)\nsub/\n",
            "deep/\ndeep/er/\ndeep/er/x (0 B)\n",
            ".hidden (0 B)\na.txt (14 B)\nempty/\nlink (link)\nsub/\n",
            "[empty]\n"
        ]
    );
    assert_eq!(cards::questions(&agent), 0);
    for path in ["a.txt", "none"] {
        let result = read_all(&mut agent, "list_dir", &[json!({ "path": path })]).remove(0);
        assert!(result.starts_with(path) && result.contains(" not "), "{result}");
    }
}

#[test]
fn list_dir_of_a_crowded_folder_is_cut_and_says_so() {
    let agent = TestAgent::builder().start();
    for number in 0..600 {
        fs::write(agent.path(&format!("f{number:03}")), "").unwrap();
    }
    let mut agent = agent;
    let result = read_all(&mut agent, "list_dir", &[json!({})]).remove(0);
    assert_eq!(result.lines().count(), 501);
    assert!(result.ends_with("[more than 500 entries: list a subfolder]\n"), "{result}");
}
