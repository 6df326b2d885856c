//! Any text as a line for a shell: what is plain is known as a whole, and means the same in every
//! shell that understands it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnwright_types::dialect::Dialect;
use turnwright::shell::{nature, pattern, read};

fuzz_target!(|line: &str| {
    let bash = read(line, Dialect::Bash);
    let posix = read(line, Dialect::Posix);
    assert!(posix.doubt.is_some() || bash == posix);
    for simple in bash.commands.iter().chain(&posix.commands) {
        drop((nature(simple), pattern(simple)));
    }
    if bash.doubt.is_none() {
        assert!(line.len() <= 8 * 1024 && bash.commands.len() <= 64);
        assert!(bash.commands.iter().all(|it| it.folder.is_some() && !it.program().is_empty()));
        return;
    }
    let words: usize = bash.commands.iter().map(|it| it.words.len()).sum();
    assert!(words <= 512 * 1024);
});
