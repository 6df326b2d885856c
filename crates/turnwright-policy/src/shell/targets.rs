//! What a command deletes, changes or overwrites, as far as its arguments name it. `ruin` decides what that
//! means. Programs that are given files are described once, in the column `targets` of their rows.

use super::args::{self, Args, git_subcommand, is_option, operands};
use super::programs::{self, is_in};
use super::system_paths::HOME;
use super::{SimpleCommand, Word, known_words, network, read_only};

/// What happens to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// It is deleted with everything in it.
    Deletes,
    /// What is in it and not in another folder is deleted.
    Replaces,
    /// It is moved away, or what no one keeps track of is deleted from it.
    Empties,
    /// Some of what is in it is deleted.
    DeletesSome,
    /// A program is run for what is in it.
    RunsForAll,
    /// Permissions or owners of everything in it are changed.
    OpensAll,
    /// Its own permissions or owner are changed.
    Opens,
    /// The content of the file is replaced.
    Overwrites,
    /// The same, by a program that is used for disks.
    Formats,
}

/// A path that a command names, and what happens to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) text: &'a str,
    pub(super) harm: Harm,
}

pub(super) type Targets = for<'a> fn(&'a [Word]) -> Vec<Target<'a>>;

fn all<'a>(words: impl Iterator<Item = &'a Word>, harm: Harm) -> Vec<Target<'a>> {
    words.map(|it| Target { text: &it.text, harm }).collect()
}

fn is_recursive(words: Args<'_>) -> bool {
    let options = words.iter().take_while(|it| it.text != "--");
    options
        .into_iter()
        .any(|it| is_option(&it.text, 'r', "--recursive") || is_option(&it.text, 'R', ""))
}

/// `rm -r`.
pub(super) fn removed(words: Args<'_>) -> Vec<Target<'_>> {
    if is_recursive(words) { all(operands(words), Harm::Deletes) } else { Vec::new() }
}

/// `rimraf`, which is always recursive.
pub(super) fn removed_with_all(words: Args<'_>) -> Vec<Target<'_>> {
    all(operands(words), Harm::Deletes)
}

/// `mv`: everything but the destination.
pub(super) fn moved(words: Args<'_>) -> Vec<Target<'_>> {
    let sources: Vec<&Word> = operands(words).collect();
    let given = option_values(words, 't', "--target-directory");
    let is_source = |at: usize, word: &Word| match given.as_slice() {
        [] => at + 1 < sources.len(),
        given => !given.contains(&word.text.as_str()),
    };
    let moved = sources.iter().enumerate().filter(|(at, word)| is_source(*at, word));
    all(moved.map(|it| *it.1), Harm::Empties)
}

/// `zip -m`: everything but the archive.
pub(super) fn moved_into_archive(words: Args<'_>) -> Vec<Target<'_>> {
    let moves = words.iter().any(|it| is_option(&it.text, 'm', "--move"));
    all(operands(words).skip(1).filter(|_| moves), Harm::Empties)
}

/// `chmod`, `chown`, `chgrp` and the like. Modes and owners do not look like paths.
pub(super) fn opened(words: Args<'_>) -> Vec<Target<'_>> {
    let is_deep = words.iter().any(|it| is_option(&it.text, 'R', "--recursive"));
    all(operands(words), if is_deep { Harm::OpensAll } else { Harm::Opens })
}

/// `tee`, `truncate`.
pub(super) fn overwritten(words: Args<'_>) -> Vec<Target<'_>> {
    all(operands(words), Harm::Overwrites)
}

/// `cp`, `install`. Only the last operand is written.
pub(super) fn copied(words: Args<'_>) -> Vec<Target<'_>> {
    all(operands(words).next_back().into_iter(), Harm::Overwrites)
}

/// `mkfs`, `shred`.
pub(super) fn formatted(words: Args<'_>) -> Vec<Target<'_>> {
    all(operands(words), Harm::Formats)
}

/// `dd`.
pub(super) fn dumped(words: Args<'_>) -> Vec<Target<'_>> {
    let files = words.iter().filter_map(|it| it.text.strip_prefix("of="));
    files.map(|text| Target { text, harm: Harm::Formats }).collect()
}

/// `curl -o`.
pub(super) fn fetched_by_curl(words: Args<'_>) -> Vec<Target<'_>> {
    values(words, &[('o', "--output"), ('D', "--dump-header"), ('c', "--cookie-jar")])
}

/// `wget -O`.
pub(super) fn fetched_by_wget(words: Args<'_>) -> Vec<Target<'_>> {
    values(words, &[('O', "--output-document"), ('o', "--output-file"), ('a', "--append-output")])
}

fn values<'a>(words: Args<'a>, options: &[(char, &str)]) -> Vec<Target<'a>> {
    let texts = options.iter().flat_map(|it| option_values(words, it.0, it.1));
    texts.map(|text| Target { text, harm: Harm::Overwrites }).collect()
}

/// The values of an option: in the next word, after `=`, or after the letter, which may follow others.
fn option_values<'a>(words: Args<'a>, letter: char, name: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if !is_option(&word.text, letter, name) {
            continue;
        }
        let value = if word.text.starts_with("--") {
            word.text.split_once('=').map(|it| it.1)
        } else {
            word.text.split_once(letter).map(|it| it.1).filter(|it| !it.is_empty())
        };
        found.extend(value.or_else(|| words.get(at + 1).map(|it| it.text.as_str())));
    }
    found
}

/// `rsync --delete`: what is at the destination, or at a source with `--remove-source-files`.
pub(super) fn synchronised(words: Args<'_>) -> Vec<Target<'_>> {
    let has = |start: &str| words.iter().any(|it| it.text.starts_with(start));
    let mut sources: Vec<&Word> = operands(words).collect();
    let destination = sources.pop().filter(|_| has("--del"));
    sources.retain(|_| has("--remove-s"));
    let moved = sources.into_iter().map(|it| (it, Harm::Empties));
    let all = destination.into_iter().map(|it| (it, Harm::Replaces)).chain(moved);
    all.map(|(word, harm)| Target { text: path_on_host(word), harm }).collect()
}

/// The path in `host:path`. Without one it is the home folder.
fn path_on_host(word: &Word) -> &str {
    match word.text.split_once(':') {
        Some((_, "")) if network::is_remote(word) => HOME,
        Some((_, path)) if network::is_remote(word) => path,
        _ => &word.text,
    }
}

/// `git clean` in the folder that an option names.
pub(super) fn cleaned(words: Args<'_>) -> Vec<Target<'_>> {
    let Some(("clean", rest)) = git_subcommand(words) else { return Vec::new() };
    let own = &words[..words.len() - rest.len()];
    let is_dry = rest.iter().any(|it| is_option(&it.text, 'n', "--dry-run"));
    let mut folders = option_values(own, 'C', "");
    folders.extend(option_values(own, '\0', "--work-tree"));
    folders.retain(|_| !is_dry);
    if folders.is_empty() && !is_dry {
        folders.push(".");
    }
    folders.into_iter().map(|text| Target { text, harm: Harm::Empties }).collect()
}

/// Expressions of `find` that do not select files by what they are.
const FIND_SELECTS_ALL: &str =
    "-delete -depth -type -xdev -mount -mindepth -maxdepth -print -print0 -ls -noleaf";

/// `find … -delete`, `find … -exec rm {} +`.
pub(super) fn found(words: Args<'_>) -> Vec<Target<'_>> {
    let is_option = |it: &&Word| ["-L", "-H", "-P"].contains(&it.text.as_str());
    let words = &words[words.iter().take_while(is_option).count()..];
    let is_start = |it: &&Word| !it.text.starts_with(['-', '(', '!', '\\']);
    let starts = words.iter().take_while(is_start).count();
    let (starts, rest) = words.split_at(starts);
    let exec = rest.iter().position(|it| known_words::is_find_exec(&it.text));
    let (tests, started) = rest.split_at(exec.unwrap_or(rest.len()));
    let selects = |it: &Word| it.text.starts_with('-') && !is_in(FIND_SELECTS_ALL, &it.text);
    let deletes = rest.iter().any(|it| it.text == "-delete").then_some(Harm::Deletes);
    let harm = deletes.or_else(|| harm_of_started(started.get(1..).unwrap_or_default()));
    let is_plain = started.get(1).is_some_and(|it| starts_nothing(&it.text));
    let selects = tests.iter().any(selects);
    on_all_of(starts, harm.filter(|it| *it != Harm::RunsForAll || !selects || !is_plain), selects)
}

/// `fd … -x rm`. The first operand is a pattern.
pub(super) fn found_by_fd(words: Args<'_>) -> Vec<Target<'_>> {
    let is_exec = |it: &Word| is_in("-x -X --exec --exec-batch", &it.text);
    let Some(exec) = words.iter().position(is_exec) else { return Vec::new() };
    let named: Vec<Word> = operands(&words[..exec]).cloned().collect();
    let selects = named.first().is_some_and(|it| !is_in(". .* *", &it.text));
    let harm = harm_of_started(&words[exec + 1..]);
    let starts = words[..exec].iter().filter(|it| !it.text.starts_with('-')).skip(1);
    starts.flat_map(|it| on_all_of(std::slice::from_ref(it), harm, selects)).collect()
}

/// True for a program that starts no other. For files that a search selects, it may do its work.
fn starts_nothing(program: &str) -> bool {
    programs::find(args::name(program)).starts == programs::Starts::Nothing
}

/// What happens to the folders in which a search starts. Without any, that is the current one.
fn on_all_of(starts: Args<'_>, harm: Option<Harm>, selects: bool) -> Vec<Target<'_>> {
    let harm = match harm {
        None => return Vec::new(),
        Some(Harm::Deletes | Harm::Formats) if selects => Harm::DeletesSome,
        Some(Harm::Formats) => Harm::Deletes,
        Some(Harm::Deletes | Harm::OpensAll) if !selects => harm.unwrap_or(Harm::RunsForAll),
        Some(_) => Harm::RunsForAll,
    };
    match starts {
        [] => vec![Target { text: ".", harm }],
        starts => all(starts.iter(), harm),
    }
}

/// What a program does to the files that it is started for; `None` if it only reads them.
fn harm_of_started(words: Args<'_>) -> Option<Harm> {
    let end = words.iter().position(|it| [";", "+"].contains(&it.text.as_str()));
    let words = &words[..end.unwrap_or(words.len())];
    let command =
        SimpleCommand { words: words.to_vec(), has_unknown_args: true, ..SimpleCommand::default() };
    if words.is_empty() || read_only::reads(&command).is_some() {
        return None;
    }
    // As if it were given a folder.
    let more = ["-R", "x"].map(|it| Word { text: it.to_owned(), is_glob: false });
    let searches = ["find", "fd"].map(programs::find);
    let own = |program: &programs::Program, args: Args<'_>| {
        // A search within a search is not looked into, so that a long line does not exhaust the stack.
        if searches.iter().any(|it| std::ptr::eq(*it, program)) {
            return Some(Harm::RunsForAll);
        }
        let args = [args, &more].concat();
        (program.targets)(&args).first().map(|it| it.harm)
    };
    args::behind_wrappers(&command, own).or(Some(Harm::RunsForAll))
}
