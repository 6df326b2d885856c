//! The client that has opened a session last, as `turnwright doctor` shows it: its name, its version and
//! what it can do. `turnwright run` does not count.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::SessionHost;
use turnwright_types::private_file;
use turnwright_types::redact;

/// A client that sends more is not stored.
const MAX_FILE_SIZE: usize = 16 * 1024;

fn path(state: &Path) -> PathBuf {
    state.join("last_client.json")
}

/// Returns what the last client sent with `initialize`; `None` if there was none.
pub(crate) fn last_client(state: &Path) -> Option<Value> {
    let text = private_file::read(&path(state), MAX_FILE_SIZE as u64).ok()?;
    serde_json::from_str(&text).ok()
}

impl SessionHost {
    /// Keeps what a client has sent with `initialize` until it opens a session. `info` and `capabilities`
    /// are the names of the fields in its version.
    pub(crate) fn set_client(&self, params: &Value, info: &str, capabilities: &str) {
        if params[info]["name"] == "turnwright run" {
            return;
        }
        let shown = json!({
            "clientInfo": params.get(info),
            "protocolVersion": params.get("protocolVersion"),
            "clientCapabilities": params.get(capabilities),
        });
        let text = redact::text(&shown.to_string()).into_owned();
        *self.new_client.lock() = (text.len() < MAX_FILE_SIZE).then_some(text);
    }

    /// Stores the new client, unless the same is stored already. Only the end of the process waits until it is
    /// on the disk.
    pub(super) fn store_client(&self) {
        let Some(text) = self.new_client.lock().take() else { return };
        let path = path(&self.config().paths.state);
        self.tracker().spawn_blocking(move || {
            if private_file::read(&path, MAX_FILE_SIZE as u64).is_ok_and(|stored| stored == text) {
                return;
            }
            if let Err(error) = private_file::write(&path, text.as_bytes()) {
                tracing::debug!("{}: {error}", path.display());
            }
        });
    }
}
