//! The answers for the session to questions about access beyond the sandbox, and what each of them covers.

use super::{
    AuditEntry, AuditEvent, Decision, Grants, Judgement, Mode, PathBases, PolicyRules,
    ProtectedPaths, Reason, Rule, RuleAction, Scope, Verdict, decide, judge,
};
use crate::shell;
use turnwright_types::client::{ChoiceKind, PermissionAnswer};
use turnwright_types::effect::{
    Effect, ExtraAccess, PathScope, ResolvedPath, ShellCommand, Uncertainty,
};
use turnwright_types::shell_script::ShellDialect;

fn policy() -> PolicyRules {
    let bases = PathBases { roots: vec!["/ws".into()], home: None };
    let protected = ProtectedPaths::new(vec!["/ws".into()], Vec::new());
    PolicyRules { bases, protected, can_confine: true, ..PolicyRules::default() }
}

fn outside(path: &str) -> ResolvedPath {
    ResolvedPath { path: path.into(), scope: PathScope::Outside }
}

/// Access in words: `network`, `debug`, `sign`, `full`, `/path`, `host:port` or `publish:port`, separated by blanks.
fn access(words: &str) -> ExtraAccess {
    let mut access = ExtraAccess::default();
    for word in words.split_whitespace() {
        match word {
            "network" => access.network = true,
            "debug" => access.debug = true,
            "sign" => access.sign = true,
            "full" => access.unsandboxed = true,
            path if path.starts_with('/') => access.writes.push(outside(path)),
            other => match other.strip_prefix("publish:") {
                Some(port) => access.publishes.push(port.parse().unwrap()),
                None => access.connects.push(other.parse().unwrap()),
            },
        }
    }
    access
}

fn command(line: &str, words: &str) -> ShellCommand {
    ShellCommand { extra_access: access(words), ..shell::command(line, "/ws", ShellDialect::Bash) }
}

fn effects(line: &str, words: &str) -> Vec<Effect> {
    vec![Effect::Exec(Box::new(command(line, words)))]
}

/// A command about which its words do not tell everything, because of a repository.
fn uncertain(line: &str, words: &str, only_runs_programs: bool) -> Vec<Effect> {
    let reason = "the repository is not known".to_owned();
    let uncertainty = Some(Uncertainty { reason, only_runs_programs });
    vec![Effect::Exec(Box::new(ShellCommand { uncertainty, ..command(line, words) }))]
}

fn decided(mode: Mode, grants: &Grants, line: &str, words: &str) -> Decision {
    decide(&policy(), mode, grants, &effects(line, words))
}

/// The answers for the session.
fn offered(policy: &PolicyRules, mode: Mode, effects: Vec<Effect>) -> Vec<(ChoiceKind, String)> {
    let judged = judge(policy, mode, &Grants::default(), effects);
    let Judgement::NeedsApproval(asked) = judged else { return Vec::new() };
    let choices = asked.choices().into_iter();
    let lasting =
        [ChoiceKind::AllowSession, ChoiceKind::AllowSessionForAll, ChoiceKind::AllowAllCommands];
    choices
        .filter(|choice| lasting.contains(&choice.kind))
        .map(|choice| (choice.kind, choice.name))
        .collect()
}

fn answered(mode: Mode, kind: ChoiceKind, line: &str, words: &str) -> Grants {
    let mut grants = Grants::default();
    let asked = match judge(&policy(), mode, &grants, effects(line, words)) {
        Judgement::NeedsApproval(asked) => asked,
        other => panic!("{line}: {other:?}"),
    };
    asked.resolve(PermissionAnswer::Chosen(kind), &policy(), mode, &mut grants).unwrap();
    grants
}

/// The answers for the session, without the words that all of them have.
fn answers(mode: Mode, line: &str, words: &str) -> String {
    let answers = offered(&policy(), mode, effects(line, words)).into_iter();
    let short = answers.map(|(_, name)| {
        let name = name.strip_prefix("Allow ").unwrap();
        name.strip_suffix(" in this session").unwrap().to_owned()
    });
    short.collect::<Vec<_>>().join(" | ")
}

#[test]
fn each_question_about_access_offers_a_narrow_and_a_wide_answer_for_the_session() {
    let network = "network for all commands";
    let exactly = "exactly this command with network";
    for (mode, line, words, narrow, wide) in [
        (Mode::Auto, "npm install left-pad", "", "`npm install …` with network", network),
        (Mode::Auto, "npm install x", "network", "`npm install …` with network", network),
        (Mode::Auto, "pip install -r a.txt", "", "`pip install …` with network", network),
        (Mode::Auto, "uv sync", "", "`uv sync …` with network", network),
        (Mode::Auto, "cargo add serde", "", "`cargo add …` with network", network),
        (Mode::Auto, "git fetch origin", "", "`git fetch …` with network", network),
        (Mode::Auto, "go mod download", "", "`go mod download …` with network", network),
        (
            Mode::Auto,
            "cd sub && npm i && npm test",
            "network",
            "`npm i …` and `npm test …` with network",
            network,
        ),
        (
            Mode::AutoEdit,
            "npm install",
            "network",
            "`npm install …` with network",
            "`npm install …`, and network for all commands,",
        ),
        (
            Mode::Auto,
            "cargo test",
            "/x",
            "`cargo test …` with write access to `/x`",
            "write access to `/x` for all commands",
        ),
        (
            Mode::Auto,
            "pytest",
            "127.0.0.1:5432 [::1]:5432",
            "`pytest …` with connections to `localhost:5432`",
            "connections to `localhost:5432` for all commands",
        ),
        (
            Mode::Auto,
            "cargo test",
            "debug",
            "`cargo test …` with debugging",
            "debugging for all commands",
        ),
        (
            Mode::Auto,
            "npm run dev",
            "publish:5173",
            "`npm run dev …` with port 5173 open to your programs",
            "port 5173 open to your programs for all commands",
        ),
        (
            Mode::Auto,
            "npm i",
            "network /x",
            "`npm i …` with network and write access to `/x`",
            "network and write access to `/x` for all commands",
        ),
        // The first words do not say what these do or where they send it.
        (Mode::Auto, "git push origin main", "", exactly, network),
        (Mode::Auto, "curl -s https://a.example", "", exactly, network),
        (Mode::Auto, "sh ./x.sh", "network", exactly, network),
        (Mode::Auto, "python3 x.py", "network", exactly, network),
        (Mode::Auto, "timeout 9 npm install", "", exactly, network),
        (Mode::Auto, "npm install --prefix /x", "", exactly, network),
        (Mode::Auto, "npm install && ./x", "", exactly, network),
        // Only what is allowed for longer than once is offered for all.
        (Mode::Ask, "python3 x.py", "network", exactly, ""),
        (Mode::Auto, "sudo npm i", "", exactly, ""),
        // A line that is not understood is never more than itself.
        (Mode::Auto, "curl \"$X\"", "network", exactly, ""),
        (Mode::Ask, "x=$(date); npm install", "network", exactly, ""),
        (Mode::Auto, "NODE_OPTIONS=x npm install", "network", exactly, ""),
        (Mode::Auto, "make", "full", "exactly this command without the sandbox", ""),
        (Mode::Ask, "make \"$X\"", "full", "exactly this command without the sandbox", ""),
        // What destroys, publishes or is protected asks each time.
        (Mode::Auto, "git push --force", "", "", ""),
        (Mode::Auto, "npm publish", "", "", ""),
        (Mode::Auto, "git reset --hard", "full", "", ""),
        (Mode::Ask, "git reset --hard", "network", "", ""),
        (Mode::Auto, "touch x", "/ws/.git/hooks/x", "", ""),
        (Mode::Auto, "touch x", "/x\u{202e}y", "", ""),
    ] {
        let expected: Vec<_> =
            [narrow, wide].into_iter().filter(|answer| !answer.is_empty()).collect();
        assert_eq!(answers(mode, line, words), expected.join(" | "), "{mode:?} {line} [{words}]");
    }
}

#[test]
fn an_answer_for_the_session_covers_what_it_says_and_no_more() {
    let narrow = ChoiceKind::AllowSession;
    let wide = ChoiceKind::AllowSessionForAll;
    let both = "127.0.0.1:5432 [::1]:5432";
    for (kind, line, words, allowed, asked) in [
        (
            narrow,
            "npm install",
            "network",
            &[
                ("npm install", ""),
                ("npm install left-pad", "network"),
                ("cd sub && npm install", "network"),
                ("npm install && cat a.txt", "network"),
            ][..],
            &[
                ("npm test", "network"),
                ("npm ci", ""),
                ("npm install && npm test", "network"),
                ("npm install && curl https://a.example", ""),
                ("npm install --prefix /x", "network"),
                ("npm install \"$X\"", "network"),
                ("X=1 npm install", "network"),
                ("cat a.txt", "network"),
                ("npm install", "network /x"),
                ("npm install", "127.0.0.1:5432"),
                ("npm install", "full"),
            ][..],
        ),
        (
            wide,
            "npm install",
            "network",
            &[("pip install x", ""), ("make", "network"), ("curl \"$X\"", "network")],
            &[
                ("make", "network debug"),
                ("make", "/x"),
                ("make", "127.0.0.1:80"),
                ("make", "full"),
                ("git push --force", ""),
                ("touch x", "network /ws/.git/hooks/x"),
            ],
        ),
        (
            narrow,
            "x=$(date); make",
            "network",
            &[("x=$(date); make", "network")],
            &[
                ("x=$(date); make all", "network"),
                ("x=$(date); make", "network /x"),
                ("make", "network"),
            ],
        ),
        (
            narrow,
            "make x",
            "full",
            &[("make x", "full")],
            &[("make", "full"), ("make x y", "full"), ("make x; make x", "full")],
        ),
        (
            wide,
            "cargo test",
            "/x",
            &[("make", "/x"), ("python3 a.py", "/x")],
            &[("make", "/y"), ("make", "/x/y"), ("make", "/x network"), ("make", "/")],
        ),
        (
            narrow,
            "cargo test",
            both,
            &[("cargo test -q", "127.0.0.1:5432"), ("cargo test", both)],
            &[("cargo test", "127.0.0.1:5433"), ("cargo build", both), ("cargo test", "network")],
        ),
        (
            wide,
            "npm run dev",
            "publish:5173",
            &[("npm start", "publish:5173")],
            &[("npm start", "publish:5174"), ("npm start", "127.0.0.1:5173")],
        ),
        (wide, "cargo test", "debug", &[("make", "debug")], &[("make", "full")]),
    ] {
        let grants = answered(Mode::Auto, kind, line, words);
        for (line, words) in allowed {
            let verdict = decided(Mode::Auto, &grants, line, words).verdict();
            assert_eq!(verdict, Verdict::Allow, "{line} [{words}]");
            assert_eq!(decided(Mode::Plan, &grants, line, words).verdict(), Verdict::Deny);
        }
        for (line, words) in asked {
            let verdict = decided(Mode::Auto, &grants, line, words).verdict();
            assert_eq!(verdict, Verdict::Ask, "{line} [{words}]");
        }
    }
}

#[test]
fn a_command_in_another_folder_is_not_the_exact_one() {
    let grants = answered(Mode::Auto, ChoiceKind::AllowSession, "make", "full");
    let elsewhere = ShellCommand { workdir: "/ws/sub".into(), ..command("make", "full") };
    let effects = [Effect::Exec(Box::new(elsewhere))];
    assert_eq!(decide(&policy(), Mode::Auto, &grants, &effects).verdict(), Verdict::Ask);
}

#[test]
fn what_needs_the_network_gets_it_from_the_answer_for_the_session_and_access_is_no_permission_to_run()
 {
    let grants = answered(Mode::Ask, ChoiceKind::AllowSession, "npm install", "network");
    for mode in [Mode::Ask, Mode::AutoEdit, Mode::Auto] {
        let decision = decided(mode, &grants, "npm install x", "");
        assert_eq!((decision.verdict(), decision.has(&Reason::Network)), (Verdict::Allow, true));
    }
    let grants = answered(Mode::Auto, ChoiceKind::AllowSessionForAll, "npm install", "network");
    let decision = decided(Mode::Ask, &grants, "make", "network");
    assert_eq!(decision.verdict(), Verdict::Ask, "{decision:?}");
    let decision = decided(Mode::Auto, &grants, "make", "");
    assert!(!decision.has(&Reason::Network), "{decision:?}");
}

#[test]
fn rules_hold_for_what_a_command_asks_to_write() {
    let grants = answered(Mode::Auto, ChoiceKind::AllowSessionForAll, "make", "/x");
    let rule = |action| Rule::parse("edit(//x)", action, Scope::User).unwrap();
    for (action, expected) in [(RuleAction::Deny, Verdict::Deny), (RuleAction::Ask, Verdict::Ask)] {
        let policy = PolicyRules { rules: vec![rule(action)], ..policy() };
        let decision = decide(&policy, Mode::Auto, &grants, &effects("make", "/x"));
        assert_eq!(decision.verdict(), expected);
    }
}

#[test]
fn where_nothing_bounds_a_line_that_is_not_understood_it_asks_each_time() {
    let policy = PolicyRules { can_confine: false, ..policy() };
    for words in ["network", "full"] {
        let offered = offered(&policy, Mode::Ask, effects("make \"$X\"", words));
        assert!(offered.is_empty(), "{offered:?}");
    }
}

#[test]
fn several_values_are_one_question_with_a_list() {
    let words = "network /x debug 127.0.0.1:5432 [::1]:5432 publish:5173";
    let asked = match judge(&policy(), Mode::Auto, &Grants::default(), effects("make", words)) {
        Judgement::NeedsApproval(asked) => asked,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        asked.title(&policy(), "make".to_owned()),
        "[with network, may write /x, may debug, may reach localhost:5432, lets your programs reach its port 5173] make"
    );
    expect_test::expect![[r"
        - ✓ `make` – allowed in auto mode
        - ⚠ asks for network access, to write `/x`, to trace and debug its own processes, to connect to `localhost:5432` and to open its port 5173 to your own programs (`localhost:5173`)
        - in the sandbox: may change the project, `/x`; with network; debugging; connections to `localhost:5432`; port 5173 open to your programs
        - Outside the project: `/x`
        - “Always” means `exactly this command` with network, write access to `/x`, debugging, connections to `localhost:5432` and port 5173 open to your programs, or network, write access to `/x`, debugging, connections to `localhost:5432` and port 5173 open to your programs for all commands"]]
    .assert_eq(&asked.description(&policy(), Mode::Auto));
}

#[test]
fn a_question_about_signing_says_that_hooks_can_sign_too() {
    let asked = match judge(
        &policy(),
        Mode::Auto,
        &Grants::default(),
        effects("git commit -m x", "sign"),
    ) {
        Judgement::NeedsApproval(asked) => asked,
        other => panic!("{other:?}"),
    };
    let text = asked.description(&policy(), Mode::Auto);
    assert!(text.contains("(hooks of the repository and other programs that it starts can sign"));
}

#[test]
fn an_answer_about_signing_holds_for_commands_of_git_that_change_something() {
    let grants = answered(Mode::Auto, ChoiceKind::AllowSessionForAll, "git commit -m x", "sign");
    for (line, signs, only_reads) in [
        ("git commit -m y", true, false),
        ("git status && git tag v1", true, false),
        ("git status; cat a", false, true),
        ("git status; make", false, false),
        ("make", false, false),
    ] {
        let decision = decided(Mode::Auto, &grants, line, "");
        assert_eq!(decision.verdict(), Verdict::Allow, "{line}");
        assert_eq!(decision.has(&Reason::Signing), signs, "{line}");
        assert_eq!(decision.runs_only_readers(&effects(line, "")), only_reads, "{line}");
    }
    assert_eq!(decided(Mode::Plan, &grants, "git commit -m y", "").verdict(), Verdict::Deny);
}

#[test]
fn what_the_sandbox_does_not_bound_has_no_answer_for_the_session() {
    let exact = ChoiceKind::AllowSession;
    let all = ChoiceKind::AllowAllCommands;
    for (mode, line, words, bounded) in [
        (Mode::Ask, "git archive HEAD", "", &[exact, all][..]),
        (Mode::AutoEdit, "x=$(date); git archive HEAD", "", &[exact, all]),
        (Mode::Auto, "git archive HEAD", "network", &[exact]),
        (Mode::Auto, "git push", "", &[exact]),
        (Mode::Ask, "git archive HEAD", "full", &[exact]),
    ] {
        for (only_runs_programs, expected) in [(true, bounded), (false, &[][..])] {
            let asked = uncertain(line, words, only_runs_programs);
            let offered = offered(&policy(), mode, asked).into_iter();
            let kinds: Vec<_> = offered.map(|(kind, _)| kind).collect();
            assert_eq!(kinds, expected, "{mode:?} {line} [{words}] {only_runs_programs}");
        }
    }
    // No earlier answer about the same line covers it, either.
    for (only_runs_programs, expected) in [(true, Verdict::Allow), (false, Verdict::Ask)] {
        let effects = uncertain("git archive HEAD", "", only_runs_programs);
        let mut grants = Grants::default();
        grants.allow_exactly(effects[0].clone());
        assert_eq!(decide(&policy(), Mode::Ask, &grants, &effects).verdict(), expected);
    }
}

#[test]
fn programs_of_a_repository_get_what_answers_open_only_after_a_question() {
    let wide = ChoiceKind::AllowSessionForAll;
    let sign = answered(Mode::Auto, wide, "git commit -m x", "sign");
    let network = answered(Mode::Auto, wide, "npm install", "network");
    for (grants, line, in_repository_with_programs) in [
        (&sign, "git commit -am y", Verdict::Ask),
        (&sign, "git status && git tag v1", Verdict::Ask),
        (&sign, "git status", Verdict::Allow),
        (&network, "git commit -am y && npm install", Verdict::Ask),
        (&network, "git commit -am y", Verdict::Allow),
    ] {
        let plain = decided(Mode::Auto, grants, line, "");
        assert_eq!(plain.verdict(), Verdict::Allow, "{line}");
        let found = decide(&policy(), Mode::Auto, grants, &uncertain(line, "", true));
        assert_eq!(found.verdict(), in_repository_with_programs, "{line}");
    }
    // An older answer about exactly this line was given without the access.
    for (grants, line) in
        [(&sign, "git commit -am y"), (&network, "git commit -am y && npm install")]
    {
        let effects = uncertain(line, "", true);
        let mut grants = grants.clone();
        grants.allow_exactly(effects[0].clone());
        assert_eq!(decide(&policy(), Mode::Auto, &grants, &effects).verdict(), Verdict::Ask);
    }
}

#[test]
fn the_title_has_the_access_that_answers_of_the_session_give() {
    let wide = ChoiceKind::AllowSessionForAll;
    let grants = answered(Mode::Auto, wide, "git commit -m x", "sign");
    for (line, words, expected) in [
        ("git commit -m y", "", "[may sign] git commit -m y"),
        ("git commit -m y", "sign", "[may sign] git commit -m y"),
        ("git commit -m y", "network", "[with network, may sign] git commit -m y"),
        ("git commit -m y", "full", "[without the sandbox] git commit -m y"),
        ("make", "", "make"),
    ] {
        let asked = match judge(&policy(), Mode::Ask, &grants, effects(line, words)) {
            Judgement::NeedsApproval(asked) => asked,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(asked.title(&policy(), line.to_owned()), expected, "[{words}]");
    }
}

#[test]
fn the_audit_log_says_what_let_a_command_run_before_the_access_that_it_got() {
    let wide = ChoiceKind::AllowSessionForAll;
    let sign = answered(Mode::Auto, wide, "git commit -m x", "sign");
    let network = answered(Mode::Auto, wide, "npm install", "network");
    for (grants, line, words, expected) in [
        (
            &sign,
            "git commit -m y",
            "",
            "allowed in auto mode; may sign, as you have allowed in this session",
        ),
        (&sign, "make", "", "allowed in auto mode"),
        (&sign, "git push --force", "", "needs the network, which it gets if you allow it"),
        (
            &network,
            "make",
            "network",
            "allowed in auto mode; allowed in this session: with network",
        ),
    ] {
        let effects = effects(line, words);
        let decision = decide(&policy(), Mode::Auto, grants, &effects);
        let site = (&policy(), Mode::Auto);
        let entry = AuditEntry::new(AuditEvent::Ran, "s", site, &effects, &decision);
        assert_eq!(entry.reason, expected, "{line}");
    }
}

#[test]
fn a_call_knows_of_access_beyond_the_sandbox_wherever_it_comes_from() {
    for (answered_words, line, words, expected) in [
        ("network", "npm install", "", true),
        ("network", "make", "network", true),
        ("network", "make", "", false),
        ("sign", "git commit -m x", "", true),
        ("sign", "make", "", false),
        ("/x", "make", "/x", true),
        ("127.0.0.1:5432", "make", "127.0.0.1:5432", true),
        ("debug", "make", "debug", true),
        ("publish:80", "make", "publish:80", true),
    ] {
        let grants = answered(Mode::Auto, ChoiceKind::AllowSessionForAll, "make", answered_words);
        let pass = match judge(&policy(), Mode::Auto, &grants, effects(line, words)) {
            Judgement::Allowed(pass) => pass,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(pass.has_extra_access(), expected, "{line} [{words}]");
    }
    // Its output may go to a file of the project.
    let log = ResolvedPath { path: "/ws/log".into(), scope: PathScope::Workspace };
    let mut effects = effects("make", "");
    effects.push(Effect::Write(log));
    let Judgement::Allowed(pass) = judge(&policy(), Mode::Auto, &Grants::default(), effects) else {
        panic!("a question");
    };
    assert!(!pass.has_extra_access());
}

#[test]
fn commands_that_the_sandbox_bounds_offer_an_answer_for_this_line_and_one_for_all() {
    let all = "all commands in the sandbox";
    for (line, narrow) in [
        ("npm test", "`npm test …`"),
        ("node --check a.js", "exactly this command"),
        ("python3 - <<X\nprint(1)\nX", "exactly this command"),
        ("nice npm run x", "exactly this command"),
        ("timeout 9 npm test", "`npm test …`"),
        ("x=$(date); ./$x", "exactly this command"),
    ] {
        for mode in [Mode::Ask, Mode::AutoEdit] {
            assert_eq!(answers(mode, line, ""), format!("{narrow} | {all}"), "{line}");
        }
        assert_eq!(decided(Mode::Auto, &Grants::default(), line, "").verdict(), Verdict::Allow);
    }
    // Whatever asks in `auto`, too, has neither.
    for line in ["git reset --hard", "git clean -fd", "rm -rf \"$x\""] {
        assert_eq!(answers(Mode::AutoEdit, line, ""), "", "{line}");
    }
    // So has a command that would fail with them.
    let online = PolicyRules { has_network: true, ..policy() };
    for line in ["git push", "npm install && npm test", "x=$(date); curl a.example"] {
        assert_eq!(answers(Mode::AutoEdit, line, ""), "", "{line}");
        let offered = offered(&online, Mode::AutoEdit, effects(line, "")).into_iter();
        let kinds: Vec<_> = offered.map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [ChoiceKind::AllowSession, ChoiceKind::AllowAllCommands], "{line}");
    }
    let without = PolicyRules { can_confine: false, ..policy() };
    assert_eq!(offered(&without, Mode::Ask, effects("node --check a.js", "")), []);
    let limited = PolicyRules { max_mode: Mode::AutoEdit, ..policy() };
    let kinds: Vec<_> = offered(&limited, Mode::Ask, effects("npm test", ""))
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, [ChoiceKind::AllowSession]);
}

#[test]
fn after_an_answer_for_all_commands_only_those_ask_that_ask_in_auto() {
    let grants = answered(Mode::AutoEdit, ChoiceKind::AllowAllCommands, "npm test", "");
    let verdict = |mode, line, words| decided(mode, &grants, line, words).verdict();
    for (line, words, expected) in [
        ("make", "", Verdict::Allow),
        ("python3 a.py && x=$(date)", "", Verdict::Allow),
        ("rm -rf notes", "", Verdict::Allow),
        ("npm install", "", Verdict::Ask),
        ("make", "network", Verdict::Ask),
        ("make", "full", Verdict::Ask),
        ("git reset --hard", "", Verdict::Ask),
        ("rm -rf \"$x\"", "", Verdict::Ask),
        ("rm -rf /", "", Verdict::Deny),
    ] {
        assert_eq!(verdict(Mode::AutoEdit, line, words), expected, "{line}");
        assert_eq!(decided(Mode::Auto, &Grants::default(), line, words).verdict(), expected);
    }
    assert_eq!(verdict(Mode::Plan, "make", ""), Verdict::Deny);
    let file = ResolvedPath { path: "/ws/a".into(), scope: PathScope::Workspace };
    for effect in [Effect::Delete(file), Effect::Fetch { host: "a.example".to_owned() }] {
        let decided = decide(&policy(), Mode::AutoEdit, &grants, &[effect]);
        assert_eq!(decided.verdict(), Verdict::Ask);
    }
    // The administrator's limit may have become stricter since.
    let limited = PolicyRules { max_mode: Mode::AutoEdit, ..policy() };
    let decided = decide(&limited, Mode::AutoEdit, &grants, &effects("make", ""));
    assert_eq!(decided.verdict(), Verdict::Ask);
}

#[test]
fn what_all_commands_print_goes_to_files_of_the_project_without_a_question() {
    let grants = answered(Mode::AutoEdit, ChoiceKind::AllowAllCommands, "npm test", "");
    let rule = Rule::parse("edit(/asked)", RuleAction::Ask, Scope::User).unwrap();
    let policy = PolicyRules { rules: vec![rule], ..policy() };
    let private_tmp = PathScope::PrivateTmp { depth: 1 };
    for (path, scope, expected) in [
        ("/ws/log", PathScope::Workspace, Verdict::Allow),
        ("/tmp/log", private_tmp, Verdict::Allow),
        ("/ws/asked", PathScope::Workspace, Verdict::Ask),
        ("/ws/.envrc", PathScope::Workspace, Verdict::Ask),
        ("/etc/log", PathScope::Outside, Verdict::Ask),
    ] {
        let target = ResolvedPath { path: path.into(), scope };
        let mut effects = effects("npm test", "");
        effects.push(Effect::Write(target.clone()));
        assert_eq!(decide(&policy, Mode::Ask, &grants, &effects).verdict(), expected, "{path}");
        // A file tool that writes the same asks.
        let written = [Effect::Write(target)];
        assert_eq!(decide(&policy, Mode::Ask, &grants, &written).verdict(), Verdict::Ask, "{path}");
    }
}

#[test]
fn an_answer_for_all_commands_is_about_input_to_those_in_the_sandbox() {
    let grants = answered(Mode::AutoEdit, ChoiceKind::AllowAllCommands, "npm test", "");
    for (is_unsandboxed, has_extra_access, expected) in
        [(false, false, Verdict::Allow), (false, true, Verdict::Ask), (true, true, Verdict::Ask)]
    {
        let job = "p1".to_owned();
        let effects = vec![Effect::Input { job, is_unsandboxed, has_extra_access }];
        assert_eq!(decide(&policy(), Mode::Ask, &grants, &effects).verdict(), expected);
        let kinds: Vec<_> =
            offered(&policy(), Mode::Ask, effects).into_iter().map(|(kind, _)| kind).collect();
        let answers: &[ChoiceKind] = match (is_unsandboxed, has_extra_access) {
            (true, _) => &[],
            (false, true) => &[ChoiceKind::AllowSession],
            (false, false) => &[ChoiceKind::AllowSession, ChoiceKind::AllowAllCommands],
        };
        assert_eq!(kinds, answers, "{is_unsandboxed} {has_extra_access}");
    }
}
