//! `turnwright doctor` with working and faulty model servers: its report, its exit code, and the stored
//! profile of the model.

#[cfg(unix)]
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::process_waits;
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{TestAgent, calls, eventually, says, subcommand};

const KEY: &str = "sk-test-0123456789";

/// A configuration with one model server, which environment variables select.
struct Setup {
    home: TempDir,
    base_url: String,
    model: &'static str,
    key: Option<&'static str>,
    server: Option<Server>,
}

/// The output and exit code of the doctor.
struct Findings {
    status: i32,
    text: String,
}

impl Setup {
    fn new(replies: &Value) -> Setup {
        let scenario = Scenario::from_value(json!({ "replies": replies })).unwrap();
        let server = Server::start(scenario, 0).unwrap();
        Setup { server: Some(server), ..Setup::at(String::new()) }.with_server_url()
    }

    fn at(base_url: String) -> Setup {
        let home = turnwright_testing::temporary_folder();
        Setup { home, base_url, model: "scripted", key: Some(KEY), server: None }
    }

    fn with_server_url(mut self) -> Setup {
        self.base_url = self.server.as_ref().unwrap().base_url();
        self
    }

    /// Runs the doctor. Checks that stderr is empty and that the report has no key.
    fn doctor(&self, arguments: &[&str]) -> Findings {
        let mut command = subcommand(self.home.path(), &["doctor"]);
        command
            .args(arguments)
            .env("TURNWRIGHT_MODEL", self.model)
            .envs(self.key.map(|key| ("OPENAI_API_KEY", key)));
        if !self.base_url.is_empty() {
            command.env("OPENAI_BASE_URL", &self.base_url);
        }
        let output = process_waits::output(&mut command).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors, "", "{text}");
        assert!(!text.contains(KEY), "{text}");
        Findings { status: output.status.code().unwrap(), text }
    }

    fn json(&self) -> Value {
        let findings = self.doctor(&["--json"]);
        let value: Value = serde_json::from_str(&findings.text).unwrap();
        assert_eq!(value["works"], findings.status == 0, "{value}");
        value
    }

    /// Whether an agent with this configuration declares that it accepts images.
    fn takes_images(&self) -> Value {
        let mut agent = TestAgent::unconfigured()
            .variable("TURNWRIGHT_HOME", self.home.path().to_str().unwrap())
            .variable("OPENAI_BASE_URL", &self.base_url)
            .variable("TURNWRIGHT_MODEL", self.model)
            .spawn();
        let answer = agent.call("initialize", &json!({ "protocolVersion": 1 }));
        answer["result"]["agentCapabilities"]["promptCapabilities"]["image"].clone()
    }

    fn profiles(&self) -> usize {
        std::fs::read_dir(self.home.path().join("state/profiles")).map_or(0, Iterator::count)
    }
}

impl Findings {
    /// Whether the report has a line with this result of this check.
    fn has(&self, mark: &str, name: &str) -> bool {
        self.text.lines().any(|line| {
            let mut words = line.split_whitespace();
            line.starts_with(mark) && words.next() == Some(mark) && words.next() == Some(name)
        })
    }
}

fn counts() -> Value {
    counts_every(20)
}

/// The same with this many milliseconds between the words.
fn counts_every(pause: u64) -> Value {
    json!([
        { "text": "1 2 3 4 5 6 7 8 9 10", "chunks": 10, "every_ms": pause },
        { "usage": { "prompt_tokens": 30, "completion_tokens": 20 } },
    ])
}

fn weather(city: &str) -> Value {
    calls("get_weather", &json!({ "city": city }))
}

fn two_cities() -> Value {
    json!([weather("Paris")[0], weather("Oslo")[0]])
}

fn refuses(status: u16, message: &str) -> Value {
    json!([{ "status": status, "body": { "error": { "message": message } } }])
}

#[test]
fn a_working_server_passes_and_its_abilities_are_stored() {
    let rain = says("It is 17 °C and it rains.");
    // On a busy machine the doctor may read several words at once.
    let replies = [counts_every(150), weather("Paris"), rain, two_cities(), says("Orange.")];
    let setup = Setup::new(&json!(replies));
    assert_eq!((setup.takes_images(), setup.profiles()), (json!(true), 0));
    let findings = setup.doctor(&[]);
    assert_eq!(findings.status, 0, "{}", findings.text);
    for name in ["answer", "streaming", "usage", "tools", "result", "parallel", "images", "models"]
    {
        assert!(findings.has("ok", name), "{name}: {}", findings.text);
    }
    assert!(findings.has("–", "reasoning") && findings.has("?", "window"), "{}", findings.text);
    assert!(findings.text.contains("The agent can work with this model."), "{}", findings.text);
    assert!(findings.text.contains("set, from OPENAI_API_KEY"), "{}", findings.text);
    assert_eq!((setup.takes_images(), setup.profiles()), (json!(true), 1));

    let forgotten = setup.doctor(&["--forget"]);
    assert_eq!((forgotten.status, setup.profiles()), (0, 0), "{}", forgotten.text);
    assert_eq!(setup.doctor(&["--forget"]).status, 0);
}

#[test]
fn the_json_report_always_has_the_same_keys() {
    let rain = says("It is 17 °C and it rains.");
    let replies = [counts(), weather("Paris"), rain, two_cities(), says("Orange.")];
    let good = Setup::new(&json!(replies)).json();
    let bad = Setup::new(&json!([refuses(401, "no such key")])).json();
    let unusable = Setup { model: "nobody/nothing", ..Setup::at(String::new()) };
    let unusable = Setup { key: None, ..unusable }.json();
    let keys = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&good), keys(&bad));
    assert_eq!(keys(&good), keys(&unusable));
    assert_eq!(keys(&good["checks"]), keys(&bad["checks"]));
    assert_eq!(good["checks"]["tools"]["state"], "ok");
    assert_eq!(good["checks"]["usage"]["input"], 30);
    assert_eq!(good["profile"]["learned"]["quirks"], json!({ "images": true }));
    assert_eq!(good["key"]["set"], true);
    assert_eq!(bad["checks"]["answer"]["error"], "auth");
    assert_eq!(bad["checks"]["tools"]["state"], "skipped");
    assert!(unusable["error"].is_string(), "{unusable}");
}

#[test]
fn the_editor_that_has_opened_a_session_last_is_told() {
    let setup = Setup { model: "offline", key: None, ..Setup::at(String::new()) };
    assert_eq!(setup.json()["editor"], Value::Null);
    let mut agent = TestAgent::unconfigured()
        .variable("TURNWRIGHT_HOME", setup.home.path().to_str().unwrap())
        .variable("TURNWRIGHT_MODEL", "offline")
        .spawn();
    let able = json!({ "fs": { "readTextFile": true, "writeTextFile": false }, "terminal": true });
    let info = json!({ "name": "zed", "title": "Zed", "version": "0.999" });
    let params = json!({ "protocolVersion": 1, "clientInfo": info, "clientCapabilities": able });
    agent.call("initialize", &params);
    agent.call_new_session();
    // It is noted after the answer.
    eventually("the editor is noted", || setup.json()["editor"] != Value::Null);
    let shown = setup.doctor(&[]).text;
    assert!(shown.contains("editor     Zed 0.999: fs.readTextFile, terminal\n"), "{shown}");
    let json = setup.json();
    assert_eq!(json["editor"]["clientInfo"], info);
    assert_eq!(json["store"]["sessions"], 1, "{json}");
    let of = |name: &str| json["in_force"].as_array().unwrap().iter().find(|it| it["name"] == name);
    assert_eq!(of("model").unwrap()["from"], "TURNWRIGHT_MODEL", "{json}");
}

#[test]
fn an_incomplete_audit_is_reported() {
    let setup = Setup { key: None, ..Setup::at(String::new()) };
    assert_eq!(setup.json()["audit"], json!({ "lost": 0, "error": null }));
    let state = setup.home.path().join("state");
    let line = json!({ "at": "2026-01-01T00:00:00Z", "event": "lost", "session": "", "project": "",
        "mode": "", "effects": [], "verdict": "", "by": "the disk is full", "lost": 3 });
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("permissions.jsonl"), format!("{line}\n")).unwrap();
    assert_eq!(setup.json()["audit"], json!({ "lost": 3, "error": null }));
    let text = setup.doctor(&[]).text;
    assert!(text.contains("3 entries could not be written (the disk is full)"), "{text}");
    std::fs::remove_file(state.join("permissions.jsonl")).unwrap();
    std::fs::create_dir(state.join("permissions.jsonl")).unwrap();
    assert_eq!(setup.json()["audit"]["error"], "not a regular file");
}

#[test]
fn a_server_without_tools_fails() {
    let no_tools = refuses(400, "scripted does not support tools");
    let setup = Setup::new(&json!([counts(), no_tools, says("Orange.")]));
    let findings = setup.doctor(&[]);
    assert_eq!(findings.status, 1, "{}", findings.text);
    assert!(findings.has("ok", "answer") && findings.has("FAIL", "tools"), "{}", findings.text);
    assert!(findings.has("skip", "result") && findings.has("ok", "images"), "{}", findings.text);
    assert!(findings.text.contains("choose another model"), "{}", findings.text);
}

#[test]
fn a_failure_of_the_first_request_is_explained_and_not_stored() {
    let page = json!([{ "status": 200, "body": "<html>hi</html>", "content_type": "text/html" }]);
    let table = [
        (refuses(401, "Incorrect API key provided: sk-test-0123456789"), "Check the key in OPENAI"),
        (page, "/v1"),
        (refuses(429, "You exceeded your current quota: insufficient_quota"), "the credit"),
    ];
    for (reply, expected) in table {
        let setup = Setup::new(&json!([reply]));
        let findings = setup.doctor(&[]);
        assert_eq!(findings.status, 1, "{}", findings.text);
        assert!(findings.has("FAIL", "answer"), "{}", findings.text);
        assert!(findings.has("skip", "window"), "{}", findings.text);
        assert!(findings.text.contains(expected), "{expected}: {}", findings.text);
        assert_eq!(setup.server.as_ref().unwrap().requests().len(), 1, "{}", findings.text);
        assert_eq!(setup.profiles(), 0);
    }
}

#[test]
fn an_unknown_model_name_is_answered_with_similar_names() {
    let reply = refuses(404, "The model `scriptde` does not exist");
    let setup = Setup { model: "scriptde", ..Setup::new(&json!([reply])) };
    let findings = setup.doctor(&[]);
    assert_eq!(findings.status, 1, "{}", findings.text);
    assert!(findings.text.contains("Did you mean scripted?"), "{}", findings.text);

    let reply = refuses(404, "The model `zzz` does not exist");
    let setup = Setup { model: "zzz", ..Setup::new(&json!([reply])) };
    let findings = setup.doctor(&[]);
    assert!(findings.text.contains("Available models: scripted"), "{}", findings.text);
}

#[test]
fn a_key_in_place_of_the_name_of_a_model_is_not_shown() {
    let message = "The model `sk-proj-abcdef0123456789` does not exist";
    for arguments in [&[][..], &["--json"]] {
        let setup = Setup {
            model: "sk-proj-abcdef0123456789",
            ..Setup::new(&json!([refuses(404, message)]))
        };
        let findings = setup.doctor(arguments);
        assert!(!findings.text.contains("sk-proj"), "{}", findings.text);
        assert!(findings.text.contains("looks like a key"), "{}", findings.text);
    }
}

#[test]
fn an_unreachable_server_is_reported() {
    // Port 9 is not ephemeral, so no other test can get it.
    let setup = Setup::at("http://127.0.0.1:9/v1".to_owned());
    let findings = setup.doctor(&[]);
    assert_eq!(findings.status, 1, "{}", findings.text);
    assert!(findings.text.contains("Check that the server is running"), "{}", findings.text);
    assert_eq!(setup.profiles(), 0);
}

#[test]
fn a_refused_effort_does_not_affect_the_other_efforts() {
    let rain = says("It is 17 °C and it rains.");
    let refused = refuses(400, "'reasoning_effort' cannot be that");
    let thinks = json!([{ "thought": "Hm." }, { "text": "1 2 3" }]);
    let start = [thinks, weather("Paris"), rain, two_cities(), says("Orange.")];
    let examine = |efforts: &[&Value]| {
        let replies: Vec<_> = start.iter().chain(efforts.iter().copied()).collect();
        Setup { model: "gpt-oss", ..Setup::new(&json!(replies)) }.json()
    };
    let report = examine(&[&counts(), &refused, &counts()]);
    let effort = &report["checks"]["effort"];
    assert_eq!((&effort["low"], &effort["none"]), (&json!(true), &json!(false)), "{report}");
    assert_eq!(report["profile"]["learned"]["quirks"]["effort"], Value::Null, "{report}");
    assert_eq!(report["checks"]["reasoning"]["field"], "reasoning_content", "{report}");

    let report = examine(&[&refused, &counts(), &refused, &counts()]);
    assert_eq!(report["checks"]["effort"]["state"], "no", "{report}");
    assert_eq!(report["profile"]["learned"]["quirks"]["effort"], "none", "{report}");
}

#[test]
fn the_version_of_the_system_and_the_free_space_are_named() {
    let report = Setup { model: "offline", ..Setup::at(String::new()) }.json();
    let version = if cfg!(windows) { "Windows " } else { "Linux " };
    let platform = report["platform"].as_str().unwrap();
    assert!(cfg!(target_os = "macos") || platform.contains(version), "{platform}");
    assert!(report["disk"]["free"].as_u64() > Some(0), "{report}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_doctor_at_once() {
    use std::os::unix::process::ExitStatusExt;

    let setup = Setup::new(&json!([[{ "hang": true }]]));
    let mut doctor = subcommand(setup.home.path(), &["doctor"])
        .env("TURNWRIGHT_MODEL", "scripted")
        .env("OPENAI_BASE_URL", &setup.base_url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = setup.server.as_ref().unwrap();
    eventually("the server gets a request", || !server.requests().is_empty());
    let pid = doctor.id().to_string();
    // The test does not use INT, which a shell ignores for jobs in the background and their children.
    assert!(process_waits::status(Command::new("kill").args(["-TERM", &pid])).unwrap().success());
    let mut status = None;
    eventually("the doctor ends", || {
        status = doctor.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().signal(), Some(15));
    assert_eq!(setup.profiles(), 0);
}

#[test]
fn images_are_not_declared_any_more_after_the_server_has_refused_one() {
    let rain = says("It is 17 °C and it rains.");
    let refused = refuses(400, "unknown variant `image_url`, expected `text`");
    let replies = [counts(), weather("Paris"), rain, two_cities(), refused, says("Which?")];
    let setup = Setup { model: "llava", ..Setup::new(&json!(replies)) };
    assert_eq!(setup.takes_images(), true, "images are not declared for this model name");
    let findings = setup.doctor(&[]);
    assert_eq!(findings.status, 0, "{}", findings.text);
    assert!(findings.has("–", "images"), "{}", findings.text);
    assert_eq!(setup.takes_images(), false);
}

#[test]
fn the_check_of_images_is_skipped_if_the_settings_turn_them_off() {
    let rain = says("It is 17 °C and it rains.");
    let setup = Setup::new(&json!([counts(), weather("Paris"), rain, two_cities()]));
    let section = format!(
        "[providers.mine]\nbase_url = '{}'\nquirks = {{ images = false }}\n",
        setup.base_url
    );
    let folder = setup.home.path().join("config");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), section).unwrap();
    let findings = Setup { model: "mine/scripted", ..setup }.doctor(&[]);
    assert!(findings.has("skip", "images"), "{}", findings.text);
    assert!(findings.text.contains("mine"), "{}", findings.text);
}

#[test]
fn calls_within_the_text_are_detected_and_parsed_from_then_on() {
    let call = |city: &str| {
        let call = json!({ "name": "get_weather", "arguments": { "city": city } });
        format!("<tool_call>\n{call}\n</tool_call>")
    };
    let (one, two) = (says(&call("Paris")), says(&format!("{}\n{}", call("Paris"), call("Oslo"))));
    let rain = says("It is 17 °C and it rains.");
    let setup = Setup::new(&json!([counts(), one, one, rain, two, says("Orange.")]));
    let report = setup.json();
    assert_eq!(report["works"], true, "{report}");
    assert_eq!(report["checks"]["tools"]["leaked"], true, "{report}");
    assert_eq!(report["checks"]["parallel"]["state"], "ok", "{report}");
    assert_eq!(report["profile"]["learned"]["quirks"]["leaked"], "parse", "{report}");
}

#[test]
fn the_offline_model_passes_and_a_missing_model_is_a_configuration_error() {
    let offline = Setup { model: "offline", ..Setup::at(String::new()) };
    let findings = offline.doctor(&[]);
    assert_eq!(findings.status, 0, "{}", findings.text);
    assert!(findings.text.contains("built in"), "{}", findings.text);
    assert!(findings.text.contains("sandbox"), "{}", findings.text);

    let missing = Setup { key: None, ..Setup::at(String::new()) };
    let findings = missing.doctor(&[]);
    assert_eq!(findings.status, 2, "{}", findings.text);
    assert!(findings.text.contains("turnwright login"), "{}", findings.text);
    assert!(findings.text.contains("sandbox"), "{}", findings.text);

    let wrong = Setup::at("ftp://here".to_owned());
    let findings = wrong.doctor(&[]);
    assert_eq!(findings.status, 2, "{}", findings.text);
    assert!(findings.text.contains("ftp://here"), "{}", findings.text);
}
