//! The syntax of command lines, of POSIX shells and of `cmd`: `parser` reads what the words of a line say for certain,
//! and `command_scanner` finds everything that could be a command in any other line.

mod compound;
mod here_document;
pub(super) mod cmd_scanner;
pub(super) mod command_scanner;
pub(super) mod lexer;
pub(super) mod parser;
pub(super) mod shell_state;
