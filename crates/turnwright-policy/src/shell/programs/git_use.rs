//! Tells which content that git has stored a command of git shows, and which programs it starts that only settings
//! name.

use std::path::PathBuf;

use super::git::{GLOBAL, PLAIN, subcommand};
use super::{WordList, is_in};
use crate::shell::args::{
    Argument, Reads, arguments, first_operand, git_subcommand, name, operands, split_at_dashes,
};
use crate::shell::harm::has_option;
use crate::shell::{SimpleCommand, Word};

/// The words of a git command that select what it shows of the content in revisions and in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitContentQuery {
    /// Words that are revisions or paths: paths if there is such a file.
    pub operands: Vec<String>,
    /// Words that are paths.
    pub paths: Vec<String>,
    /// Only files that git assumes to be unchanged are shown from the index: `git grep` searches the working tree
    /// for all others.
    pub only_assumed_unchanged: bool,
}

/// Options that make a command show the content of changes.
const PATCH_OPTIONS: &str = "p u U W c m S G L --patch --unified --patch-with-raw --patch-with-stat --word-diff \
    --word-diff-regex --color-words --function-context --check --binary --cc --diff-merges --ignore-matching-lines";
/// Options that make it show something in their place.
const SUMMARIES: &str = "s --stat --shortstat --numstat --dirstat --cumulative --name-only --name-status --raw \
    --summary --compact-summary --quiet --no-patch";

/// Which content of revisions and of the index a command shows without naming each file, as `git diff` and
/// `git log -p` do; `None` if it shows none.
pub(in crate::shell) fn shown_files(command: &SimpleCommand) -> Option<GitContentQuery> {
    let (global, named) = split_git(command)?;
    let (sub, words) = named?;
    let is_unlisted = |word: &&Word| word.text.starts_with('-') && !is_in(GLOBAL, &word.text);
    // Options other than `-C` lead to other repositories, or change what paths mean.
    let has_others = global.iter().filter(is_unlisted).any(|word| word.text != "-C");
    let is_elsewhere = global.iter().any(|word| is_unlisted(&word));
    // A search for a change tells, too, whether the content has the text.
    let shows_patch = match sub {
        "diff" | "show" | "range-diff" => true,
        "stash" if !is_in("show list", first_operand(words)) => return None,
        "stash" => words.first().is_some_and(|word| word.text == "show"),
        "grep" => true,
        "log" | "reflog" | "diff-tree" | "diff-index" | "diff-files" | "status" => false,
        _ => return None,
    };
    let Reads::Options(options, _) = subcommand(sub).reads else { return None };
    let (before, after) = split_at_dashes(words);
    let mut operands = Vec::new();
    let mut has_patch = false;
    let mut has_summary = false;
    let mut has_pattern = sub != "grep";
    let mut is_limited = !has_others;
    for argument in arguments(options, before) {
        match argument? {
            Argument::Option(option) => {
                has_patch |= is_in(PATCH_OPTIONS, option);
                has_patch |= sub == "status" && is_in("v --verbose", option);
                has_summary |= is_in(SUMMARIES, option) && sub != "status";
                is_limited &= !is_in("--follow --full-diff", option);
                // `-L1,9:path` names its file itself.
                is_limited &= option != "L" || sub == "grep";
                has_pattern |= is_in("e f", option);
            }
            Argument::Operand(word) => operands.push(word.text.clone()),
            Argument::FileValue(..) => {}
        }
    }
    operands.drain(..usize::from(!has_pattern && !operands.is_empty()));
    let paths: Vec<_> = after.iter().skip(1).map(|word| word.text.clone()).collect();
    // `git show HEAD:a` shows that file alone.
    let names_files = !is_elsewhere
        && sub == "show"
        && !operands.is_empty()
        && operands.iter().all(|operand| operand.contains(':') && !operand.starts_with(':'));
    let only_assumed_unchanged = sub == "grep" && !has_others;
    let names_object = operands.iter().any(|operand| may_name_object(operand));
    // `git show` prints such an object whatever the options say.
    has_patch |= sub == "show" && names_object;
    let shows = has_patch || shows_patch && !has_summary || sub == "grep";
    is_limited &= !(names_object && ["diff", "show"].contains(&sub));
    let (operands, paths) = if is_limited { (operands, paths) } else { Default::default() };
    let query = GitContentQuery { operands, paths, only_assumed_unchanged };
    (shows && !names_files).then_some(query)
}

/// The folder that the options `-C` of git lead to from the one it is started in, empty without them.
pub(in crate::shell) fn git_folder(command: &SimpleCommand) -> PathBuf {
    let global = split_git(command).map_or(&[][..], |git| git.0);
    let options = global.windows(2).filter(|pair| pair[0].text == "-C");
    options.map(|pair| &pair[1].text).collect()
}

/// Returns true if global options of git lead to another repository, or to another working tree.
pub(in crate::shell) fn leads_elsewhere(command: &SimpleCommand) -> bool {
    let leading = ["--git-dir", "--work-tree", "--exec-path="];
    split_git(command).is_some_and(|(global, _)| {
        global.iter().any(|word| leading.iter().any(|option| word.text.starts_with(option)))
    })
}

/// A subcommand of git with its arguments.
type Subcommand<'a> = (&'a str, &'a [Word]);

/// The global options of git, and its subcommand, if there is one; `None` for another program.
fn split_git(command: &SimpleCommand) -> Option<(&[Word], Option<Subcommand<'_>>)> {
    let (program, words) = command.words.split_first()?;
    let named = git_subcommand(words);
    let after = named.map_or(0, |(_, arguments)| arguments.len() + 1);
    (name(&program.text) == "git").then(|| (&words[..words.len() - after], named))
}

/// Returns true if git may show content that the words of the command do not limit, in a way that is not looked into.
/// In a line that is not understood, its words and the variables that it finds are not known either.
pub fn may_show_any_content(command: &SimpleCommand, is_understood: bool) -> bool {
    let Some((_, Some((sub, words)))) = split_git(command) else { return false };
    let has_unknown = command.has_unknown_args
        || !is_understood
            && words.iter().any(|word| word.is_glob || word.text.contains(['$', '`']));
    shows_all(sub, words)
        || (is_in(SHOWING, sub) || sub == "status") && has_unlisted_option(sub, words)
        || has_unknown && is_in(SHOWING, sub)
        || !is_understood && (is_in(SHOWING_FILES, sub) || shown_files(command).is_some())
}

/// Returns true if a word looks like an option that the subcommand's table does not have. It may make the command show
/// more.
fn has_unlisted_option(sub: &str, words: &[Word]) -> bool {
    let Reads::Options(options, _) = subcommand(sub).reads else { return false };
    arguments(options, split_at_dashes(words).0).any(|argument| argument.is_none())
}

/// Subcommands that show content, depending on their words.
const SHOWING: &str = "show cat-file blame annotate diff range-diff log reflog diff-tree diff-index diff-files grep stash";

/// Those that show the files that their words name.
const SHOWING_FILES: &str = "show cat-file blame annotate";

/// Subcommands that show, pack or write all content of revisions.
const SHOWING_ALL: &str = "archive difftool fast-export for-each-repo format-patch imap-send checkout-index http-backend instaweb \
    daemon merge-tree merge-file pack-objects request-pull send-email send-pack svn p4 cvsexportcommit upload-archive \
    upload-pack unpack-file whatchanged replay rerere subtree";

/// Subcommands without a row of their own that show nothing.
const SHOWING_NOTHING: &str = "apply check-mailmap check-ref-format column commit-graph commit-tree credential \
    credential-cache credential-store fetch-pack flow fmt-merge-msg fsck get-tar-commit-id \
    hash-object help index-pack interpret-trailers maintenance mailinfo mailsplit merge-index merge-one-file \
    mergetool mktag mktree multi-pack-index pack-redundant pack-refs patch-id prune-packed quiltimport \
    refs repack replace show-index stripspace unpack-objects update-index update-server-info var \
    verify-commit verify-pack verify-tag write-tree";

/// Returns true if a subcommand may show content that its words do not limit. An unknown one may be an alias of any
/// other.
fn shows_all(sub: &str, words: &[Word]) -> bool {
    let (options, _) = split_at_dashes(words);
    let has = |names| has_option(options, names);
    match sub {
        "cat-file" => {
            let begins =
                |word: &Word, all: &[&str]| all.iter().any(|name| word.text.starts_with(name));
            let lists =
                words.iter().any(|word| begins(word, &["--b"]) && !begins(word, KINDS_ONLY));
            // Words with a colon name the file that they show.
            let mut named = operands(words).filter(|word| {
                !is_in("blob tree commit tag", &word.text) && !word.text.contains(':')
            });
            lists || !has("t s e") && named.any(|word| may_name_object(&word.text))
        }
        "bundle" => first_operand(words) == "create",
        "worktree" => first_operand(words) == "add",
        // The value of an option may stand first.
        "clone" => {
            operands(words).next().is_some_and(|word| !word.text.contains(':'))
                || operands(words).any(is_local_url)
        }
        // It writes what is in a revision to the working tree, under any name.
        "read-tree" => has("u"),
        "am" | "rebase" => has("--show-current-patch"),
        "commit" => has("p v --patch --verbose"),
        "add" | "checkout" | "reset" | "restore" => has("p --patch"),
        "stash" => !is_in("show list", first_operand(words)) && has("p --patch"),
        _ if is_in(SHOWING_ALL, sub) => true,
        _ => {
            let is_known = !std::ptr::eq(subcommand(sub), &raw const super::UNKNOWN);
            !is_known && !is_in(PLAIN, sub) && !is_in(SHOWING_NOTHING, sub)
        }
    }
}

fn is_local_url(word: &Word) -> bool {
    word.text.starts_with("file:") || word.text.starts_with(['.', '/', '~'])
}

/// Options of `git cat-file` that begin like those that show each object that the input names.
const KINDS_ONLY: &[&str] = &["--batch-check", "--batch-all-objects", "--buffer"];

/// True for a revision that may be the name of an object, such as `1a2b3c` and `v1-2-g1a2b3c`: it may be the
/// content of a file. With `~` or `^` it must be a commit.
pub(super) fn may_name_object(revision: &str) -> bool {
    revision.split("..").map(|part| part.trim_start_matches(['.', '^'])).any(|part| {
        let (name, suffix) = part.split_at(part.find(['^', '~', ':']).unwrap_or(part.len()));
        let is_commit_or_tree = suffix.contains(['~', ':'])
            || suffix.match_indices('^').any(|(at, _)| !suffix[at + 1..].starts_with('{'))
            || suffix.contains("^{commit}")
            || suffix.contains("^{tree}");
        let digits = name.rsplit_once("-g").map_or(name, |parts| parts.1);
        !is_commit_or_tree
            && digits.len() >= 4
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

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
    /// The programs that the command may start; `None` if it may start any.
    programs: Option<&'static [GitProgram]>,
}

impl GitUse {
    /// The use of a command about which nothing is known. It may start any program.
    pub const ANY: GitUse = GitUse { subcommand: String::new(), programs: None };

    /// The use of a command that fetches objects which are not here.
    pub const FETCH: GitUse =
        GitUse { subcommand: String::new(), programs: Some(&[GitProgram::Connection]) };

    /// The use that a command makes of git. One with arguments that are not looked into may start any program.
    pub fn of(command: &SimpleCommand) -> GitUse {
        Self::of_plain(command).unwrap_or(Self::ANY)
    }

    fn of_plain(command: &SimpleCommand) -> Option<GitUse> {
        let (global, named) = split_git(command).filter(|_| command.wrappers.is_empty())?;
        let (subcommand, arguments) = named?;
        let mut global = global.iter();
        while let Some(word) = global.next() {
            // A folder follows; its repository is the one that is looked at.
            let is_folder = word.text == "-C" && global.next().is_some();
            if !is_folder && !is_in(GLOBAL, &word.text) {
                return None;
            }
        }
        let short = if subcommand == "rebase" { "x" } else { "" };
        let runs_words = has_option(arguments, "--exec --trailer") || has_option(arguments, short);
        let row = ROWS
            .iter()
            .find(|(names, _)| is_in(names, subcommand))
            .filter(|_| !runs_words && !command.has_unknown_args);
        let programs = row.map(|(_, programs)| *programs);
        Some(GitUse { subcommand: subcommand.to_owned(), programs })
    }

    /// Returns true if the command may start a program of this kind.
    pub fn may_start(&self, kind: GitProgram) -> bool {
        self.programs.is_none_or(|programs| programs.contains(&kind))
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
    use turnwright_types::shell_script::ShellDialect;

    use super::*;
    use crate::shell::{classify, parse};

    #[test]
    fn git_commands_that_show_what_it_keeps_are_known_with_what_limits_them() {
        for (line, expected) in [
            ("git diff", Some("|")),
            ("git diff --cached", Some("|")),
            ("git --no-pager diff HEAD~1 -- src/a.rs docs", Some("HEAD~1|src/a.rs docs")),
            ("git diff main src", Some("main src|")),
            ("git diff --stat -p", Some("|")),
            ("git diff --stat", None),
            ("git diff --name-only HEAD~3", None),
            ("git diff --check", Some("|")),
            ("git diff -U5", Some("|")),
            ("git diff -s", None),
            ("git show", Some("|")),
            ("git show HEAD", Some("HEAD|")),
            ("git show HEAD:src/a.rs", None),
            ("git show HEAD HEAD:src/a.rs", Some("HEAD HEAD:src/a.rs|")),
            ("git show --stat HEAD~2", None),
            ("git show --format= --stat --patch HEAD", Some("HEAD|")),
            ("git log --oneline -5", None),
            ("git log -S'parse' --oneline -- src", Some("|src")),
            ("git log -p -2 -- src/a.rs", Some("|src/a.rs")),
            ("git log -L1,9:notes/x", Some("|")),
            ("git log --patch", Some("|")),
            ("git log --cc", Some("|")),
            ("git log -u", Some("|")),
            ("git log --word-diff", Some("|")),
            ("git reflog -p", Some("|")),
            ("git stash show", Some("show|")),
            ("git stash show -p", Some("show|")),
            ("git stash show --stat", None),
            ("git stash list", None),
            ("git stash list -p", Some("list|")),
            ("git log -GSECRET=a --oneline", Some("|")),
            ("git diff --stat -I ^SECRET=a", None),
            ("git diff --stat --ignore-matching-lines=^SECRET=a", Some("|")),
            ("git diff-tree -r HEAD", None),
            ("git diff-tree -p HEAD", Some("HEAD|")),
            ("git range-diff a b c", Some("a b c|")),
            ("git grep x", Some("|")),
            ("git grep -q x src -- docs", Some("src|docs")),
            ("git grep -e x src", Some("src|")),
            ("git status", None),
            ("git status -sb", None),
            ("git status -v", Some("|")),
            ("git status -svv -- src", Some("|src")),
            ("git status --verbose", Some("|")),
            ("git diff -q", Some("|")),
            ("git diff-files -q", None),
            // The content of a file may have the name of an object, which no path limits.
            ("git show 1a2b3c4 -- src", Some("|")),
            ("git show -s 1a2b3c4", Some("|")),
            ("git show --stat x-1-g1A2b3c4", Some("|")),
            ("git show 1a2b3c4^{} -- src", Some("|")),
            ("git show 1a2b3c4^{blob} -- src", Some("|")),
            ("git diff 1a2b3c4 -- src", Some("|")),
            ("git diff 1a2b3c4..5d6e7f8 -- src", Some("|")),
            ("git diff --stat 1a2b3c4", None),
            ("git show --stat 1a2b3c4~2", None),
            ("git show 1a2b3c4^ -- src", Some("1a2b3c4^|src")),
            ("git show 1a2b3c4^{commit} -- src", Some("1a2b3c4^{commit}|src")),
            ("git show 1a2b3c4:src/a.rs", None),
            ("git log -p 1a2b3c4 -- src", Some("1a2b3c4|src")),
            ("git log -p --follow src/a.rs", Some("|")),
            ("git log -p --full-diff -- src", Some("|")),
            ("git log --follow src/a.rs", None),
            ("git blame a", None),
            ("ls diff", None),
            ("git -C sub diff -- ':!private'", Some("|:!private")),
            ("git -C sub log -p", Some("|")),
            ("git -C sub show HEAD:private/x", Some("HEAD:private/x|")),
            ("git -C sub grep x HEAD", Some("HEAD|")),
            ("git -c grep.lineNumber=1 grep x HEAD", Some("|")),
            ("git -C sub diff --stat", None),
            ("git -C sub log --oneline", None),
            ("git -c color.ui=always diff src", Some("|")),
            ("git --git-dir=.git diff", Some("|")),
            ("git --literal-pathspecs diff -- ':!private'", Some("|")),
        ] {
            let script = parse(line, ShellDialect::Bash);
            let shown = classify(script.commands.last().unwrap()).git_content_shown;
            let shown = shown.map(|content| {
                format!("{}|{}", content.operands.join(" "), content.paths.join(" "))
            });
            assert_eq!(shown.as_deref(), expected, "{line}");
        }
    }
    #[test]
    fn forms_of_git_that_may_show_any_content_are_known() {
        for (line, expected) in [
            ("git format-patch -1 --stdout", true),
            ("git archive HEAD src", true),
            ("git bundle create x --all", true),
            ("git bundle verify x", false),
            ("git fast-export HEAD", true),
            ("git cat-file --batch", true),
            ("git cat-file --batch-all-objects --batch", true),
            ("git cat-file --batch-check", false),
            ("git cat-file -p HEAD:src/a.rs", false),
            ("git cat-file blob HEAD:src/a.rs", false),
            ("git cat-file -p HEAD^{tree}", false),
            ("git cat-file -p 1a2b3c4", true),
            ("git cat-file -t 1a2b3c4", false),
            ("git worktree add ../w", true),
            ("git worktree list", false),
            ("git clone . y", true),
            ("git clone https://host/x", false),
            ("git clone https://host/x dir", false),
            ("git clone file:///ws y", true),
            ("git clone -c a.b=c:d . y", true),
            ("git for-each-repo --config=foo.r log -p", true),
            ("git subtree add -P copy . HEAD", true),
            ("git read-tree --prefix=copy/ -u HEAD", true),
            ("git rerere diff", true),
            ("git show --output-indicator-new=+ HEAD", true),
            ("git log -p --remerge-diff", true),
            ("git diff --textconv HEAD~1", true),
            ("git log --patc", true),
            ("git log --oneline --graph -5", false),
            ("git checkout-index -a --temp", true),
            ("git am --show-current-patch", true),
            ("git add -p", true),
            ("git add -A", false),
            ("git commit -v --dry-run", true),
            ("git commit -m x", false),
            ("git checkout -p", true),
            ("git stash -p", true),
            ("git stash push -m x", false),
            ("git difftool", true),
            ("git whatchanged -p", true),
            ("git st", true),
            ("git -c alias.x=show x", true),
            ("git gc", false),
            ("git fsck", false),
            ("git push", false),
            ("git init", false),
            ("echo HEAD:.env | xargs git show", true),
            ("echo -p | xargs git log", true),
            ("git cat-file -p :src/a.rs", false),
            ("git show HEAD", false),
            ("git log", false),
            ("GIT_DIR=x git show --stat", true),
            ("env GIT_DIR=x git diff", true),
            ("GIT_PAGER=cat git log --oneline", false),
            ("GIT_PAGER=./less git log -p", true),
            // As without the pager, the files that it shows are known.
            ("GIT_PAGER=cat git log -p", false),
            ("git log $x", true),
            ("for f in $x; do git show HEAD:$f; done", true),
            ("git show HEAD:$(echo .env)", true),
            ("GIT_EDITOR=true git commit -m x", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            let is_understood = script.ambiguity.is_none();
            let all = &script.commands;
            let shown = all.iter().any(|shown| may_show_any_content(shown, is_understood));
            assert_eq!(shown, expected, "{line}");
        }
    }

    fn use_of(line: &str) -> GitUse {
        GitUse::of(&parse(line, ShellDialect::Bash).commands[0])
    }

    #[test]
    fn a_subcommand_of_git_starts_certain_programs_and_other_forms_any() {
        use GitProgram::{Connection, Content, Diff, Fsmonitor, Hook, Interactive, Signature};
        let all = [Connection, Content, Diff, Fsmonitor, Hook, Interactive, Signature];
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
                all.into_iter().filter(|program| found.may_start(*program)).collect();
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
