//! `turnwright undo`, `redo` and `diff`: reverts, reapplies and shows the file changes of sessions that
//! no process has open.

use std::io::{Write, stderr};
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{CliError, CliResult, runtime, sessions, write_stdout};
use turnwright_config::Config;
use turnwright_store::{Entry, SessionLog, SessionRow, Store, StoreError, TurnKind, read};
use turnwright_types::file_change::FileState;
use turnwright_types::ids::{MessageId, SessionId};
use turnwright_undo::{
    ChangeScope, DiffLimits, UndoContext, UndoReport, UndoRequest, turn_changes,
};
use turnwright_workspace::files::{Files, Roots};

/// Limits of a printed diff, in bytes.
const SHOWN: DiffLimits = DiffLimits { file: 4 * 1024 * 1024, all: 16 * 1024 * 1024 };

/// Finds the session of this name, or the newest one of this folder.
fn find(session: Option<String>, config: &Config) -> CliResult<(Store, SessionId)> {
    let store = Store::new(&config.paths.state);
    let id = sessions::find_session(&store, &session.unwrap_or_else(|| "last".to_owned()))?;
    Ok((store, id))
}

fn roots_of(session: &SessionRow) -> CliResult<Roots> {
    let cwd = &session.cwd;
    Roots::new(cwd).map_err(|error| format!("{}: {error}", cwd.display()).into())
}

/// Reverts or reapplies the changes of turns, and prints the report. `session` is an id, a prefix of one, or `last`; if
/// there is none, the newest session of this folder is meant.
pub fn undo_or_redo(
    request: UndoRequest,
    session: Option<String>,
    is_dry_run: bool,
    config: &Config,
) -> CliResult<ExitCode> {
    let (store, id) = find(session, config)?;
    let _lock = store.lock_session(&id).map_err(|error| match error {
        StoreError::SessionLocked(_) => {
            CliError::from(format!("{error}. Close it there, or use `/undo` there"))
        }
        error => error.into(),
    })?;
    // The previous holder of the lock may have added entries until now.
    let (row, last_numbers) = store.read_blocking(|connection| {
        let numbers = read::last_numbers(connection, read::session_key(connection, &id)?)?;
        Ok((read::session(connection, &id)?, numbers))
    })?;
    let files = Files::new(roots_of(&row)?, None);
    let log = SessionLog::new(store.clone(), id.clone());
    log.resume_after(last_numbers);
    let context = UndoContext { store, log, files, session: id, cancel: CancellationToken::new() };
    runtime()?.block_on(execute(&context, &row, request, is_dry_run))
}

async fn execute(
    context: &UndoContext,
    row: &SessionRow,
    request: UndoRequest,
    is_dry_run: bool,
) -> CliResult<ExitCode> {
    let UndoContext { log, files, .. } = context;
    let Some(planned) = context.plan(request).await? else {
        return Err(format!("nothing to do\n{}", context.uncovered().await?).trim_end().into());
    };
    if is_dry_run {
        let report = UndoReport::dry_run(planned);
        write_stdout(&format!("Dry run, nothing was changed:\n{}", report.text(files.roots())))?;
        return Ok(report_status(&report));
    }
    let kind = if request == UndoRequest::Redo { TurnKind::Redo } else { TurnKind::Undo };
    let turn = log.begin_turn(kind, format!("turnwright {}", kind.as_str()));
    let report = context.execute(planned, |_| {}).await;
    let text = report.text(files.roots());
    let id = MessageId::from(format!("undo-note-{turn}"));
    log.add_entry(Entry::Note { id, text: text.clone() });
    log.end_turn("end_turn", row.last_id_number, row.cost_usd, None).written().await;
    for notice in log.take_notices() {
        writeln!(stderr(), "turnwright: {notice}").ok();
    }
    write_stdout(&text)?;
    Ok(report_status(&report))
}

fn report_status(report: &UndoReport) -> ExitCode {
    ExitCode::from(u8::from(!report.is_complete()))
}

/// Prints the changes of turns.
pub fn show_diff(
    session: Option<String>,
    what: ChangeScope,
    is_json: bool,
    config: &Config,
) -> CliResult<ExitCode> {
    let (store, id) = find(session, config)?;
    let row = store.read_blocking(|connection| read::session(connection, &id))?;
    let roots = roots_of(&row)?;
    let changes =
        store.read_blocking(|connection| turn_changes(connection, &id, what, &roots, SHOWN))?;
    if changes.files.is_empty() {
        return Err(format!("no files were changed\n{}", changes.uncovered).trim_end().into());
    }
    stderr().write_all(changes.uncovered.as_bytes()).ok();
    if is_json {
        let turns: Vec<_> = changes.turns.iter().map(|turn| turn.0).collect();
        let files = changes.files.iter().map(|file| {
            json!({ "path": file.path.to_string_lossy(), "before": state_json(&file.before),
                "after": state_json(&file.after), "diff": file.diff })
        });
        let session = id.as_str();
        let all = json!({ "session": session, "turns": turns, "files": files.collect::<Vec<_>>() });
        write_stdout(&format!("{all:#}\n"))?;
    } else {
        write_stdout(&changes.files.iter().map(|file| file.diff.as_str()).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The state of a file, as `diff --json` prints it.
fn state_json(state: &FileState) -> Value {
    match state {
        // The target may not be UTF-8.
        FileState::Link { target } => json!({ "link": { "target": target.to_string_lossy() } }),
        other => json!(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_states_of_files_are_printed_in_these_words() {
        let file = FileState::File { hash: "h".to_owned(), size: 1, mode: 420, is_kept: true };
        for (state, text) in [
            (FileState::Absent, r#""absent""#),
            (file, r#"{"file":{"hash":"h","size":1,"mode":420,"is_kept":true}}"#),
            (FileState::Link { target: "/a".into() }, r#"{"link":{"target":"/a"}}"#),
            (FileState::Folder { mode: 493 }, r#"{"folder":{"mode":493}}"#),
            (FileState::Unknown { why: "w".to_owned() }, r#"{"unknown":{"why":"w"}}"#),
        ] {
            assert_eq!(state_json(&state).to_string(), text);
        }
    }
}
