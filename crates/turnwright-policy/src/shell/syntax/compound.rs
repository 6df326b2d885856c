//! Loops, conditions and groups. Each part is read as a list of commands, as often as a loop has words.
//! A line with one is unambiguous only if all of its commands only read.

use super::super::Word;
use super::lexer::{Ambiguity, GROUP, HERE_DOCUMENT, Lexer, Terminator, Token, VARIABLE, Variable};
use super::parser::{INCOMPLETE, SETS_VARIABLE, parse_list};
use super::shell_state::{self, LineState, UNKNOWN_FOLDER, changes_folder, known_folders};

pub(super) const KEYWORD: Ambiguity = "it contains a shell keyword such as `for` or `if`";
/// How deeply loops, groups and substitutions may be nested.
const MAX_DEPTH: usize = 4;
/// How many lists they may have, counting the body of a loop once for each word.
const MAX_LISTS: usize = 64;

/// Reads a loop, a condition or a group without what follows it. False if there is none.
pub(super) fn parse(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<bool, Ambiguity> {
    let before = state.commands.len();
    if lexer.open_group()? {
        lexer.expansion.get_or_insert(GROUP);
        group(lexer, state)?;
        return Ok(true);
    } else if lexer.eat_keyword("for") {
        lexer.expansion.get_or_insert(KEYWORD);
        for_loop(lexer, state)?;
    } else if lexer.eat_keyword("if") {
        lexer.expansion.get_or_insert(KEYWORD);
        condition(lexer, state)?;
    } else if lexer.eat_keyword("{") {
        lexer.expansion.get_or_insert(GROUP);
        list(lexer, state, &["}"])?;
    } else {
        return Ok(false);
    }
    // It may run any number of times, so the folder after it is not known either.
    let moves = state.commands[before..].iter().any(changes_folder);
    if moves { Err(UNKNOWN_FOLDER) } else { Ok(true) }
}

/// Reads up to the bracket that ends a group or substitution.
pub(super) fn group(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<(), Ambiguity> {
    let was_in_brackets = std::mem::replace(&mut lexer.is_in_brackets, true);
    list(lexer, state, &[])?;
    lexer.is_in_brackets = was_in_brackets;
    lexer.close_group()
}

/// `for NAME in WORDS; do LIST; done`.
fn for_loop(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<(), Ambiguity> {
    let name = match lexer.next()? {
        Token::Word(raw) if !raw.is_quoted && !raw.touches_redirect => raw.text,
        _ => return Err(KEYWORD),
    };
    if !lexer.eat_keyword("in") {
        return Err(KEYWORD);
    }
    let values = values(lexer)?;
    state.commands.append(&mut lexer.substituted);
    lexer.skip_newlines();
    if !lexer.eat_keyword("do") || values.is_empty() {
        return Err(INCOMPLETE);
    }
    let body = lexer.position;
    for value in values {
        // Each time, the same text has to be read in the same way.
        if lexer.awaited_document.is_some() {
            return Err(HERE_DOCUMENT);
        }
        lexer.position = body;
        let known = lexer.variables.len();
        add_variable(lexer, (name.clone(), value))?;
        list(lexer, state, &["done"])?;
        lexer.variables.truncate(known);
    }
    Ok(())
}

/// The words of a loop, each of which is known, a glob, or unknown.
fn values(lexer: &mut Lexer<'_>) -> Result<Vec<Option<Word>>, Ambiguity> {
    let mut values = Vec::new();
    loop {
        match lexer.next()? {
            Token::Word(raw) if raw.is_inherited => return Err(VARIABLE),
            Token::Word(raw) if !raw.touches_redirect && !raw.has_brace => {
                let word = Word { text: raw.text, is_glob: raw.is_glob };
                values.push((!raw.is_unknown && !raw.has_number).then_some(word));
            }
            Token::Terminator(Terminator::Semicolon | Terminator::Newline) => return Ok(values),
            _ => return Err(KEYWORD),
        }
    }
}

/// `if LIST; then LIST; elif LIST; then LIST; else LIST; fi`.
fn condition(lexer: &mut Lexer<'_>, state: &mut LineState) -> Result<(), Ambiguity> {
    loop {
        list(lexer, state, &["then"])?;
        match list(lexer, state, &["elif", "else", "fi"])? {
            "elif" => {}
            "else" => return list(lexer, state, &["fi"]).map(drop),
            _ => return Ok(()),
        }
    }
}

/// Reads a list whose folders are known, and after which the variables are as before.
fn list(
    lexer: &mut Lexer<'_>,
    state: &mut LineState,
    until: &[&'static str],
) -> Result<&'static str, Ambiguity> {
    lexer.list_count += 1;
    if lexer.depth == MAX_DEPTH || lexer.list_count > MAX_LISTS {
        return Err("it has too many loops or brackets");
    }
    lexer.depth += 1;
    let known = lexer.variables.len();
    let mut inner = LineState::new(known_folders(&state.folders)?);
    inner.commands = std::mem::take(&mut state.commands);
    let keyword = parse_list(lexer, &mut inner, until)?;
    state.commands = inner.commands;
    lexer.variables.truncate(known);
    lexer.depth -= 1;
    Ok(keyword)
}

/// Adds a variable that no command but the shell reads. One that is known already is refused: after a
/// loop or a condition either value may remain.
pub(super) fn add_variable(lexer: &mut Lexer<'_>, variable: Variable) -> Result<(), Ambiguity> {
    let is_new = lexer.variables.iter().all(|known| known.0 != variable.0);
    if !is_new || !shell_state::is_own_variable(&variable.0) {
        return Err(SETS_VARIABLE);
    }
    lexer.expansion.get_or_insert(SETS_VARIABLE);
    lexer.variables.push(variable);
    Ok(())
}
