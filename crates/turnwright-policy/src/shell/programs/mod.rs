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

use super::SimpleCommand;
use super::args::{Args, OptionTable};
use super::file_use::OperandUse;
use super::harm::Danger;
use super::harm::targets::FindTargets;
use super::network::NetworkUse;
use super::prefix::{Form, Grant};
use super::read_only::{FilesRead, Operands, Reads, UnknownArgs};

pub(super) use git::{starts_no_other, tracks_branches};
pub use git_use::{GitContentQuery, GitProgram, GitUse, may_show_any_content};
pub(super) use git_use::{git_folder, leads_elsewhere, shown_files};

/// Words that are separated by blanks.
pub(crate) type WordList = &'static str;

/// Says what a program with these arguments would do to the whole system, if anything, whatever files it is
/// given.
pub(super) type CatastropheCheck = fn(Args<'_>) -> Option<&'static str>;

/// The row of a program, or of a subcommand of one.
#[derive(Clone, Copy)]
pub(super) struct Program {
    names: WordList,
    /// The arguments with which it only reads.
    pub(super) reads: Reads,
    /// The effect of unknown arguments on what it reads.
    pub(super) unknown_args: UnknownArgs,
    /// The arguments with each of which it prints its version, and runs nothing from the current
    /// folder. Others, such as yarn, Maven and .NET, run the version that the folder names.
    pub(super) version: WordList,
    /// Arguments with which it destroys or publishes something.
    pub(super) dangers: &'static [Danger],
    pub(super) catastrophe: CatastropheCheck,
    /// The files that it deletes, changes or overwrites, as far as that can ruin a system.
    pub(super) targets: FindTargets,
    /// The use that it makes of the files that its operands name.
    pub(super) operand_use: OperandUse,
    /// Destruction that every mode asks about.
    pub(super) ruins: &'static [Danger],
    pub(super) network: NetworkUse,
    /// Words with which it works without the network all the same.
    pub(super) offline_words: WordList,
    /// Options, as `has_exceeding_option` finds them, that a lasting permission does not cover.
    pub(super) options_outside_grant: WordList,
    /// True if it runs code that its operands name. A lasting permission covers only those in the folder.
    pub(super) runs_files: bool,
    /// True if it takes the names of tasks, each of which runs commands.
    pub(super) runs_tasks: bool,
    /// Options of a task runner whose value is the next word.
    pub(super) task_options_with_value: WordList,
    /// True if an argument such as `SHELL=x` acts like an option.
    pub(super) takes_variables: bool,
    /// The extent of a lasting permission for it.
    pub(super) grant: Grant,
    /// The words after which it runs a program that is installed in the project; `""` if that
    /// follows its own name.
    pub(super) runs_installed_after: &'static [&'static str],
    pub(super) starts: Starts,
    /// True if a dangerous command is searched for among its arguments. It is not known which of its
    /// options take a value.
    pub(super) is_searched: bool,
    /// Counts the words that belong to it if it is a wrapper; `None` if that is not clear.
    pub(super) wrapper_words: fn(&SimpleCommand) -> Option<usize>,
    /// True if rustup provides a proxy for it.
    pub(super) is_rustup_proxy: bool,
    subcommands: &'static [Program],
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

const fn program(names: WordList) -> Program {
    Program {
        names,
        reads: Reads::Unknown,
        unknown_args: UnknownArgs::Refused,
        version: "",
        dangers: &[],
        catastrophe: |_| None,
        targets: |_| Vec::new(),
        operand_use: OperandUse::Unknown,
        ruins: &[],
        network: NetworkUse::Never,
        offline_words: "",
        options_outside_grant: "",
        runs_files: false,
        runs_tasks: false,
        task_options_with_value: "",
        takes_variables: false,
        grant: Grant::Guessed,
        runs_installed_after: &[],
        starts: Starts::Nothing,
        is_searched: false,
        wrapper_words: |_| None,
        is_rustup_proxy: false,
        subcommands: &[],
    }
}

/// Methods that return the row with another value in the field after the arrow.
macro_rules! setters {
    ($($method:ident($type:ty) -> $field:ident,)*) => {
        impl Program {
            $(const fn $method(self, $field: $type) -> Program {
                Program { $field, ..self }
            })*
        }
    };
}

setters! {
    with_names(WordList) -> names,
    unknown_args(UnknownArgs) -> unknown_args,
    version(WordList) -> version,
    dangers(&'static [Danger]) -> dangers,
    catastrophe(CatastropheCheck) -> catastrophe,
    targets(FindTargets) -> targets,
    operand_use(OperandUse) -> operand_use,
    ruins(&'static [Danger]) -> ruins,
    network(NetworkUse) -> network,
    offline_words(WordList) -> offline_words,
    options_outside_grant(WordList) -> options_outside_grant,
    task_options_with_value(WordList) -> task_options_with_value,
    grant(Grant) -> grant,
    runs_installed_after(&'static [&'static str]) -> runs_installed_after,
    starts(Starts) -> starts,
    wrapper_words(fn(&SimpleCommand) -> Option<usize>) -> wrapper_words,
    subcommands(&'static [Program]) -> subcommands,
}

impl Program {
    const fn reads(self, options: OptionTable, operands: Operands) -> Program {
        Program { reads: Reads::Options(options, operands), ..self }
    }

    const fn reads_if(self, check: fn(Args<'_>) -> FilesRead) -> Program {
        Program { reads: Reads::Check(check), ..self }
    }

    const fn runs_files(self) -> Program {
        Program { runs_files: true, ..self }
    }

    const fn runs_tasks(self) -> Program {
        Program { runs_tasks: true, ..self }
    }

    const fn takes_variables(self) -> Program {
        Program { takes_variables: true, ..self }
    }

    const fn grantable_prefixes(self, forms: &'static [Form]) -> Program {
        Program { grant: Grant::Forms(forms), ..self }
    }

    const fn searched(self) -> Program {
        Program { is_searched: true, ..self }
    }

    const fn rustup_proxy(self) -> Program {
        Program { is_rustup_proxy: true, ..self }
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
