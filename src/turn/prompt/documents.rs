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
const LEFT_OUT: &str = "[a document that was not read: it can only be attached to a prompt of its own]";
const UNKNOWN: &str = "[binary content that is no document, not shown]";

impl Turn {
    /// Replaces the documents in the prompt by their text.
    pub(in crate::turn) async fn read_documents(&mut self) {
        let prompt = self.history.messages.get_mut(self.prompt.first_message);
        let unread = prompt.filter(|message| match &***message {
            Message::User(prompt) => prompt.parts.iter().any(|part| unread_data(part).is_some()),
            Message::Assistant(_) | Message::Tool(_) => false,
        });
        let Some(Message::User(prompt)) = unread.map(Arc::make_mut) else { return };
        for part in &mut prompt.parts {
            let Some(data) = unread_data(part).map(str::to_owned) else { continue };
            let read = self.cancel.run_until_cancelled(attached_text(data)).await;
            replace(part, read.unwrap_or_else(|| UNKNOWN.to_owned()));
        }
    }
}

/// Replaces the documents in words that come too late for a turn to read them.
pub(in crate::turn) fn leave_out_documents(words: &mut UserMessage) {
    for part in &mut words.parts {
        if unread_data(part).is_some() {
            replace(part, LEFT_OUT.to_owned());
        }
    }
}

/// The bytes of a document in base64.
fn unread_data(part: &PromptPart) -> Option<&str> {
    match part {
        PromptPart::Resource { text, .. } => text.strip_prefix(UNREAD_DOCUMENT),
        _ => None,
    }
}

fn replace(part: &mut PromptPart, read: String) {
    if let PromptPart::Resource { text, .. } = part {
        *text = read;
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
