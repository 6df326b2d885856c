//! Programs that search for files and in them.

use super::super::Word;
use super::options::{Argument, OptionTable, arguments};
use super::{ReadFiles, ReadPaths};

const GREP: OptionTable = &[
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

/// Without `--pre`, `--hostname-bin` and `-z`, which run programs, and without following symlinks,
/// which lead out of the named folders.
const RG: OptionTable = &[
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
const FD: OptionTable = &[
    "-HIusigFap10qhV -d: -t: -e: -E: -S: -c: -j: --hidden --no-ignore --no-ignore-vcs",
    "--no-ignore-parent --unrestricted --case-sensitive --ignore-case --glob --regex",
    "--fixed-strings --absolute-path --full-path --print0 --max-depth: --min-depth:",
    "--exact-depth: --prune --type: --extension: --size: --changed-within: --changed-before:",
    "--newer: --older: --exclude: --ignore-file< --color: --threads: --max-results: --quiet",
    "--show-errors --strip-cwd-prefix? --one-file-system --and: --path-separator: --search-path<",
    "--base-directory< --version --help",
];

/// The command line syntax of a search program.
struct SearchSyntax {
    options: OptionTable,
    /// Options that give the pattern, so that no operand does.
    pattern_options: &'static [&'static str],
    /// Options that make it recursive; `None` if it always is.
    recursive_options: Option<&'static [&'static str]>,
    /// Whether it may be called without a pattern.
    pattern_is_optional: bool,
}

fn search(syntax: &SearchSyntax, words: &[Word]) -> ReadFiles {
    let mut reads = ReadPaths::default();
    let mut operands = Vec::new();
    let mut has_pattern = false;
    let mut is_recursive = syntax.recursive_options.is_none();
    for argument in arguments(syntax.options, words) {
        match argument? {
            Argument::Option(option) => {
                has_pattern |= syntax.pattern_options.contains(&option);
                is_recursive |= syntax.recursive_options.is_some_and(|it| it.contains(&option));
            }
            Argument::FileValue(word, name) => reads.add_value(word, name)?,
            Argument::Operand(word) => operands.push(word),
        }
    }
    let mut operands = operands.into_iter();
    if !has_pattern {
        match operands.next() {
            Some(pattern) if pattern.is_glob => return None,
            None if !syntax.pattern_is_optional => return None,
            _ => {}
        }
    }
    if operands.len() == 0 && is_recursive {
        reads.add_current_folder();
    }
    operands.try_for_each(|it| reads.add_operand(it))?;
    Some(reads.0)
}

pub(super) fn grep(words: &[Word]) -> ReadFiles {
    let syntax = SearchSyntax {
        options: GREP,
        pattern_options: &["e", "f", "--regexp", "--file", "--version", "--help"],
        recursive_options: Some(&["r", "d", "--recursive", "--directories"]),
        pattern_is_optional: false,
    };
    search(&syntax, words)
}

pub(super) fn rg(words: &[Word]) -> ReadFiles {
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
    let syntax = SearchSyntax {
        options: RG,
        pattern_options: patterns,
        recursive_options: None,
        pattern_is_optional: false,
    };
    search(&syntax, words)
}

pub(super) fn fd(words: &[Word]) -> ReadFiles {
    let syntax = SearchSyntax {
        options: FD,
        pattern_options: &[],
        recursive_options: None,
        pattern_is_optional: true,
    };
    search(&syntax, words)
}

/// The expressions of `find` without an argument that only test and print.
const FIND_WITHOUT_ARGUMENT: &str = "( ) ! , -a -and -o -or -not -daystart -depth -d -mount -xdev \
    -noleaf -nowarn -warn -ignore_readdir_race -noignore_readdir_race -empty -executable -readable \
    -writable -nogroup -nouser -true -false -print -print0 -ls -prune -quit -E -X -x";

/// The same with an argument.
const FIND_WITH_WORD: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex \
    -regextype -lname -ilname -type -xtype -maxdepth -mindepth -size -amin -atime -cmin -ctime \
    -mmin -mtime -perm -user -group -uid -gid -links -inum -used -fstype -printf";

/// The same with a file name as the argument.
const FIND_WITH_FILE: &str = "-newer -anewer -cnewer -samefile -newermt -newerct -newerat";

/// `find` with expressions that only test files and print to standard output.
pub(super) fn find(words: &[Word]) -> ReadFiles {
    let mut reads = ReadPaths::default();
    if words.iter().any(|it| it.is_glob) {
        return None;
    }
    let mut words = words.iter().map(|it| it.text.as_str()).peekable();
    while words.next_if(|it| ["-H", "-P"].contains(it)).is_some() {}
    while let Some(start) = words.next_if(|it| !it.starts_with(['-', '(', ')', '!', ','])) {
        reads.add_path(start);
    }
    if reads.0.is_empty() {
        reads.add_current_folder();
    }
    let is_in = |list: &str, word: &str| list.split_ascii_whitespace().any(|it| it == word);
    while let Some(word) = words.next() {
        if is_in(FIND_WITH_WORD, word) {
            words.next()?;
        } else if is_in(FIND_WITH_FILE, word) {
            reads.add_path(words.next()?);
        } else if !is_in(FIND_WITHOUT_ARGUMENT, word) {
            return None;
        }
    }
    Some(reads.0)
}
