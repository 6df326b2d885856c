//! The documents that a prompt brings: a turn begins with reading their text.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::task::spawn_blocking;

use crate::tools::read_document;
use crate::turn::Turn;
use turnwright_documents::DocumentText;
use turnwright_types::message::{Message, PromptPart, UNREAD_DOCUMENT, UserMessage};
use turnwright_types::text;
use turnwright_workspace::files::usual_base64;

/// The most bytes of a document's text that its prompt brings.
const MAX_ATTACHED_BYTES: usize = 64 * 1024;

const CUT: &str = "\n[cut here; if the file is on the disk, read_file reads the rest]";
const LEFT_OUT: &str = "[a document, not read: attach it to a prompt for the model]";
const UNKNOWN: &str = "[binary content that is no document, not shown]";

impl Turn {
    /// Replaces the documents in the prompt by their text.
    pub(in crate::turn) async fn read_documents(&mut self) {
        let prompt = self.history.messages.get_mut(self.prompt.first_message).map(Arc::make_mut);
        let Some(Message::User(prompt)) = prompt else { return };
        for text in prompt.parts.iter_mut().filter_map(unread) {
            // Boxed, because few turns have any.
            let reading = Box::pin(attached_text(text.split_off(UNREAD_DOCUMENT.len())));
            let read = self.cancel.run_until_cancelled(reading).await;
            *text = read.unwrap_or_else(|| LEFT_OUT.to_owned());
        }
    }
}

/// Leaves out the documents in words for which no turn reads them.
pub(crate) fn leave_out_documents(words: &mut UserMessage) {
    for text in words.parts.iter_mut().filter_map(unread) {
        LEFT_OUT.clone_into(text);
    }
}

/// The text that stands for a document.
fn unread(part: &mut PromptPart) -> Option<&mut String> {
    match part {
        PromptPart::Resource { text, .. } if text.starts_with(UNREAD_DOCUMENT) => Some(text),
        _ => None,
    }
}

async fn attached_text(data: String) -> String {
    let decoding = spawn_blocking(move || BASE64.decode(usual_base64(data)?).ok());
    let Ok(Some(bytes)) = decoding.await else { return UNKNOWN.to_owned() };
    match read_document(bytes, None).await {
        Ok(Some(DocumentText { about, text })) => {
            let shown = text::prefix(&text, MAX_ATTACHED_BYTES);
            let end = if shown.len() < text.len() { CUT } else { "" };
            format!("[{about}]\n{shown}{end}")
        }
        Ok(None) => UNKNOWN.to_owned(),
        Err(why) => format!("[not shown: the document {why}]"),
    }
}
