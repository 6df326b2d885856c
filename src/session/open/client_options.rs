//! The wishes of a client that the protocol has no words for: other instructions, fewer tools, fewer requests.
//! They are stored with the session, because some clients open a session in one process and prompt it in the
//! next.

use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::session::announcements::Announcements;
use crate::tools::AllowedTools;
use crate::turn::TurnServices;
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

    /// Applies and stores what the client asks for.
    pub(super) fn set(
        &self,
        services: &mut TurnServices,
        announcements: &mut Announcements,
    ) -> Result<(), Error> {
        let text = serde_json::to_string(self).map_err(StoreError::from)?;
        services.log().set_client_options(text).in_background();
        self.apply(services);
        announcements.add_notices(self.notices.iter().cloned());
        Ok(())
    }

    fn apply(&self, services: &mut TurnServices) {
        if let Some(prompt) = &self.system_prompt {
            services.system_prompt = prompt.text(&services.system_prompt);
        }
        if let Some(most) = self.max_requests {
            services.max_requests = services.max_requests.min(most.get());
        }
        if let Some(names) = &self.allowed_tools {
            services.tools.restrict(AllowedTools::new(names));
        }
    }
}

/// Applies the options of earlier processes, overridden by those that the client asks for now.
///
/// # Errors
/// If the stored options cannot be read: without them the session would have more tools than it may have.
pub(super) fn restore_client_options(
    stored: Option<&str>,
    given: Option<ClientOptions>,
    services: &mut TurnServices,
    announcements: &mut Announcements,
) -> Result<(), Error> {
    let stored: Option<ClientOptions> =
        stored.map(serde_json::from_str).transpose().map_err(StoreError::from)?;
    match (stored, given) {
        (Some(stored), Some(given)) => given.over(stored).set(services, announcements),
        (None, Some(given)) => given.set(services, announcements),
        (Some(stored), None) => {
            stored.apply(services);
            Ok(())
        }
        (None, None) => Ok(()),
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
