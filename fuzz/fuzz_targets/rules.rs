//! Parses any text as a rule, and matches any path, host or line with it: a parsed pattern round-trips,
//! and a rule is about one kind of effect only.

#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use turnwright_policy::permission::{PathBases, Pattern, Rule, RuleAction, Scope};
use turnwright_types::shell_script::ShellDialect;
use turnwright_policy::shell::parse;

fuzz_target!(|input: (&str, &str)| {
    let (text, sample) = input;
    let bases = PathBases { roots: vec!["/ws".into()], home: Some("/home/me".into()) };
    let path = Path::new("/ws").join(sample.replace('\0', ""));
    let is_real = path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)));
    let script = parse(sample, ShellDialect::Bash);
    for action in [RuleAction::Deny, RuleAction::Ask, RuleAction::Allow] {
        let Ok(pattern) = Pattern::parse(text, action) else { continue };
        let again = Pattern::parse(&pattern.to_string(), action);
        assert_eq!(again.as_ref(), Ok(&pattern), "{text:?}");
        let rule = Rule { action, pattern, scope: Scope::User, why: None };
        let commands = script.commands.iter().any(|it| rule.matches_command(it));
        let hosts = rule.matches_host(sample);
        let paths = [false, true].map(|it| is_real && rule.matches_path(&path, it, &bases));
        // A rule is about one kind of effect.
        let kinds = [commands, hosts, paths[0] || paths[1]];
        assert!(kinds.iter().filter(|it| **it).count() <= 1, "{text:?}");
        if is_real && action == RuleAction::Allow {
            assert!(!(paths[0] && paths[1]), "{text:?}");
            // A match includes everything below it.
            if paths.contains(&true) {
                let below = path.join("below");
                assert!([false, true].iter().any(|it| rule.matches_path(&below, *it, &bases)));
            }
        }
    }
});
