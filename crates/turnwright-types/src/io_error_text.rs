//! Errors in words, without the numbers of the operating system.

use std::io;

/// The message of an I/O error, without the numbers of the operating system, which mean nothing to people:
/// `Permission denied` instead of `Permission denied (os error 13)`.
pub fn io_error_text(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::InvalidData && error.to_string().ends_with(" valid UTF-8") {
        return "it is not UTF-8".to_owned();
    }
    without_error_numbers(&error.to_string())
}

/// Removes the numbers of operating system errors from a message.
pub fn without_error_numbers(message: &str) -> String {
    const START: &str = " (os error ";
    let mut words = String::with_capacity(message.len());
    let mut rest = message;
    while let Some((before, after)) = rest.split_once(START) {
        words.push_str(before);
        let number =
            after.find(|char: char| !char.is_ascii_digit() && char != '-').unwrap_or(after.len());
        rest = match after[number..].strip_prefix(')') {
            Some(rest) if number > 0 => rest,
            _ => {
                words.push_str(START);
                after
            }
        };
    }
    words.push_str(rest);
    words
}

/// The messages of an error and its causes, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    without_error_numbers(&text).replace(['\n', '\r'], " ")
}

/// Ends a message with a full stop, unless it ends with another mark.
pub fn as_sentence(text: String) -> String {
    if text.ends_with(['.', '?', '!', '…']) { text } else { text + "." }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_errors_are_left_out() {
        for (message, expected) in [
            ("/a: Permission denied (os error 13), sorry", "/a: Permission denied, sorry"),
            ("x (os error 2): y (os error -5)", "x: y"),
            ("a (os error 2", "a (os error 2"),
            ("a (os error )", "a (os error )"),
            ("a (os error two)", "a (os error two)"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_error_numbers(message), expected);
        }
        let missing = std::fs::File::open("/no/such/file").unwrap_err();
        assert!(missing.to_string().contains("os error"), "{missing}");
        assert!(!io_error_text(&missing).contains("os error"), "{missing}");
        let binary = io::read_to_string(&[0xff_u8][..]).unwrap_err();
        assert_eq!(io_error_text(&binary), "it is not UTF-8");
    }
}
