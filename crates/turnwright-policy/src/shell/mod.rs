//! What a line for the shell would do, as far as its words tell: line → simple commands. Pure, and
//! closed where it is not sure: what is not understood as a whole has a doubt, and is then good
//! for bans only.

mod args;
mod catastrophe;
mod danger;
mod known;
mod network;
mod pattern;
mod widen;
mod lex;
mod parse;
mod scan;
mod words;
mod wrappers;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use turnwright_types::dialect::Dialect;

pub use widen::{adds_tasks, widens};

/// A line that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The simple commands, in their order. With a doubt: all that could be found at any depth.
    pub commands: Vec<Simple>,
    /// Why this is not, or may not be, all that the line does.
    pub doubt: Option<String>,
}

/// One program with its arguments, behind any wrapper such as `nohup` or `timeout 9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simple {
    /// The program and its arguments, without their quotes.
    pub words: Vec<Word>,
    /// Where it runs: relative to the folder of the line, or absolute; `None` if nobody knows.
    pub folder: Option<PathBuf>,
    /// Files that the shell opens for it.
    pub redirects: Vec<Redirect>,
    /// The wrappers in front of it, outermost first.
    pub wrappers: Vec<String>,
    /// Whether it gets more arguments, which nobody knows (`xargs`).
    pub is_open: bool,
}

/// A word as the program gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Without quotes and escapes.
    pub text: String,
    /// Whether it holds a pattern that the shell replaces by names of files, which may also begin
    /// with a dash.
    pub is_glob: bool,
}

/// A file that the shell opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// Relative to the command's folder, or absolute.
    pub path: PathBuf,
    /// Whether it is written; else it is read.
    pub is_write: bool,
}

impl Simple {
    /// The name of the program.
    pub fn program(&self) -> &str {
        self.words.first().map_or("", |it| &it.text)
    }

    /// The program and its arguments.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(|it| it.text.as_str())
    }
}

/// What is known about a simple command from its words alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// It only reads, whatever is in the files that it reads. A redirect is judged apart.
    pub only_reads: bool,
    /// What it reads, relative to its folder or absolute; for what reads only.
    pub reads: Vec<PathBuf>,
    /// It is git, which looks for a repository and its settings where it runs.
    pub is_git: bool,
    /// It may be rustup, which runs the toolchain that a file in the folder names.
    pub is_rust: bool,
    /// What it destroys for good, for what is asked about in every mode that asks at all.
    pub danger: Option<&'static str>,
    /// What it would do to the whole system; it is never run.
    pub catastrophe: Option<&'static str>,
    /// It is of little use without the network.
    pub wants_network: bool,
}

/// Bytes of a line that is looked at. A longer one has to be turned down unread.
pub const LONGEST: usize = 64 * 1024;

/// Reads a line. Of one that is too long nothing is found.
pub fn read(line: &str, dialect: Dialect) -> Script {
    if line.len() > LONGEST {
        return Script {
            commands: Vec::new(),
            doubt: Some("it is too long to be read".to_owned()),
        };
    }
    match parse::parse(line, dialect, PathBuf::new(), 0) {
        Ok(commands) => Script { commands, doubt: None },
        Err(doubt) => Script { commands: scan::scan(line), doubt: Some(doubt.to_owned()) },
    }
}

/// What is known about a simple command.
pub fn nature(command: &Simple) -> Nature {
    let reads = known::reads(command);
    Nature {
        only_reads: reads.is_some(),
        reads: reads.unwrap_or_default(),
        is_git: args::name(command.program()) == "git",
        is_rust: known::is_rust(command.program()),
        danger: danger::danger(command),
        catastrophe: danger::ruin(command),
        wants_network: network::wants(command),
    }
}

/// The words that a lasting permission for it would hold, such as `cargo test`; `None` where there
/// should be none: for interpreters, wrappers, and what can do too many things.
pub fn pattern(command: &Simple) -> Option<Vec<String>> {
    pattern::pattern(command)
}
