//! `turnwright doctor --report`: everything that is needed to help with a problem, in one file that is safe
//! to attach to an issue. It contains no keys, no prompts, answers or file contents, and no arguments or results
//! of calls.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::facts::shown_settings;
use super::scrub::{scrub, server_values};
use crate::config::{Config, EffectiveSetting};
use crate::session::last_client;
use turnwright_store::history::{CallRecord, HistoryQuery, find_calls};
use turnwright_store::sessions::{self, SessionFilter};
use turnwright_store::{SessionRow, Store, StoreError};
use turnwright_types::private_file;
use turnwright_types::redact;
use turnwright_types::timestamp::rfc3339;

/// The number of bytes at the end of the log that the report contains.
const LOG_TAIL: u64 = 64 * 1024;
/// The maximum number of calls of the last session that the report contains.
const MAX_CALLS: usize = 100;

/// Everything that a report contains besides the doctor's own output.
pub(super) struct ReportBundle {
    path: PathBuf,
    home: Option<String>,
    settings: String,
    client: String,
    session: String,
    log: String,
}

impl ReportBundle {
    /// Reads what will be in the report, before the doctor adds to it.
    pub(super) fn prepare(path: &Path, config: &Config) -> io::Result<ReportBundle> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        redact::register_keys(server_values(config)).map_err(io::Error::other)?;
        let state = &config.paths.state;
        let client = last_client(state).map(|client| format!("{client:#}\n"));
        Ok(ReportBundle {
            path: path.to_path_buf(),
            home: config.home().map(|folder| folder.display().to_string()),
            settings: shown_settings(config).iter().map(setting_line).collect(),
            client: client.unwrap_or_else(|| "none\n".to_owned()),
            session: last_session(state).unwrap_or_else(|error| format!("{error}\n")),
            log: log_tail(&state.join("turnwright.log")).unwrap_or_else(|_| "none\n".to_owned()),
        })
    }

    /// Writes the report, including the output of the doctor.
    pub(super) fn write(&self, doctor_output: &str) -> io::Result<()> {
        let mut text = format!(
            "# turnwright report\n\nMade by `turnwright doctor --report` at {}. Keys, and whatever looks like one, are \
             removed.\n",
            rfc3339(SystemTime::now())
        );
        for (title, part) in [
            ("Doctor", doctor_output),
            ("Settings in force", &self.settings),
            ("Editor seen last", &self.client),
            ("Last session", &self.session),
            ("Log", &self.log),
        ] {
            let part = scrub(part, self.home.as_deref()).replace("````", "'```");
            text.push_str(&format!("\n## {title}\n\n````text\n{part}````\n"));
        }
        private_file::create_new(&self.path)?.write_all(text.as_bytes())
    }
}

fn setting_line(setting: &EffectiveSetting) -> String {
    format!("{} = {} ({})\n", setting.name, setting.value, setting.from)
}

/// The tool calls of the session that was used last, and how each ended.
fn last_session(state: &Path) -> Result<String, StoreError> {
    let store = Store::new(state);
    if !store.exists() {
        return Ok("none\n".to_owned());
    }
    store.read_blocking(|connection| {
        let (found, _) = sessions::list(connection, &SessionFilter::default(), None, 1)?;
        let Some(session) = found.into_iter().next() else { return Ok("none\n".to_owned()) };
        let id = Some(session.id.clone());
        let query = HistoryQuery { session: id, limit: MAX_CALLS, ..HistoryQuery::default() };
        let calls = find_calls(connection, &query)?.rows;
        Ok(session_text(&session, &calls))
    })
}

fn session_text(session: &SessionRow, calls: &[CallRecord]) -> String {
    let mut text = format!("{}, last used {}\n", session.id, rfc3339(session.updated_at));
    for call in calls.iter().rev() {
        let took =
            call.duration_ms.map(|duration| format!(", {duration:.0} ms")).unwrap_or_default();
        let turn = call.turn;
        let tool = &call.tool;
        let status = call.status.as_str();
        text.push_str(&format!("{} turn {turn}: {tool}: {status}{took}\n", rfc3339(call.at)));
    }
    text
}

/// The end of the log, from the beginning of a line.
fn log_tail(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = fs::File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(LOG_TAIL);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let start = if skipped == 0 { 0 } else { text.find('\n').map_or(text.len(), |end| end + 1) };
    let mut tail = text[start..].to_owned();
    if !tail.ends_with('\n') {
        tail.push('\n');
    }
    Ok(tail)
}
