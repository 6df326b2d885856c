//! Commands that do with files what the file tools do, and nothing else: they make, copy, move or format those that
//! their words name. The modes that let the file tools do this let such commands do it, too.

use super::args::operands;
use super::programs::{WordList, is_in};
use super::{Script, SimpleCommand, Word, classify};

/// A program with the options that change nothing about which files it touches. Short ones may be in groups.
struct Editor {
    words: &'static [&'static str],
    letters: &'static str,
    options: WordList,
    /// Without operands it edits the whole folder.
    is_for_folder: bool,
}

/// A project must not choose what runs: it can define `cargo fmt` (an alias in its settings), and formatters of Python
/// run code of its environment.
const EDITORS: &[Editor] = &[
    editor(&["mkdir"], "pv", "--parents --verbose"),
    editor(&["touch"], "acm", "--no-create"),
    editor(&["cp"], "aRrfpnuvT", "--archive --recursive --force --no-clobber --update --verbose"),
    editor(&["mv"], "fnuvT", "--force --no-clobber --update --verbose"),
    Editor {
        words: &["git", "add"],
        letters: "Auv",
        options: "--all --update --verbose",
        is_for_folder: true,
    },
    editor(&["rustfmt"], "", ""),
    editor(&["gofmt"], "wsl", ""),
];

const fn editor(
    words: &'static [&'static str],
    letters: &'static str,
    options: WordList,
) -> Editor {
    Editor { words, letters, options, is_for_folder: false }
}

/// A command that edits files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectEdit<'a> {
    pub command: &'a SimpleCommand,
    /// The words that name the files. The last one may be the folder into which the others are put.
    pub words: Vec<Word>,
    /// A folder stands for the files in it that are not protected: a formatter or git leaves the others alone.
    pub is_for_folder: bool,
}

/// The commands of a line that edit files; `None` if the line may do more than that and read.
pub fn project_edits(script: &Script) -> Option<Vec<ProjectEdit<'_>>> {
    if script.ambiguity.is_some() {
        return None;
    }
    let mut edits = Vec::new();
    for command in &script.commands {
        match edited(command) {
            Some(edit) => edits.push(edit),
            None if command.program() == "cd" || classify(command).is_read_only => {}
            None => return None,
        }
    }
    Some(edits).filter(|edits| !edits.is_empty())
}

/// What a command edits; `None` if it is not known to do only that.
fn edited(command: &SimpleCommand) -> Option<ProjectEdit<'_>> {
    if !command.wrappers.is_empty() || command.has_unknown_args || command.is_in_home {
        return None;
    }
    let starts = |editor: &&Editor| {
        let words = command.argv().take(editor.words.len());
        words.eq(editor.words.iter().copied())
    };
    let editor = EDITORS.iter().find(starts)?;
    let arguments = &command.words[editor.words.len()..];
    let is_harmless = |word: &Word| match word.text.strip_prefix('-') {
        Some("" | "-") | None => true,
        Some(option) if option.starts_with('-') => is_in(editor.options, &word.text),
        Some(letters) => letters.chars().all(|letter| editor.letters.contains(letter)),
    };
    if !arguments.iter().all(is_harmless) {
        return None;
    }
    let mut words: Vec<_> = operands(arguments).cloned().collect();
    let is_for_folder = editor.is_for_folder;
    if words.is_empty() && is_for_folder {
        words.push(Word { text: ".".to_owned(), is_glob: false });
    }
    // What a pattern leads to, and under which name it is copied, is not known.
    let is_known = !words.is_empty() && words.iter().all(|word| !word.is_glob && word.text != "-");
    is_known.then_some(ProjectEdit { command, words, is_for_folder })
}

#[cfg(test)]
mod tests {
    use turnwright_types::dialect::ShellDialect;

    use super::*;

    #[test]
    fn lines_that_only_edit_files_name_them() {
        for (line, expected) in [
            ("mkdir -p src/a src/b", Some("src/a src/b")),
            ("touch src/new.rs", Some("src/new.rs")),
            ("cp -r src old", Some("src old")),
            ("mv a.rs b.rs && git add -A", Some("a.rs b.rs .")),
            ("cd web && mkdir x && ls", Some("x")),
            ("gofmt -w -s a.go", Some("a.go")),
            ("git add", Some(".")),
            ("touch -- -x", None),
            ("ls", None),
            ("rm a", None),
            ("cp *.rs old", None),
            ("cp -t x a", None),
            ("cp --backup a b", None),
            ("cp -s a b", None),
            ("mkdir -m 777 a", None),
            ("touch -r /etc/passwd a", None),
            ("sudo mkdir a", None),
            ("./mkdir a", None),
            ("xargs touch a", None),
            ("mkdir $x", None),
            ("mkdir a; make", None),
            ("git add -p", None),
            ("git -c a=b add a", None),
            ("cargo fmt", None),
            ("ruff format src", None),
            ("rustfmt --config-path x a.rs", None),
            ("black src", None),
            ("touch", None),
        ] {
            let script = super::super::parse(line, ShellDialect::Bash);
            let edits = project_edits(&script).map(|edits| {
                let words = edits.iter().flat_map(|edit| edit.words.iter());
                words.map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
            });
            assert_eq!(edits.as_deref(), expected, "{line}");
        }
    }
}
