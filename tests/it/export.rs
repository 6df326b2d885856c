//! `turnwright sessions export` writes a session as a Markdown, HTML or JSON document.

use std::process::Output;

use serde_json::{Value, json};
use turnwright_testing::cards::call;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, says, subcommand};

fn export(agent: &TestAgent, arguments: &[&str]) -> Output {
    let mut command = subcommand(agent.home(), &["sessions", "export"]);
    process_waits::output(command.args(arguments).current_dir(agent.workspace())).unwrap()
}

#[test]
fn a_session_is_exported_as_markdown_html_and_json() {
    let write = json!({ "path": "a.txt", "content": "<b>new</b>\n" });
    let replies = json!([[call("write_file", &write)], says("It is <i>done</i>.")]);
    let builder = TestAgent::builder().file("a.txt", "old\n").model(replies);
    let mut agent = builder.permission("allow_once").start();
    let session = agent.session.clone();
    assert_eq!(agent.turn("Change a.txt & say so"), "end_turn");
    let text = |arguments: &[&str]| {
        let output = export(&agent, &[&[session.as_str()], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let markdown = text(&[]);
    for part in [
        "## Turn 1 (prompt)",
        "Change a.txt & say so",
        "### `write_file`",
        "-old\n+<b>new</b>",
        "It is <i>done</i>.",
        "*Turn 1: done, after ",
    ] {
        assert!(markdown.contains(part), "{part}: {markdown}");
    }
    let page = text(&["--html"]);
    for part in [
        "Change a.txt &amp; say so",
        "<del>-old\n</del><ins>+&lt;b&gt;new&lt;/b&gt;\n</ins>",
        "It is &lt;i&gt;done&lt;/i&gt;.",
        "Where the time went",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let value: Value = serde_json::from_str(&text(&["--json"])).unwrap();
    assert_eq!(value["session"]["id"], json!(session));
    let calls = value["entries"].as_array().unwrap().iter();
    let calls: Vec<_> = calls.filter_map(|it| it["tool_calls"].as_array()).flatten().collect();
    assert_eq!((calls.len(), &calls[0]["arguments"]), (1, &write));
    assert_eq!((&calls[0]["name"], &calls[0]["status"]), (&json!("write_file"), &json!("success")));

    // The extension of the file selects the format, and only the owner can read the file.
    assert_eq!(text(&["--output", "out.html"]), "");
    assert!(agent.read("out.html").starts_with("<!DOCTYPE html>"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(agent.path("out.html")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // It is not replaced: if it were the device itself, no other program could use it any more.
        std::os::unix::fs::symlink("/dev/stdout", agent.path("out.md")).unwrap();
        assert_eq!(text(&["--output", "out.md"]), markdown);
        assert!(agent.path("out.md").is_symlink());
    }
}

#[test]
fn an_unknown_session_is_an_error_and_leaves_no_file() {
    let mut agent = TestAgent::builder().model(json!([says("Hi.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let output = export(&agent, &["nobody", "--output", "out.md"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected =
        "turnwright sessions: no session nobody; `turnwright sessions list --all` lists all\n";
    assert_eq!(stderr, expected);
    assert!(!agent.path("out.md").exists());
}

#[test]
fn an_export_has_no_key_that_was_loaded_after_it_was_typed() {
    const LATER_KEY: &str = "sk-later-0123456789abcdef0123";
    let mut agent = TestAgent::builder().model(json!([says("Hi.")])).start();
    assert_eq!(agent.turn(&format!("Use {LATER_KEY} then")), "end_turn");
    let session = agent.session.clone();
    for form in ["--md", "--html", "--json"] {
        let arguments = ["sessions", "export", session.as_str(), form];
        let mut command = subcommand(agent.home(), &arguments);
        let output = process_waits::output(command.env("OPENAI_API_KEY", LATER_KEY)).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("Use [hidden:") && !text.contains(LATER_KEY), "{form}: {text}");
        assert!(text.contains("Hi."), "{form}: {text}");
    }
}

#[test]
#[cfg(unix)]
fn a_link_or_a_pipe_that_gets_an_export_stays_one() {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::FileTypeExt;
    use std::process::Command;

    let mut agent = TestAgent::builder().model(json!([says("Hi.")])).start();
    assert_eq!(agent.turn("go"), "end_turn");
    let session = agent.session.clone();
    fs::write(agent.path("real.md"), "old").unwrap();
    std::os::unix::fs::symlink("real.md", agent.path("link.md")).unwrap();
    assert!(export(&agent, &[session.as_str(), "--output", "link.md"]).status.success());
    assert!(agent.path("link.md").is_symlink());
    assert!(agent.read("real.md").contains("Hi."));

    let pipe = agent.path("pipe");
    let made = process_waits::status(Command::new("mkfifo").arg(&pipe));
    assert!(made.unwrap().success());
    // Both ends, so that nobody waits for the other one.
    let mut ends = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    assert!(export(&agent, &[session.as_str(), "--output", "pipe"]).status.success());
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let mut bytes = [0; 16 * 1024];
    let count = ends.read(&mut bytes).unwrap();
    assert!(String::from_utf8_lossy(&bytes[..count]).contains("Hi."));
}
