//! Adds project instructions, notes and skills to the first prompt of a conversation, if they can
//! be read quickly.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::tools::{self, ProjectContext};
use crate::turn::Turn;
use tokio::task::spawn_blocking;
use turnwright_recording::outside::{AnswerKind, Keeping};
use turnwright_types::message::{Message, PromptPart};

/// The name of the text among kept answers.
const PROJECT_CONTEXT: &str = "project context";
/// The fields of the kept answer, which is the text alone if all files could be read.
const TEXT: &str = "text";
const UNREADABLE: &str = "unreadable";

impl Turn {
    /// Runs once for each conversation; again if it was cleared, or if the files were not read in
    /// time.
    pub(in crate::turn) async fn add_project_context(&mut self) {
        let answers = Arc::clone(&self.conversation.env.shared.process.answers);
        // No files are read then.
        if answers.keeping(PROJECT_CONTEXT) == Keeping::Given {
            let given = answers.given(AnswerKind::View, PROJECT_CONTEXT, &Value::Null);
            if let Some(given) = given.filter(|_| self.prompt.first_message == 0) {
                self.use_context(&given);
            }
            return;
        }
        if self.prompt.first_message > 0 && self.conversation.env.skills.skills().is_some() {
            return;
        }
        let env = Arc::clone(&self.conversation.env);
        let stop = self.cancel.child_token();
        let reading = {
            let stop = stop.clone();
            spawn_blocking(move || tools::read_project_context(&env, &stop))
        };
        let read = tokio::time::timeout(
            tools::PROJECT_READ_TIMEOUT,
            self.cancel.run_until_cancelled(reading),
        )
        .await;
        // A read that is still going on stops at the next file.
        stop.cancel();
        match read {
            // The text and the list of skills are used together or not at all.
            Ok(Some(Ok(ProjectContext { text, skills, unreadable }))) => {
                self.conversation.env.skills.replace(skills);
                self.conversation.told.set_lacks_instructions(false);
                let context = match unreadable.as_slice() {
                    [] => text.into(),
                    names => json!({ TEXT: text, UNREADABLE: names }),
                };
                answers.note(AnswerKind::View, PROJECT_CONTEXT, &Value::Null, &|| context.clone());
                self.use_context(&context);
            }
            Ok(None) => {}
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "the instructions were not read");
                self.report_missing_context("could not be read");
            }
            Err(_) => self.report_missing_context("could not be read in time"),
        }
    }

    /// Adds a context as it is kept, and names the files of instructions that are not text.
    fn use_context(&mut self, kept: &Value) {
        for name in kept[UNREADABLE].as_array().into_iter().flatten().filter_map(Value::as_str) {
            self.conversation.notify(format!(
                "The instructions in {name} were not read: the file is not text. Save it as UTF-8."
            ));
        }
        let text = kept.as_str().or_else(|| kept[TEXT].as_str());
        self.add_context(text.unwrap_or_default().to_owned());
    }

    /// Tells the user once, and the model once in each conversation.
    fn report_missing_context(&mut self, why: &str) {
        let is_known = self.conversation.told.set_lacks_instructions(true);
        if !is_known {
            self.conversation.notify(format!(
                "The project's instructions, notes and skills {why}, so the model does not have \
                 them. Your next prompt tries again."
            ));
        }
        if !is_known || self.prompt.first_message == 0 {
            self.add_context(format!(
                "Instructions, notes and skills of the user and the project {why}: if there are \
                 any, they are missing here.\n"
            ));
        }
    }

    fn add_context(&mut self, text: String) {
        let prompt = self.history.messages.get_mut(self.prompt.first_message).map(Arc::make_mut);
        if let Some(Message::User(prompt)) = prompt.filter(|_| !text.is_empty()) {
            prompt.parts.push(PromptPart::Context(text));
        }
    }
}
