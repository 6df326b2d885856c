//! Takes wrappers such as `nohup` and `timeout 9` off a command, so that the command that they run
//! is judged. A wrapper that is not understood exactly is an ambiguity.

use super::super::args::started_by_git;
use super::super::programs::{self, Starts};
use super::super::{Redirect, SimpleCommand, Word, read_only};
use super::compound::KEYWORD;
use super::lexer::Ambiguity;
use super::shell_state;
use turnwright_types::shell_script::ShellDialect;

const MAX_WRAPPERS: usize = 8;

const UNKNOWN_WRAPPER: Ambiguity = "it starts another program in a way that is not understood";

/// Takes the wrappers off a command. If a shell with a line of its own is left (`sh -c`), it is
/// taken off, too, and the line is returned with its dialect.
pub(super) fn strip_wrappers(
    simple: &mut SimpleCommand,
    stdout_is_file: bool,
) -> Result<Option<(String, ShellDialect)>, Ambiguity> {
    loop {
        check_program(simple)?;
        let program = simple.program();
        let own_word_count = match program {
            "env" if simple.words.len() == 1 && !simple.has_unknown_args => return Ok(None),
            "command" if has_option(simple, &["-v", "-V"]) => return Ok(None),
            "sh" | "bash" | "dash" => return shell_line(simple),
            _ => {
                let starts = programs::find(shell_state::program_name(program)).starts;
                if !matches!(starts, Starts::Program | Starts::Shell) {
                    return Ok(None);
                }
                // A program that is named by its path may be another one than the known wrapper, so
                // its own words are not looked up.
                (programs::find(program).wrapper_words)(simple)
            }
        };
        let own_word_count =
            own_word_count.filter(|count| *count < simple.words.len()).ok_or(UNKNOWN_WRAPPER)?;
        let is_glob = simple.words[..=own_word_count].iter().any(|word| word.is_glob);
        if is_glob || simple.wrappers.len() == MAX_WRAPPERS {
            return Err(UNKNOWN_WRAPPER);
        }
        if simple.program() == "nohup" && !stdout_is_file {
            // If its output is a terminal, `nohup` writes to a file instead.
            simple.redirects.push(Redirect { path: "nohup.out".into(), is_write: true });
        }
        simple.has_unknown_args |= simple.program() == "xargs";
        let wrapper = simple.words.drain(..own_word_count).next();
        simple.wrappers.extend(wrapper.map(|word| word.text));
    }
}

/// Refuses words that are not a program, and programs that do more than their words say.
fn check_program(simple: &SimpleCommand) -> Result<(), Ambiguity> {
    let program = simple.program();
    let is_name = !program.starts_with('-')
        && program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./+@,:-".contains(&byte));
    if program != "[" && (program.is_empty() || !is_name) {
        return Err("it runs a program whose name is not known");
    }
    if shell_state::is_reserved(program) {
        return Err(KEYWORD);
    }
    // These forms change nothing about which programs later commands run, and on which files.
    let is_harmless =
        || matches!(program, "export" | "set" | "ulimit") && read_only::reads(simple).is_some();
    if shell_state::changes_shell(program) && !is_harmless() {
        return Err("it changes the state of the shell");
    }
    let arguments = &simple.words[1..];
    match shell_state::program_name(program) {
        // With these options they evaluate an array index in the name of the variable, which may
        // run commands.
        "test" | "["
            if arguments
                .iter()
                .any(|word| word.is_glob || word.text == "-v" || word.text == "-R") =>
        {
            Err("it evaluates a variable name, which can run commands")
        }
        "printf" if arguments.first().is_some_and(may_set_variable) => Err("it sets a variable"),
        "find"
            if simple.argv().any(shell_state::is_find_exec)
                && read_only::reads(simple).is_none() =>
        {
            Err("it runs a command for each file that it finds")
        }
        "git" if started_by_git(arguments).is_some() => Err("git runs a command that it is given"),
        _ => Ok(()),
    }
}

/// True if `printf` may set a variable: by an option, or by `%n`.
fn may_set_variable(format: &Word) -> bool {
    let mut conversions = format.text.split('%').skip(1);
    format.is_glob
        || format.text.starts_with('-')
        || conversions.any(|conversion| {
            conversion
                .trim_start_matches(|char: char| {
                    char.is_ascii_digit() || "-+ #.*'hlLjzt".contains(char)
                })
                .starts_with('n')
        })
}

pub(in crate::shell) fn word(simple: &SimpleCommand, index: usize) -> &str {
    simple.words.get(index).map_or("", |word| &word.text)
}

fn has_option(simple: &SimpleCommand, options: &[&str]) -> bool {
    options.contains(&word(simple, 1))
}

/// The line of `sh -c LINE`. `None` for a script file, which is an operand like others.
fn shell_line(simple: &mut SimpleCommand) -> Result<Option<(String, ShellDialect)>, Ambiguity> {
    let is_script = !word(simple, 1).starts_with(['-', '+']);
    if is_script && !simple.has_unknown_args && !simple.words.iter().any(|word| word.is_glob) {
        return Ok(None);
    }
    let is_line = matches!(simple.words.as_slice(), [_, option, line]
        if option.text == "-c" && !option.is_glob && !line.is_glob);
    // Unknown arguments could become part of the line.
    if !is_line || simple.has_unknown_args {
        return Err(UNKNOWN_WRAPPER);
    }
    let dialect = if simple.program() == "bash" { ShellDialect::Bash } else { ShellDialect::Posix };
    let mut words = std::mem::take(&mut simple.words).into_iter().map(|word| word.text);
    simple.wrappers.extend(words.next());
    Ok(words.nth(1).map(|line| (line, dialect)))
}
