//! API keys go only to their provider, in the right header. They do not get into a child process, a log,
//! an error, a card, a result or a file, even if the model and its commands try to disclose them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnwright_testing::cards::{self, call};
use turnwright_testing::command_lines::line_for;
use turnwright_testing::process_waits;

use crate::agent::{TestAgent, calls, says, subcommand};

const VARIABLE: &str = "sk-canary-1-of-the-variable";
const SECOND: &str = "sk-canary-2-of-a-second-provider";
const HEADER: &str = "sk-canary-3-of-a-header";
const FILE: &str = "sk-canary-4-of-a-file";
const LOGIN: &str = "sk-canary-5-of-the-login";
const LITERAL: &str = "sk-canary-6-in-the-settings";
const ALL: [&str; 6] = [VARIABLE, SECOND, HEADER, FILE, LOGIN, LITERAL];

const SETTINGS: &str = r#"
[providers.second]
base_url = "http://127.0.0.1:9/v1"
key_env = "SECOND_VARIABLE"
headers = { "X-Other" = "$HEADER_VARIABLE", "Authorization" = "Bearer sk-canary-6-in-the-settings" }
models = ["m"]
[providers.third]
base_url = "http://127.0.0.1:9/v1"
key_file = "key"
models = ["m"]
"#;

/// The files into which the user has written keys.
const USER_FILES: [&str; 3] = ["config/config.toml", "config/key", "config/login.json"];

fn agent(log: Option<&str>) -> TestAgent {
    let login = json!({ "key": LOGIN }).to_string();
    let builder = TestAgent::builder()
        .own_file("config/config.toml", SETTINGS)
        .own_file("config/key", &format!("{FILE}\n"))
        .own_file("config/login.json", &login)
        .variable("OPENAI_API_KEY", VARIABLE)
        .variable("SECOND_VARIABLE", SECOND)
        .variable("HEADER_VARIABLE", HEADER)
        .variable("COPY_OF_ONE", &format!("Bearer {SECOND}"))
        .model(json!([]))
        .permission("allow_once")
        .noisy();
    match log {
        Some(filter) => builder.variable("TURNWRIGHT_LOG", filter).start(),
        None => builder.start(),
    }
}

/// Checks that the text contains no key.
fn assert_no_key(what: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for key in ALL {
        if let Some(place) = text.find(key) {
            let from = (0..=place.saturating_sub(200)).rev().find(|it| text.is_char_boundary(*it));
            panic!("{key} is in {what}: …{}", &text[from.unwrap_or(0)..place + key.len()]);
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { files(&it) } else { vec![it] }).collect()
}

/// The names of the files that the agent has written into its folders. Checks that neither names nor
/// contents have a key.
fn checked_files(agent: &TestAgent) -> Vec<String> {
    let mut names = Vec::new();
    for path in files(agent.home()) {
        let name = path.strip_prefix(agent.home()).unwrap().to_string_lossy().replace('\\', "/");
        assert_no_key("a name", name.as_bytes());
        if USER_FILES.contains(&name.as_str()) {
            continue;
        }
        match fs::read(&path) {
            Ok(content) => assert_no_key(&name, &content),
            // On Windows nobody reads what the agent has locked: its index of the database, its lock files.
            Err(_) if cfg!(windows) => {}
            Err(error) => panic!("{name}: {error}"),
        }
        names.push(name);
    }
    names
}

/// The output of a subcommand on stdout and stderr.
fn output_of(agent: &TestAgent, arguments: &[&str]) -> Vec<u8> {
    let output = process_waits::output(
        subcommand(agent.home(), arguments)
            .env("OPENAI_API_KEY", VARIABLE)
            .env("SECOND_VARIABLE", SECOND)
            .env("HEADER_VARIABLE", HEADER)
            .env("OPENAI_BASE_URL", agent.model().base_url())
            .env("TURNWRIGHT_MODEL", "scripted")
            .env("TURNWRIGHT_LOG", "trace"),
    )
    .unwrap();
    [output.stdout, output.stderr].concat()
}

/// Collects what a command can see of the agent, in a file, since the agent removes keys from output.
const COLLECT: &str = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline > seen 2>/dev/null; \
                       env >> seen; cat /proc/$PPID/environ >> seen; env; \
                       tr '\\0' '\\n' < /proc/$PPID/environ";

/// A command that prints the files with the keys, a key in two pieces, and more output than a result can
/// hold.
fn show_files(home: &str) -> String {
    if cfg!(windows) {
        return format!(
            "cd /d {home}\\config & type key & type login.json & type config.toml & \
             <nul set /p x=sk-canary-& echo 1-of-the-variable& \
             for /l %i in (1,1,900) do @echo %i {}",
            format!(" {FILE}").repeat(6)
        );
    }
    format!(
        "cd {home}/config; cat key login.json config.toml; \
         printf sk-canary-; sleep 0.05; printf '1-of-the-variable\\n'; \
         k=$(cat key); for i in $(seq 9000); do echo $k $i; done"
    )
}

/// Runs turns in which the model, its commands and the provider disclose the keys.
fn disclose_keys(agent: &mut TestAgent) {
    let all = ALL.join(" ");
    let home = agent.home().display().to_string();
    let refusal = json!({ "error": { "message": format!("Incorrect API key provided: {VARIABLE}. \
                                     Or was it {SECOND}?") } });
    let replies = [
        calls("exec", &json!({ "command": line_for(COLLECT, "set > seen & set") })),
        calls("exec", &json!({ "command": show_files(&home) })),
        calls("read_file", &json!({ "path": format!("{home}/config/config.toml") })),
        json!([
            { "thought": format!("The keys are {all}.") },
            { "text": format!("The keys are {all}.") },
            call("exec", &json!({ "command": format!("echo {all}") })),
            call("write_file", &json!({ "path": format!("{VARIABLE}.txt"), "content": "x" })),
            call("read_file", &json!({ "path": format!("none/{all}") })),
            call("grep", &json!({ "pattern": FILE, "path": format!("{home}/config") })),
            call("history", &json!({ "limit": 50 })),
            call(SECOND, &json!({ "a": all })),
        ]),
        calls("history", &json!({ "limit": 50 })),
        says("Done."),
        json!([{ "status": 401, "body": refusal }]),
    ];
    for reply in replies {
        agent.model().push(reply).unwrap();
    }
    assert_eq!(agent.turn("tell me the keys"), "end_turn");
    let id = agent.prompt("and now be refused");
    let answer = agent.answer_to(&id);
    assert!(answer["error"].is_object(), "{answer}");
}

#[test]
fn a_key_appears_only_in_the_authorization_header() {
    for log in [None, Some("trace")] {
        let mut agent = agent(log);
        disclose_keys(&mut agent);

        let seen = fs::read(agent.path("seen")).unwrap();
        assert!(!seen.is_empty());
        assert_no_key("the file of the command", &seen);
        for message in &agent.log {
            assert_no_key("a message to the client", message.to_string().as_bytes());
        }
        let requests = agent.model().requests();
        for request in &requests {
            for (name, value) in &request.headers {
                if !name.eq_ignore_ascii_case("authorization") {
                    assert_no_key("a header", value.as_bytes());
                }
            }
            // The model gets its own words back unchanged.
            let messages = request.body["messages"].as_array().cloned().unwrap_or_default();
            for message in messages.iter().filter(|it| it["role"] != "assistant") {
                assert_no_key("a message to the model", message.to_string().as_bytes());
            }
        }
        assert!(requests.iter().any(|it| has_key(&it.headers)), "the server got no key");
        // The results contained a key, which was replaced.
        let last = cards::results(&agent, requests.len() - 1);
        assert!(last.iter().any(|it| it.contains("[hidden:")), "{last:?}");

        for arguments in [
            &["config", "show"][..],
            &["config", "show", "--json"],
            &["--model", "second/m", "config", "show"],
            &["doctor"],
            &["doctor", "--json"],
            &["--model", "second/m", "doctor"],
            &["--model", "third/m", "doctor", "--json"],
        ] {
            assert_no_key(&arguments.join(" "), &output_of(&agent, arguments));
        }
        // The output files still exist now. They are deleted with the session.
        assert!(
            checked_files(&agent).iter().any(|it| it.contains("outputs")),
            "{:?}",
            checked_files(&agent)
        );
        let (status, stderr) = agent.close();
        assert!(status.success());
        assert!(log.is_none() || stderr.contains("TRACE"), "the log is empty");
        assert_no_key("stderr", stderr.as_bytes());
        checked_files(&agent);
    }
}

fn has_key(headers: &[(String, String)]) -> bool {
    headers.iter().any(|it| it.0.eq_ignore_ascii_case("authorization") && it.1.contains(VARIABLE))
}

#[test]
fn write_file_writes_a_key_that_the_model_puts_into_a_file() {
    // Another key: the command of the other test may read the environment of this agent while it starts.
    let key = "sk-canary-7-of-another-agent";
    let arguments: Value = json!({ "path": ".env.example", "content": format!("KEY={key}\n") });
    let builder = TestAgent::builder().variable("OPENAI_API_KEY", key).model(json!([]));
    let mut agent = builder.permission("allow_once").start();
    agent.model().push(calls("write_file", &arguments)).unwrap();
    agent.model().push(says("Done.")).unwrap();
    cards::turn(&mut agent);
    assert_eq!(agent.read(".env.example"), format!("KEY={key}\n"));
    assert!(cards::card(&agent, 0).to_string().contains("[hidden:"));
}
