//! The wishes of a client that the protocol has no words for: other instructions, fewer tools, fewer requests.
//! They are stored with the session, because some clients open a session in one process and prompt it in the
//! next.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::session::actor::SessionActor;
use crate::tools::AllowedTools;
use turnwright_store::StoreError;

/// The options that a client asked for when it opened a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClientOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<SystemPrompt>,
    /// The only tools that the model may use, by our names or those of other agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// The most requests to the model in one turn, if that is fewer than the user has set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<NonZeroU32>,
    /// Notices for the user about the client's wishes.
    #[serde(skip)]
    pub notices: Vec<String>,
}

/// Instructions for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SystemPrompt {
    /// They stand in place of ours.
    Replace(String),
    /// They follow ours.
    Append(String),
}

impl ClientOptions {
    /// Returns these options, with the earlier ones where there is none.
    fn over(self, earlier: ClientOptions) -> ClientOptions {
        ClientOptions {
            system_prompt: self.system_prompt.or(earlier.system_prompt),
            allowed_tools: self.allowed_tools.or(earlier.allowed_tools),
            max_requests: self.max_requests.or(earlier.max_requests),
            notices: self.notices,
        }
    }
}

impl SystemPrompt {
    /// The whole instructions. `usual` are those without the client's.
    fn text(&self, usual: &str) -> Arc<str> {
        match self {
            SystemPrompt::Replace(text) => text.as_str().into(),
            SystemPrompt::Append(text) => format!("{usual}\n{text}\n").into(),
        }
    }
}

impl SessionActor {
    /// Applies and stores what the client asks for.
    pub(super) fn set_client_options(&mut self, options: &ClientOptions) -> Result<(), Error> {
        let text = serde_json::to_string(options).map_err(StoreError::from)?;
        self.services.log().set_client_options(text).in_background();
        self.apply_client_options(options);
        self.announcements.add_notices(options.notices.iter().cloned());
        Ok(())
    }

    /// Applies the options of earlier processes, overridden by those that the client asks for now.
    ///
    /// # Errors
    /// If the stored options cannot be read: without them the session would have more tools than it may have.
    pub(super) fn restore_client_options(
        &mut self,
        stored: Option<&str>,
        given: Option<ClientOptions>,
    ) -> Result<(), Error> {
        let stored: Option<ClientOptions> =
            stored.map(serde_json::from_str).transpose().map_err(StoreError::from)?;
        match (stored, given) {
            (Some(stored), Some(given)) => self.set_client_options(&given.over(stored)),
            (None, Some(given)) => self.set_client_options(&given),
            (Some(stored), None) => {
                self.apply_client_options(&stored);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    fn apply_client_options(&mut self, options: &ClientOptions) {
        if let Some(prompt) = &options.system_prompt {
            self.services.system_prompt = prompt.text(&self.services.system_prompt);
        }
        if let Some(most) = options.max_requests {
            self.services.max_requests = self.services.max_requests.min(most.get());
        }
        if let Some(names) = &options.allowed_tools {
            self.services.tools.restrict(AllowedTools::new(names));
        }
    }
}
