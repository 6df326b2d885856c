//! Opens the session of a run: a new one or a stored one, with the mode and the model of the flags.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::exit_status::TurnEnd;
use super::run_client::{RequestFailure, RunClient, error_end};
use crate::prompt::is_yes;
use turnwright_policy::permission::Mode;
use turnwright_rpc::RpcError;

/// The code of the error that says that no model is configured.
const AUTH_REQUIRED: i32 = -32000;

const OFFLINE_OFFER: &str = "The built-in offline model needs no account. It is no language model: it understands a \
                             few plain requests such as \"read README.md\".";

/// The session that is to be opened.
#[derive(Debug)]
pub struct SessionPlan {
    /// The id of the stored session, or `None` for a new one.
    pub id: Option<String>,
    /// The working folder.
    pub cwd: PathBuf,
    /// The other folders of a stored session.
    pub folders: Vec<PathBuf>,
    /// The mode of the flag.
    pub mode: Option<Mode>,
    /// The model of the flag, which a stored session does not have yet.
    pub model: Option<String>,
    /// The note to the user about the choice.
    pub note: Option<String>,
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
