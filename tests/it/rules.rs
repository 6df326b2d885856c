//! Permission rules in the settings: which rule applies, what happens to a file with an invalid rule, and
//! a project folder that contains the agent's own files.

use serde_json::{Value, json};
use turnwright_testing::process_waits;
use turnwright_testing::questions::attempt;

use crate::agent::{TestAgent, subcommand};

const FILE: &str = "config/config.toml";

fn write(agent: &mut TestAgent, path: &str) -> (usize, String) {
    attempt(agent, "write_file", &json!({ "path": path, "content": "new\n" }))
}

#[test]
fn rules_allow_ask_or_deny_and_the_strictest_wins() {
    let rules = "[permissions]\nallow = ['edit(/src/**)', 'edit(/gen)']\nask = ['edit(*.lock)']\n\
                 deny = ['read(secret)', 'exec']\n\
                 [[permissions.rule]]\neffect = 'deny'\nwhen = 'edit(/gen/frozen)'\n\
                 match = ['gen/frozen/a']\nnot = ['gen/a']\nwhy = 'it is frozen'";
    let mut agent = TestAgent::builder()
        .own_file(FILE, rules)
        .file("secret/key", "hidden")
        .permission("reject_once")
        .start();
    for (path, questions, is_there) in [
        ("src/a.rs", 0, true),
        ("gen/a", 0, true),
        ("gen/frozen/a", 0, false),
        ("src/a.lock", 1, false),
        ("other.rs", 1, false),
        ("src/../other.rs", 1, false),
        ("secret/new", 0, false),
    ] {
        let (request_count, result) = write(&mut agent, path);
        assert_eq!(
            (request_count, agent.path(path).exists()),
            (questions, is_there),
            "{path}: {result}"
        );
    }
    let (_, result) = write(&mut agent, "gen/frozen/b");
    assert!(result.contains("edit(/gen/frozen)") && result.contains("it is frozen"), "{result}");
    #[cfg(unix)]
    std::os::unix::fs::symlink("secret/key", agent.path("link")).unwrap();
    let names =
        if cfg!(unix) { &["secret/key", "link"][..] } else { &["secret/key", "secret\\key"] };
    for path in names {
        let (request_count, result) = attempt(&mut agent, "read_file", &json!({ "path": path }));
        assert!(
            request_count == 0 && result.contains("read(secret)") && !result.contains("hidden"),
            "{result}"
        );
    }
    let (request_count, result) =
        attempt(&mut agent, "exec", &json!({ "command": "touch \"$x\" mark" }));
    assert!(request_count == 0 && result.contains("A rule denies this: exec"), "{result}");
}

#[test]
fn an_invalid_rule_disables_the_allow_rules_of_its_file_and_is_reported() {
    let wrong = "[permissions]\nallow = ['edit(/src/**)', 'edit(../up)']\ndeny = ['edit(/ci)']";
    let mut agent = TestAgent::builder().own_file(FILE, wrong).permission("reject_once").start();
    assert_eq!(write(&mut agent, "src/a").0, 1);
    let (request_count, result) = write(&mut agent, "ci/a");
    assert!(request_count == 0 && result.contains("edit(/ci)"), "{result}");
    let notice = agent.thoughts();
    assert_eq!(notice.matches("`edit(../up)` is not a valid rule").count(), 1, "{notice}");
    let mut command = subcommand(agent.home(), &["config", "show"]);
    let output = process_waits::output(command.env("TURNWRIGHT_MODEL", "offline")).unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success());
    assert!(
        shown.contains("error: ") && shown.contains("`edit(../up)` is not a valid rule"),
        "{shown}"
    );
}

#[test]
fn the_agents_own_files_are_not_part_of_a_project_that_contains_them() {
    let mut agent = TestAgent::builder()
        .own_file("state/projects/x/permissions.toml", "allow = 'exec(word)'")
        .own_file("config/login.json", "the word")
        .own_file("mine/a.txt", "the word")
        .variable("TURNWRIGHT_MODE", "auto-edit")
        .permission("reject_once")
        .initialize();
    let params = json!({ "cwd": agent.home(), "mcpServers": [] });
    let answer = agent.call("session/new", &params);
    agent.session = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    for path in ["state/projects/x/permissions.toml", "state/new", "config/login.json"] {
        let (request_count, result) = write(&mut agent, path);
        assert_eq!(request_count, 1, "{path}: {result}");
    }
    let (request_count, _) = attempt(&mut agent, "read_file", &json!({ "path": "state/projects" }));
    assert_eq!(request_count, 1);
    let (request_count, result) =
        attempt(&mut agent, "grep", &json!({ "pattern": "word", "hidden": true }));
    assert!(request_count == 0 && result.contains("mine/a.txt"), "{result}");
    assert!(!result.contains("login.json") && !result.contains("permissions.toml"), "{result}");
    let (request_count, result) = write(&mut agent, "mine/b.txt");
    assert_eq!(request_count, 0, "{result}");
}

const FILE_RULES: &str = "[permissions]\ndeny = ['read(/conf/private/**)', 'read(*.key)', 'edit(*.lock)', \
                          'edit(Frozen.toml)']\nask = ['read(/diary/**)', 'edit(*.gen)', \
                          'edit(/plans/a.txt)']";

fn with_file_rules() -> TestAgent {
    let agent = TestAgent::builder()
        .own_file(FILE, FILE_RULES)
        .file(".gitignore", "target\n")
        .file("conf/private/k.txt", "hidden-1")
        .file("conf/a.txt", "open")
        .file("keys/a.key", "hidden-2")
        .file("sub/x.lock", "lock\n")
        .file("sub/Frozen.toml", "a = 1\n")
        .file("sub/b.txt", "b")
        .file("target/s.lock", "")
        .file("diary/monday", "hidden-3")
        .file("out/a.gen", "gen\n")
        .file("plans/b.txt", "b")
        .file("draft/a.txt", "a")
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("reject_once");
    agent.start()
}

#[test]
fn a_command_is_judged_by_the_rules_for_everything_in_the_folders_that_it_names() {
    let mut agent = with_file_rules();
    for (line, questions, told) in [
        ("mv conf conf2", 0, "conf/private/k.txt"),
        ("cp -r conf conf2", 0, "read(/conf/private/**)"),
        ("mkdir -p x && cp -r ./conf/* x", 0, "conf/private"),
        ("rm -rf sub", 0, "sub/"),
        ("rm -rf s*", 0, "sub/"),
        ("tar czf c.tgz conf", 0, "conf/private/k.txt"),
        ("zip -r c.zip keys", 0, "keys/a.key"),
        ("ln keys/a.key b", 0, "keys/a.key"),
        ("git mv sub other", 0, "edit("),
        ("sed -i s/a/b/ sub/x.lock", 0, "edit(*.lock)"),
        ("touch new.lock", 0, "edit(*.lock)"),
        ("dd if=plans/b.txt of=sub/x.lock", 0, "edit(*.lock)"),
        ("find sub -type f -delete", 0, "sub/"),
        ("mv {sub,draft} other", 0, "sub/"),
        ("sh -c 'mv sub other'", 0, "sub/"),
        ("x=1; mv \"sub\" \"o$y\"", 0, "sub/"),
        ("cp -r diary d", 1, "rejected"),
        ("mv diary d", 1, "rejected"),
        ("sed -i s/a/b/ out/a.gen", 1, "rejected"),
        ("rm -r out", 1, "rejected"),
        ("curl -so out/a.gen localhost:9", 1, "rejected"),
        ("cp -r draft/. plans", 1, "rejected"),
        ("cp -rT draft plans", 1, "rejected"),
        ("cd draft && cp -r . ../plans", 1, "rejected"),
        ("rsync -a draft/ plans", 1, "rejected"),
    ] {
        let (count, result) = attempt(&mut agent, "exec", &json!({ "command": line }));
        assert_eq!(count, questions, "{line}: {result}");
        assert!(result.contains(told), "{line}: {result}");
    }
    for kept in ["conf/private/k.txt", "sub/b.txt", "sub/x.lock", "diary/monday", "out/a.gen"] {
        assert!(agent.path(kept).exists(), "{kept}");
    }
    for made in ["conf2", "c.tgz", "c.zip", "b", "other", "new.lock", "d"] {
        assert!(!agent.path(made).exists(), "{made}");
    }
    let is_question = |message: &&Value| message["method"] == "session/request_permission";
    let questions: Vec<_> = agent.log.iter().filter(is_question).map(Value::to_string).collect();
    assert!(questions[0].contains("diary/monday"), "{questions:?}");
    assert!(questions[2].contains("out/a.gen"), "{questions:?}");
}

/// Whatever the words of a command say, the sandbox keeps it from the files that rules with wildcards name.
#[test]
fn a_script_cannot_touch_files_that_a_rule_with_wildcards_denies() {
    if !turnwright_sandbox::namespace_support().mounts {
        eprintln!("SKIPPED: this machine has no mount namespaces");
        return;
    }
    let mut agent = with_file_rules();
    let script = |text: &str| format!("python3 -c \"{text}\"");
    for (line, told) in [
        (script("print(open('keys/a'+'.key').read())"), ""),
        (script("print(open('conf/private/'+'k.txt').read())"), ""),
        (script("open('sub/x.'+'lock','w').write('new')"), "Read-only file system"),
        (script("import os; os.remove('sub/x.'+'lock')"), "busy"),
        (script("import os; os.rename('s'+'ub','other')"), "busy"),
        (script("open('sub/Frozen.'+'toml','w')"), "Read-only file system"),
        // A build works in folders that ignore rules exclude.
        (script("open('target/s.'+'lock','w').write('new')"), "exit 0"),
        (script("open('sub/b.'+'txt','w').write('new')"), "exit 0"),
    ] {
        let (questions, result) = attempt(&mut agent, "exec", &json!({ "command": line }));
        assert_eq!(questions, 0, "{line}: {result}");
        assert!(result.contains(told) && !result.contains("hidden-"), "{line}: {result}");
    }
    assert_eq!(agent.read("sub/x.lock"), "lock\n");
}

#[test]
fn git_in_its_own_folder_is_judged_like_git_without_a_folder() {
    let mut agent = TestAgent::builder().file("sub/a.txt", "a").permission("reject_once").start();
    let own = agent.workspace().to_string_lossy().into_owned();
    for (line, questions) in [
        ("git log".to_owned(), 0),
        ("git -C . log".to_owned(), 0),
        (format!("git -C {own} log"), 0),
        (format!("git -C {own}/ -C . status"), 0),
        (format!("cd sub && git -C {own} log"), 1),
        ("git -C sub log".to_owned(), 1),
        ("git -C .. log".to_owned(), 1),
        (format!("git -C {own} commit -m x"), 1),
    ] {
        let (count, result) = attempt(&mut agent, "exec", &json!({ "command": line }));
        assert_eq!(count, questions, "{line}: {result}");
    }
}
