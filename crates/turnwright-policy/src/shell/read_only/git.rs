//! The git subcommands that only read. What the settings of a repository make git run is not
//! considered here.

use super::super::Word;
use super::options::{Argument, OptionTable, arguments};
use super::{ReadFiles, ReadPaths};

/// A subcommand that only reads with these options and operands.
struct GitSubcommand {
    name: &'static str,
    options: OptionTable,
    operands: GitOperands,
}

#[derive(Clone, Copy)]
/// The operands that a subcommand may have.
enum GitOperands {
    /// Revisions and paths in the repository.
    Any,
    /// None. With an operand it would change something.
    None,
    /// None, unless one of these options makes it list things.
    Listed(&'static str),
    /// One of these words first, then anything.
    First(&'static str),
    /// The same, or no operand.
    FirstOrNone(&'static str),
    /// At most one.
    One,
    /// Any, including files outside of the repository.
    Files,
}

const PATCH: &str = "-p -u -s -U: -z -a -b -w -R -W -M? -C? -B? -D -l: -S: -G: --patch --no-patch \
    --unified: --raw --patch-with-raw --patch-with-stat --indent-heuristic --no-indent-heuristic \
    --minimal --patience --histogram --anchored: --diff-algorithm: --stat? --stat-width: \
    --stat-name-width: --stat-count: --stat-graph-width: --compact-summary --numstat --shortstat \
    --dirstat? --cumulative --summary --name-only --name-status --submodule? --color? --no-color \
    --color-moved? --no-color-moved --color-moved-ws: --word-diff? --word-diff-regex: --color-words? \
    --no-renames --rename-empty --no-rename-empty --check --ws-error-highlight: --full-index \
    --binary --abbrev? --no-abbrev --break-rewrites? --find-renames? --find-copies? \
    --find-copies-harder --irreversible-delete --diff-filter: --find-object: --pickaxe-all \
    --pickaxe-regex --relative? --no-relative --text --ignore-cr-at-eol --ignore-space-at-eol \
    --ignore-space-change --ignore-all-space --ignore-blank-lines --ignore-matching-lines: \
    --inter-hunk-context: --function-context --exit-code --quiet --no-ext-diff --no-textconv \
    --ignore-submodules? --src-prefix: --dst-prefix: --no-prefix --default-prefix --line-prefix: \
    --ita-invisible-in-index --merge-base -q -c -m --cc --combined-all-paths --diff-merges: --no-diff-merges";

const WALK: &str = "-# -n: -i -E -F -P -g -r -t --max-count: --skip: --since: --after: --until: --before: \
    --author: --committer: --grep: --grep-reflog: --all-match --invert-grep --regexp-ignore-case \
    --basic-regexp --extended-regexp --fixed-strings --perl-regexp --remove-empty --merges \
    --no-merges --min-parents: --max-parents: --no-min-parents --no-max-parents --first-parent \
    --exclude-first-parent-only --not --all --branches? --tags? --remotes? --glob: --exclude: \
    --reflog --ignore-missing --bisect --cherry-mark --cherry-pick --left-only --right-only \
    --left-right --cherry --walk-reflogs --merge --boundary --simplify-by-decoration \
    --show-pulls --full-history --dense --sparse --simplify-merges --ancestry-path? --date-order \
    --author-date-order --topo-order --reverse --no-walk? --do-walk --relative-date --date: \
    --parents --children --graph --no-graph --show-linear-break? --pretty? --format: \
    --abbrev-commit --no-abbrev-commit --oneline --encoding: --expand-tabs? --no-expand-tabs \
    --notes? --no-notes --follow --decorate? --no-decorate --decorate-refs: --decorate-refs-exclude: \
    --source --mailmap --no-mailmap --use-mailmap --log-size --full-diff --root -L: --count \
    --in-commit-order --objects --objects-edge --no-commit-id --always --stdin --header --timestamp";

const LIST: &str = "--contains? --no-contains? --merged? --no-merged? --points-at: --sort: --format: \
    --color? --no-color --column? --no-column -i --ignore-case --omit-empty";

const STATUS: &str = "-s -b -u? -v -z --short --branch --show-stash --porcelain? --long --verbose \
    --untracked-files? --ignore-submodules? --ignored? --column? --no-column --ahead-behind \
    --no-ahead-behind --renames --no-renames --find-renames?";

const BLAME: &str = "-b -c -e -f -k -l -n -p -s -t -w -L: -M? -C? -S< --root --show-stats --reverse: \
    --first-parent --porcelain --line-porcelain --incremental --encoding: --date: --no-progress \
    --score-debug --show-name --show-number --show-email --abbrev? --ignore-rev: --color-lines \
    --color-by-age --minimal";

const GREP: &str = "-a -i -I -r -w -v -h -H -E -G -P -F -n -l -L -o -z -c -p -W -q -# -A: -B: -C: -e: -f< \
    -m: --cached --untracked --no-exclude-standard --exclude-standard --recursive --no-recursive \
    --text --ignore-case --max-depth: --word-regexp --invert-match --full-name \
    --extended-regexp --basic-regexp --perl-regexp --fixed-strings --line-number --column \
    --files-with-matches --name-only --files-without-match --null --only-matching --count --color? \
    --no-color --break --heading --show-function --context: --after-context: --before-context: \
    --function-context --threads: --and --or --not --all-match --quiet --max-count: --no-textconv";

const LS_FILES: &str = "-z -t -v -f -c -d -o -i -s -u -k -m -x: -X< --cached --deleted --others \
    --ignored --stage --unmerged --killed --modified --directory --no-empty-directory --eol \
    --deduplicate --exclude: --exclude-from< --exclude-per-directory: --exclude-standard \
    --error-unmatch --full-name --recurse-submodules --abbrev? --debug --sparse --format:";

const REV_PARSE: &str = "-q --verify --quiet --short? --abbrev-ref? --symbolic --symbolic-full-name \
    --all --branches? --tags? --remotes? --glob: --exclude: --absolute-git-dir --git-dir \
    --git-common-dir --is-inside-git-dir --is-inside-work-tree --is-bare-repository \
    --is-shallow-repository --show-toplevel --show-prefix --show-cdup --show-superproject-working-tree \
    --show-object-format? --git-path: --revs-only --no-revs --flags --no-flags --not --since: --until: \
    --local-env-vars --path-format: --show-ref-format --disambiguate: --default:";

const DESCRIBE: &str = "--dirty? --broken? --all --tags --contains --abbrev? --candidates: \
    --exact-match --debug --long --match: --exclude: --always --first-parent";

const CONFIG: &str = "-l -z --global --system --local --worktree --get --get-all --get-regexp \
    --get-urlmatch --list --type: --bool --int --bool-or-int --path --expiry-date --null \
    --name-only --show-origin --show-scope --includes --no-includes --default: --all --regexp \
    --show-names --no-show-names --value: --fixed-value -f< --file< --blob:";

const REFS: &str = "-q -s -d --count: --sort: --format: --points-at: --merged? --no-merged? --contains? \
    --no-contains? --ignore-case --color? --exclude: --include-root-refs --shell --omit-empty \
    --heads --branches --tags --head --verify --exists --dereference --hash? --abbrev? --quiet";

macro_rules! subcommand {
    ($name:literal, $operands:expr $(, $options:expr)*) => {
        GitSubcommand { name: $name, options: &[$($options),*], operands: $operands }
    };
}

const SUBCOMMANDS: &[GitSubcommand] = &[
    subcommand!("status", GitOperands::Any, STATUS),
    subcommand!("log", GitOperands::Any, WALK, PATCH),
    subcommand!("show", GitOperands::Any, WALK, PATCH),
    subcommand!(
        "diff",
        GitOperands::Files,
        PATCH,
        "--cached --staged -# --base --ours --theirs -0 -1 -2 -3"
    ),
    subcommand!(
        "diff-tree",
        GitOperands::Any,
        PATCH,
        "-r -t --root --no-commit-id --stdin -v --pretty? --always"
    ),
    subcommand!("diff-index", GitOperands::Any, PATCH, "--cached"),
    subcommand!("diff-files", GitOperands::Any, PATCH, "-0 -1 -2 -3"),
    subcommand!("rev-list", GitOperands::Any, WALK, "--use-bitmap-index --disk-usage? --quiet"),
    subcommand!(
        "shortlog",
        GitOperands::Any,
        "-s -n -e -c -w? --numbered --summary --email --group:",
        WALK
    ),
    subcommand!("blame", GitOperands::Any, BLAME),
    subcommand!("annotate", GitOperands::Any, BLAME),
    subcommand!("grep", GitOperands::Any, GREP),
    subcommand!("ls-files", GitOperands::Any, LS_FILES),
    subcommand!(
        "ls-tree",
        GitOperands::Any,
        "-d -r -t -l -z --name-only --name-status --object-only --full-name --full-tree --long --abbrev? --format:"
    ),
    subcommand!(
        "cat-file",
        GitOperands::Any,
        "-t -s -e -p --batch? --batch-check? --batch-all-objects --allow-unknown-type --unordered -z -Z --buffer"
    ),
    subcommand!("rev-parse", GitOperands::Any, REV_PARSE),
    subcommand!("describe", GitOperands::Any, DESCRIBE),
    subcommand!(
        "name-rev",
        GitOperands::Any,
        "--tags --refs: --exclude: --all --name-only --no-undefined --always"
    ),
    subcommand!(
        "merge-base",
        GitOperands::Any,
        "-a --all --octopus --independent --is-ancestor --fork-point"
    ),
    subcommand!("show-ref", GitOperands::Any, REFS),
    subcommand!("for-each-ref", GitOperands::Any, REFS),
    subcommand!(
        "show-branch",
        GitOperands::Any,
        "-a -r --all --remotes --current --topo-order --date-order --sparse --more: --list --merge-base --independent --no-name --sha1-name --topics --color? --no-color"
    ),
    subcommand!("cherry", GitOperands::Any, "-v --abbrev?"),
    subcommand!(
        "range-diff",
        GitOperands::Any,
        PATCH,
        "--creation-factor: --no-dual-color --left-only --right-only"
    ),
    subcommand!(
        "check-ignore",
        GitOperands::Any,
        "-q -v -z -n --quiet --verbose --stdin --non-matching --no-index"
    ),
    subcommand!("check-attr", GitOperands::Any, "-a -z --all --cached --stdin --source:"),
    subcommand!("count-objects", GitOperands::None, "-v -H --verbose --human-readable"),
    subcommand!("symbolic-ref", GitOperands::One, "-q --quiet --short --no-recurse"),
    subcommand!("version", GitOperands::None, "--build-options"),
    subcommand!(
        "branch",
        GitOperands::Listed("--list --contains --no-contains --merged --no-merged --points-at"),
        LIST,
        "-a -r -v -l -q --all --remotes --list --verbose --show-current --abbrev? --no-abbrev"
    ),
    // `-n` does not count as listing: with a negative number of lines git creates the tag.
    subcommand!(
        "tag",
        GitOperands::Listed("l --list --contains --no-contains --merged --no-merged --points-at"),
        LIST,
        "-l -n? --list"
    ),
    subcommand!("remote", GitOperands::FirstOrNone("get-url"), "-v --verbose --all --push"),
    subcommand!("reflog", GitOperands::FirstOrNone("show exists HEAD"), WALK, PATCH),
    subcommand!(
        "stash",
        GitOperands::First("list show"),
        WALK,
        PATCH,
        "--include-untracked --only-untracked"
    ),
    subcommand!("worktree", GitOperands::First("list"), "-v -z --porcelain --verbose"),
    subcommand!("notes", GitOperands::FirstOrNone("list show")),
    subcommand!("bisect", GitOperands::First("log")),
    subcommand!("sparse-checkout", GitOperands::First("list")),
];

const CONFIG_SUBCOMMAND: GitSubcommand = subcommand!("config", GitOperands::Any, CONFIG);

/// Global options that change neither what runs nor where.
const GLOBAL: &[&str] =
    &["--no-pager", "-P", "--no-optional-locks", "--no-lazy-fetch", "--no-replace-objects"];

/// The files that git reads; `None` if it may do more than read.
pub(super) fn reads(words: &[Word]) -> ReadFiles {
    let is_global = |it: &&Word| GLOBAL.contains(&it.text.as_str());
    let words = &words[words.iter().take_while(is_global).count()..];
    let (sub, words) = words.split_first()?;
    if ["--version", "-v"].contains(&sub.text.as_str()) {
        return words.is_empty().then(Vec::new);
    }
    if words.iter().any(|it| checks_signatures(&sub.text, &it.text)) {
        return None;
    }
    if sub.text == "config" {
        return config(words);
    }
    SUBCOMMANDS.iter().find(|it| it.name == sub.text)?.reads(words)
}

/// True if a word makes git verify signatures, for which it runs another program.
fn checks_signatures(sub: &str, word: &str) -> bool {
    // A format or a sort key.
    let names_it = word.contains("signature");
    let lists = ["branch", "tag", "for-each-ref"].contains(&sub) || word.contains("%(");
    let is_code = |it: &str| it.trim_start_matches(['+', '-', ' ']).starts_with('G');
    names_it && lists || word.split('%').skip(1).any(is_code)
}

impl GitSubcommand {
    fn reads(&self, words: &[Word]) -> ReadFiles {
        let mut reads = ReadPaths::default();
        reads.add_current_folder();
        let mut count = 0;
        let mut is_listing = false;
        for argument in arguments(self.options, words) {
            match argument? {
                Argument::Option(option) => is_listing |= self.lists(option),
                Argument::FileValue(word, name) => reads.add_value(word, name)?,
                Argument::Operand(word) => {
                    count += 1;
                    self.add_operand(word, count, &mut reads)?;
                }
            }
        }
        let is_fine = match self.operands {
            GitOperands::Listed(_) => count == 0 || is_listing,
            // The action must come first: an option before it may mean another action.
            GitOperands::First(known) => words.first().is_some_and(|it| is_in(known, &it.text)),
            _ => true,
        };
        is_fine.then_some(reads.0)
    }

    fn lists(&self, option: &str) -> bool {
        matches!(self.operands, GitOperands::Listed(listing) if is_in(listing, option))
    }

    fn add_operand(&self, word: &Word, count: usize, reads: &mut ReadPaths) -> Option<()> {
        match self.operands {
            GitOperands::Any => Some(()),
            GitOperands::Files => reads.add_operand(word),
            GitOperands::None => None,
            _ if word.is_glob => None,
            GitOperands::First(known) | GitOperands::FirstOrNone(known) => {
                (count > 1 || is_in(known, &word.text)).then_some(())
            }
            GitOperands::One => (count == 1).then_some(()),
            GitOperands::Listed(_) => Some(()),
        }
    }
}

/// `git config` with one name and no value, or with an option or action that reads. After the name,
/// an option would be a value.
fn config(words: &[Word]) -> ReadFiles {
    let mut operands = Vec::new();
    let mut is_reading = false;
    for argument in arguments(CONFIG_SUBCOMMAND.options, words) {
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
    is_fine.then(|| CONFIG_SUBCOMMAND.reads(words))?
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}
