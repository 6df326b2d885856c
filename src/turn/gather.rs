//! The first step of a conversation: what project and user have written down for it is read and
//! put behind the first prompt. Nobody waits long for that.

use std::sync::Arc;
use std::time::Duration;

use super::Turn;
use turnwright_types::message::{Message, Part};
use crate::tools;

/// A disk that is slower than this is not waited for.
const LIMIT: Duration = Duration::from_millis(300);

impl Turn {
    /// Once for each conversation; again if it was cleared, or if there was no answer in time.
    pub(super) async fn gather(&mut self) {
        if self.begin > 0 && self.equipment.bench.skills.skills().is_some() {
            return;
        }
        let bench = Arc::clone(&self.equipment.bench);
        let stop = self.cancel.child_token();
        let reading = {
            let stop = stop.clone();
            tokio::task::spawn_blocking(move || tools::lore(&bench, &stop))
        };
        let read = tokio::time::timeout(LIMIT, self.cancel.run_until_cancelled(reading)).await;
        // Whoever still reads ends at the next file.
        stop.cancel();
        match read {
            // Both or none: what was told and what there is.
            Ok(Some(Ok((text, skills)))) => {
                self.equipment.bench.skills.fill(skills);
                if text.is_empty() {
                    return;
                }
                let prompt = self.history.messages.get_mut(self.begin).map(Arc::make_mut);
                if let Some(Message::User(prompt)) = prompt {
                    prompt.parts.push(Part::Context(text));
                }
            }
            Ok(None) => {}
            Ok(Some(Err(error))) => tracing::error!(%error, "the instructions were not read"),
            Err(_) => tracing::warn!(
                "instructions, notes and skills were not read within {} ms; the turn goes on \
                 without them",
                LIMIT.as_millis()
            ),
        }
    }
}
