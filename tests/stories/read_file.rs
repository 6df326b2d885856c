//! `read_file` and `list_dir` (S4-3, S4-4): the results that the model receives. No file makes a
//! call hang.

use std::fs;

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

fn three_lines() -> crate::agent::TestAgentBuilder {
    TestAgent::builder().file("a.txt", "one\ntwo\nthree\n")
}

#[test]
fn the_stored_login_is_outside_the_project() {
    let roots = |home: &std::path::Path| turnwright_workspace::files::Roots::new(home).unwrap();
    let home = turnwright_testing::temporary_folder();
    let config = home.path().join(".config/turnwright");
    let roots = roots(home.path()).with_private_folder(&config);
    let place = |it: &str| roots.resolve(it).scope;
    assert_eq!(
        place(".config/turnwright/login.json"),
        turnwright_types::effect::PathScope::Outside
    );
    assert_eq!(place(".config/other.json"), turnwright_types::effect::PathScope::Workspace);
}

#[test]
fn s4_4_a_header_with_name_and_line_count_precedes_numbered_lines() {
    let (agent, result) = cards::run(three_lines(), "read_file", &json!({ "path": "a.txt" }));
    assert_eq!(result, "[File: a.txt | Lines: 3]\n    1| one\n    2| two\n    3| three\n");
    assert_eq!(cards::questions(&agent), 0);
    assert_eq!(cards::card(&agent, 0)["title"], "Read a.txt");
}

#[test]
fn s4_3_a_range_counts_from_1_and_a_negative_start_counts_from_the_end() {
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
        let result = cards::run_each(&mut agent, "read_file", &[arguments.clone()]).remove(0);
        assert_eq!(result, format!("[File: a.txt | Lines: 3]\n{expected}"), "{arguments}");
    }
}

#[test]
fn lines_may_be_named_as_other_agents_do_and_their_numbers_be_texts() {
    let mut agent = three_lines().start();
    for arguments in [
        json!({ "path": "a.txt", "offset": "2", "limit": "1" }),
        json!({ "file_path": "a.txt", "offset": 2, "limit": 1.0 }),
    ] {
        let result =
            cards::run_each(&mut agent, "read_file", std::slice::from_ref(&arguments)).remove(0);
        assert_eq!(result, "[File: a.txt | Lines: 3]\n    2| two\n", "{arguments}");
    }
}

#[test]
fn s4_3_a_batch_has_a_header_for_each_file_and_continues_after_a_missing_file() {
    let arguments = json!({ "paths": ["a.txt", "missing", "b.txt"], "start_line": 2 });
    let builder = three_lines().file("b.txt", "b\n");
    let (agent, result) = cards::run(builder, "read_file", &arguments);
    assert_eq!(
        result,
        "[File: a.txt | Lines: 3]\n    1| one\n    2| two\n    3| three\n\n\
         [File: missing | Error: does not exist]\nHere are: a.txt, b.txt.\n\n\
         [File: b.txt | Lines: 1]\n    1| b\n"
    );
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["status"]), (&json!("Read 3 files"), &json!("completed")));
    assert_eq!(card["locations"].as_array().unwrap().len(), 3);
}

#[test]
fn a_batch_in_which_every_file_fails_is_a_failed_call() {
    let arguments = json!({ "paths": ["x.txt", "y.txt"] });
    let (agent, result) = cards::run(three_lines(), "read_file", &arguments);
    assert!(result.contains("x.txt | Error") && result.contains("y.txt | Error"), "{result}");
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
}

#[test]
fn a_batch_that_is_too_large_names_the_files_left_out() {
    let names: Vec<_> = (0..25).map(|number| format!("f{number}")).collect();
    let builder = names.iter().fold(TestAgent::builder(), |it, name| it.file(name, "x\n"));
    let (_, result) = cards::run(builder, "read_file", &json!({ "paths": names }));
    assert!(result.contains("[File: f19 |"), "{result}");
    assert!(
        result.contains("f24") || result.contains("20"),
        "the model is not told that five files are missing: {result}"
    );
}

#[test]
fn a_missing_file_is_reported_with_similar_names() {
    let builder = three_lines().file("src/main.rs", "").file("src/mail.rs", "").file("src/x", "");
    let (agent, result) = cards::run(builder, "read_file", &json!({ "path": "src/mian.rs" }));
    assert!(result.contains("[File: src/mian.rs | Error: does not exist]"), "{result}");
    assert!(result.contains("Similar names:") && result.contains("src/main.rs"), "{result}");
    assert!(!result.contains("src/x"), "{result}");
    assert_eq!(cards::card(&agent, 0)["status"], "failed");
}

#[test]
fn a_file_that_is_not_text_is_reported_with_a_reason_and_nothing_hangs() {
    let mut agent = three_lines().start();
    fs::write(agent.path("zero"), b"ab\0cd").unwrap();
    #[cfg(unix)]
    let _socket = {
        crate::agent::make_fifo(&agent.path("fifo"));
        std::os::unix::fs::symlink("loop", agent.path("loop")).unwrap();
        std::os::unix::net::UnixListener::bind(agent.path("socket")).unwrap()
    };
    let table = [
        ("zero", "[File: zero | binary, 5 bytes]\nFirst bytes: 61 62 00 63 64\n"),
        #[cfg(unix)]
        ("fifo", "is a FIFO"),
        #[cfg(unix)]
        ("socket", "is a socket"),
        #[cfg(unix)]
        ("loop", "Error: "),
        #[cfg(unix)]
        ("a.txt/b", "Error: is not a folder"),
        #[cfg(windows)]
        ("a.txt/b", "Error: does not exist"),
    ];
    for (path, reason) in table {
        let result = cards::run_each(&mut agent, "read_file", &[json!({ "path": path })]).remove(0);
        assert!(result.contains(reason), "{path}: {result}");
    }
}

#[test]
fn a_file_without_lines_is_not_an_error() {
    let builder = TestAgent::builder().file("empty", "").file("bare", "x").file("crlf", "a\r\nb");
    let mut agent = builder.start();
    let all = [json!({ "path": "empty" }), json!({ "path": "bare" }), json!({ "path": "crlf" })];
    assert_eq!(
        cards::run_each(&mut agent, "read_file", &all),
        [
            "[File: empty | Lines: 0]\n",
            "[File: bare | Lines: 1]\n    1| x\n",
            "[File: crlf | Lines: 2]\n    1| a\n    2| b\n"
        ]
    );
}

#[test]
fn a_long_file_is_cut_and_the_result_says_how_to_continue() {
    let lines: Vec<_> = (1..=5000).map(|number| format!("line {number}\n")).collect();
    let text = lines.concat();
    let mut agent = TestAgent::builder().file("long", &text).start();
    let mut start = 1;
    let mut seen = Vec::new();
    while start <= 5000 {
        let arguments = json!({ "path": "long", "start_line": start });
        let result = cards::run_each(&mut agent, "read_file", &[arguments]).remove(0);
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
fn a_long_line_is_cut_and_the_result_says_by_how_much() {
    let line = "ä".repeat(5000);
    let builder = TestAgent::builder().file("wide", &format!("{line}\nshort\n"));
    let (_, result) = cards::run(builder, "read_file", &json!({ "path": "wide" }));
    assert!(result.contains("ä…[+3000 characters]\n    2| short\n"), "{}", result.len());
}

#[test]
fn other_encodings_and_byte_order_marks_are_decoded() {
    let mut agent = TestAgent::builder().start();
    let wide: Vec<u8> = "\u{feff}größer\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut damaged = "müde Bären über grünen Hügeln schön früh\n".repeat(3).into_bytes();
    damaged.extend_from_slice(b"\xff end\n");
    let files: [(&str, &[u8], &str); 5] = [
        ("latin", b"caf\xe9\n", "1| café\n"),
        ("mark", b"\xef\xbb\xbfmark\n", "    1| mark\n"),
        ("wide", &wide, "    1| größer\n"),
        ("cut", b"\xff\xfe\xf6\0\n\0\x3d\xd8!\0?", "    1| ö\n    2| \u{fffd}!\u{fffd}\n"),
        (
            "damaged",
            &damaged,
            "    3| müde Bären über grünen Hügeln schön früh\n    4| \u{fffd} end\n",
        ),
    ];
    for (name, bytes, expected) in files {
        fs::write(agent.path(name), bytes).unwrap();
        let result = cards::run_each(&mut agent, "read_file", &[json!({ "path": name })]).remove(0);
        assert!(result.ends_with(expected), "{name}: {result}");
    }
}

#[test]
fn a_batch_lists_folders_and_continues_after_files_that_cannot_be_read() {
    let mut agent = three_lines().file("folder/x", "12").file("folder/sub/y", "").start();
    #[cfg(unix)]
    crate::agent::make_fifo(&agent.path("fifo"));
    // Windows has no FIFOs.
    let (bad, why) = if cfg!(unix) {
        ("fifo", "is a FIFO, not a regular file")
    } else {
        ("a.txt/b", "does not exist")
    };
    fs::write(agent.path("zero"), b"\0").unwrap();
    let paths = json!({ "paths": [bad, "zero", "folder", "none", "a.txt"] });
    let result = cards::run_each(&mut agent, "read_file", &[paths]).remove(0);
    let parts: Vec<_> = result.split("\n\n").collect();
    assert_eq!(parts.len(), 5, "{result}");
    assert_eq!(parts[0], format!("[File: {bad} | Error: {why}]"));
    assert_eq!(parts[1], "[File: zero | binary, 1 bytes]\nFirst bytes: 00");
    assert_eq!(parts[2], "[Folder: folder]\nsub/\nx (2 B)");
    let missing = "[File: none | Error: does not exist]\nHere are: ";
    assert!(parts[3].starts_with(missing) && parts[3].contains("folder/"), "{result}");
    assert!(parts[4].ends_with("    3| three\n"), "{result}");
    let card = cards::card_text(&cards::card(&agent, 0));
    assert!(card.contains(why) && card.contains("three"), "{card}");
}

#[test]
fn a_call_shows_four_images_and_names_the_fifth() {
    let mut agent = TestAgent::builder().start();
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";
    let names: Vec<_> = (1..=5).map(|it| format!("{it}.png")).collect();
    for name in &names {
        fs::write(agent.path(name), png).unwrap();
    }
    let result = cards::run_each(&mut agent, "read_file", &[json!({ "paths": names })]).remove(0);
    assert!(result.contains("[File: 4.png | image/png, 24 bytes]"), "{result}");
    let fifth = "[File: 5.png | binary, 24 bytes, PNG 640×480; not shown: a call shows 4 pictures";
    assert!(result.contains(fifth), "{result}");
    assert_eq!(cards::card(&agent, 0)["content"].as_array().unwrap().len(), 5);
}

#[test]
fn a_large_source_file_is_shown_as_an_outline_unless_lines_are_requested() {
    let body = "    let x = 1;\n".repeat(100);
    let functions = (0..100).map(|it| format!("pub fn number_{it}() {{\n{body}}}\n"));
    let text = functions.collect::<Vec<_>>().concat();
    let log = "nothing is defined here\n".repeat(6_000);
    let mut agent = TestAgent::builder().file("a.rs", &text).file("a.log", &log).start();
    let all = [
        json!({ "path": "a.rs" }),
        json!({ "path": "a.rs", "start_line": 103, "end_line": 103 }),
        json!({ "path": "a.log" }),
    ];
    let results = cards::run_each(&mut agent, "read_file", &all);
    assert!(results[0].starts_with("[File: a.rs | Lines: 10200]\n"), "{}", results[0]);
    assert!(results[0].contains("is a successful response"), "{}", results[0]);
    assert!(results[0].contains("\n  103| pub fn number_1() {\n"), "{}", results[0]);
    assert_eq!(results[1], "[File: a.rs | Lines: 10200]\n  103| pub fn number_1() {\n");
    assert!(results[2].contains("    1| nothing is defined here\n"), "{}", results[2]);
}

#[test]
fn a_file_with_one_very_long_line_is_returned_with_a_hint() {
    let builder = TestAgent::builder().file("min.js", &"x".repeat(300_000));
    let (_, result) = cards::run(builder, "read_file", &json!({ "path": "min.js" }));
    assert!(result.contains("…[+298000 characters]\n[A line is very long"), "{}", result.len());
}

#[test]
fn a_sparse_file_of_gigabytes_is_reported_as_binary() {
    let mut agent = TestAgent::builder().start();
    fs::File::create(agent.path("huge")).unwrap().set_len(8 << 30).unwrap();
    let result = cards::run_each(&mut agent, "read_file", &[json!({ "path": "huge" })]).remove(0);
    assert!(result.starts_with("[File: huge | binary, 8 GiB]\n"), "{result}");
}

#[test]
fn a_file_that_may_hold_secrets_requires_permission_and_its_example_does_not() {
    let mut agent = TestAgent::builder()
        .file(".env", "KEY=1\n")
        .file(".env.example", "KEY=\n")
        .permission("reject_once")
        .start();
    let example =
        cards::run_each(&mut agent, "read_file", &[json!({ "path": ".env.example" })]).remove(0);
    assert!(example.ends_with("1| KEY=\n"), "{example}");
    assert_eq!(cards::questions(&agent), 0);
    let secrets =
        [".env", "service-account.json", "terraform.tfstate.backup", "kubeconfig", "AuthKey_1.p8"];
    for (asked, path) in secrets.into_iter().enumerate() {
        fs::write(agent.path(path), "KEY=1\n").unwrap();
        agent.model().push(calls("read_file", &json!({ "path": path }))).unwrap();
        agent.model().push(says("Then not.")).unwrap();
        let id = agent.prompt("go");
        agent.stop_reason(&id);
        assert_eq!(cards::questions(&agent), asked + 1, "{path}");
    }
    assert!(agent.log.iter().all(|it| !it.to_string().contains("KEY=1")));
}

#[test]
fn paths_may_be_relative_absolute_or_with_dots_and_through_links_inside() {
    let mut agent = three_lines().file("sub/b.txt", "b\n").start();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("a.txt", agent.path("sub/link")).unwrap();
        std::os::unix::fs::symlink("../a.txt", agent.path("sub/good")).unwrap();
    }
    let absolute = agent.path("a.txt").display().to_string();
    let good = if cfg!(unix) { "sub/good" } else { r"sub\..\a.txt" };
    for path in ["a.txt", "./a.txt", "sub/../a.txt", good, &absolute] {
        let result = cards::run_each(&mut agent, "read_file", &[json!({ "path": path })]).remove(0);
        // The model reads the names of the project's files as relative ones.
        let name = if path == absolute { "a.txt" } else { path };
        assert!(result.starts_with(&format!("[File: {name} | Lines: 3]\n")), "{path}: {result}");
    }
    assert_eq!(cards::questions(&agent), 0);
    let result =
        cards::run_each(&mut agent, "read_file", &[json!({ "path": "sub/link" })]).remove(0);
    assert!(result.contains("does not exist"), "{result}");
}

#[test]
fn list_dir_shows_folders_sizes_and_links_in_order() {
    let files = three_lines().file("sub/deep/er/x", "").file(".hidden", "");
    let mut agent = files.file("dots/.x", "").start();
    fs::create_dir(agent.path("empty")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("/etc", agent.path("link")).unwrap();
    let link = if cfg!(unix) { "link (link)\n" } else { "" };
    let one = "[1 hidden or ignored entry not shown]\n";
    let two = "[2 hidden or ignored entries not shown]\n";
    let all = [
        json!({}),
        json!({ "depth": 1 }),
        json!({ "depth": 4, "path": "sub" }),
        json!({ "depth": 1, "hidden": true }),
        json!({ "path": "empty" }),
        json!({ "path": "dots" }),
    ];
    assert_eq!(
        cards::run_each(&mut agent, "list_dir", &all),
        [
            &format!("a.txt (14 B)\ndots/\nempty/\n{link}sub/\nsub/deep/\n{two}"),
            &format!("a.txt (14 B)\ndots/\nempty/\n{link}sub/\n{one}"),
            "deep/\ndeep/er/\ndeep/er/x (0 B)\n",
            &format!(".hidden (0 B)\na.txt (14 B)\ndots/\nempty/\n{link}sub/\n"),
            "[empty]\n",
            one
        ]
    );
    assert_eq!(cards::questions(&agent), 0);
    for path in ["a.txt", "none"] {
        let result = cards::run_each(&mut agent, "list_dir", &[json!({ "path": path })]).remove(0);
        assert!(result.starts_with(path) && result.contains(" not "), "{result}");
    }
}

#[test]
fn list_dir_of_a_crowded_folder_is_cut_and_marked_as_cut() {
    let agent = TestAgent::builder().start();
    for number in 0..600 {
        fs::write(agent.path(&format!("f{number:03}")), "").unwrap();
    }
    let mut agent = agent;
    let result = cards::run_each(&mut agent, "list_dir", &[json!({})]).remove(0);
    assert_eq!(result.lines().count(), 201);
    assert!(result.ends_with("[400 more entries: use find_files with a glob]\n"), "{result}");
}
