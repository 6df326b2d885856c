//! The user's `config.toml`: its precedence beside the environment and the command line, warnings in the
//! log, and `config show`. `tests/stories/config.rs` tests its effects on a conversation.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use turnwright_testing::command_lines::line_for;
use turnwright_testing::process_waits;
use turnwright_testing::raw_server::{RawServer, text_stream, write_stream};
use turnwright_testing::scripted_model::{Scenario, Server};
use turnwright_testing::session_requests::opening_refusal;

use crate::agent::{TestAgent, TestAgentBuilder, calls, piped, says, subcommand};

const FILE: &str = if cfg!(windows) { r"config\config.toml" } else { "config/config.toml" };

/// A model server that answers each request with "Hello."
fn greeter() -> RawServer {
    RawServer::start(|_, stream| write_stream(stream, &text_stream("Hello.")))
}

fn unconfigured(file: &str) -> TestAgentBuilder {
    TestAgent::unconfigured().own_file(FILE, file)
}

/// Replaces the settings of a running agent.
fn write(agent: &TestAgent, text: &str) {
    std::fs::write(agent.home().join(FILE), text).unwrap();
}

#[test]
fn the_key_and_headers_of_a_provider_are_sent_to_that_provider_only() {
    let (mine, other) = (greeter(), greeter());
    let file = format!(
        r#"
        model = "mine/org/some-model"
        [providers.mine]
        base_url = "{}"
        key_env = "MY_SECRET"
        headers = {{ "X-Title" = "me", "X-Token" = "$MY_TOKEN" }}
        [providers.other]
        base_url = "{}"
        models = ["x"]
        "#,
        mine.base_url(),
        other.base_url()
    );
    let agent = || {
        unconfigured(&file)
            .variable("MY_SECRET", "sk-mine-0123456789")
            .variable("MY_TOKEN", "token-0123456789")
    };
    let mut first = agent().start();
    assert_eq!(first.turn("hi"), "end_turn");
    assert_eq!(first.text(), "Hello.");
    let request = mine.requests()[0].to_lowercase();
    for line in
        ["authorization: bearer sk-mine-0123456789", "x-title: me", "x-token: token-0123456789"]
    {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{request}");
    }
    assert_eq!(mine.body(0)["model"], "org/some-model");

    let mut second = agent().argument("--model=other/x").start();
    assert_eq!(second.turn("hi"), "end_turn");
    let request = other.requests()[0].to_lowercase();
    assert!(!request.contains("authorization") && !request.contains("0123456789"), "{request}");
    assert_eq!(mine.requests().len(), 1);
}

#[test]
fn the_environment_and_flags_override_the_file() {
    let replies = json!([says("From the variables.")]);
    let file = "model = 'in-the-file'\nmode = 'plan'\n[providers.x]\nmodels = ['y']";
    let mut agent = TestAgent::builder().model(replies).own_file(FILE, file).initialize();
    let answer = agent.call_new_session();
    assert_eq!(answer["result"]["modes"]["currentModeId"], "plan", "{answer}");
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(agent.turn("hi"), "end_turn");
    assert_eq!(agent.model_request(0)["model"], "scripted");

    let mut agent = unconfigured(file).argument("--model").argument("offline").start();
    assert_eq!(agent.turn("hello"), "end_turn");
}

#[test]
fn a_flag_or_a_variable_selects_another_file() {
    let server = greeter();
    let file = format!("[providers.mine]\nbase_url = '{}'\nmodels = ['m']", server.base_url());
    let folder = turnwright_testing::temporary_folder();
    let path = folder.path().join("my.toml");
    std::fs::write(&path, &file).unwrap();
    let path = path.to_str().unwrap();
    for agent in [
        TestAgent::unconfigured().argument("--config").argument(path),
        TestAgent::unconfigured().variable("TURNWRIGHT_CONFIG", path),
    ] {
        let mut agent = agent.start();
        assert_eq!(agent.turn("hi"), "end_turn");
    }
    let mut agent = TestAgent::unconfigured().argument("--config=/nowhere/c.toml").initialize();
    let message = opening_refusal(&mut agent);
    assert!(message.contains("/nowhere/c.toml") && message.contains("--config"), "{message}");
}

#[test]
fn unknown_settings_are_logged_and_ignored() {
    let server = greeter();
    let file = format!(
        "shiny = true\n[providers.mine]\nbase_url = '{}'\nmodels = ['m']\nsparkle = {{ a = 1 }}",
        server.base_url()
    );
    let mut agent = unconfigured(&file).start();
    assert_eq!(agent.turn("hi"), "end_turn");
    agent.new_session();
    let home = agent.home().to_owned();
    agent.close();
    let log = std::fs::read_to_string(home.join("state/turnwright.log")).unwrap_or_default();
    for key in ["`shiny`", "`providers.mine.sparkle`"] {
        assert_eq!(log.matches(key).count(), 1, "{key}: {log}");
    }
}

#[test]
fn variables_with_keys_do_not_reach_commands() {
    let command = json!({
        "command": line_for(
            "env; tr '\\0' '\\n' < /proc/$PPID/environ | grep -v ^COPY=; echo done",
            "set & echo done",
        )
    });
    let replies = json!([calls("exec", &command), says("Done.")]);
    let server = Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0);
    let server = server.unwrap();
    let file = format!(
        "[providers.mine]\nbase_url = '{}'\nmodels = ['m']\nkey_env = 'HARMLESS_NAME'\n\
         headers = {{ 'X-Who' = '$ALSO_HARMLESS' }}",
        server.base_url()
    );
    let mut agent = unconfigured(&file)
        .variable("HARMLESS_NAME", "hidden-one")
        .variable("ALSO_HARMLESS", "hidden-two")
        .variable("DEEPSEEK_API_KEY", "hidden-three")
        .variable("COPY", "a copy of hidden-one")
        .variable("SHOWN", "shown")
        .permission("allow_once")
        .start();
    // Every process that may trace the agent can read its initial environment.
    #[cfg(target_os = "linux")]
    if let Ok(environment) = std::fs::read(format!("/proc/{}/environ", agent.pid())) {
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let harmless = environment.replace("COPY=a copy of hidden-one", "");
        assert!(!harmless.contains("hidden-"), "{environment}");
    }
    assert_eq!(agent.turn("go"), "end_turn");
    let requests = server.wait_for_requests(2, crate::agent::LIMIT).unwrap();
    let output = requests[1].body.to_string();
    assert!(output.contains("SHOWN=shown"), "{output}");
    assert!(!output.contains("hidden-"), "{output}");
}

#[test]
#[cfg(unix)]
fn a_tilde_that_no_shell_has_replaced_is_the_home_folder() {
    let home = turnwright_testing::temporary_folder();
    for (arguments, variable, expected) in [
        (&["config", "path"][..], "~/own", "own/config/config.toml"),
        (&["--config=~/mine.toml", "config", "path"], "own", "mine.toml"),
    ] {
        let mut command = subcommand(home.path(), arguments);
        command.env("HOME", home.path()).env("TURNWRIGHT_HOME", variable);
        command.current_dir(home.path());
        let output = process_waits::output(&mut command).unwrap();
        let path = String::from_utf8(output.stdout).unwrap();
        assert_eq!(path.trim_end(), home.path().join(expected).to_str().unwrap());
    }
}

/// A subcommand with the folders of an agent.
fn command(agent: &TestAgent, arguments: &[&str]) -> Command {
    let mut command = subcommand(agent.home(), arguments);
    command.env("GROQ_API_KEY", "sk-groq-and-more").env("TURNWRIGHT_MODE", "plan");
    command
}

fn turnwright(agent: &TestAgent, arguments: &[&str]) -> Output {
    process_waits::output(&mut command(agent, arguments)).unwrap()
}

#[test]
fn config_show_prints_settings_with_their_origin_and_without_keys() {
    let file = "model = 'groq/m'\nmax_turn_requests = 7\nshiny = 1\n\
                [providers.mine]\nbase_url = 'http://h/v1'";
    let agent = unconfigured(file).initialize();
    let path = agent.home().join(FILE).to_str().unwrap().to_owned();
    let output = turnwright(&agent, &["config", "path"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), path);

    let output = turnwright(&agent, &["config", "show", "--json"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(shown["warnings"][0].as_str().unwrap().contains("`shiny`"), "{shown}");
    let of = |name: &str| {
        let all = shown["settings"].as_array().unwrap();
        let setting = all.iter().find(|it| it["name"] == name).unwrap();
        let text = |key: &str| setting[key].as_str().unwrap().to_owned();
        format!("{} from {}", text("value"), text("from"))
    };
    assert_eq!(of("model"), format!("groq/m from {path}"));
    assert_eq!(of("key"), "set from GROQ_API_KEY");
    assert_eq!(of("mode"), "plan from TURNWRIGHT_MODE");
    assert_eq!(of("max_turn_requests"), format!("7 from {path}"));
    assert_eq!(of("effort"), "default from built in");
    assert_eq!(of("silence_seconds"), "300 from built in");
    assert_eq!(of("providers.mine"), format!("http://h/v1, key not set from {path}"));

    let output = turnwright(&agent, &["config", "show"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("groq/m") && !text.contains("sk-groq"), "{text}");

    write(&agent, "model = ");
    let output = turnwright(&agent, &["config", "show"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("line 1"), "{output:?}");
}

#[test]
fn the_schema_is_printed_as_it_is_in_the_manual() {
    let agent = unconfigured("model = ").initialize();
    let output = turnwright(&agent, &["config", "schema"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        include_str!("../../docs/config.schema.json")
    );
}

/// The standard output of a subcommand that must succeed.
fn printed(agent: &TestAgent, arguments: &[&str]) -> String {
    let output = turnwright(agent, arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The standard error of a subcommand that must fail.
fn failure(agent: &TestAgent, arguments: &[&str]) -> String {
    let output = turnwright(agent, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn config_set_changes_one_value_and_a_running_agent_obeys_it() {
    let mut agent = TestAgent::unconfigured().variable("TURNWRIGHT_MODEL", "offline").initialize();
    let text = printed(&agent, &["config", "set", "mode", "auto-edit"]);
    assert_eq!(
        text,
        "mode: not set → \"auto-edit\" (TURNWRIGHT_MODE is set and takes precedence)\n"
    );
    let answer = agent.call_new_session();
    assert_eq!(answer["result"]["modes"]["currentModeId"], "auto-edit", "{answer}");

    let file = "# Mine\r\nmode = 'ask' # as usual\r\n\r\n[web] # the web\r\n";
    write(&agent, file);
    let text = printed(&agent, &["config", "set", "web.allow", "localhost:3000", "10.0.0.7"]);
    assert_eq!(text, "web.allow: not set → [\"localhost:3000\", \"10.0.0.7\"]\n");
    let now = || std::fs::read_to_string(agent.home().join(FILE)).unwrap();
    assert_eq!(now(), format!("{file}allow = [\"localhost:3000\", \"10.0.0.7\"]\r\n"));
    assert_eq!(
        printed(&agent, &["config", "unset", "web.allow"]),
        "web.allow: [\"localhost:3000\", \"10.0.0.7\"] → not set\n"
    );
    assert_eq!(now(), file);
}

/// As in a container whose home folder, or a folder there, belongs to root.
#[test]
fn the_file_that_could_not_be_written_is_named() {
    let folder = turnwright_testing::temporary_folder();
    // Permissions mean nothing to root, but nobody makes a folder in a file.
    let home = folder.path().join("file");
    std::fs::write(&home, "").unwrap();
    for (arguments, expected) in [
        (&["config", "init"][..], home.join(FILE)),
        (&["config", "set", "mode", "plan"], home.join("state").join("settings.lock")),
        (&["login", "--base-url", "http://h/v1"], home.join("state").join("settings.lock")),
    ] {
        let output = piped(&mut subcommand(&home, arguments), "key\nmodel\n");
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("{}: ", expected.display())), "{said}");
    }
}

#[test]
fn changes_at_the_same_time_are_all_kept() {
    let agent = TestAgent::unconfigured().initialize();
    let hosts: Vec<_> = (0..12).map(|it| format!("providers.p{it}.base_url")).collect();
    let start = |key: &String| {
        command(&agent, &["config", "set", key, "http://h/v1"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let changes: Vec<_> = hosts.iter().map(start).collect();
    for change in changes {
        assert!(process_waits::wait_with_output(change).status.success());
    }
    let text = std::fs::read_to_string(agent.home().join(FILE)).unwrap();
    assert_eq!(text.matches("base_url").count(), hosts.len(), "{text}");
}

#[test]
fn a_model_for_which_there_is_no_provider_is_an_error() {
    let agent = unconfigured("model = 'gpt-5'").initialize();
    let output =
        process_waits::output(command(&agent, &["config", "show"]).env_remove("GROQ_API_KEY"))
            .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = agent.home().join(FILE).display().to_string();
    assert!(text.lines().next().unwrap().ends_with(&path), "{text}");
    let error = "error: No provider is configured for the model `gpt-5`. Set OPENAI_API_KEY";
    assert!(text.contains(error), "{text}");
    let output = turnwright(&agent, &["config", "show"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("`gpt-5`. There is a key for groq (GROQ_API_KEY): run"), "{text}");
}

#[test]
fn config_set_writes_nothing_that_is_wrong() {
    let file = "mode = 'ask'\n";
    let agent = unconfigured(file).initialize();
    for (key, value, expected) in [
        ("mode", "all", "`mode` cannot be `all`, expected one of ask, plan, auto-edit, auto, full"),
        ("mdoe", "x", "Perhaps `mode` is meant"),
        ("permissions.allow", "exec(", "exec("),
        ("providers.x.headers.X-Groq", "sk-groq-and-more", "looks like a key"),
        ("providers.x.key", "letmein", "turnwright login"),
    ] {
        let error = failure(&agent, &["config", "set", key, value]);
        assert!(error.starts_with("turnwright config: "), "{error}");
        assert!(error.contains(expected) && error.ends_with("Nothing was changed\n"), "{error}");
        assert_eq!(std::fs::read_to_string(agent.home().join(FILE)).unwrap(), file);
    }
    let error = failure(&agent, &["config", "unset", "effort"]);
    assert!(error.contains("`effort` is not set in"), "{error}");
}

#[test]
fn config_init_writes_a_file_once_and_the_schema_beside_it() {
    let agent = TestAgent::unconfigured().initialize();
    let path = agent.home().join(FILE);
    assert_eq!(printed(&agent, &["config", "init"]), format!("Created {}\n", path.display()));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("#:schema ./config.schema.json\n"), "{text}");
    let schema = std::fs::read_to_string(path.with_file_name("config.schema.json")).unwrap();
    assert_eq!(schema, include_str!("../../docs/config.schema.json"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    printed(&agent, &["config", "set", "effort", "high"]);
    let changed = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        changed,
        text.replace("#effort = \"default\"\n", "#effort = \"default\"\neffort = \"high\"\n")
    );
    let error = failure(&agent, &["config", "init"]);
    assert!(error.contains(&format!("{} exists already", path.display())), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), changed);
}

/// Runs `config edit` with an editor that is a shell script with an argument of its own.
#[cfg(unix)]
fn edit(agent: &TestAgent, script: &str) -> Output {
    let editor = agent.home().join("my editor");
    let script = format!("#!/bin/sh\n[ \"$1\" = --wait ] || exit 3\n{script}\n");
    turnwright_testing::write_program(&editor, &script);
    process_waits::output(
        Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .args(["config", "edit"])
            .env("TURNWRIGHT_HOME", agent.home())
            .env("EDITOR", "false")
            .env("VISUAL", format!("'{}' --wait", editor.display())),
    )
    .unwrap()
}

#[cfg(unix)]
#[test]
fn config_edit_opens_the_editor_and_tells_what_is_wrong_with_its_line() {
    let agent = TestAgent::unconfigured().initialize();
    let output = edit(&agent, "echo 'mode = \"plan\"' > \"$2\"");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("No problems in ") && text.contains(FILE), "{text}");
    assert!(agent.home().join("config/config.schema.json").is_file());

    let wrong = "# Mine\nmode = 'all'\nshiny = 1\n[permissions]\nallow = [\n  'exec(',\n]\n";
    let output = edit(&agent, &format!("cat > \"$2\" <<'END'\n{wrong}END"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    for expected in ["line 2: `mode` is `all`", "line 3: Unknown setting `shiny`", "line 6: "] {
        assert!(error.contains(&format!("config.toml, {expected}")), "{expected}: {error}");
    }
    let output = edit(&agent, "echo 'mode = ' > \"$2\"");
    assert!(String::from_utf8_lossy(&output.stderr).contains("config.toml, line 1"), "{output:?}");
    let output = edit(&agent, "exit 7");
    assert!(String::from_utf8_lossy(&output.stderr).contains("ended with exit status: 7"));
}

/// What `config show --json`, run in the agent's folder, says of the project.
fn project_settings(agent: &TestAgent) -> Vec<String> {
    let shown = run_in_project(agent, &["config", "show", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let line = |it: &Value| {
        let text = |key: &str| it[key].as_str().unwrap().to_owned();
        let place = text("from").replace(agent.workspace().to_str().unwrap(), "ws");
        let place = place.replace('\\', "/");
        format!("{}: {} from {place}", text("name"), text("value"))
    };
    shown["project"].as_array().unwrap().iter().map(line).collect()
}

/// Runs a subcommand in the agent's folder.
fn run_in_project(agent: &TestAgent, arguments: &[&str]) -> String {
    let mut command = subcommand(agent.home(), arguments);
    let output = process_waits::output(command.current_dir(agent.workspace())).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn config_show_names_what_the_project_changes_and_whether_it_is_trusted() {
    const SETTINGS: &str = ".turnwright/config.toml";
    let wishes = "mode = 'auto'\n[permissions]\nallow = ['exec(ls)']\ndeny = ['read(x)']\n\
                  [sandbox]\nnetwork = 'on'\nhide = ['secret']\n";
    let servers = r#"{ "mcpServers": { "a": { "command": "a-server" } } }"#;
    let agent = unconfigured("[permissions]\nask = ['exec(rm)']")
        .file(SETTINGS, wishes)
        .file(".mcp.json", servers)
        .file("AGENTS.md", "Be brief.")
        .file(".agents/skills/greet/SKILL.md", "---\nname: greet\ndescription: Greets.\n---\nHi.\n")
        .initialize();
    run_in_project(&agent, &["policy", "deny", "exec(git push)"]);
    let shown = project_settings(&agent);
    let has = |shown: &[String], expected: &str| {
        assert!(shown.iter().any(|it| it.starts_with(expected)), "{expected}: {shown:#?}");
    };
    has(&shown, "permissions: 1 rule that you have kept for this project from ");
    has(&shown, "permissions: 1 rule of the project from ws/.turnwright/config.toml");
    has(
        &shown,
        ".turnwright/config.toml: not trusted: 1 allow rule, mode = \"auto\", sandbox.network = \"on\" \
         ignored until you run `turnwright trust` from ws/.turnwright/config.toml",
    );
    has(&shown, ".mcp.json: not trusted: 1 MCP server not started until");
    has(&shown, "instructions: AGENTS.md from ws/AGENTS.md");
    has(&shown, "skill: greet from ws/.agents/skills/greet");
    has(&shown, "sandbox.hide: ");
    assert!(!shown.iter().any(|it| it.starts_with("mode") || it.starts_with("sandbox.network")));

    let asked = run_in_project(&agent, &["trust"]);
    for code in asked.split("--yes ").skip(1).map(|it| it.split('`').next().unwrap()) {
        run_in_project(&agent, &["trust", "--yes", code]);
    }
    let shown = project_settings(&agent);
    has(&shown, "permissions: 2 rules of the project from ws/.turnwright/config.toml");
    has(&shown, ".turnwright/config.toml: trusted: 1 allow rule");
    has(&shown, ".mcp.json: trusted: 1 MCP server from ws/.mcp.json");
    has(&shown, "mode: auto from ws/.turnwright/config.toml");
    has(&shown, "sandbox.network: on from ws/.turnwright/config.toml");
    let text = run_in_project(&agent, &["config", "show"]);
    assert!(text.contains("\nin this folder:\npermissions"), "{text}");

    std::fs::write(agent.workspace().join(SETTINGS), format!("{wishes}# more")).unwrap();
    has(
        &project_settings(&agent),
        ".turnwright/config.toml: changed since it was trusted: 1 allow",
    );
    std::fs::write(agent.workspace().join(SETTINGS), "mode = 'plan'").unwrap();
    let shown = project_settings(&agent);
    has(&shown, ".turnwright/config.toml: needs no trust");
    has(&shown, "mode: plan from ws/.turnwright/config.toml");
}

#[test]
#[cfg_attr(windows, ignore = "other variables name its folders")]
fn a_home_that_is_not_absolute_puts_nothing_into_the_current_folder() {
    const RELATIVE: &str = "relative-home-of-a-test";
    let temporary = tempfile::tempdir().unwrap();
    let mut agent = TestAgent::builder()
        .model(json!([says("One."), says("Two.")]))
        .variable("TURNWRIGHT_HOME", "")
        .variable("HOME", RELATIVE)
        .variable("XDG_STATE_HOME", RELATIVE)
        .variable("TMPDIR", temporary.path().to_str().unwrap())
        .start();
    for prompt in ["one", "two"] {
        assert_eq!(agent.turn(prompt), "end_turn");
    }
    let told = agent.thoughts();
    assert_eq!(told.matches("HOME, XDG_STATE_HOME must be an absolute path").count(), 1, "{told}");
    agent.close();
    assert!(temporary.path().join("turnwright/state/sessions.db").exists());
    assert!(!std::path::Path::new("/").join(RELATIVE).exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_settings_file_that_is_a_mount_of_its_own_can_be_changed() {
    if !crate::store::can_mount() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(FILE);
    let elsewhere = home.path().join("elsewhere.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for path in [&file, &elsewhere] {
        std::fs::write(path, "# mine\n").unwrap();
    }
    let script = r#"mount --bind "$0" "$1" && exec "$2" config set model gpt-5-mini"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).args([&elsewhere, &file]);
    command.arg(env!("CARGO_BIN_EXE_turnwright")).env("TURNWRIGHT_HOME", home.path());
    let output = process_waits::output(&mut command).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&elsewhere).unwrap();
    assert!(text.contains("# mine") && text.contains("gpt-5-mini"), "{text}");
}
