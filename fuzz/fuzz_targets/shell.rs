//! Parses any text as a shell line: an unambiguous line is understood as a whole, and means the same in
//! every dialect in which it is unambiguous.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_types::shell_script::ShellDialect;
use turnwright_policy::shell::{classify, parse, suggest_prefix};

fuzz_target!(|line: &str| {
    let bash = parse(line, ShellDialect::Bash);
    let posix = parse(line, ShellDialect::Posix);
    assert!(posix.ambiguity.is_some() || bash == posix);
    for simple in bash.commands.iter().chain(&posix.commands) {
        drop((classify(simple), suggest_prefix(simple)));
    }
    if bash.ambiguity.is_none() {
        assert!(line.len() <= 8 * 1024 && bash.commands.len() <= 64);
        assert!(bash.commands.iter().all(|it| it.folder.is_some() && !it.program().is_empty()));
        return;
    }
    let words: usize = bash.commands.iter().map(|it| it.words.len()).sum();
    assert!(words <= 512 * 1024);
});
