//! The kinds of programs that git may start while it runs a command, because settings name them.

use crate::shell::SimpleCommand;
use crate::shell::args::{git_subcommand, is_option, name};

use super::git::GLOBAL;
use super::{WordList, is_in};

/// A kind of programs that settings of git name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitProgram {
    /// It speaks with another repository, or has the password for it.
    Connection,
    /// It changes the content of files on their way in and out (`filter`), or merges them.
    Content,
    /// It shows differences.
    Diff,
    /// It tells which files have changed.
    Fsmonitor,
    Hook,
    /// An editor, a pager, or another program for people. The variables of commands replace the first two.
    Interactive,
    /// It signs, or verifies signatures.
    Signature,
}

impl GitProgram {
    const ALL: [GitProgram; 7] = [
        GitProgram::Connection,
        GitProgram::Content,
        GitProgram::Diff,
        GitProgram::Fsmonitor,
        GitProgram::Hook,
        GitProgram::Interactive,
        GitProgram::Signature,
    ];
}

/// Subcommands, and the programs that each of them may start. Whatever reads the index asks the file system monitor, and
/// the monitor and hooks may be started by any that does.
type Row = (WordList, &'static [GitProgram]);

const ROWS: &[Row] = {
    use GitProgram::{Connection, Content, Diff, Fsmonitor, Hook, Signature};
    &[
        (
            "ls-tree rev-parse name-rev merge-base show-ref show-branch check-ignore check-attr \
             count-objects version config",
            &[Fsmonitor, Hook],
        ),
        (
            "log show rev-list shortlog range-diff reflog diff-tree cat-file cherry status diff diff-index \
             diff-files blame annotate ls-files describe grep branch tag for-each-ref symbolic-ref update-ref notes \
             add commit rm mv reset restore checkout switch stash merge rebase cherry-pick revert apply am clean \
             worktree checkout-index read-tree update-index",
            &[Content, Diff, Fsmonitor, Hook, Signature],
        ),
        (
            "pull fetch ls-remote push remote",
            &[Connection, Content, Diff, Fsmonitor, Hook, Signature],
        ),
    ]
};

/// The settings that matter to a git command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitUse {
    /// Empty if there is none.
    subcommand: String,
    programs: &'static [GitProgram],
}

impl GitUse {
    /// The use of a command about which nothing is known. It may start any program.
    pub const ANY: GitUse = GitUse { subcommand: String::new(), programs: &GitProgram::ALL };

    /// The use of a command that fetches objects which are not here.
    pub const FETCH: GitUse =
        GitUse { subcommand: String::new(), programs: &[GitProgram::Connection] };

    /// The use that a command makes of git. One with arguments that are not looked into may start any program.
    pub fn of(command: &SimpleCommand) -> GitUse {
        Self::of_plain(command).unwrap_or(Self::ANY)
    }

    fn of_plain(command: &SimpleCommand) -> Option<GitUse> {
        let (program, words) = command.words.split_first()?;
        let is_git = name(&program.text) == "git" && command.wrappers.is_empty();
        let (subcommand, arguments) = git_subcommand(words).filter(|_| is_git)?;
        let mut global = words[..words.len() - arguments.len() - 1].iter();
        while let Some(word) = global.next() {
            // A folder follows; its repository is the one that is looked at.
            let is_folder = word.text == "-C" && global.next().is_some();
            if !is_folder && !is_in(GLOBAL, &word.text) {
                return None;
            }
        }
        let short = if subcommand == "rebase" { 'x' } else { '\0' };
        let runs_words = arguments.iter().any(|word| {
            is_option(&word.text, short, "--exec") || is_option(&word.text, '\0', "--trailer")
        });
        let row = ROWS
            .iter()
            .find(|(names, _)| is_in(names, subcommand))
            .filter(|_| !runs_words && !command.has_unknown_args);
        let programs = row.map_or(&GitProgram::ALL[..], |(_, programs)| programs);
        Some(GitUse { subcommand: subcommand.to_owned(), programs })
    }

    /// Returns true if the command may start a program of this kind.
    pub fn may_start(&self, kind: GitProgram) -> bool {
        self.programs.contains(&kind)
    }

    /// Returns true if the command may run an alias: its own name may be one, maybe misspelt, or it starts git itself.
    pub fn may_run_alias(&self) -> bool {
        self.may_start(GitProgram::Interactive) && !is_in(OWN, &self.subcommand)
    }
}

/// Further subcommands of git itself, for which no alias can stand and which run none.
const OWN: WordList = "clone init gc fsck prune repack archive format-patch bundle";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::parse;
    use turnwright_types::shell_script::ShellDialect;

    fn use_of(line: &str) -> GitUse {
        GitUse::of(&parse(line, ShellDialect::Bash).commands[0])
    }

    #[test]
    fn a_subcommand_of_git_starts_certain_programs_and_other_forms_any() {
        use GitProgram::{Connection, Content, Diff, Fsmonitor, Hook, Interactive, Signature};
        for (line, expected) in [
            ("git rev-parse HEAD", &[Fsmonitor, Hook][..]),
            ("git config --get user.name", &[Fsmonitor, Hook]),
            ("git log -p", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git --no-pager -C sub show HEAD", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git status", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git branch x", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git push", &[Connection, Content, Diff, Fsmonitor, Hook, Signature]),
            ("git commit -m x", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git rebase main", &[Content, Diff, Fsmonitor, Hook, Signature]),
            ("git pull", &[Connection, Content, Diff, Fsmonitor, Hook, Signature]),
        ] {
            let found = use_of(line);
            let found: Vec<_> =
                GitProgram::ALL.into_iter().filter(|program| found.may_start(*program)).collect();
            assert_eq!(found, expected, "{line}");
        }
        for line in [
            "git",
            "git st",
            "git lfs pull",
            "git submodule update",
            "git mergetool",
            "git -c core.editor=x commit",
            "git --exec-path=x log",
            "git rebase -x make main",
            "git commit --trailer a=b -m x",
            "nohup git commit > /dev/null",
            "xargs git log",
            "make",
        ] {
            assert!(use_of(line).may_start(Interactive), "{line}");
        }
    }

    #[test]
    fn an_alias_matters_only_where_git_may_run_it() {
        for (line, expected) in [
            ("git st", true),
            ("git stauts", true),
            ("git -c x.y=z log", true),
            ("git submodule foreach git st", true),
            ("git status", false),
            ("git commit -m st", false),
            ("git clone st", false),
        ] {
            assert_eq!(use_of(line).may_run_alias(), expected, "{line}");
        }
    }
}
