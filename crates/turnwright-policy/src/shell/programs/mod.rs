//! The table of programs. Each has one row, in the file of its topic, that says with which
//! arguments it only reads, what it destroys, whether it uses the network, which other commands it
//! runs, and what a lasting permission for it covers. A program may do anything that its row does not exclude.

mod files;
mod git;
mod git_use;
mod projects;
mod services;
mod system;
mod text;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::args::{Args, OptionTable};
use super::harm::{Danger, FindTargets};
use super::network::NetworkUse;
use super::prefix::{Form, Grant};
use super::read_only::{FilesRead, Operands, Reads, UnknownArgs};
use super::{OperandUse, SimpleCommand};

pub(super) use git::{starts_no_other, tracks_branches};
pub use git_use::{GitContentQuery, GitProgram, GitUse, may_show_any_content};
pub(super) use git_use::{git_folder, leads_elsewhere, shown_files};

/// Words that are separated by blanks.
pub(crate) type WordList = &'static str;

/// Declares the rows of programs. A line for each field has its type, the value that it has in a row that says nothing
/// about it, and the method that returns a row with another value, if that is no more than to set it. A line for each
/// flag, which is false in such a row, has the method that returns a row in which it is true.
macro_rules! program_rows {
    (
        $($(#[$doc:meta])* $field:ident: $type:ty = $default:expr $(=> $method:ident)?,)*;
        $($(#[$flag_doc:meta])* $flag:ident => $flag_method:ident,)*
    ) => {
        /// The row of a program, or of a subcommand of one.
        #[derive(Clone, Copy)]
        pub(super) struct Program {
            $($(#[$doc])* pub(super) $field: $type,)*
            $($(#[$flag_doc])* pub(super) $flag: bool,)*
        }

        const fn program(names: WordList) -> Program {
            Program { $($field: $default,)* $($flag: false,)* }.with_names(names)
        }

        impl Program {
            $($(const fn $method(self, $field: $type) -> Program {
                Program { $field, ..self }
            })?)*
            $(const fn $flag_method(self) -> Program {
                Program { $flag: true, ..self }
            })*
        }
    };
}

program_rows! {
    names: WordList = "" => with_names,
    /// The arguments with which it only reads.
    reads: Reads = Reads::Unknown,
    /// The effect of unknown arguments on what it reads.
    unknown_args: UnknownArgs = UnknownArgs::Refused => unknown_args,
    /// The arguments with each of which it prints its version, and runs nothing from the current
    /// folder. Others, such as yarn, Maven and .NET, run the version that the folder names.
    version: WordList = "" => version,
    /// Arguments with which it destroys or publishes something.
    dangers: &'static [Danger] = &[] => dangers,
    /// Says what it would do to the whole system with these arguments, if anything, whatever files it is given.
    catastrophe: fn(Args<'_>) -> Option<&'static str> = |_| None => catastrophe,
    /// The files that it deletes, changes or overwrites, as far as that can ruin a system.
    targets: FindTargets = |_| Vec::new() => targets,
    /// The use that it makes of the files that its operands name.
    operand_use: OperandUse = OperandUse::Unknown => operand_use,
    /// Destruction that every mode asks about.
    ruins: &'static [Danger] = &[] => ruins,
    network: NetworkUse = NetworkUse::Never => network,
    /// Words with which it works without the network all the same.
    offline_words: WordList = "" => offline_words,
    /// Options, as `has_exceeding_option` finds them, that a lasting permission does not cover.
    options_outside_grant: WordList = "" => options_outside_grant,
    /// Options of a task runner whose value is the next word.
    task_options_with_value: WordList = "" => task_options_with_value,
    /// The extent of a lasting permission for it.
    grant: Grant = Grant::Guessed => grant,
    /// The words after which it runs a program that is installed in the project; `""` if that
    /// follows its own name.
    runs_installed_after: &'static [&'static str] = &[] => runs_installed_after,
    starts: Starts = Starts::Nothing => starts,
    /// Counts the words that belong to it if it is a wrapper; `None` if that is not clear.
    wrapper_words: fn(&SimpleCommand) -> Option<usize> = |_| None => wrapper_words,
    subcommands: &'static [Program] = &[] => subcommands,
    ;
    /// True if it runs code that its operands name. A lasting permission covers only those in the folder.
    runs_files => runs_files,
    /// True if it takes the names of tasks, each of which runs commands.
    runs_tasks => runs_tasks,
    /// True if an argument such as `SHELL=x` acts like an option.
    takes_variables => takes_variables,
    /// True if a dangerous command is searched for among its arguments. It is not known which of its
    /// options take a value.
    is_searched => searched,
    /// True if rustup provides a proxy for it.
    is_rustup_proxy => rustup_proxy,
}

/// The commands that a program starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    Nothing,
    /// An argument may be a shell line.
    Line,
    /// It is a shell.
    Shell,
    /// The program that is named after its options.
    Program,
}

impl Program {
    const fn reads(self, options: OptionTable, operands: Operands) -> Program {
        Program { reads: Reads::Options(options, operands), ..self }
    }

    const fn reads_if(self, check: fn(Args<'_>) -> FilesRead) -> Program {
        Program { reads: Reads::Check(check), ..self }
    }

    const fn grantable_prefixes(self, forms: &'static [Form]) -> Program {
        Program { grant: Grant::Forms(forms), ..self }
    }

    pub(super) fn subcommand(&self, name: &str) -> &'static Program {
        self.subcommands.iter().find(|subcommand| is_in(subcommand.names, name)).unwrap_or(&UNKNOWN)
    }
}

static UNKNOWN: Program = program("").grant(Grant::Exact);
/// It can do anything, or run arbitrary code, so no lasting permission covers it.
const ANYTHING: Program = program("").grantable_prefixes(&[]);

const TOPICS: &[&[Program]] = &[
    files::PROGRAMS,
    git::PROGRAMS,
    projects::PROGRAMS,
    services::PROGRAMS,
    system::PROGRAMS,
    text::PROGRAMS,
];

/// The row of the program with this name.
pub(super) fn find(name: &str) -> &'static Program {
    let name = if name.starts_with("mkfs.") { "mkfs" } else { name };
    INDEX.get(name).copied().unwrap_or(&UNKNOWN)
}

/// True if a text consists of digits.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// True if a list contains a word.
pub(crate) fn is_in(list: WordList, word: &str) -> bool {
    (1..=list.len()).contains(&word.len()) && list.split(' ').any(|known| known == word)
}

/// All names with their rows.
static INDEX: LazyLock<HashMap<&str, &Program>> = LazyLock::new(|| names().collect());

fn names() -> impl Iterator<Item = (&'static str, &'static Program)> {
    let rows = TOPICS.iter().copied().flatten();
    rows.flat_map(|program| program.names.split(' ').map(move |name| (name, program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_row() {
        for (name, program) in names() {
            assert!(!name.is_empty() && std::ptr::eq(find(name), program), "{name}");
        }
    }
}
