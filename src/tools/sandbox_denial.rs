//! Guesses from a command's output whether the sandbox made it fail. Only adds a hint; the command
//! is never run again because of it, since it may have done part of its work.

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
}
