//! `/record` keeps what follows in this session in a file that can be played back. The environment can ask for it
//! from the beginning.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{CommandCall, PromptWork, SessionActor, answer_later};
use crate::mcp::SessionServers;
use crate::session::SessionHost;
use crate::turn::Conversation;
use tokio::task::spawn_blocking;
use turnwright_config::Config;
use turnwright_config::project_facts::project_facts;
use turnwright_policy::permission::Grants;
use turnwright_recording::{RecordedSession, Recording};
use turnwright_store::{Durability, Store, StoreError, read_conversation};
use turnwright_types::error_text::io_error_text;
use turnwright_types::ids::SessionId;
use turnwright_types::text;

/// How long the user waits for a recording to be written to its end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts a recording in the named file, or ends it.
pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let message = call.begin(session);
    let arguments = call.arguments;
    let servers = session.servers.as_ref().map(SessionServers::facts_json).unwrap_or_default();
    let are_gaps_reported = session.announcements.are_gaps_reported;
    let host = Arc::clone(&session.host);
    let conversation = session.conversation.clone();
    let is_empty = session.history.messages.is_empty();
    // A replay does not know what the user has allowed before.
    if arguments != "stop" {
        *conversation.grants.lock() = Grants::default();
    }
    answer_later(session, message, async move {
        let stored = if is_empty || arguments == "stop" {
            Ok(None)
        } else {
            stored_conversation(host.store(), &conversation.env.session).await.map(Some)
        };
        // Both wait for the disk.
        let working = spawn_blocking(move || match arguments.as_str() {
            "stop" => stop(&host),
            file => match stored {
                Ok(stored) => start(&host, &conversation, file, servers, are_gaps_reported, stored),
                Err(error) => {
                    format!("Nothing is recorded: the stored conversation cannot be read: {error}.")
                }
            },
        });
        let answer = working.await;
        Some(answer.unwrap_or_else(|error| format!("Nothing is recorded: {error}.")))
    })
}

impl SessionHost {
    /// The recording that the environment asks for. Starting it blocks.
    pub(crate) fn started_recording(config: &Config) -> Recording {
        let recording = Recording::default();
        if let Some(path) = config.record_path() {
            let facts = config.snapshot().recorded_facts();
            if let Err(error) = recording.recorder().start(&path, move || facts, None) {
                let why = io_error_text(&error);
                let notice =
                    format!("Nothing is recorded: {} cannot be created: {why}.", path.display());
                recording.recorder().set_notice(notice);
            }
        }
        recording
    }
}

/// Reads the stored conversation of a session.
pub(in crate::session) async fn stored_conversation(
    store: &Store,
    session: &SessionId,
) -> Result<Value, StoreError> {
    let id = session.clone();
    // Earlier submissions are written first.
    store
        .write(Durability::ProcessCrash, move |connection| read_conversation(connection, &id))
        .await
}

fn stop(host: &SessionHost) -> String {
    match host.recording().recorder().stop(STOP_TIMEOUT) {
        Some(path) => format!(
            "The recording is in `{}`. Keys are removed from it; what you, the model and the tools \
             have said is not, so look through it before you send it to anybody. `turnwright replay \
             FILE` plays it back.",
            path.display()
        ),
        None => "Nothing is recorded here. `/record` starts a recording.".to_owned(),
    }
}

fn start(
    host: &SessionHost,
    conversation: &Conversation,
    file: &str,
    servers: Value,
    are_gaps_reported: bool,
    stored: Option<Value>,
) -> String {
    // The prompts of a replay are those of whoever has made the recording.
    if host.recording().is_replay() {
        return "Nothing is recorded in a replay.".to_owned();
    }
    let recorder = host.recording().recorder();
    let Some(connection) = conversation.client().connection() else {
        return "Nothing is recorded: the connection is lost.".to_owned();
    };
    if let Some(path) = recorder.path() {
        let path = path.display();
        return format!("A recording is running already, in `{path}`. `/record stop` ends it.");
    }
    if file.contains('\n') {
        return "Nothing is recorded: the name of a file is one line.".to_owned();
    }
    let id = conversation.env.session.clone();
    let roots = conversation.env.files.roots();
    let path = match file {
        "" => {
            let name = text::first_chars(id.as_str(), 8);
            host.config().paths.state.join("recordings").join(format!("{name}.ndjson"))
        }
        file => roots.cwd().join(file),
    };
    let facts = host.config().snapshot().recorded_facts();
    let cwd = roots.cwd().to_path_buf();
    let mode = conversation.mode().get().id();
    let project = project_facts(host.config(), &host.trust, roots);
    let session =
        RecordedSession { id, cwd, connection, mode, servers, project, stored, are_gaps_reported };
    match recorder.start(&path, move || facts, Some(session)) {
        Ok(path) => format!(
            "What follows in this session is recorded in `{}`, until `/record stop` or the end of the \
             program.",
            path.display()
        ),
        Err(error) => {
            format!(
                "Nothing is recorded: `{}` cannot be created: {}.",
                path.display(),
                io_error_text(&error)
            )
        }
    }
}
