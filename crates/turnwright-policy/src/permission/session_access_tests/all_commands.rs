//! The answer for the session that covers all commands in the sandbox.

use super::*;

#[test]
fn commands_that_the_sandbox_bounds_offer_an_answer_for_this_line_and_one_for_all() {
    let all = "all commands in the sandbox";
    for (line, narrow) in [
        ("npm test", "`npm test …`"),
        ("node --check a.js", "exactly this command"),
        ("python3 - <<X\nprint(1)\nX", "exactly this command"),
        ("timeout 9 npm run x", "exactly this command"),
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
