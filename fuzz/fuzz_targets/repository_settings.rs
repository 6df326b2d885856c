//! Any text as the settings of a repository: keys are what git would call them, and nothing that is
//! harmless may have a name that nobody can read.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/tools/repository/settings.rs"]
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
    // What comes after does not change what was there.
    let more = format!("{text}\n[core]\n\tbare = false\n");
    if let Ok(longer) = settings::parse(&more) {
        assert!(longer.starts_with(&all) || text.ends_with('\\'), "{text:?}");
    }
});
