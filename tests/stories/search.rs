//! `grep`, `find_files` and `list_dir` as the client and the model see them.

use std::fs;

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, TestAgentBuilder, calls, says};

/// The files of the project, as the model is told of them.
const WHAT_IS_THERE: &str = "Files here: 3 (2 rs, 1 md).\nREADME.md\nsrc/main.rs\nsrc/run.rs\n";

fn project() -> TestAgentBuilder {
    TestAgent::builder()
        .file(".gitignore", "*.log\n/build\n")
        .file("src/main.rs", "fn main() {\n    run();\n}\n")
        .file("src/run.rs", "pub fn run() {\n    todo()\n}\n// run again\n")
        .file("build/out.rs", "fn built() {}\n")
        .file("app.log", "run\n")
        .file("README.md", "Run it.\n")
}

#[test]
fn grep_shows_path_line_and_text_without_permission() {
    let (agent, result) = cards::run(project(), "grep", &json!({ "pattern": "run\\(" }));
    assert_eq!(
        result,
        "src/main.rs:2:     run();\nsrc/run.rs:1: pub fn run() {\n[2 matches in 2 files]\n"
    );
    assert_eq!(cards::questions(&agent), 0);
    let card = cards::card(&agent, 0);
    assert_eq!(card["title"], "Search \"run\\(\" (2 in 2 files)");
    assert_eq!((&card["kind"], &card["status"]), (&json!("search"), &json!("completed")));
    assert_eq!(
        card["locations"],
        json!([
            { "path": agent.path("src/main.rs"), "line": 2 },
            { "path": agent.path("src/run.rs"), "line": 1 }
        ])
    );
    let raw = &card["rawOutput"];
    assert_eq!((&raw["matches"], &raw["searched"]), (&json!(2), &json!(3)));
    assert_eq!(raw["truncated"], false);
    assert!(cards::card_text(&card).contains("src/run.rs:1: pub fn run() {"), "{card}");
}

// Windows lets only administrators make symbolic links, and Wine nobody.
#[cfg(unix)]
#[test]
fn a_search_without_a_match_names_the_links_that_it_has_not_followed() {
    let elsewhere = turnwright_testing::temporary_folder();
    fs::write(elsewhere.path().join("far.txt"), "needle\n").unwrap();
    let mut agent = project().start();
    std::os::unix::fs::symlink(elsewhere.path(), agent.path("out")).unwrap();
    std::os::unix::fs::symlink("main.rs", agent.path("src/same")).unwrap();
    let all = [json!({ "pattern": "needle" }), json!({ "pattern": "todo" })];
    let results = cards::run_each(&mut agent, "grep", &all);
    let note =
        "[links are not followed; to search where one leads, name it in `path`: out, src/same]";
    assert_eq!(results[0], format!("No match in 3 files searched.\n{note}\n"));
    assert!(!results[1].contains("links"), "{}", results[1]);
    let all = [json!({ "glob": "out/*.txt" })];
    let found = cards::run_each(&mut agent, "find_files", &all).remove(0);
    assert!(found.contains("\nout (link, not followed)\n"), "{found}");
}

#[test]
fn grep_accepts_a_path_a_glob_and_match_options() {
    let mut agent = project().start();
    let all = [
        json!({ "pattern": "run", "path": "src/run.rs" }),
        json!({ "pattern": "RUN", "ignore_case": true, "glob": "*.md" }),
        json!({ "query": "run", "include": "src/**/r*.rs", "files_only": true }),
        json!({ "pattern": "run()", "literal": true, "context": 1, "path": "src/main.rs" }),
        json!({ "pattern": "main.*run", "multiline": true }),
        json!({ "pattern": "built", "path": "build" }),
        json!({ "pattern": "^run", "hidden": true }),
        json!({ "pattern": "TODO", "-i": true, "-C": 1 }),
    ];
    assert_eq!(
        cards::run_each(&mut agent, "grep", &all),
        [
            "src/run.rs:1: pub fn run() {\nsrc/run.rs:4: // run again\n[2 matches in 1 file]\n",
            "README.md:1: Run it.\n[1 match in 1 file]\n",
            "src/run.rs\n[1 file with matches]\n",
            "src/main.rs-1- fn main() {\nsrc/main.rs:2:     run();\nsrc/main.rs-3- }\n\
             [1 match in 1 file]\n",
            "src/main.rs:1: fn main() {\nsrc/main.rs:2:     run();\n[1 match in 1 file]\n",
            "build/out.rs:1: fn built() {}\n[1 match in 1 file]\n",
            "app.log:1: run\n[1 match in 1 file]\n",
            "src/run.rs-1- pub fn run() {\nsrc/run.rs:2:     todo()\nsrc/run.rs-3- }\n\
             [1 match in 1 file]\n",
        ]
    );
    assert_eq!(cards::card(&agent, 5)["title"], "Search \"built\" in build (1 in 1 file)");
}

#[test]
fn grep_without_a_match_explains_possible_reasons() {
    let mut agent = project().start();
    let all = [
        json!({ "pattern": "nowhere" }),
        json!({ "pattern": "^run$|built" }),
        json!({ "pattern": "x", "glob": "*.py" }),
        json!({ "pattern": "main\\|built2" }),
        json!({ "pattern": "main(" }),
        json!({ "pattern": "main", "path": "src/mian.rs" }),
        json!({ "pattern": "(a{1000}){1000}" }),
        json!({ "pattern": "x", "glob": "[" }),
        json!({ "pattern": "" }),
    ];
    let results = cards::run_each(&mut agent, "grep", &all);
    assert_eq!(results[0], "No match in 3 files searched.\n");
    assert_eq!(
        results[1],
        "No match in 3 files searched.\n2 hidden or ignored files match: set hidden=true to \
         include them.\n"
    );
    assert_eq!(
        results[2],
        format!("No match: the glob `*.py` fits none of 3 files.\n{WHAT_IS_THERE}")
    );
    assert!(results[3].contains("`\\|` means the character itself"), "{}", results[3]);
    let literal = &results[4];
    assert!(literal.starts_with("[`main(` is no valid regular expression (unclosed"), "{literal}");
    assert!(literal.ends_with("src/main.rs:1: fn main() {\n[1 match in 1 file]\n"), "{literal}");
    let near = "src/mian.rs does not exist. Similar names: src/main.rs";
    assert!(results[5].starts_with(near), "{}", results[5]);
    assert!(results[6].contains("size limit"), "{}", results[6]);
    assert!(results[7].contains("`[` is not a valid glob"), "{}", results[7]);
    assert_eq!(results[8], "grep needs a `pattern`. Nothing was searched.");
    assert_eq!(cards::card(&agent, 8)["status"], "failed");
}

#[test]
fn grep_without_a_match_shows_where_the_pattern_stands_as_plain_text() {
    let mut agent =
        project().file("src/add.rs", "fn add(x: [u8; 2]) -> u8 { x[0] + x[1] }\n").start();
    let all = [
        json!({ "pattern": "add(x: [u8; 2])" }),
        json!({ "pattern": "x[0] + x[1]", "glob": "*.rs" }),
        json!({ "pattern": "gone(x)" }),
        json!({ "pattern": "main()", "glob": "*.md" }),
    ];
    let results = cards::run_each(&mut agent, "grep", &all);
    let shown = "As plain text:\nsrc/add.rs:1: fn add(x: [u8; 2]) -> u8 { x[0] + x[1] }\n\
                 [1 match in 1 file; set literal=true for all]\n";
    assert_eq!(results[0], format!("No match in 4 files searched.\n{shown}"));
    assert!(
        results[1].starts_with("No match in 3 files searched.\nFiles here: "),
        "{}",
        results[1]
    );
    assert!(results[1].ends_with(shown), "{}", results[1]);
    assert_eq!(results[2], "No match in 4 files searched.\n");
    assert!(
        results[3].contains("Without the glob:\nsrc/main.rs:1: fn main() {\n"),
        "{}",
        results[3]
    );
}

#[test]
fn grep_without_a_match_in_the_files_of_a_glob_shows_what_matches_elsewhere() {
    let mut agent = project().start();
    let all = [
        json!({ "pattern": "run", "glob": "src/**/*.ts" }),
        json!({ "pattern": "Run it", "glob": "*.rs" }),
    ];
    let results = cards::run_each(&mut agent, "grep", &all);
    let without = "Without the glob:\nsrc/main.rs:2:     run();\nsrc/run.rs:1: pub fn run() {\n\
                   src/run.rs:4: // run again\n[3 matches in 2 files; leave out the glob for \
                   all]\n";
    assert!(results[0].starts_with("No match: the glob `src/**/*.ts` fits none of 3 files.\n"));
    assert!(results[0].ends_with(without), "{}", results[0]);
    assert!(results[1].starts_with("No match in 2 files searched.\n"), "{}", results[1]);
    assert!(results[1].contains("Without the glob:\nREADME.md:1: Run it.\n"), "{}", results[1]);
}

#[test]
fn grep_with_many_matches_returns_consecutive_pages() {
    let lines: Vec<_> = (0..250).map(|it| format!("hit {it}\n")).collect();
    let text = lines.concat();
    let mut agent = TestAgent::builder().file("a", &text).file("b", "hit 250\n").start();
    let mut seen = Vec::new();
    let mut arguments = json!({ "pattern": "hit" });
    loop {
        let result = cards::run_each(&mut agent, "grep", &[arguments.clone()]).remove(0);
        assert!(result.contains("[251 matches in 2 files"), "{result}");
        seen.extend(result.lines().filter_map(|it| it.split(": hit ").nth(1)).map(str::to_owned));
        let Some((_, next)) = result.split_once("offset=") else { break };
        arguments["offset"] = json!(next.trim_end().trim_end_matches(']'));
    }
    let all: Vec<_> = (0..=250).map(|it| it.to_string()).collect();
    assert_eq!(seen, all);
    let late = json!({ "pattern": "hit", "offset": 999 });
    let result = cards::run_each(&mut agent, "grep", &[late]).remove(0);
    assert_eq!(result, "[offset=999 is after the end: 251 matches in 2 files]\n");
}

#[test]
fn grep_shows_decoded_lines_and_names_what_is_not_text() {
    // Two comments in Chinese, and a line of code between them.
    let gbk = b"# \xb6\xc1\xc8\xa1\xc5\xe4\xd6\xc3\xce\xc4\xbc\xfe\r\nload(config)\r\n# \xc8\xbb\xba\xf3\xb7\xb5\xbb\xd8\xbd\xe1\xb9\xfb\r\n";
    let broken = [b"config \xff\n".as_slice(), "grün über schön Öl ".repeat(3).as_bytes()].concat();
    let mut agent = TestAgent::builder().file("src/main.py", "").start();
    fs::write(agent.path("src/gbk.py"), gbk).unwrap();
    fs::write(agent.path("broken.log"), broken).unwrap();
    fs::write(agent.path("logo.png"), b"\x89PNG\r\n\x1a\n\0\0config").unwrap();
    let all = [
        json!({ "pattern": "配置文件|返回" }),
        json!({ "pattern": "文件\nload", "path": "src" }),
        json!({ "pattern": "config", "path": "logo.png" }),
    ];
    assert_eq!(
        cards::run_each(&mut agent, "grep", &all),
        [
            "src/gbk.py:1: # 读取配置文件\nsrc/gbk.py:3: # 然后返回结果\n[2 matches in 1 file]\n\
             [not all bytes could be decoded, matches may be missing: broken.log]\n",
            "src/gbk.py:1: # 读取配置文件\nsrc/gbk.py:2: load(config)\n[1 match in 1 file]\n",
            "No match: 1 file is binary and not searched.\n",
        ]
    );
}

#[test]
fn searching_does_not_reveal_the_content_of_files_with_secrets() {
    let builder = project().file("server.pem", "run hunter2\n").file(".env", "run hunter2\n");
    let mut agent = builder.start();
    let all = [json!({ "pattern": "run", "hidden": true }), json!({ "pattern": "hunter2" })];
    for result in cards::run_each(&mut agent, "grep", &all) {
        assert!(!result.contains("hunter2"), "{result}");
        assert!(result.contains("that may hold secrets"), "{result}");
    }
    // Searching such a file by its path requires permission.
    let arguments = json!({ "pattern": "run", "path": "server.pem" });
    agent.model().push(calls("grep", &arguments)).unwrap();
    agent.model().push(says("Fine.")).unwrap();
    let id = agent.prompt("go");
    let question = agent.wait_for_request("session/request_permission");
    agent.choose(&question, "reject_once");
    assert_eq!(agent.stop_reason(&id), "end_turn");
    cards::check(&agent);
}

#[test]
fn searching_the_whole_disk_is_refused() {
    let mut agent = project().start();
    // The folder above a project in `/tmp` is the session's own, so this goes up to the root.
    for path in ["/", &"../".repeat(20)] {
        for (tool, name) in [("grep", "pattern"), ("find_files", "glob")] {
            let arguments = json!({ name: "x", "path": path });
            let result = cards::run_each(&mut agent, tool, &[arguments]).remove(0);
            assert!(result.contains("is too much to look through"), "{tool} {path}: {result}");
        }
    }
    assert_eq!(cards::questions(&agent), 0);
}

#[test]
fn find_files_shows_sorted_paths_and_their_number() {
    let mut agent = project().file("src/deep/mod.rs", "").start();
    let all = [
        json!({ "glob": "*.rs" }),
        json!({ "glob": "src/*.rs" }),
        json!({ "pattern": "*.{md,log}", "hidden": true }),
        json!({ "glob": "mod.rs", "path": "src" }),
    ];
    assert_eq!(
        cards::run_each(&mut agent, "find_files", &all),
        [
            "src/deep/mod.rs\nsrc/main.rs\nsrc/run.rs\n[3 files]\n",
            "src/main.rs\nsrc/run.rs\n[2 files]\n",
            "README.md\napp.log\n[2 files]\n",
            "src/deep/mod.rs\n[1 file]\n",
        ]
    );
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("Find *.rs (3)"), &json!("search")));
    assert_eq!(card["locations"][0], json!({ "path": agent.path("src/deep/mod.rs") }));
    let raw = &card["rawOutput"];
    assert_eq!((&raw["files"], &raw["searched"]), (&json!(3), &json!(4)));
    assert_eq!(cards::card(&agent, 3)["title"], "Find mod.rs in src (1)");
}

#[test]
fn find_files_without_a_match_explains_possible_reasons() {
    let mut agent = project().start();
    let all = [
        json!({ "glob": "*.py" }),
        json!({ "glob": "*.log" }),
        json!({ "glob": "mian.rs" }),
        json!({ "glob": "x", "path": "none" }),
        json!({ "glob": "x", "path": "README.md" }),
        json!({ "glob": " " }),
    ];
    assert_eq!(
        cards::run_each(&mut agent, "find_files", &all),
        [
            format!("No match among 3 files.\n{WHAT_IS_THERE}").as_str(),
            "No match among 3 files.\n1 hidden or ignored file matches: set hidden=true to \
             include them.\n",
            "No match among 3 files.\nSimilar names: src/main.rs\n",
            "none does not exist. Here are: README.md, app.log, build/, src/.",
            "README.md is not a folder.",
            "find_files needs a `glob`. Nothing was searched.",
        ]
    );
}

#[test]
fn find_files_with_many_results_returns_consecutive_pages() {
    let agent = TestAgent::builder().start();
    for number in 0..450 {
        fs::write(agent.path(&format!("f{number:03}")), "").unwrap();
    }
    let mut agent = agent;
    let mut seen = 0;
    for (offset, lines) in [(0, 200), (200, 200), (400, 50)] {
        let arguments = json!({ "glob": "f*", "offset": offset });
        let result = cards::run_each(&mut agent, "find_files", &[arguments]).remove(0);
        let names: Vec<_> = result.lines().filter(|it| it.starts_with('f')).collect();
        assert_eq!((names.len(), names[0]), (lines, format!("f{seen:03}").as_str()));
        assert!(result.contains("[450 files"), "{result}");
        seen += lines;
    }
}

#[test]
fn list_dir_leaves_out_ignored_entries_and_counts_them() {
    let mut agent = project().file("node_modules/a/x.js", "").start();
    let all = [json!({}), json!({ "path": "build" }), json!({ "depth": 1, "hidden": true })];
    assert_eq!(
        cards::run_each(&mut agent, "list_dir", &all),
        [
            "README.md (8 B)\nnode_modules/ (1 entry)\nsrc/\nsrc/main.rs (25 B)\n\
             src/run.rs (41 B)\n[3 hidden or ignored entries not shown]\n",
            "out.rs (14 B)\n",
            ".gitignore (13 B)\nREADME.md (8 B)\napp.log (4 B)\nbuild/\nnode_modules/\nsrc/\n",
        ]
    );
    let card = cards::card(&agent, 0);
    assert_eq!((&card["title"], &card["kind"]), (&json!("List ."), &json!("read")));
    let missing = cards::run_each(&mut agent, "list_dir", &[json!({ "path": "scr" })]).remove(0);
    assert_eq!(missing, "scr does not exist. Similar names: src.");
}

// Windows has no FIFOs.
#[cfg(unix)]
#[test]
fn searching_does_not_hang_on_a_fifo() {
    let mut agent = project().start();
    crate::agent::make_fifo(&agent.path("fifo"));
    let all = [json!({ "pattern": "run\\(" }), json!({ "pattern": "x", "path": "fifo" })];
    let results = cards::run_each(&mut agent, "grep", &all);
    assert!(results[0].contains("[2 matches in 2 files]"), "{results:?}");
    assert_eq!(results[1], "fifo is neither a file nor a folder.");
}
