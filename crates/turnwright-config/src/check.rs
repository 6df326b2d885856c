//! The problems in the user's file, with their lines.

use std::path::Path;

use crate::document::{TomlDocument, parse_key};
use crate::table::SettingType;
use crate::{Config, SettingsSnapshot};

impl SettingsSnapshot<'_> {
    /// The problems in the user's file, a sentence each with file and line. Permission rules are checked
    /// elsewhere; [`Config::locate_problem`] adds the line to their problems.
    pub fn file_problems(&self) -> Vec<String> {
        let file = match self.file() {
            Ok(file) => file,
            Err(error) => return vec![error.to_string()],
        };
        let problems = self.file_warnings().iter().cloned().chain(file.wrong_values(""));
        problems.map(|problem| self.config.locate_problem(&problem)).collect()
    }
}

impl Config {
    /// A sentence about the user's file with the line of the key or the text that it quotes first.
    pub fn locate_problem(&self, problem: &str) -> String {
        let path = self.user_file_path();
        let sentence = problem.strip_prefix(&format!("{}: ", path.display())).unwrap_or(problem);
        let text = self.file.text().unwrap_or_default();
        located(path, &text, sentence)
    }
}

fn located(path: &Path, text: &str, sentence: &str) -> String {
    let line = sentence.split('`').nth(1).and_then(|quoted| line_of(text, quoted));
    let place = line.map(|number| format!(", line {number}")).unwrap_or_default();
    format!("{}{place}: {sentence}", path.display())
}

/// The line of a key or of its nearest section, else of a value with the same text.
fn line_of(text: &str, quoted: &str) -> Option<usize> {
    let document = TomlDocument::parse(text).ok()?;
    let key = parse_key(quoted).unwrap_or_default();
    let found = (1..=key.len()).rev().find_map(|depth| document.line(&key[..depth]));
    found.or_else(|| {
        let mut quotes = ['"', '\''].into_iter();
        let position = quotes.find_map(|quote| text.find(&format!("{quote}{quoted}{quote}")))?;
        Some(text[..position].matches('\n').count() + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_line_of_what_it_quotes() {
        let text = "mode = 'all'\n\n[providers.x]\nquirks = { nonsense = 1 }\n\n[permissions]\n\
                    allow = [\n  'exec(ls)',\n  'exec(',\n]\n";
        for (sentence, expected) in [
            ("`mode` is `all`", "c.toml, line 1: `mode` is `all`"),
            ("`providers.x.quirks`: no", "c.toml, line 4: `providers.x.quirks`: no"),
            ("Unknown `providers.x.\"y z\".a`", "c.toml, line 3: Unknown `providers.x.\"y z\".a`"),
            ("`exec(` is open", "c.toml, line 9: `exec(` is open"),
            ("`effort` is missing", "c.toml: `effort` is missing"),
            ("nothing is quoted", "c.toml: nothing is quoted"),
        ] {
            assert_eq!(located(Path::new("c.toml"), text, sentence), expected);
        }
    }
}
