//! Programs with forms that only read and that no option table can express.

use super::super::Word;
use super::options::{Argument, arguments};
use super::{ReadFiles, ReadPaths, glob_folders};

/// The operators of `test`, without `-v` and `-R`: bash evaluates an array index in their operand,
/// which may run commands, even if it was quoted.
const FILE_OPERATORS: &str = "-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S";
const WORD_OPERATORS: &str = "-n -z -t = == != < > ! ( ) -eq -ne -lt -le -gt -ge -o";
const FILE_COMPARISONS: &str = "-nt -ot -ef";

fn is_one_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

/// `test` without `-v` and `-R`.
pub(super) fn test(words: &[Word]) -> ReadFiles {
    let mut reads = ReadPaths::default();
    for (index, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let near = |at: Option<usize>| at.and_then(|it| words.get(it)).map_or("", |it| &it.text);
        let before = near(index.checked_sub(1));
        let beside = [before, near(Some(index + 1))];
        let is_operator =
            [FILE_OPERATORS, WORD_OPERATORS, FILE_COMPARISONS].iter().any(|it| is_one_of(it, text));
        if word.is_glob || text.starts_with('-') && !is_operator && !is_number(&text[1..]) {
            return None;
        }
        let is_file = is_one_of(FILE_OPERATORS, before)
            || beside.iter().any(|it| is_one_of(FILE_COMPARISONS, it));
        if is_file && !is_operator {
            reads.add_path(text);
        }
    }
    Some(reads.0)
}

/// `[`, which is `test` with a final `]`.
pub(super) fn bracket(words: &[Word]) -> ReadFiles {
    let (last, words) = words.split_last()?;
    (last.text == "]" && !last.is_glob).then(|| test(words))?
}

/// `printf` without `-v`.
pub(super) fn printf(words: &[Word]) -> ReadFiles {
    let first = words.first()?;
    let is_format = !first.is_glob && (first.text == "--" || !first.text.starts_with('-'));
    is_format.then(|| glob_folders(words))?
}

/// `xxd`. It has no groups of letters, `-ps` is one option, and it writes to the word after the
/// file.
pub(super) fn xxd(words: &[Word]) -> ReadFiles {
    const WITHOUT_VALUE: &str = "-a -b -e -E -i -p -ps -plain -u -C -d";
    let mut reads = ReadPaths::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.is_glob {
            return None;
        } else if is_one_of("-c -g -l -s -o", &word.text) {
            words.next().filter(|it| is_offset(&it.text))?;
        } else if !word.text.starts_with('-') || word.text == "-" {
            reads.add_path(&word.text);
            return words.next().is_none().then_some(reads.0);
        } else if !is_one_of(WITHOUT_VALUE, &word.text) {
            let value = word.text.strip_prefix(['-'])?.strip_prefix(['c', 'g', 'l', 's', 'o'])?;
            is_offset(value).then_some(())?;
        }
    }
    Some(reads.0)
}

/// True for `64`, `-16`, `0x1f`.
fn is_offset(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

/// `tree`: true if letters follow one that takes a value. `tree` takes them for options and the
/// next word for the value.
pub(super) fn hides_options(word: &Word) -> bool {
    let letters = word.text.strip_prefix('-').filter(|it| !it.starts_with('-'));
    let following = letters.and_then(|it| it.split_once(['L', 'P', 'I']));
    following.is_some_and(|(_, rest)| rest.bytes().any(|it| !it.is_ascii_digit()))
}

/// `cd`. Later commands run in the folder, so it must be one that may be read.
pub(super) fn cd(words: &[Word]) -> ReadFiles {
    let mut reads = ReadPaths::default();
    let mut count = 0;
    for argument in arguments(&["-LP"], words) {
        match argument? {
            Argument::Operand(word) if !word.is_glob => {
                count += 1;
                reads.add_path(&word.text);
            }
            Argument::Option(_) => {}
            _ => return None,
        }
    }
    (count <= 1).then_some(reads.0)
}

/// `set` with the options that scripts usually begin with.
pub(super) fn set(words: &[Word]) -> ReadFiles {
    let is_known =
        |it: &Word| is_one_of("-e -u -x -eu -ex -ux -eux -euo -euxo -eo -o pipefail", &it.text);
    (!words.is_empty() && words.iter().all(is_known)).then(Vec::new)
}

/// `sleep` for at most a minute.
pub(super) fn sleep(words: &[Word]) -> ReadFiles {
    let [word] = words else { return None };
    let seconds = word.text.strip_suffix('s').unwrap_or(&word.text);
    let is_plain = seconds.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let is_short = seconds.parse::<f64>().is_ok_and(|it| it <= 60.0);
    (is_plain && is_short && !word.is_glob).then(Vec::new)
}

/// `ps` without options that show environments.
pub(super) fn ps(words: &[Word]) -> ReadFiles {
    for argument in arguments(
        &["-aAdeflFjHxwM -p: -u: -U: -C: -o: --pid: --user: --sort: --no-headers --forest"],
        words,
    ) {
        match argument? {
            Argument::Operand(word) if word.is_glob => return None,
            Argument::Operand(word)
                if word.text.bytes().all(|it| b"aufxwjl0123456789,".contains(&it)) => {}
            Argument::Operand(_) => return None,
            _ => {}
        }
    }
    let shows_environment = |it: &Word| it.text.contains("env");
    (!words.iter().any(shows_environment)).then(Vec::new)
}

/// `command -v`.
pub(super) fn command(words: &[Word]) -> ReadFiles {
    let (first, names) = words.split_first()?;
    let is_plain = |it: &Word| !it.is_glob && !it.text.starts_with('-');
    (["-v", "-V"].contains(&first.text.as_str()) && names.iter().all(is_plain)).then(Vec::new)
}

/// `go env` without `-w` and `-u`.
pub(super) fn go_env(words: &[Word]) -> ReadFiles {
    let is_name = |it: &Word| {
        it.text == "-json"
            || !it.text.is_empty()
                && it
                    .text
                    .bytes()
                    .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == b'_')
    };
    words.iter().all(is_name).then(Vec::new)
}

/// Programs that print their version without running anything from the current folder. Others, such
/// as yarn, Maven and .NET, run the version that the folder names.
const VERSION_PRINTERS: &str = "bash cargo cc clang cmake curl deno docker gcc g++ git go \
    jq java javac make node nodejs npm openssl perl php pip pip3 podman psql python python3 rg \
    ruby ruff rustc rustfmt sh sqlite3 tsc uv zsh";

/// True if a program is only asked for its version.
pub(super) fn is_version_query(name: &str, words: &[Word]) -> bool {
    let [word] = words else { return false };
    let text = word.text.as_str();
    !word.is_glob
        && VERSION_PRINTERS.split_ascii_whitespace().any(|it| it == name)
        && match name {
            "go" | "openssl" => text == "version",
            "java" | "javac" => ["-version", "--version"].contains(&text),
            "cargo" | "rustc" | "python" | "python3" | "pip" | "pip3" => {
                ["-V", "--version"].contains(&text)
            }
            "node" | "nodejs" | "npm" | "php" | "ruby" | "perl" | "tsc" => {
                ["-v", "--version"].contains(&text)
            }
            _ => text == "--version",
        }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}
