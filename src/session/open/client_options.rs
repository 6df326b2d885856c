//! The wishes of a client that the protocol has no words for: other instructions, fewer tools, fewer requests.
//! They are stored with the session, because some clients open a session in one process and prompt it in the
//! next.

use std::num::NonZeroU32;

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
    /// The only tools that the model may use. They may have our names or those that other agents use.
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

impl SessionActor {
    /// Applies the options of earlier processes, overridden by those that the client asks for now, which are stored.
    ///
    /// # Errors
    /// If the stored options cannot be read: without them the session would have more tools than it may have.
    pub(super) fn apply_client_options(
        &mut self,
        stored: Option<&str>,
        given: Option<ClientOptions>,
    ) -> Result<(), Error> {
        let stored: Option<ClientOptions> =
            stored.map(serde_json::from_str).transpose().map_err(StoreError::from)?;
        let earlier = stored.unwrap_or_default();
        let must_store = given.is_some();
        let given = given.unwrap_or_default();
        let options = ClientOptions {
            system_prompt: given.system_prompt.or(earlier.system_prompt),
            allowed_tools: given.allowed_tools.or(earlier.allowed_tools),
            max_requests: given.max_requests.or(earlier.max_requests),
            notices: given.notices,
        };
        let conversation = &mut self.conversation;
        if must_store {
            let text = serde_json::to_string(&options).map_err(StoreError::from)?;
            conversation.log().set_client_options(text).in_background();
        }
        let usual = &conversation.system_prompt;
        match &options.system_prompt {
            Some(SystemPrompt::Replace(text)) => conversation.system_prompt = text.as_str().into(),
            Some(SystemPrompt::Append(text)) => {
                conversation.system_prompt = format!("{usual}\n{text}\n").into();
            }
            None => {}
        }
        if let Some(most) = options.max_requests {
            conversation.max_requests = conversation.max_requests.min(most.get());
        }
        if let Some(names) = &options.allowed_tools {
            conversation.tools.remote_tools().restrict(AllowedTools::new(names));
        }
        self.announcements.notices.extend(options.notices);
        Ok(())
    }
}
