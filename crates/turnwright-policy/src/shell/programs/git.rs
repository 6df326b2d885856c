//! Git and its subcommands. What the settings of a repository make git run is not considered here.

use std::path::{Path, PathBuf};

use turnwright_types::effect::{is_secret_path, secret_names_may_end_with};

use crate::shell::OperandUse;
use crate::shell::args::Operands::{self, Any, Files, First, FirstOrNone, Listed, One};
use crate::shell::args::{self, Argument, FilesRead, OptionTable, Reads, arguments};
use crate::shell::args::{Args, first_operand, git_subcommand, operands, split_at_dashes};
use crate::shell::prefix::form;
use crate::shell::{SimpleCommand, Word};

use super::git_use::may_name_object;
use super::{NetworkUse, Program, WordList, is_in, program};
use crate::shell::harm::{self, CHANGES, Danger, HISTORY, first_danger, has_option};

const REWRITES: &str = "rewrites the whole history";
const PATCH: &str = include_str!("options/git_patch.txt");

/// Without `--stdin`: what it names is not known.
const WALK: &str = include_str!("options/git_walk.txt");

const LIST: &str = "--contains? --no-contains? --merged? --no-merged? --points-at: --sort: --format: \
    --color? --no-color --column? --no-column -i --ignore-case --omit-empty";

const STATUS: &str = "-s -b -u? -v -z --short --branch --show-stash --porcelain? --long --verbose \
    --untracked-files? --ignore-submodules? --ignored? --column? --no-column --ahead-behind \
    --no-ahead-behind --renames --no-renames --find-renames?";

const BLAME: &str = "-b -c -e -f -k -l -n -p -s -t -w -L: -M? -C? -S< --root --show-stats --reverse: \
    --first-parent --porcelain --line-porcelain --incremental --encoding: --date: --no-progress \
    --score-debug --show-name --show-number --show-email --abbrev? --ignore-rev: --color-lines \
    --color-by-age --minimal";

const GREP: &str = include_str!("options/git_grep.txt");

const LS_FILES: &str = "-z -t -v -f -c -d -o -i -s -u -k -m -x: -X< --cached --deleted --others \
    --ignored --stage --unmerged --killed --modified --directory --no-empty-directory --eol \
    --deduplicate --exclude: --exclude-from< --exclude-per-directory: --exclude-standard \
    --error-unmatch --full-name --abbrev? --debug --sparse --format:";

const REV_PARSE: &str = include_str!("options/git_rev_parse.txt");

const DESCRIBE: &str = "--dirty? --broken? --all --tags --contains --abbrev? --candidates: \
    --exact-match --debug --long --match: --exclude: --always --first-parent";

const CONFIG: &str = "-l -z --global --system --local --worktree --get --get-all --get-regexp \
    --get-urlmatch --list --type: --bool --int --bool-or-int --path --expiry-date --null \
    --name-only --show-origin --show-scope --includes --no-includes --default: --all --regexp \
    --show-names --no-show-names --value: --fixed-value -f< --file<";

const REFS: &str = "-q -s -d --count: --sort: --format: --points-at: --merged? --no-merged? --contains? \
    --no-contains? --ignore-case --color? --exclude: --include-root-refs --shell --omit-empty \
    --heads --branches --tags --head --verify --exists --dereference --hash? --abbrev? --quiet";

pub(super) const PROGRAMS: &[Program] = &[program("git")
    .reads_if(reads)
    .dangers(&[Danger::Check(danger)])
    .targets(harm::git_clean_targets)
    .network(NetworkUse::Check(needs_network))
    .options_outside_grant(
        "--output --ext-diff --textconv --exec-path --upload-pack --receive-pack --exec --git-dir \
         --work-tree --config-env --no-index --open-files-in-pager --output-directory --extcmd \
         --template --unsafe-paths --contents --edit-description --run --filters",
    )
    .grantable_prefixes(&[
        form(
            "add commit status log diff show branch tag blame describe rev-parse ls-files ls-tree \
             cat-file grep shortlog reflog switch restore checkout reset merge cherry-pick revert \
             rebase mv rm",
            2,
        ),
        form("stash worktree", 3),
        form("bisect", 3).except("run"),
    ])
    .subcommands(SUBCOMMANDS)];

const SUBCOMMANDS: &[Program] = &[
    program("status").reads(&[STATUS], Any),
    program("log show").reads(&[WALK, PATCH], Any),
    program("diff")
        .reads(&[PATCH, "--cached --staged -# --base --ours --theirs -0 -1 -2 -3"], Files),
    program("diff-tree")
        .reads(&[PATCH, "-r -t --root --no-commit-id --stdin -v --pretty? --always"], Any),
    program("diff-index").reads(&[PATCH, "--cached"], Any),
    program("diff-files").reads(&[PATCH, "-0 -1 -2 -3"], Any),
    program("rev-list").reads(&[WALK, "--use-bitmap-index --disk-usage? --quiet"], Any),
    program("shortlog")
        .reads(&["-s -n -e -c -w? --numbered --summary --email --group:", WALK], Any),
    program("blame annotate").reads(&[BLAME], Any),
    program("grep").reads(&[GREP], Any).options_outside_grant("O"),
    program("ls-files").reads(&[LS_FILES], Any),
    program("ls-tree").reads(
        &["-d -r -t -l -z --name-only --name-status --object-only --full-name --full-tree --long \
           --abbrev? --format:"],
        Any,
    ),
    program("cat-file").reads(
        &["-t -s -e -p --batch-check? --batch-all-objects --allow-unknown-type --unordered -z -Z \
           --buffer"],
        Any,
    ),
    program("rev-parse").reads(&[REV_PARSE], Any),
    program("describe").reads(&[DESCRIBE], Any),
    program("name-rev")
        .reads(&["--tags --refs: --exclude: --all --name-only --no-undefined --always"], Any),
    program("merge-base")
        .reads(&["-a --all --octopus --independent --is-ancestor --fork-point"], Any),
    program("show-ref for-each-ref").reads(&[REFS], Any),
    program("show-branch").reads(
        &["-a -r --all --remotes --current --topo-order --date-order --sparse --more: --list \
           --merge-base --independent --no-name --sha1-name --topics --color? --no-color"],
        Any,
    ),
    program("cherry").reads(&["-v --abbrev?"], Any),
    program("range-diff")
        .reads(&[PATCH, "--creation-factor: --no-dual-color --left-only --right-only"], Any),
    program("check-ignore")
        .reads(&["-q -v -z -n --quiet --verbose --stdin --non-matching --no-index"], Any),
    program("check-attr").reads(&["-a -z --all --cached --stdin --source:"], Any),
    program("count-objects").reads(&["-v -H --verbose --human-readable"], Operands::None),
    program("symbolic-ref").reads(&["-q --quiet --short --no-recurse"], One),
    program("version").reads(&["--build-options"], Operands::None),
    program("branch")
        .reads(
            &[
                LIST,
                "-a -r -v -l -q --all --remotes --list --verbose --show-current --abbrev? \
                 --no-abbrev",
            ],
            Listed("--list --contains --no-contains --merged --no-merged --points-at"),
        )
        .dangers(&[Danger::Check(branch)])
        .options_outside_grant("fMC --force"),
    // `-n` does not count as listing: with a negative number of lines git creates the tag.
    program("tag")
        .reads(
            &[LIST, "-l -n? --list"],
            Listed("l --list --contains --no-contains --merged --no-merged --points-at"),
        )
        .dangers(&[Danger::Option("d --delete", "deletes a tag")])
        .options_outside_grant("f --force"),
    program("remote")
        .reads(&["-v --verbose --all --push"], FirstOrNone("get-url"))
        .network(NetworkUse::Subcommand("update show prune")),
    program("reflog")
        .reads(&[WALK, PATCH], FirstOrNone("show exists HEAD"))
        .dangers(&[Danger::Subcommand("expire delete drop", HISTORY)]),
    program("stash")
        .reads(&[WALK, PATCH, "--include-untracked --only-untracked"], First("list show"))
        .dangers(&[Danger::Subcommand("drop clear", "throws away stashed changes")]),
    program("worktree")
        .reads(&["-v -z --porcelain --verbose"], First("list"))
        .dangers(&[Danger::Check(|words| forced(words, "remove"))])
        .options_outside_grant("fB --force"),
    program("notes").reads(&[], FirstOrNone("list show")),
    program("bisect").reads(&[], First("log")),
    program("sparse-checkout").reads(&[], First("list")),
    program("config").reads_if(config),
    program("reset").dangers(&[Danger::Option("--hard --merge", CHANGES)]),
    program("clean").dangers(&[Danger::Check(clean)]),
    program("checkout")
        .dangers(&[Danger::Check(checkout)])
        .options_outside_grant("fB --force")
        .operand_use(OperandUse::Takes),
    program("checkout-index read-tree").dangers(&[Danger::Option("f u --force --reset", CHANGES)]),
    program("switch")
        .dangers(&[Danger::Option("f --force --discard-changes", CHANGES)])
        .options_outside_grant("fC --force --force-create --discard-changes"),
    program("restore").dangers(&[Danger::Check(restore)]).operand_use(OperandUse::Takes),
    program("rm").dangers(&[Danger::Option("f --force", CHANGES)]).operand_use(OperandUse::Takes),
    program("mv").operand_use(OperandUse::Moves),
    program("push").dangers(&[Danger::Check(push)]).network(NetworkUse::Always),
    program("fetch ls-remote send-email request-pull").network(NetworkUse::Always),
    program("pull").network(NetworkUse::Always).options_outside_grant("sX --strategy"),
    program("clone")
        .network(NetworkUse::Always)
        .options_outside_grant("cu --config --upload-pack --template"),
    program("submodule")
        .dangers(&[Danger::Check(|words| forced(words, "deinit update"))])
        .network(NetworkUse::Subcommand("update add")),
    program("lfs")
        .dangers(&[Danger::Word("import export", REWRITES)])
        .network(NetworkUse::Subcommand("fetch pull push")),
    program("filter-branch filter-repo").dangers(&[Danger::Always(REWRITES)]),
    program("prune").dangers(&[Danger::Always(HISTORY)]),
    program("gc").dangers(&[Danger::Prefix("--prune", HISTORY)]),
    program("update-ref").dangers(&[Danger::Option("d --delete --stdin", HISTORY)]),
    program("rebase").options_outside_grant("xs --strategy"),
    program("merge").options_outside_grant("s --strategy"),
    program("archive").options_outside_grant("o --remote"),
    program("format-patch").options_outside_grant("o"),
    program("cherry-pick revert").options_outside_grant("--strategy"),
];

pub(super) fn subcommand(name: &str) -> &'static Program {
    PROGRAMS[0].subcommand(name)
}

fn danger(words: Args<'_>) -> Option<&'static str> {
    let (sub, rest) = git_subcommand(words)?;
    let loses_commits = sub == "gc" && words.iter().any(|word| word.text.contains("xpire"));
    first_danger(subcommand(sub).dangers, rest, false).or(loses_commits.then_some(HISTORY))
}

fn needs_network(words: Args<'_>) -> bool {
    git_subcommand(words).is_some_and(|(sub, words)| subcommand(sub).network.is_used(words))
}

/// Global options that change neither what runs nor where.
pub(super) const GLOBAL: &str =
    "--no-pager -P --no-optional-locks --no-lazy-fetch --no-replace-objects";

/// Subcommands of git itself that start nothing but git, hooks, and what the settings name.
pub(super) const PLAIN: &str = "add branch checkout clone commit diff fetch init lfs log ls-remote merge mv pull push \
    rebase remote restore rev-parse rm show stash status submodule switch tag worktree";
/// Those that set the remote branch that another one follows.
const TRACKING: &str = "branch checkout fetch pull push switch worktree";
/// Options that name a program, settings or a folder of hooks, or start an editor.
const STARTING: &str =
    "--exec --receive-pack --upload-pack --strategy --edit-description --config --template";

/// True for git with arguments that start no other program: by an option, by an alias, or by the settings
/// and hooks of another repository.
pub(in crate::shell) fn starts_no_other(command: &SimpleCommand) -> bool {
    plain_subcommand(command).is_some()
}

/// The same with a subcommand that sets the remote branch that another one follows.
pub(in crate::shell) fn tracks_branches(command: &SimpleCommand) -> bool {
    plain_subcommand(command).is_some_and(|sub| is_in(TRACKING, sub))
}

fn plain_subcommand(command: &SimpleCommand) -> Option<&str> {
    let (program, words) = command.words.split_first()?;
    let is_whole = program.text == "git" && command.wrappers.is_empty();
    if !is_whole || command.has_unknown_args {
        return None;
    }
    let words = &words[words.iter().take_while(|word| is_in(GLOBAL, &word.text)).count()..];
    let (sub, words) = words.split_first()?;
    let letters = match sub.text.as_str() {
        "clone" => "c u",
        "merge" | "pull" | "rebase" => "s",
        _ => "",
    };
    let starts_another = words.iter().any(|word| {
        args::may_be_option(word) || word.text.contains("::") || word.text.starts_with("file:")
    });
    let is_plain = is_in(PLAIN, &sub.text) && !starts_another;
    (is_plain && !has_option(words, STARTING) && !has_option(words, letters)).then_some(&sub.text)
}

/// The files that git reads; `None` if it may do more than read.
fn reads(words: &[Word]) -> FilesRead {
    let global_count = words.iter().take_while(|word| is_in(GLOBAL, &word.text)).count();
    let (sub, words) = words[global_count..].split_first()?;
    if ["--version", "-v"].contains(&sub.text.as_str()) {
        return words.is_empty().then(Vec::new);
    }
    // A file of a revision whose name is not known could be a secret one.
    let names_unknown_file = words.iter().any(|word| word.is_glob && word.text.contains(':'));
    if names_unknown_file || words.iter().any(|word| checks_signatures(&sub.text, &word.text)) {
        return None;
    }
    match subcommand(&sub.text).reads {
        Reads::Options(options, operands) => {
            if may_show_kept_secret(&sub.text, options, words) {
                return None;
            }
            let secrets = words.iter().filter_map(secret_file);
            let files = operands.files(options, words)?;
            Some(repository().chain(secrets).chain(files).collect())
        }
        Reads::Check(check) => check(words),
        Reads::Unknown => None,
    }
}

/// True if git may show a secret that it keeps in a revision or the index although no word is its name:
/// by a pattern, by the name of an object, or among all files of a revision. It may show changes.
fn may_show_kept_secret(sub: &str, options: OptionTable, words: &[Word]) -> bool {
    const NAMES_ONLY: &str = "status ls-files ls-tree rev-list shortlog check-ignore check-attr branch \
        tag remote show-ref for-each-ref describe name-rev rev-parse";
    let (before, after) = split_at_dashes(words);
    let mut operands = Vec::new();
    let mut has_pattern = false;
    let mut is_kept = false;
    let mut tells_kind = false;
    for argument in arguments(options, before).flatten() {
        match argument {
            Argument::Option(option) => {
                has_pattern |= is_in("e f", option);
                is_kept |= option == "--cached";
                tells_kind |= is_in("t s e --batch-check", option);
            }
            Argument::Operand(word) => operands.push(word),
            Argument::FileValue(..) => {}
        }
    }
    if sub == "grep" {
        operands.drain(..usize::from(!has_pattern && !operands.is_empty()));
        // The sandbox hides the secrets among the files of the working tree.
        return is_kept
            || operands.iter().any(|word| !after.is_empty() || !looks_like_path(&word.text));
    }
    let shows_object =
        sub == "cat-file" && !tells_kind && operands.iter().any(|word| may_name_object(&word.text));
    let named = operands.into_iter().chain(after);
    shows_object || !is_in(NAMES_ONLY, sub) && named.into_iter().any(may_be_secret)
}

/// True for a pattern or for magic that could name a secret file: git looks such words up by itself, in
/// any revision. `*.rs` and the like could not.
fn may_be_secret(word: &Word) -> bool {
    let Some(at) = word.text.rfind(['*', '?', '[', ']', '\\']) else {
        return word.text.starts_with(":(");
    };
    let end = &word.text[at + 1..];
    let mut extension = end.strip_prefix('.').unwrap_or_default().bytes();
    let is_extension = extension.len() > 0 && extension.all(|byte| byte.is_ascii_alphanumeric());
    !is_extension || secret_names_may_end_with(end) || ENVIRONMENTS.contains(&end)
}

/// Ends of the names of secret files such as `.env.local`.
const ENVIRONMENTS: [&str; 8] =
    [".local", ".production", ".prod", ".development", ".dev", ".staging", ".test", ".vault"];

/// The secret file that a word names, maybe as it was in a revision: `HEAD:.env`.
fn secret_file(word: &Word) -> Option<PathBuf> {
    let path = word.text.rsplit_once(':').map_or(word.text.as_str(), |parts| parts.1);
    is_secret_path(Path::new(path)).then(|| path.into())
}

/// Every subcommand reads the repository.
fn repository() -> impl Iterator<Item = PathBuf> {
    std::iter::once(PathBuf::from("."))
}

/// True if a word makes git verify signatures, for which it runs another program.
fn checks_signatures(sub: &str, word: &str) -> bool {
    // A format or a sort key.
    let names_it = word.contains("signature");
    let lists = ["branch", "tag", "for-each-ref"].contains(&sub) || word.contains("%(");
    names_it && lists
        || word
            .split('%')
            .skip(1)
            .any(|code| code.trim_start_matches(['+', '-', ' ']).starts_with('G'))
}

/// `git config` with one name and no value, or with an option or action that reads. After the name,
/// an option would be a value.
fn config(words: &[Word]) -> FilesRead {
    let mut operands = Vec::new();
    let mut is_reading = false;
    for argument in arguments(&[CONFIG], words) {
        match argument? {
            Argument::Option(_) | Argument::FileValue(..)
                if !matches!(operands[..], [] | ["list" | "get"]) =>
            {
                return None;
            }
            Argument::Option(option) => {
                is_reading |= option == "l" || option == "--list" || option.starts_with("--get");
            }
            Argument::Operand(word) if word.is_glob => return None,
            Argument::Operand(word) => operands.push(word.text.as_str()),
            Argument::FileValue(..) => {}
        }
    }
    let is_fine = match operands[..] {
        _ if is_reading => true,
        ["list" | "get", ..] => true,
        [name] => name.contains('.'),
        _ => false,
    };
    let files = is_fine.then(|| Any.files(&[CONFIG], words))??;
    Some(repository().chain(files).collect())
}

fn clean(words: Args<'_>) -> Option<&'static str> {
    (!harm::is_dry_clean(words)).then_some("deletes untracked files")
}

/// `git restore` of the working tree. An `S` after `s` in one argument is part of the source's name.
fn restore(words: Args<'_>) -> Option<&'static str> {
    let (before, _) = split_at_dashes(words);
    let has_letter = before.iter().any(|word| {
        word.text.starts_with('-') && word.text.matches(['S', 's']).next() == Some("S")
    });
    let is_staged = has_letter || has_option(before, "--staged");
    (!is_staged || has_option(words, "W --worktree")).then_some(CHANGES)
}

fn branch(words: Args<'_>) -> Option<&'static str> {
    let is_forced = has_option(words, "d --delete") && has_option(words, "f --force");
    (has_option(words, "D") || is_forced).then_some("deletes a branch even if it is not merged")
}

/// `git worktree remove --force` and the like.
fn forced(words: Args<'_>, actions: WordList) -> Option<&'static str> {
    (is_in(actions, first_operand(words)) && has_option(words, "f --force")).then_some(CHANGES)
}

/// `git checkout` that overwrites files instead of switching to a branch.
fn checkout(words: Args<'_>) -> Option<&'static str> {
    let makes_branch = has_option(words, "b B t --orphan --track");
    let is_forced = words.iter().any(|word| is_in("-- -p", &word.text))
        || has_option(words, "f --force --ours --theirs --patch --pathspec-from-file");
    let names_files = operands(words).any(|word| word.is_glob || looks_like_path(&word.text))
        || operands(words).count() > 1;
    (is_forced || !makes_branch && names_files).then_some(CHANGES)
}

/// Branches such as `feature/x` and tags such as `v1.2` do not look like paths.
fn looks_like_path(text: &str) -> bool {
    let (_, last) = text.rsplit_once('/').unwrap_or(("", text));
    let extension = last.rsplit_once('.').map_or("", |parts| parts.1);
    text.starts_with(['.', ':'])
        || text.ends_with('/')
        || text.contains("/.")
        || extension.starts_with(|char: char| char.is_ascii_alphabetic())
}

fn push(words: Args<'_>) -> Option<&'static str> {
    let is_forced = has_option(words, "f d --force --delete --mirror --prune")
        || words.iter().any(|word| word.text.starts_with("--force"))
        || words.iter().any(|word| word.text.starts_with(['+', ':']));
    is_forced.then_some("overwrites or deletes what others may have pulled")
}

#[cfg(test)]
mod tests {
    use crate::shell::{Classification, classify, danger, parse};
    use turnwright_types::shell_script::ShellDialect;

    #[test]
    fn the_value_of_an_option_of_git_clean_is_no_other_option() {
        for (line, expected) in [
            ("git clean -fdx -enode_modules", true),
            ("git clean -fdxe.env", true),
            ("git clean -dfe --dry-run", true),
            ("git clean -fd --exclude -n", true),
            ("git clean -fd -- -n", true),
            ("git clean -n --no-dry-run -f", true),
            ("git clean -fde x -n", false),
            ("git clean -xdn -enode_modules", false),
            ("git clean --exclude=x --dry-run", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            assert_eq!(danger(&script.commands[0]).is_some(), expected, "{line}");
        }
    }

    #[test]
    fn the_source_of_git_restore_is_no_other_option() {
        for (line, expected) in [
            ("git restore -sHEADS a", true),
            ("git restore -qsSTABLE a", true),
            ("git restore --source STABLE a", true),
            ("git restore -SsHEAD -W a", true),
            ("git restore --staged --work a", true),
            ("git restore -- -S", true),
            ("git restore -SsHEAD *.rs", false),
            ("git restore --source=HEAD --staged a", false),
            ("git restore --progress --stag a", false),
            ("git restore *.rs -qS", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            assert_eq!(danger(&script.commands[0]).is_some(), expected, "{line}");
        }
    }

    #[test]
    fn forced_updates_of_submodules_and_migrations_to_lfs_are_destructive() {
        for (line, expected) in [
            ("git submodule update --init --recursive --force", true),
            ("git submodule update -f lib", true),
            ("git submodule --quiet update --force", true),
            ("git submodule deinit -f lib", true),
            ("git lfs migrate import --everything --include='*.bin'", true),
            ("git submodule update --init --recursive", false),
            ("git submodule add -f https://host/x", false),
            ("git lfs pull", false),
            ("git lfs migrate info", false),
        ] {
            let script = parse(line, ShellDialect::Bash);
            assert_eq!(danger(&script.commands[0]).is_some(), expected, "{line}");
        }
    }

    #[test]
    fn git_with_arguments_that_may_start_other_programs_is_not_only_git() {
        let both = [
            "git checkout -b x origin/x",
            "git switch -c x",
            "git push -u origin feature/x",
            "git --no-pager branch -u origin/x",
        ];
        let not_tracking = [
            "git add src/*.rs",
            "git commit -s -m x",
            "git clone ssh://host/x",
            "git submodule update --init",
        ];
        let neither = [
            "git -c alias.x='!sh s.sh' x",
            "git -c core.hooksPath=h checkout -b x",
            "git --config-env=alias.x=X x",
            "git --exec-path=. branch",
            "git -C sub checkout -b x",
            "git --git-dir=x/.git checkout -b x",
            "git x",
            "git submodule foreach sh s.sh",
            "git rebase -x 'sh s.sh' main",
            "git push --receive-pack='sh s.sh' origin",
            "git push --exe='sh s.sh' origin",
            "git fetch --upload-pack s.sh origin",
            "git pull -sours origin",
            "git pull --strategy=evil origin",
            "git branch --edit-description",
            "git fetch ext::s.sh",
            "git push file:///tmp/x",
            "git fetch *",
            "git clone -c core.sshCommand=s.sh x",
            "git clone --conf core.sshCommand=s.sh x",
            "git clone -qu s.sh x",
            "git clone --template=hooks x",
            "nohup git checkout -b x > /dev/null",
            "./git checkout -b x",
            "GIT_EXEC_PATH=. git checkout -b x",
            "env GIT_EXEC_PATH=. git checkout -b x",
        ];
        for (lines, expected) in
            [(&both[..], (true, true)), (&not_tracking, (true, false)), (&neither, (false, false))]
        {
            for line in lines {
                let script = parse(line, ShellDialect::Bash);
                let all = |is: fn(&Classification) -> bool| {
                    script.ambiguity.is_none()
                        && script.commands.iter().all(|command| is(&classify(command)))
                };
                let found =
                    (all(|class| class.starts_no_other), all(|class| class.tracks_branches));
                assert_eq!(found, expected, "{line}");
            }
        }
    }
}
