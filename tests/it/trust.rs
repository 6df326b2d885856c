//! `turnwright trust` on the command line, and invalid settings files in a project.

#[cfg(unix)]
use std::process::Command;
use std::process::Output;

#[cfg(unix)]
use turnwright_testing::process_waits;
use turnwright_testing::session_requests::{open_with_mode, questions_of_write};

use crate::agent::{TestAgent, TestAgentBuilder, piped, subcommand};

const FILE: &str = ".turnwright/config.toml";

const LOOSE: &str = "mode = 'auto-edit'\n[permissions]\nallow = ['edit(/src/**)']\n\
                     [sandbox]\nnetwork = 'on'\nwrite = ['/']\n";

fn project(file: &str) -> TestAgentBuilder {
    TestAgent::builder().file(FILE, file).permission("reject_once")
}

#[test]
fn an_invalid_file_is_reported_and_has_no_effect() {
    let mut agent = TestAgent::builder().permission("reject_once").initialize();
    let file = agent.path(FILE);
    std::fs::create_dir(agent.path(".turnwright")).unwrap();
    let cases: &[(&str, &dyn Fn())] = &[
        #[cfg(unix)]
        ("is not a regular file", &|| {
            let status = process_waits::status(Command::new("mkfifo").arg(&file)).unwrap();
            assert!(status.success());
        }),
        ("is not a regular file", &|| std::fs::create_dir(&file).unwrap()),
        ("is larger", &|| std::fs::write(&file, "#".repeat(300 * 1024)).unwrap()),
        ("is not UTF-8", &|| std::fs::write(&file, b"mode = '\xff'").unwrap()),
        ("line 1", &|| std::fs::write(&file, "mode = ").unwrap()),
        ("line 1", &|| std::fs::write(&file, format!("a = {}", "[".repeat(100_000))).unwrap()),
    ];
    for (expected, create_file) in cases {
        create_file();
        assert_eq!(open_with_mode(&mut agent), "ask");
        let before = agent.thoughts().len();
        assert_eq!(questions_of_write(&mut agent, "src/a"), 1, "{expected}");
        let notice = agent.thoughts()[before..].to_owned();
        assert!(notice.contains(FILE) && notice.contains(expected), "{expected}: {notice}");
        assert!(!agent.turn_text("/trust").contains("`/trust "), "{expected}");
        std::fs::remove_file(&file).or_else(|_| std::fs::remove_dir(&file)).unwrap();
    }
}

fn turnwright(agent: &TestAgent, arguments: &[&str], input: &str) -> Output {
    let mut command = subcommand(agent.home(), &["trust"]);
    piped(command.args(arguments).current_dir(agent.workspace()), input)
}

#[test]
fn the_subcommand_trusts_a_file_only_with_its_code_and_ignores_piped_input() {
    let mut agent = project(LOOSE).initialize();
    let run = |agent: &TestAgent, arguments: &[&str]| {
        let output = turnwright(agent, arguments, "y\ny\n");
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (status, shown) = run(&agent, &[]);
    assert_eq!(status, Some(1));
    assert!(shown.contains(LOOSE.trim_end()) && shown.contains("1 allow rule"), "{shown}");
    let code = shown.split("--yes ").nth(1).unwrap().split('`').next().unwrap().to_owned();
    assert_eq!(run(&agent, &["--list"]), (Some(0), String::new()));
    assert_eq!(run(&agent, &["--yes", &code[..8]]).0, Some(1));
    assert_eq!(open_with_mode(&mut agent), "ask");
    assert_eq!(run(&agent, &["--yes", &code]).0, Some(0));
    assert_eq!(open_with_mode(&mut agent), "auto-edit");
    let (_, list) = run(&agent, &["--list"]);
    let real = std::fs::canonicalize(agent.workspace()).unwrap().display().to_string();
    assert!(list.contains(real.trim_start_matches(r"\\?\")) && list.lines().count() == 1, "{list}");
    assert_eq!(run(&agent, &[]).0, Some(0));
    let folder = agent.workspace().to_string_lossy().into_owned();
    assert_eq!(run(&agent, &["--forget", &folder]).0, Some(0));
    assert_eq!(open_with_mode(&mut agent), "ask");
}
