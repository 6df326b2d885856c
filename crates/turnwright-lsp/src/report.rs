//! Compares the errors that a server finds in a file before and after an edit, and reports the new ones. Their places
//! are ignored, because an edit moves all text below it.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::catalogue::shown_words;
use crate::protocol::{Encoding, MAX_ERRORS, Problem};
use turnwright_types::effect::{escape_hidden, escape_hidden_line};
use turnwright_types::text;

/// The most errors of a file that are listed.
const MAX_TOLD: usize = 10;
/// The reason why nothing is known if the list of earlier errors was cut off.
const TOO_MANY: &str = "it had more errors before than are compared";

/// The report of a server about a file that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The name of the server.
    pub server: String,
    pub file: PathBuf,
    /// The new errors, each with its line and column, or the reason why they are not known, as part of a sentence.
    pub new_errors: Result<Vec<String>, String>,
}

impl FileReport {
    /// Returns the text for the model, which calls the file `name`.
    pub fn for_model(&self, name: &str) -> String {
        let server = escape_hidden_line(&self.server);
        let file = escape_hidden_line(name);
        match &self.new_errors {
            Err(why) => format!("[{server}: not known yet if {file} has new errors: {why}]"),
            Ok(errors) => {
                let count = errors.len();
                let mut lines = vec![format!("[{server}: {} in {file}]", counted_errors(count))];
                lines.extend(errors.iter().take(MAX_TOLD).cloned());
                if count > MAX_TOLD {
                    lines.push(format!("… and {} more", count - MAX_TOLD));
                }
                lines.join("\n")
            }
        }
    }

    /// Returns the line for the user.
    pub fn for_user(&self) -> String {
        let said = match &self.new_errors {
            Err(why) => format!("nothing known yet: {why}"),
            Ok(errors) => counted_errors(errors.len()),
        };
        text::one_line(&format!("{}: {said}", escape_hidden_line(&self.server)))
    }

    /// Returns the number of new errors; 0 if they are not known.
    pub fn count(&self) -> usize {
        self.new_errors.as_ref().map_or(0, Vec::len)
    }
}

/// Formats a number of new errors.
pub fn counted_errors(count: usize) -> String {
    match count {
        0 => "no new errors".to_owned(),
        _ => text::counted(count, "new error"),
    }
}

/// Finds the errors of a text that it did not have before a change. Fails if the list of earlier errors was cut off, or
/// if the server cannot check the file.
pub(crate) fn new_errors(
    before: &[Problem],
    now: &[Problem],
    encoding: Encoding,
    text: &str,
) -> Result<Vec<String>, String> {
    if before.len() >= MAX_ERRORS && !now.is_empty() {
        return Err(TOO_MANY.to_owned());
    }
    if let Some(problem) = now.iter().find(|problem| problem.says_unchecked()) {
        return Err(shown_words(&problem.message));
    }
    let mut known: HashMap<_, usize> = HashMap::new();
    for problem in before {
        *known.entry((&problem.code, &problem.message)).or_default() += 1;
    }
    let mut new = Vec::new();
    for problem in now {
        match known.get_mut(&(&problem.code, &problem.message)) {
            Some(left) if *left > 0 => *left -= 1,
            _ => new.push(line(problem, encoding, text)),
        }
    }
    Ok(new)
}

/// Formats an error with its line and column, counted from 1.
fn line(problem: &Problem, encoding: Encoding, text: &str) -> String {
    let start = problem.range.start;
    let byte = encoding.byte(text, start).unwrap_or_default();
    let column = Encoding::Utf32.position(text, byte).character.saturating_add(1);
    let line = start.line.saturating_add(1);
    let code = if problem.code.is_empty() { String::new() } else { format!("{}: ", problem.code) };
    escape_hidden(&format!("{line}:{column}: {code}{}", problem.message))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use serde_json::json;

    use super::*;
    use crate::protocol::{Position, Range, errors_in};

    fn problem(line: u32, code: &str, message: &str) -> Problem {
        let start = Position { line, character: 3 };
        let code = code.to_owned();
        Problem { range: Range { start, end: start }, code, message: message.to_owned() }
    }

    fn report(new_errors: Result<Vec<String>, String>) -> FileReport {
        FileReport { server: "s".to_owned(), file: "/w/a.rs".into(), new_errors }
    }

    fn compare(before: &[Problem], now: &[Problem]) -> String {
        let text = "\u{1f600}abc\n".repeat(40);
        report(new_errors(before, now, Encoding::Utf16, &text)).for_model("a.rs")
    }

    #[test]
    fn only_errors_that_were_not_there_are_told_wherever_they_are_now() {
        let old = problem(3, "E1", "old");
        let moved = problem(9, "E1", "old");
        let none = "[s: no new errors in a.rs]";
        let before = slice::from_ref(&old);
        assert_eq!(compare(before, slice::from_ref(&moved)), none);
        assert_eq!(compare(before, &[]), none);
        let two = [old.clone(), moved, problem(1, "", "x")];
        let told = "[s: 2 new errors in a.rs]\n10:3: E1: old\n2:3: x";
        assert_eq!(compare(before, &two), told);
    }

    #[test]
    fn errors_that_were_cut_off_are_not_compared() {
        let many: Vec<_> = (0..200).map(|line| problem(line, "", &format!("m{line}"))).collect();
        let unknown = report(Err(TOO_MANY.to_owned())).for_model("a.rs");
        assert_eq!(compare(&many, &many), unknown);
        assert_eq!(compare(&many, &[problem(1, "", "x")]), unknown);
        assert_eq!(compare(&many, &[]), "[s: no new errors in a.rs]");
    }

    #[test]
    fn a_file_that_a_server_does_not_check_is_not_called_free_of_new_errors() {
        let hint = "This file is not included anywhere in the module tree";
        let entry = json!({ "severity": 4, "code": "unlinked-file", "message": hint, "range": {
            "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 1 }
        } });
        let unlinked = errors_in(&json!([entry])).unwrap();
        let expected = format!("[s: not known yet if a.rs has new errors: {hint}]");
        assert_eq!(compare(&[], &unlinked), expected);
        assert_eq!(compare(&unlinked, &unlinked), expected);
        assert_eq!(compare(&unlinked, &[]), "[s: no new errors in a.rs]");
        for (code, message) in [
            ("16", "A.java is a non-project file, only syntax errors are reported"),
            ("pp_file_not_found", "'a.h' file not found"),
        ] {
            let found = [problem(0, code, message), problem(1, "undeclared_var_use", "m")];
            let expected = format!("[s: not known yet if a.rs has new errors: {message}]");
            assert_eq!(compare(&[], &found), expected);
        }
    }

    #[test]
    fn a_flood_is_cut_and_three_outcomes_have_three_texts() {
        let many: Vec<_> = (0..30).map(|line| problem(line, "", &format!("m{line}"))).collect();
        let told = compare(&[], &many);
        assert!(told.starts_with("[s: 30 new errors in a.rs]\n1:3: m0\n"), "{told}");
        assert!(told.ends_with("\n10:3: m9\n… and 20 more"), "{told}");
        let unknown = report(Err("it is still starting".to_owned()));
        assert_eq!(
            unknown.for_model("a.rs"),
            "[s: not known yet if a.rs has new errors: it is still starting]"
        );
        assert_eq!(unknown.for_user(), "s: nothing known yet: it is still starting");
        assert_eq!(report(Ok(Vec::new())).for_user(), "s: no new errors");
        assert!(compare(&[], &[problem(1, "", "a\u{202e}b")]).contains("a\\u{202e}b"));
    }
}
