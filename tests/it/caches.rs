//! Caches of package managers: commands use them and may change them, but only for the project.

use std::fs;

use serde_json::{Value, json};

use crate::agent::{TestAgent, TestAgentBuilder, calls, eventually, runs, says};

/// A cache that holds the source of a package.
struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Cache {
        let cache = Cache(turnwright_testing::temporary_folder());
        fs::create_dir(cache.0.path().join("package")).unwrap();
        fs::write(cache.0.path().join("package/lib"), "good\n").unwrap();
        cache
    }

    /// An agent whose commands use the cache.
    fn agent(&self, script: &str, replies: Value) -> TestAgentBuilder {
        let settings = format!("[sandbox]\ncaches = [\"{}\"]\n", self.0.path().display());
        let script = script.replace("CACHE", self.0.path().to_str().unwrap());
        TestAgent::builder()
            .own_file("config/config.toml", &settings)
            .file("script", &script)
            .permission("allow_once")
            .model(replies)
    }

    fn assert_unchanged(&self) {
        assert_eq!(fs::read_to_string(self.0.path().join("package/lib")).unwrap(), "good\n");
        assert_eq!(fs::read_dir(self.0.path()).unwrap().count(), 1);
    }
}

/// Where there are no layers, caches are read-only.
fn has_layers(agent: &TestAgent) -> bool {
    let has = turnwright_sandbox::can_layer_caches(agent.home());
    if !has {
        eprintln!("NOT TESTED: there are no overlay file systems for users here");
    }
    has
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the commands are scripts of sh")]
fn what_a_command_writes_into_a_cache_stays_in_the_project() {
    let cache = Cache::new();
    let script = "
        if [ -e CACHE/new ]; then cat CACHE/new CACHE/package/lib; exit; fi
        cat CACHE/package/lib; echo evil > CACHE/package/lib; echo kept > CACHE/new";
    let replies = json!([runs("sh script"), runs("sh ./script"), says("Ok.")]);
    let mut agent = cache.agent(script, replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    cache.assert_unchanged();
    let results = agent.model_request(2)["messages"].to_string();
    assert!(results.contains("good"), "{results}");
    if has_layers(&agent) {
        assert!(results.contains("kept\\nevil"), "{results}");
    }
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the commands are scripts of sh")]
fn two_commands_at_a_time_use_a_cache() {
    let cache = Cache::new();
    let script = "
        if [ $1 = first ]; then
            echo 1 > CACHE/a; touch ready; until [ -e go ]; do sleep 0.1; done
            echo 1 > CACHE/package/b && cat CACHE/c && touch over
        else
            cat CACHE/a && echo 2 > CACHE/c && rm -r CACHE/package && mkdir CACHE/package && touch go
        fi";
    let first = calls("exec", &json!({ "command": "sh script first", "background": true }));
    let replies = json!([first, says("Ok."), runs("sh script second"), says("Ok.")]);
    let mut agent = cache.agent(script, replies).start();
    assert_eq!(agent.turn("go"), "end_turn");
    if !has_layers(&agent) {
        return;
    }
    eventually("the first is ready", || agent.path("ready").exists());
    assert_eq!(agent.turn("go on"), "end_turn");
    eventually("the first is over", || agent.path("over").exists());
    cache.assert_unchanged();
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the commands are scripts of sh")]
fn what_a_server_writes_into_a_cache_is_seen_by_no_other_program() {
    let cache = Cache::new();
    let program = turnwright_testing::example_program("scripted_server");
    let scenario = json!({ "tools": [{ "name": "echo" }] }).to_string();
    let script =
        format!("cd {}; echo evil > package/lib; exec \"$0\" \"$1\"", cache.0.path().display());
    let server = json!({ "name": "notes", "command": "/bin/sh", "env": [],
        "args": ["-c", script, program, scenario] });
    let script = "cat CACHE/package/lib";
    let replies = json!([calls("mcp__notes__echo", &json!({})), runs("sh script"), says("Ok.")]);
    let mut agent = cache.agent(script, replies).server_as(server).permission("allow_once").start();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = agent.model_request(2)["messages"].to_string();
    assert!(results.contains("good") && !results.contains("evil"), "{results}");
    cache.assert_unchanged();
    if has_layers(&agent) {
        let projects = fs::read_dir(agent.home().join("state/projects")).unwrap();
        let layers = projects.map(|it| it.unwrap().path().join("caches/servers/notes"));
        let name = cache.0.path().to_string_lossy().replace('/', "%");
        let written: Vec<_> = layers.map(|it| it.join(&name).join("upper/package/lib")).collect();
        assert!(written.iter().any(|it| fs::read_to_string(it).is_ok_and(|it| it == "evil\n")));
    }
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the commands are scripts of sh")]
fn without_layers_programs_are_led_to_a_cache_of_the_project() {
    if !turnwright_sandbox::can_confine() {
        return eprintln!("SKIPPED: this machine has no sandbox");
    }
    // Overlay file systems do not take such a path.
    let home = tempfile::Builder::new().prefix("a:b").tempdir().unwrap();
    let script = "
        cat $XDG_CACHE_HOME/kept && exit
        mkdir -p $npm_config_cache && echo 'of the project' > $XDG_CACHE_HOME/kept";
    let replies = json!([runs("sh script"), runs("sh ./script"), says("Ok.")]);
    let mut agent = TestAgent::builder()
        .file("script", script)
        .variable("TURNWRIGHT_MODE", "auto")
        .variable("TURNWRIGHT_HOME", home.path().to_str().unwrap())
        .permission("allow_once")
        .model(replies)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    let results = agent.model_request(2)["messages"].to_string();
    assert!(results.contains("of the project\\n"), "{results}");
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the command is a script of sh")]
fn a_fresh_home_gets_a_cache_that_commands_fill_for_the_project_only() {
    let home = turnwright_testing::temporary_folder();
    let script = "
        echo kept > \"$HOME/.cache/new\"; cat \"$HOME/.cache/new\"
        echo x > \"$HOME/.profile\" || echo refused
        echo retries: $PIP_RETRIES";
    let mut agent = TestAgent::builder()
        .variable("HOME", home.path().to_str().unwrap())
        .file("script", script)
        .permission("allow_once")
        .model(json!([runs("sh script"), says("Ok.")]))
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    if !has_layers(&agent) {
        return;
    }
    let results = agent.model_request(1)["messages"].to_string();
    for part in ["kept\\n", "\\nrefused\\n", "\\nretries: 0\\n"] {
        assert!(results.contains(part), "{part}: {results}");
    }
    let made: Vec<_> = fs::read_dir(home.path().join(".cache")).unwrap().collect();
    assert!(made.is_empty(), "{made:?}");
}

#[test]
#[cfg_attr(windows, ignore = "caches are shared by a sandbox, and the commands are scripts of sh")]
fn a_fresh_home_gets_the_folders_of_installers_whose_programs_do_not_go_out() {
    const FOLDERS: &str = ".ansible .bundle .conan2 .config/libreoffice .dotnet .dub .gem .hex .ivy2 .local/bin \
                           .local/lib .local/share/gem \
                           .local/share/hatch .local/share/jupyter/runtime .local/share/pipx .local/share/pypoetry \
                           .local/share/uv .local/share/virtualenvs .nuget/packages .platformio .pub-cache .rustup \
                           .mix .sbt .stack .templateengine .triton .yarn";
    let home = turnwright_testing::temporary_folder();
    let programs = turnwright_testing::temporary_folder();
    #[cfg(unix)]
    {
        let names = "ansible bundle conan dart dotnet dub gem hatch jupyter mix nvidia-smi pio pip pipenv pipx \
                     poetry rustup sbt soffice stack uv yarn";
        for program in names.split(' ') {
            turnwright_testing::write_program(&programs.path().join(program), "");
        }
    }
    let own = home.path().join(".local/bin");
    let usual = std::env::var("PATH").unwrap();
    let path = format!("{}:{usual}:{}", own.display(), programs.path().display());
    let script = format!(
        "for folder in {FOLDERS}; do echo x > \"$HOME/$folder/new\" && echo made $folder; done
        printf '#!/bin/sh\\necho planted\\n' > \"$HOME/.local/bin/git\"; chmod +x \"$HOME/.local/bin/git\""
    );
    let version = "touch x && git --version";
    let with_network = calls("exec", &json!({ "command": version, "escalate": "network" }));
    let replies = json!([runs("sh script"), runs(version), with_network, says("Ok.")]);
    let mut agent = TestAgent::builder()
        .variable("HOME", home.path().to_str().unwrap())
        .variable("PATH", &path)
        .variable("TURNWRIGHT_MODE", "auto")
        .file("script", &script)
        .permission("allow_once")
        .model(replies)
        .start();
    assert_eq!(agent.turn("go"), "end_turn");
    if !has_layers(&agent) {
        return;
    }
    let results = agent.model_request(1)["messages"].to_string();
    for folder in FOLDERS.split_whitespace() {
        assert!(results.contains(&format!("made {folder}\\n")), "{folder}: {results}");
        assert!(!home.path().join(folder).join("new").exists(), "{folder}");
    }
    let told = |number: usize| {
        let request = agent.model_request(number);
        request["messages"].as_array().unwrap().last().unwrap().to_string()
    };
    assert!(told(2).contains("planted"), "{}", told(2));
    assert!(told(3).contains("git version"), "{}", told(3));
}
