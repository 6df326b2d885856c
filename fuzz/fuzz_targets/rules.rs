//! Any text as the rule of a file, and any path, host or line judged by it: what is understood is
//! written so that it is read again, and everything of a tool means each of its acts.

#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use turnwright::permission::{Ground, Pattern, Rule, Scope, Tier};
use turnwright_types::dialect::Dialect;
use turnwright::shell::{read};

fuzz_target!(|input: (&str, &str)| {
    let (text, sample) = input;
    let ground = Ground { roots: vec!["/ws".into()], home: Some("/home/me".into()) };
    let path = Path::new("/ws").join(sample.replace('\0', ""));
    let is_real = path.components().all(|it| matches!(it, Component::RootDir | Component::Normal(_)));
    let script = read(sample, Dialect::Bash);
    for tier in [Tier::Deny, Tier::Ask, Tier::Allow] {
        let Ok(pattern) = Pattern::parse(text, tier) else { continue };
        let again = Pattern::parse(&pattern.to_string(), tier);
        assert_eq!(again.as_ref(), Ok(&pattern), "{text:?}");
        let rule = Rule { tier, pattern, scope: Scope::User, why: None };
        let commands = script.commands.iter().any(|it| rule.matches_command(it));
        let hosts = rule.matches_host(sample);
        let paths = [false, true].map(|it| is_real && rule.matches_path(&path, it, &ground));
        // A rule is about one sort of acts.
        let sorts = [commands, hosts, paths[0] || paths[1]];
        assert!(sorts.iter().filter(|it| **it).count() <= 1, "{text:?}");
        if is_real && tier == Tier::Allow {
            assert!(!(paths[0] && paths[1]), "{text:?}");
            // What lies below is meant, too.
            if paths.contains(&true) {
                let below = path.join("below");
                assert!([false, true].iter().any(|it| rule.matches_path(&below, *it, &ground)));
            }
        }
    }
});
