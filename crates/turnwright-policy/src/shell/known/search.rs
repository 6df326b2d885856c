//! Programs that look for files and for what is in them.

use std::path::PathBuf;

use super::super::Word;
use super::Reads;
use super::flags::{Flags, Part, parts};

type Found = Option<Vec<PathBuf>>;

const GREP: Flags = &[
    "-EFGPivwxyzcLloqsbHhnTUaIr -# -e: -f< -m: -A: -B: -C: -d: -D: --extended-regexp",
    "--fixed-strings --basic-regexp --perl-regexp --regexp: --file< --ignore-case --no-ignore-case",
    "--word-regexp --line-regexp --null-data --no-messages --invert-match --max-count:",
    "--byte-offset --line-number --line-buffered --with-filename --no-filename --label:",
    "--only-matching --quiet --silent --binary-files: --text --directories: --devices: --recursive",
    "--include: --exclude: --exclude-from< --exclude-dir:",
    "--files-without-match --files-with-matches --count --initial-tab --null --before-context:",
    "--after-context: --context: --group-separator: --no-group-separator --color? --colour?",
    "-Z --binary --unix-byte-offsets --help --version",
];

/// Without `--pre`, `--hostname-bin` and `-z`, which run programs, and without following links, which
/// lead out of what was named.
const RG: Flags = &[
    "-abcFhHiIlnNopPqsSuUvVwx0. -A: -B: -C: -d: -e: -E: -f< -g: -j: -m: -M: -r: -t: -T:",
    "--after-context: --before-context: --context: --auto-hybrid-regex --binary --block-buffered",
    "--byte-offset --case-sensitive --color: --colors: --column --no-column --context-separator:",
    "--no-context-separator --count --count-matches --crlf --debug --dfa-size-limit:",
    "--encoding: --engine: --field-context-separator: --field-match-separator: --file<",
    "--files --files-with-matches --files-without-match --fixed-strings --glob: --iglob:",
    "--glob-case-insensitive --heading --no-heading --help --hidden --no-hidden --hyperlink-format:",
    "--ignore-case --ignore-file< --ignore-file-case-insensitive --include-zero --invert-match",
    "--json --line-buffered --line-number --no-line-number --line-regexp --max-columns:",
    "--max-columns-preview --max-count: --max-depth: --max-filesize: --mmap --no-mmap --multiline",
    "--multiline-dotall --no-config --no-ignore --no-ignore-dot --no-ignore-exclude",
    "--no-ignore-files --no-ignore-global --no-ignore-messages --no-ignore-parent --no-ignore-vcs",
    "--no-messages --no-pcre2-unicode --no-require-git --no-unicode --null --null-data",
    "--one-file-system --only-matching --passthru --path-separator: --pcre2 --pcre2-version --pretty",
    "--quiet --regex-size-limit: --regexp: --replace: --smart-case --sort: --sortr: --stats",
    "--stop-on-nonmatch --text --threads: --trim --type: --type-not: --type-list --unrestricted",
    "--version --vimgrep --with-filename --no-filename --word-regexp",
];

/// Without `-x` and `-X`, which run programs, and `-l`, which runs `ls`.
const FD: Flags = &[
    "-HIusigFap10qhV -d: -t: -e: -E: -S: -c: -j: --hidden --no-ignore --no-ignore-vcs",
    "--no-ignore-parent --unrestricted --case-sensitive --ignore-case --glob --regex",
    "--fixed-strings --absolute-path --full-path --print0 --max-depth: --min-depth:",
    "--exact-depth: --prune --type: --extension: --size: --changed-within: --changed-before:",
    "--newer: --older: --exclude: --ignore-file< --color: --threads: --max-results: --quiet",
    "--show-errors --strip-cwd-prefix? --one-file-system --and: --path-separator: --search-path<",
    "--base-directory< --version --help",
];

/// How a program finds what it looks for.
struct Manner {
    flags: Flags,
    /// Options that say what is looked for, so that no operand does.
    patterns: &'static [&'static str],
    /// Options with which it goes through folders; none for one that always does.
    recursion: Option<&'static [&'static str]>,
    /// It may be called without saying what is looked for.
    may_be_bare: bool,
}

fn search(manner: &Manner, words: &[Word]) -> Found {
    let mut reads = Reads::default();
    let mut operands = Vec::new();
    let mut has_pattern = false;
    let mut is_recursive = manner.recursion.is_none();
    for part in parts(manner.flags, words) {
        match part? {
            Part::Flag(flag) => {
                has_pattern |= manner.patterns.contains(&flag);
                is_recursive |= manner.recursion.is_some_and(|it| it.contains(&flag));
            }
            Part::File(word, name) => reads.named(word, name)?,
            Part::Operand(word) => operands.push(word),
        }
    }
    let mut operands = operands.into_iter();
    if !has_pattern {
        match operands.next() {
            Some(pattern) if pattern.is_glob => return None,
            None if !manner.may_be_bare => return None,
            _ => {}
        }
    }
    if operands.len() == 0 && is_recursive {
        reads.here();
    }
    operands.try_for_each(|it| reads.operand(it))?;
    Some(reads.0)
}

pub(super) fn grep(words: &[Word]) -> Found {
    let manner = Manner {
        flags: GREP,
        patterns: &["e", "f", "--regexp", "--file", "--version", "--help"],
        recursion: Some(&["r", "d", "--recursive", "--directories"]),
        may_be_bare: false,
    };
    search(&manner, words)
}

pub(super) fn rg(words: &[Word]) -> Found {
    let patterns: &[&str] = &[
        "e",
        "f",
        "V",
        "h",
        "--regexp",
        "--file",
        "--files",
        "--type-list",
        "--version",
        "--help",
    ];
    search(&Manner { flags: RG, patterns, recursion: None, may_be_bare: false }, words)
}

pub(super) fn fd(words: &[Word]) -> Found {
    search(&Manner { flags: FD, patterns: &[], recursion: None, may_be_bare: true }, words)
}

/// What `find` tests and prints, with nothing behind it.
const FIND_ALONE: &str = "( ) ! , -a -and -o -or -not -daystart -depth -d -mount -xdev \
    -noleaf -nowarn -warn -ignore_readdir_race -noignore_readdir_race -empty -executable -readable \
    -writable -nogroup -nouser -true -false -print -print0 -ls -prune -quit -E -X -x";

/// The same, with one word behind it.
const FIND_WITH_WORD: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex \
    -regextype -lname -ilname -type -xtype -maxdepth -mindepth -size -amin -atime -cmin -ctime \
    -mmin -mtime -perm -user -group -uid -gid -links -inum -used -fstype -printf";

/// The same, with the name of a file behind it.
const FIND_WITH_FILE: &str = "-newer -anewer -cnewer -samefile -newermt -newerct -newerat";

/// `find`: only what is known to test and to print to where all goes.
pub(super) fn find(words: &[Word]) -> Found {
    let mut reads = Reads::default();
    if words.iter().any(|it| it.is_glob) {
        return None;
    }
    let mut words = words.iter().map(|it| it.text.as_str()).peekable();
    while words.next_if(|it| ["-H", "-P"].contains(it)).is_some() {}
    while let Some(start) = words.next_if(|it| !it.starts_with(['-', '(', ')', '!', ','])) {
        reads.name(start);
    }
    if reads.0.is_empty() {
        reads.here();
    }
    let is_in = |list: &str, word: &str| list.split_ascii_whitespace().any(|it| it == word);
    while let Some(word) = words.next() {
        if is_in(FIND_WITH_WORD, word) {
            words.next()?;
        } else if is_in(FIND_WITH_FILE, word) {
            reads.name(words.next()?);
        } else if !is_in(FIND_ALONE, word) {
            return None;
        }
    }
    Some(reads.0)
}
