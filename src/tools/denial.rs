//! Whether a command has failed because it met a wall, as far as its words tell. Nothing is run
//! again because of that: what it had done by then is done.

/// What programs say. In lower case.
const WORDS: &[&str] = &[
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

/// Bytes of the output's end that are looked at.
const END: usize = 16 * 1024;

/// Whether output, of a command that has failed, speaks of something that was not let.
pub(super) fn is_likely(output: &str) -> bool {
    let from = output.len().saturating_sub(END);
    let end = String::from_utf8_lossy(&output.as_bytes()[from..]).to_lowercase();
    WORDS.iter().any(|it| end.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walls_are_known_by_what_programs_say_when_they_meet_them() {
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
        assert!(!is_likely(&format!("permission denied{}", "é".repeat(END))));
    }
}
