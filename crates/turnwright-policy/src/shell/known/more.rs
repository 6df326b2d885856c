//! Programs that only read in forms which no table tells.

use std::path::PathBuf;

use super::super::Word;
use super::flags::{Part, parts};
use super::{Reads, globs};

type Found = Option<Vec<PathBuf>>;

/// What `test` knows. Without `-v` and `-R`: bash evaluates the index of an array that they are
/// given, whatever quotes it was in.
const OF_FILES: &str = "-a -b -c -d -e -f -g -h -k -p -r -s -u -w -x -G -L -N -O -S";
const OF_WORDS: &str = "-n -z -t = == != < > ! ( ) -eq -ne -lt -le -gt -ge -o";
const BETWEEN_FILES: &str = "-nt -ot -ef";

fn is_one_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

/// `test`: no `-v` and `-R`.
pub(super) fn test(words: &[Word]) -> Found {
    let mut reads = Reads::default();
    for (place, word) in words.iter().enumerate() {
        let text = word.text.as_str();
        let near = |at: Option<usize>| at.and_then(|it| words.get(it)).map_or("", |it| &it.text);
        let before = near(place.checked_sub(1));
        let beside = [before, near(Some(place + 1))];
        let is_operator = [OF_FILES, OF_WORDS, BETWEEN_FILES].iter().any(|it| is_one_of(it, text));
        if word.is_glob || text.starts_with('-') && !is_operator && !is_number(&text[1..]) {
            return None;
        }
        let is_file =
            is_one_of(OF_FILES, before) || beside.iter().any(|it| is_one_of(BETWEEN_FILES, it));
        if is_file && !is_operator {
            reads.name(text);
        }
    }
    Some(reads.0)
}

/// `[`: the same up to the last word.
pub(super) fn bracket(words: &[Word]) -> Found {
    let (last, words) = words.split_last()?;
    (last.text == "]" && !last.is_glob).then(|| test(words))?
}

/// `printf`: no `-v`.
pub(super) fn printf(words: &[Word]) -> Found {
    let first = words.first()?;
    let is_format = !first.is_glob && (first.text == "--" || !first.text.starts_with('-'));
    is_format.then(|| globs(words))?
}

/// `xxd`: it knows no bundles, `-ps` is one option, and what stands behind the file is written.
pub(super) fn xxd(words: &[Word]) -> Found {
    const ALONE: &str = "-a -b -e -E -i -p -ps -plain -u -C -d";
    let mut reads = Reads::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.is_glob {
            return None;
        } else if is_one_of("-c -g -l -s -o", &word.text) {
            words.next().filter(|it| is_offset(&it.text))?;
        } else if !word.text.starts_with('-') || word.text == "-" {
            reads.name(&word.text);
            return words.next().is_none().then_some(reads.0);
        } else if !is_one_of(ALONE, &word.text) {
            let value = word.text.strip_prefix(['-'])?.strip_prefix(['c', 'g', 'l', 's', 'o'])?;
            is_offset(value).then_some(())?;
        }
    }
    Some(reads.0)
}

/// `64`, `-16`, `0x1f`.
fn is_offset(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_hexdigit())
}

/// `tree`: whether letters stand behind one whose value is the next word. They are options too.
pub(super) fn hides_letters(word: &Word) -> bool {
    let letters = word.text.strip_prefix('-').filter(|it| !it.starts_with('-'));
    let behind = letters.and_then(|it| it.split_once(['L', 'P', 'I']));
    behind.is_some_and(|(_, rest)| rest.bytes().any(|it| !it.is_ascii_digit()))
}

/// `cd`: what is behind it runs there, so that has to be a place where one may look.
pub(super) fn cd(words: &[Word]) -> Found {
    let mut reads = Reads::default();
    let mut count = 0;
    for part in parts(&["-LP"], words) {
        match part? {
            Part::Operand(word) if !word.is_glob => {
                count += 1;
                reads.name(&word.text);
            }
            Part::Flag(_) => {}
            _ => return None,
        }
    }
    (count <= 1).then_some(reads.0)
}

/// `set`: the options that scripts begin with.
pub(super) fn set(words: &[Word]) -> Found {
    let is_known =
        |it: &Word| is_one_of("-e -u -x -eu -ex -ux -eux -euo -euxo -eo -o pipefail", &it.text);
    (!words.is_empty() && words.iter().all(is_known)).then(Vec::new)
}

/// `sleep`: up to a minute.
pub(super) fn sleep(words: &[Word]) -> Found {
    let [word] = words else { return None };
    let seconds = word.text.strip_suffix('s').unwrap_or(&word.text);
    let is_plain = seconds.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let is_short = seconds.parse::<f64>().is_ok_and(|it| it <= 60.0);
    (is_plain && is_short && !word.is_glob).then(Vec::new)
}

/// `ps`: nothing that shows environments.
pub(super) fn ps(words: &[Word]) -> Found {
    for part in parts(
        &["-aAdeflFjHxwM -p: -u: -U: -C: -o: --pid: --user: --sort: --no-headers --forest"],
        words,
    ) {
        match part? {
            Part::Operand(word) if word.is_glob => return None,
            Part::Operand(word)
                if word.text.bytes().all(|it| b"aufxwjl0123456789,".contains(&it)) => {}
            Part::Operand(_) => return None,
            _ => {}
        }
    }
    let shows_environment = |it: &Word| it.text.contains("env");
    (!words.iter().any(shows_environment)).then(Vec::new)
}

/// `command -v`.
pub(super) fn command(words: &[Word]) -> Found {
    let (first, names) = words.split_first()?;
    let is_plain = |it: &Word| !it.is_glob && !it.text.starts_with('-');
    (["-v", "-V"].contains(&first.text.as_str()) && names.iter().all(is_plain)).then(Vec::new)
}

/// `go env`: no `-w` and `-u`.
pub(super) fn go_env(words: &[Word]) -> Found {
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

/// Programs that tell their version without running anything of the folder they are called in:
/// others, such as yarn, Maven and .NET, hand over to a version that the folder names.
const TELL_VERSIONS: &str = "bash cargo cc clang cmake curl deno docker gcc g++ git go \
    jq java javac make node nodejs npm openssl perl php pip pip3 podman psql python python3 rg \
    ruby ruff rustc rustfmt sh sqlite3 tsc uv zsh";

/// Whether it is asked for its version, and nothing else.
pub(super) fn is_version(name: &str, words: &[Word]) -> bool {
    let [word] = words else { return false };
    let text = word.text.as_str();
    !word.is_glob
        && TELL_VERSIONS.split_ascii_whitespace().any(|it| it == name)
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
