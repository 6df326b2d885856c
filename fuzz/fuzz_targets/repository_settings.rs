//! Parses any text as the settings of a repository: keys have the form that git gives them, and text that
//! is appended does not change what was parsed before.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/turnwright-guard/src/repository/settings.rs"]
mod settings;

fuzz_target!(|text: &str| {
    let Ok(all) = settings::parse(text) else { return };
    for it in &all {
        let (section, key) = it.key.split_once('.').expect("a key lies in a section");
        assert!(section.len() + key.len() > 0, "{:?}", it.key);
        assert!(!it.key.bytes().any(|it| it.is_ascii_uppercase() || it.is_ascii_control()));
        assert!(it.value.as_ref().is_none_or(|it| it.len() <= text.len()));
        drop((it.name(), it.is_harmless()));
    }
    // What is appended does not change what was there.
    let more = format!("{text}\n[core]\n\tbare = false\n");
    if let Ok(longer) = settings::parse(&more) {
        assert!(longer.starts_with(&all) || text.ends_with('\\'), "{text:?}");
    }
});
