//! Programs that run what stands behind them in the same way: taken off, so that the inner command
//! is judged. What is not understood exactly is a doubt.

use super::lex::Doubt;
use turnwright_types::dialect::Dialect;
use super::{Redirect, Simple, Word, words};

const MAX_WRAPPERS: usize = 8;

const STARTS: Doubt = "it starts another program in a way that is not understood";

/// Takes the wrappers off a command. What is left may be a shell with a line of its own, which is
/// then taken off too and returned.
pub(super) fn unwrap(
    simple: &mut Simple,
    prints_to_file: bool,
) -> Result<Option<(String, Dialect)>, Doubt> {
    loop {
        check_program(simple)?;
        let program = simple.program();
        let taken = match program {
            "env" if simple.words.len() == 1 && !simple.is_open => return Ok(None),
            "command" if has_option(simple, &["-v", "-V"]) => return Ok(None),
            "sh" | "bash" | "dash" => return shell(simple),
            "env" => env(simple),
            "nohup" | "command" => Some(1),
            "nice" => nice(simple),
            "time" => Some(if has_option(simple, &["-p"]) { 2 } else { 1 }),
            "timeout" => timeout(simple),
            "stdbuf" => stdbuf(simple),
            "xargs" => xargs(simple),
            _ if words::is_starter(program) || words::is_shell(program) => None,
            _ => return Ok(None),
        };
        let taken = taken.filter(|it| *it < simple.words.len()).ok_or(STARTS)?;
        let is_glob = simple.words[..=taken].iter().any(|it| it.is_glob);
        if is_glob || simple.wrappers.len() == MAX_WRAPPERS {
            return Err(STARTS);
        }
        if simple.program() == "nohup" && !prints_to_file {
            // In a terminal it writes what is printed to a file.
            simple.redirects.push(Redirect { path: "nohup.out".into(), is_write: true });
        }
        simple.is_open |= simple.program() == "xargs";
        let wrapper = simple.words.drain(..taken).next();
        simple.wrappers.extend(wrapper.map(|it| it.text));
    }
}

/// Refuses programs that are none, or that do more than their words say.
fn check_program(simple: &Simple) -> Result<(), Doubt> {
    let program = simple.program();
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_./+@,:-".contains(&it);
    let is_name = program.bytes().all(is_plain) && !program.starts_with('-');
    if program != "[" && (program.is_empty() || !is_name) {
        return Err("nobody knows the name of its program");
    }
    if words::is_reserved(program) {
        return Err("it holds a loop, a condition or the like");
    }
    if words::changes_shell(program) {
        return Err("it changes the shell that it runs in");
    }
    let arguments = &simple.words[1..];
    let has = |wanted: fn(&str) -> bool| arguments.iter().any(|it| it.is_glob || wanted(&it.text));
    match words::name(program) {
        // They look for an index within the name, and run what stands in it.
        "test" | "[" if has(|it| it == "-v" || it == "-R") => Err("it looks into a variable"),
        "printf" if arguments.first().is_some_and(sets_variable) => Err("it sets a variable"),
        "find" if simple.argv().any(words::runs_for_each) => {
            Err("it runs a command for what it finds")
        }
        _ => Ok(()),
    }
}

/// Whether `printf` may set a variable: by an option, or by `%n`.
fn sets_variable(format: &Word) -> bool {
    let flags = |it: char| it.is_ascii_digit() || "-+ #.*'hlLjzt".contains(it);
    let mut conversions = format.text.split('%').skip(1);
    format.is_glob
        || format.text.starts_with('-')
        || conversions.any(|it| it.trim_start_matches(flags).starts_with('n'))
}

fn word(simple: &Simple, place: usize) -> &str {
    simple.words.get(place).map_or("", |it| &it.text)
}

fn has_option(simple: &Simple, options: &[&str]) -> bool {
    options.contains(&word(simple, 1))
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|it| it.is_ascii_digit())
}

/// Numbers of seconds and the like: `9`, `0.5`, `2m`.
fn is_duration(word: &str) -> bool {
    let number = word.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(word);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    is_number(whole) && is_number(part)
}

/// How many words belong to the wrapper; none if that is not clear.
fn env(simple: &Simple) -> Option<usize> {
    let sets = |it: &&Word| it.text.contains('=');
    let settings = simple.words[1..].iter().take_while(sets);
    let mut taken = 1;
    for setting in settings {
        let (variable, value) = words::assignment(&setting.text)?;
        words::is_harmless(variable, value).then_some(())?;
        taken += 1;
    }
    Some(taken)
}

fn nice(simple: &Simple) -> Option<usize> {
    if word(simple, 1) != "-n" {
        return Some(1);
    }
    let by = word(simple, 2);
    is_number(by.strip_prefix('-').unwrap_or(by)).then_some(3)
}

fn timeout(simple: &Simple) -> Option<usize> {
    let mut place = 1;
    loop {
        let value = word(simple, place + 1);
        match word(simple, place) {
            "-k" if is_duration(value) => place += 2,
            "-s" if !value.is_empty() && value.bytes().all(|it| it.is_ascii_alphanumeric()) => {
                place += 2;
            }
            duration => return is_duration(duration).then_some(place + 1),
        }
    }
}

fn stdbuf(simple: &Simple) -> Option<usize> {
    let is_mode = |it: &&Word| {
        let mode = it.text.strip_prefix('-').and_then(|it| it.strip_prefix(['i', 'o', 'e']));
        matches!(mode, Some("L" | "0"))
    };
    let modes = simple.words[1..].iter().take_while(is_mode).count();
    (modes > 0).then_some(1 + modes)
}

fn xargs(simple: &Simple) -> Option<usize> {
    let mut place = 1;
    loop {
        let value = word(simple, place + 1);
        match word(simple, place) {
            "-0" | "-r" | "-0r" | "-r0" | "-I{}" => place += 1,
            "-n" | "-L" | "-P" if is_number(value) => place += 2,
            "-I" if value == "{}" => place += 2,
            option => match option.strip_prefix("-n") {
                Some(count) if is_number(count) => place += 1,
                _ => return Some(place),
            },
        }
    }
}

/// `sh -c LINE`, with nothing else; a script's name is a word like others.
fn shell(simple: &mut Simple) -> Result<Option<(String, Dialect)>, Doubt> {
    let is_script = !word(simple, 1).starts_with(['-', '+']);
    if is_script && !simple.is_open && !simple.words.iter().any(|it| it.is_glob) {
        return Ok(None);
    }
    let is_line = matches!(simple.words.as_slice(), [_, option, line]
        if option.text == "-c" && !option.is_glob && !line.is_glob);
    // What is added could be put into the line.
    if !is_line || simple.is_open {
        return Err(STARTS);
    }
    let dialect = if simple.program() == "bash" { Dialect::Bash } else { Dialect::Posix };
    let mut words = std::mem::take(&mut simple.words).into_iter().map(|it| it.text);
    simple.wrappers.extend(words.next());
    Ok(words.nth(1).map(|line| (line, dialect)))
}
