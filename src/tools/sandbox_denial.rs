//! Guesses from a command's output whether the sandbox made it fail. Only adds a hint; the command
//! is never run again because of it, since it may have done part of its work.

use std::path::Path;

/// What programs print when the system denies something, in lower case.
const DENIAL_PHRASES: &[&str] = &[
    "could not resolve host",
    "couldn't connect to server",
    "eacces",
    "eai_again",
    "enetunreach",
    "eperm",
    "erofs",
    "failed to lookup address",
    "name or service not known",
    "network is unreachable",
    "no address associated with hostname",
    "nodename nor servname",
    "operation not permitted",
    "permission denied",
    "permissionerror",
    "read-only file system",
    "temporary failure in name resolution",
    "temporary failure resolving",
    "unable to resolve",
    "device or resource busy",
];

/// Only this many bytes at the end of the output are searched.
const SEARCHED_BYTES: usize = 16 * 1024;
/// At most this many lines of it are compared with names of files.
const MAX_LINES: usize = 200;

/// What programs print about a path that is read-only, or that git cannot replace because of that, in lower case.
const REFUSED_WRITES: &[&str] = &[
    "device or resource busy",
    "ebusy",
    "eperm",
    "erofs",
    "operation not permitted",
    "permission denied",
    "read-only file system",
];

/// The path among these, which the sandbox keeps read-only, that a line of the output names as one that cannot be
/// written: by the end of its name, or as the folder of a file.
pub(super) fn refused_path<'a>(
    output: &str,
    read_only: impl Iterator<Item = &'a Path> + Clone,
) -> Option<&'a Path> {
    let from =
        (output.len().saturating_sub(SEARCHED_BYTES)..).find(|it| output.is_char_boundary(*it))?;
    let lines = output[from..].lines().take(MAX_LINES);
    let mut refused = lines.filter(|line| {
        let line = line.to_lowercase();
        REFUSED_WRITES.iter().any(|phrase| line.contains(phrase))
    });
    refused.find_map(|line| {
        let named = read_only.clone().map(|path| (named_length(line, path), path));
        named.filter(|(length, _)| *length > 0).max_by_key(|(length, _)| *length).map(|it| it.1)
    })
}

/// The length of the longest end of a path that a line has as a word, or as the beginning of one; 0 if it has none that
/// is longer than an ordinary name.
fn named_length(line: &str, path: &Path) -> usize {
    let whole = path.to_string_lossy();
    let starts = whole.match_indices('/').map(|(at, _)| at + 1);
    let ends = std::iter::once(0).chain(starts).map(|at| &whole[at..]);
    let is_told = |end: &&str| end.starts_with('.') || end.contains('/');
    let is_part = |char: char| char.is_alphanumeric() || "/._-".contains(char);
    let is_named = |end: &&str| {
        line.match_indices(*end).any(|(at, _)| {
            let before = line[..at].strip_suffix("./").unwrap_or(&line[..at]);
            let after = &line[at + end.len()..];
            !before.ends_with(is_part) && (after.starts_with('/') || !after.starts_with(is_part))
        })
    };
    ends.filter(is_told).find(is_named).map_or(0, str::len)
}

/// Whether the output of a failed command mentions a denied operation.
pub(super) fn is_likely(output: &str) -> bool {
    let from = output.len().saturating_sub(SEARCHED_BYTES);
    let end = String::from_utf8_lossy(&output.as_bytes()[from..]).to_lowercase();
    DENIAL_PHRASES.iter().any(|it| end.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandbox_denials_are_recognized_by_typical_messages() {
        for output in [
            "sh: 1: cannot create /etc/x: Permission denied",
            "touch: cannot touch '/x': Read-only file system",
            "curl: (6) Could not resolve host: a.example",
            "npm ERR! code EAI_AGAIN",
            "PermissionError: [Errno 13]",
            "ping: socket: Operation not permitted",
        ] {
            assert!(is_likely(output), "{output}");
        }
        for output in ["", "error: test failed", "assertion `left == right` failed"] {
            assert!(!is_likely(output), "{output}");
        }
        assert!(!is_likely(&format!("permission denied{}", "é".repeat(SEARCHED_BYTES))));
    }

    #[test]
    fn a_protected_path_that_a_program_could_not_write_is_named() {
        let read_only =
            ["/ws/.git/config", "/ws/.git/hooks", "/ws/sub/.git/config", "/ws/.envrc", "/ws/x"];
        for (output, expected) in [
            (
                "error: could not lock config file .git/config: Read-only file system",
                "/ws/.git/config",
            ),
            (
                "adding\nerror: could not write config file /ws/.git/config: Device or resource busy\n",
                "/ws/.git/config",
            ),
            ("sh: 1: cannot create .git/hooks/pre-commit: Read-only file system", "/ws/.git/hooks"),
            ("EROFS: read-only file system, open '/ws/.git/hooks/pre-push'", "/ws/.git/hooks"),
            ("cannot create ./.envrc: Read-only file system", "/ws/.envrc"),
            ("error: sub/.git/config: Device or resource busy", "/ws/sub/.git/config"),
            ("error: could not lock config file .git/config: File exists", ""),
            ("touch: /etc/x: Read-only file system", ""),
            ("touch: other.git/config: Read-only file system", ""),
            ("touch: .git/config.bak: Read-only file system", ""),
            (".git/config\nx: Read-only file system", ""),
            ("", ""),
        ] {
            let paths = read_only.iter().map(Path::new);
            let found = refused_path(output, paths).unwrap_or(Path::new(""));
            assert_eq!(found, Path::new(expected), "{output}");
        }
    }
}
