//! `turnwright undo`, `redo` and `diff`: their arguments. `turnwright-terminal` reverts, reapplies and shows.

use std::process::ExitCode;

use clap::Args;

use super::exit_code;
use turnwright_config::Config;
use turnwright_terminal::undo::{show_diff, undo_or_redo};
use turnwright_undo::{ChangeScope, UndoRequest};

/// The exit status when nothing was done.
const NOTHING_DONE: u8 = 2;

#[derive(Debug, Args)]
pub(super) struct UndoCliArgs {
    /// Session id (default: the newest session of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Number of turns to undo; turns without file changes don't count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    turns: usize,
    /// Show what would be done without doing it
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct RedoCliArgs {
    /// Session id (default: the newest session of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Show what would be done without doing it
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct DiffCliArgs {
    /// Session id (default: the newest session of this folder)
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Turn number (default: the last turn that changed files)
    #[arg(long, value_name = "N", conflicts_with = "all")]
    turn: Option<u64>,
    /// Show the changes of the whole session
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "must be a whole number ≥ 1".to_owned())
}

pub(super) fn undo(args: UndoCliArgs, config: &Config) -> ExitCode {
    let request = UndoRequest::Undo(args.turns);
    exit_code("undo", undo_or_redo(request, args.session, args.dry_run, config), NOTHING_DONE)
}

pub(super) fn redo(args: RedoCliArgs, config: &Config) -> ExitCode {
    let redone = undo_or_redo(UndoRequest::Redo, args.session, args.dry_run, config);
    exit_code("redo", redone, NOTHING_DONE)
}

pub(super) fn diff(args: DiffCliArgs, config: &Config) -> ExitCode {
    let what = match args.turn {
        Some(turn) => ChangeScope::Turn(turn),
        None if args.all => ChangeScope::All,
        None => ChangeScope::Last,
    };
    exit_code("diff", show_diff(args.session, what, args.json, config), NOTHING_DONE)
}
