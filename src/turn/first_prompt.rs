//! Adds project instructions, notes and skills to the first prompt of a conversation, if they can
//! be read quickly.

use std::sync::Arc;
use std::time::Duration;

use super::Turn;
use crate::tools;
use turnwright_types::message::{Message, PromptPart};

/// How long the turn waits for the files to be read.
const READ_TIMEOUT: Duration = Duration::from_millis(300);

impl Turn {
    /// Runs once for each conversation; again if it was cleared, or if the files were not read in
    /// time.
    pub(super) async fn add_project_context(&mut self) {
        if self.first_message > 0 && self.services.env.skills.skills().is_some() {
            return;
        }
        let env = Arc::clone(&self.services.env);
        let stop = self.cancel.child_token();
        let reading = {
            let stop = stop.clone();
            tokio::task::spawn_blocking(move || tools::read_project_context(&env, &stop))
        };
        let read =
            tokio::time::timeout(READ_TIMEOUT, self.cancel.run_until_cancelled(reading)).await;
        // A read that is still going on stops at the next file.
        stop.cancel();
        match read {
            // The text and the list of skills are used together or not at all.
            Ok(Some(Ok((text, skills)))) => {
                self.services.env.skills.replace(skills);
                if text.is_empty() {
                    return;
                }
                let prompt = self.history.messages.get_mut(self.first_message).map(Arc::make_mut);
                if let Some(Message::User(prompt)) = prompt {
                    prompt.parts.push(PromptPart::Context(text));
                }
            }
            Ok(None) => {}
            Ok(Some(Err(error))) => tracing::error!(%error, "the instructions were not read"),
            Err(_) => tracing::warn!(
                "instructions, notes and skills were not read within {} ms; the turn goes on \
                 without them",
                READ_TIMEOUT.as_millis()
            ),
        }
    }
}
