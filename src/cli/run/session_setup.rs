//! Opens the session of `run`: a new one or a stored one, with the mode and the model of the flags.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::prompt::is_yes;
use super::super::sessions::{current_folder, find_session};
use super::super::{CliError, is_same_folder};
use super::exit_status::TurnEnd;
use super::run_client::{RequestFailure, RunClient, error_end};
use turnwright_config::Config;
use turnwright_policy::permission::Mode;
use turnwright_rpc::RpcError;
use turnwright_store::{Store, read};
use turnwright_types::effect::escape_hidden_line;

/// The code of the error that says that no model is configured.
const AUTH_REQUIRED: i32 = -32000;

const OFFLINE_OFFER: &str = "The built-in offline model needs no account. It is no language model: it understands a \
                             few plain requests such as \"read README.md\".";

/// The session that is to be opened.
#[derive(Debug)]
pub(super) struct SessionPlan {
    /// The id of the stored session, or `None` for a new one.
    id: Option<String>,
    pub(super) cwd: PathBuf,
    folders: Vec<PathBuf>,
    pub(super) mode: Option<Mode>,
    /// The model of the flag, which a stored session does not have yet.
    model: Option<String>,
    /// The note to the user about the choice.
    pub(super) note: Option<String>,
}

impl SessionPlan {
    /// Finds the session that the flag names. Blocks.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn find(
        config: &Config,
        name: Option<&str>,
        mode: Option<Mode>,
    ) -> Result<SessionPlan, CliError> {
        let here = current_folder()?;
        let new = SessionPlan {
            id: None,
            cwd: here.clone(),
            folders: Vec::new(),
            mode,
            model: None,
            note: None,
        };
        let Some(name) = name else { return Ok(new) };
        let store = Store::new(&config.paths.state);
        let none = || {
            let text =
                "no session was held in this folder; `turnwright sessions list --all` lists all";
            CliError::Other(text.to_owned())
        };
        if !store.exists() {
            return Err(none());
        }
        let id = find_session(&store, name)?;
        let row = store.read_blocking(|connection| read::session(connection, &id))?;
        let is_here = is_same_folder(&row.cwd, &here);
        let is_gone = !is_here && !row.cwd.exists();
        let place = escape_hidden_line(&row.cwd.to_string_lossy());
        // Nobody expects `last` to change files elsewhere.
        if name == "last" && is_gone {
            return Err(CliError::Other(format!(
                "no session was held in this folder. If this is {place}, which is gone: --session {id}"
            )));
        }
        if name == "last" && !is_here {
            return Err(none());
        }
        let note = match (is_here, is_gone) {
            (true, _) => None,
            (false, true) => Some(format!("{place} is gone. The session goes on here.")),
            (false, false) => Some(format!("The session works in {place}.")),
        };
        Ok(SessionPlan {
            id: Some(id.to_string()),
            note,
            cwd: if is_gone { here } else { row.cwd },
            folders: row.additional_folders,
            model: config.flags.model.clone(),
            ..new
        })
    }
}

impl RunClient {
    /// Connects and opens the session.
    pub(super) async fn open_session(&mut self, plan: &SessionPlan) -> Result<(), TurnEnd> {
        match self.try_open_session(plan).await {
            Ok(()) => Ok(()),
            Err(RequestFailure::Ended(end)) => Err(end),
            Err(RequestFailure::Error(error)) => {
                let end = error_end(&error);
                self.report_error(&error);
                self.write_answer(&Err(error));
                Err(end)
            }
        }
    }

    async fn try_open_session(&mut self, plan: &SessionPlan) -> Result<(), RequestFailure> {
        let params = json!({
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": { "readTextFile": false, "writeTextFile": false },
                "terminal": false,
                "session": { "notices": {} },
            },
            "clientInfo": { "name": "turnwright run", "version": env!("CARGO_PKG_VERSION") },
        });
        let agent = self.request("initialize", &params).await?;
        let mut params = json!({ "cwd": plan.cwd, "mcpServers": [] });
        let method = match &plan.id {
            None => "session/new",
            Some(id) => {
                params["sessionId"] = json!(id);
                params["additionalDirectories"] = json!(plan.folders);
                "session/resume"
            }
        };
        let opened = match self.request(method, &params).await {
            Err(RequestFailure::Error(error)) if error.code == AUTH_REQUIRED => {
                self.offer_offline(&agent, error).await?;
                self.request(method, &params).await?
            }
            opened => opened?,
        };
        let id = plan.id.as_deref().or(opened["sessionId"].as_str()).unwrap_or_default();
        self.set_session(id.to_owned());
        if let Some(model) = &plan.model {
            let params = json!({ "sessionId": id, "configId": "model", "value": model });
            self.request("session/set_config_option", &params).await?;
        }
        if let Some(mode) = plan.mode {
            let params = json!({ "sessionId": id, "modeId": mode.id() });
            self.request("session/set_mode", &params).await?;
        }
        Ok(())
    }

    /// Asks whether the offline model shall answer, if no model is configured. It is never used in silence:
    /// its answers would be taken for those of a model.
    async fn offer_offline(
        &mut self,
        agent: &Value,
        error: RpcError,
    ) -> Result<(), RequestFailure> {
        let is_offered = agent["authMethods"][0]["id"] == "offline";
        if !is_offered || self.policy.asks_on.is_none() {
            return Err(RequestFailure::Error(error));
        }
        self.screen.note(&format!("{}.", error.message));
        self.screen.note(OFFLINE_OFFER);
        self.screen.prompt("Use it now? [y/N] ");
        if !self.read_answer().await?.is_some_and(|answer| is_yes(&answer)) {
            return Err(RequestFailure::Ended(TurnEnd::Unusable));
        }
        self.request("authenticate", &json!({ "methodId": "offline" })).await?;
        Ok(())
    }

    /// Tells the user why something has failed.
    pub(super) fn report_error(&mut self, error: &RpcError) {
        self.screen.error(&error.message);
        let details = error.data.as_ref().and_then(|data| data["details"].as_str());
        if let Some(details) = details.filter(|details| *details != error.message) {
            self.screen.note(details);
        }
        if error.code == AUTH_REQUIRED && error.message.contains("offline model") {
            self.screen.note("`--model offline` chooses the offline model for one run.");
        }
    }
}
