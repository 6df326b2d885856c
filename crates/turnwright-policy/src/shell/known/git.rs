//! What of git only reads. What a repository's settings make git run is not its words' affair.

use std::path::PathBuf;

use super::super::Word;
use super::Reads;
use super::flags::{Flags, Part, parts};

/// A subcommand that only reads.
struct Sub {
    name: &'static str,
    flags: Flags,
    operands: Operands,
}

#[derive(Clone, Copy)]
enum Operands {
    /// Revisions and paths in the repository.
    Any,
    /// None: with one it would change something.
    None,
    /// None, unless one of these options says that things are listed.
    Listed(&'static str),
    /// One of these words first, and then anything.
    First(&'static str),
    /// The same, or nothing.
    FirstOrNone(&'static str),
    /// One at most.
    One,
    /// Any, which may also be files outside of the repository.
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

macro_rules! sub {
    ($name:literal, $operands:expr $(, $flags:expr)*) => {
        Sub { name: $name, flags: &[$($flags),*], operands: $operands }
    };
}

const SUBS: &[Sub] = &[
    sub!("status", Operands::Any, STATUS),
    sub!("log", Operands::Any, WALK, PATCH),
    sub!("show", Operands::Any, WALK, PATCH),
    sub!("diff", Operands::Files, PATCH, "--cached --staged -# --base --ours --theirs -0 -1 -2 -3"),
    sub!(
        "diff-tree",
        Operands::Any,
        PATCH,
        "-r -t --root --no-commit-id --stdin -v --pretty? --always"
    ),
    sub!("diff-index", Operands::Any, PATCH, "--cached"),
    sub!("diff-files", Operands::Any, PATCH, "-0 -1 -2 -3"),
    sub!("rev-list", Operands::Any, WALK, "--use-bitmap-index --disk-usage? --quiet"),
    sub!("shortlog", Operands::Any, "-s -n -e -c -w? --numbered --summary --email --group:", WALK),
    sub!("blame", Operands::Any, BLAME),
    sub!("annotate", Operands::Any, BLAME),
    sub!("grep", Operands::Any, GREP),
    sub!("ls-files", Operands::Any, LS_FILES),
    sub!(
        "ls-tree",
        Operands::Any,
        "-d -r -t -l -z --name-only --name-status --object-only --full-name --full-tree --long --abbrev? --format:"
    ),
    sub!(
        "cat-file",
        Operands::Any,
        "-t -s -e -p --batch? --batch-check? --batch-all-objects --allow-unknown-type --unordered -z -Z --buffer"
    ),
    sub!("rev-parse", Operands::Any, REV_PARSE),
    sub!("describe", Operands::Any, DESCRIBE),
    sub!(
        "name-rev",
        Operands::Any,
        "--tags --refs: --exclude: --all --name-only --no-undefined --always"
    ),
    sub!(
        "merge-base",
        Operands::Any,
        "-a --all --octopus --independent --is-ancestor --fork-point"
    ),
    sub!("show-ref", Operands::Any, REFS),
    sub!("for-each-ref", Operands::Any, REFS),
    sub!(
        "show-branch",
        Operands::Any,
        "-a -r --all --remotes --current --topo-order --date-order --sparse --more: --list --merge-base --independent --no-name --sha1-name --topics --color? --no-color"
    ),
    sub!("cherry", Operands::Any, "-v --abbrev?"),
    sub!(
        "range-diff",
        Operands::Any,
        PATCH,
        "--creation-factor: --no-dual-color --left-only --right-only"
    ),
    sub!(
        "check-ignore",
        Operands::Any,
        "-q -v -z -n --quiet --verbose --stdin --non-matching --no-index"
    ),
    sub!("check-attr", Operands::Any, "-a -z --all --cached --stdin --source:"),
    sub!("count-objects", Operands::None, "-v -H --verbose --human-readable"),
    sub!("symbolic-ref", Operands::One, "-q --quiet --short --no-recurse"),
    sub!("version", Operands::None, "--build-options"),
    sub!(
        "branch",
        Operands::Listed("--list --contains --no-contains --merged --no-merged --points-at"),
        LIST,
        "-a -r -v -l -q --all --remotes --list --verbose --show-current --abbrev? --no-abbrev"
    ),
    // Not with `-n`: a number of lines below zero is taken for none.
    sub!(
        "tag",
        Operands::Listed("l --list --contains --no-contains --merged --no-merged --points-at"),
        LIST,
        "-l -n? --list"
    ),
    sub!("remote", Operands::FirstOrNone("get-url"), "-v --verbose --all --push"),
    sub!("reflog", Operands::FirstOrNone("show exists HEAD"), WALK, PATCH),
    sub!(
        "stash",
        Operands::First("list show"),
        WALK,
        PATCH,
        "--include-untracked --only-untracked"
    ),
    sub!("worktree", Operands::First("list"), "-v -z --porcelain --verbose"),
    sub!("notes", Operands::FirstOrNone("list show")),
    sub!("bisect", Operands::First("log")),
    sub!("sparse-checkout", Operands::First("list")),
];

const CONFIG_SUB: Sub = sub!("config", Operands::Any, CONFIG);

/// Options before the subcommand that change neither what runs nor where.
const GLOBAL: &[&str] =
    &["--no-pager", "-P", "--no-optional-locks", "--no-lazy-fetch", "--no-replace-objects"];

/// What git reads, if it does nothing but read.
pub(super) fn reads(words: &[Word]) -> Option<Vec<PathBuf>> {
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
    SUBS.iter().find(|it| it.name == sub.text)?.reads(words)
}

/// Whether a word makes git check signatures, which is done by a program of its own.
fn checks_signatures(sub: &str, word: &str) -> bool {
    // A format, or what is sorted by.
    let names_it = word.contains("signature");
    let lists = ["branch", "tag", "for-each-ref"].contains(&sub) || word.contains("%(");
    let is_code = |it: &str| it.trim_start_matches(['+', '-', ' ']).starts_with('G');
    names_it && lists || word.split('%').skip(1).any(is_code)
}

impl Sub {
    fn reads(&self, words: &[Word]) -> Option<Vec<PathBuf>> {
        let mut reads = Reads::default();
        reads.here();
        let mut count = 0;
        let mut is_listing = false;
        for part in parts(self.flags, words) {
            match part? {
                Part::Flag(flag) => is_listing |= self.lists(flag),
                Part::File(word, name) => reads.named(word, name)?,
                Part::Operand(word) => {
                    count += 1;
                    self.operand(word, count, &mut reads)?;
                }
            }
        }
        let is_fine = match self.operands {
            Operands::Listed(_) => count == 0 || is_listing,
            // With an option first, another subcommand may be meant.
            Operands::First(known) => words.first().is_some_and(|it| is_in(known, &it.text)),
            _ => true,
        };
        is_fine.then_some(reads.0)
    }

    fn lists(&self, flag: &str) -> bool {
        matches!(self.operands, Operands::Listed(listing) if is_in(listing, flag))
    }

    fn operand(&self, word: &Word, count: usize, reads: &mut Reads) -> Option<()> {
        match self.operands {
            Operands::Any => Some(()),
            Operands::Files => reads.operand(word),
            Operands::None => None,
            _ if word.is_glob => None,
            Operands::First(known) | Operands::FirstOrNone(known) => {
                (count > 1 || is_in(known, &word.text)).then_some(())
            }
            Operands::One => (count == 1).then_some(()),
            Operands::Listed(_) => Some(()),
        }
    }
}

/// `git config`: one name and no value, or a word that says that it is read. Behind the name an
/// option is a value.
fn config(words: &[Word]) -> Option<Vec<PathBuf>> {
    let mut operands = Vec::new();
    let mut is_reading = false;
    for part in parts(CONFIG_SUB.flags, words) {
        match part? {
            Part::Flag(_) | Part::File(..) if !matches!(operands[..], [] | ["list" | "get"]) => {
                return None;
            }
            Part::Flag(flag) => {
                is_reading |= flag == "l" || flag == "--list" || flag.starts_with("--get");
            }
            Part::Operand(word) if word.is_glob => return None,
            Part::Operand(word) => operands.push(word.text.as_str()),
            Part::File(..) => {}
        }
    }
    let is_fine = match operands[..] {
        _ if is_reading => true,
        ["list" | "get", ..] => true,
        [name] => name.contains('.'),
        _ => false,
    };
    is_fine.then(|| CONFIG_SUB.reads(words))?
}

fn is_in(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}
