//! Counts what a stored conversation consists of: each text once, whatever it is stored as and however
//! often.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use turnwright_store::{Entry, RewoundEntries, Store, StoreError, read};
use turnwright_types::effect::CallContent;
use turnwright_types::ids::SessionId;
use turnwright_types::message::{Arguments, Message, PromptPart};

/// The bytes of all different texts of a session: what the user and the model have said, the arguments and
/// results of calls, summaries and diffs. What only displays one of them, such as the card of a read file,
/// and the words of the user that a compaction repeats do not count.
pub(crate) fn unique_content(state: &Path, session: &str) -> io::Result<usize> {
    let store = Store::new(state);
    let texts = store.read_blocking(|connection| {
        let session = read::session_key(connection, &SessionId::from(session.to_owned()))?;
        let all = (0, usize::MAX >> 1);
        let entries = read::entries_page(connection, session, all, &RewoundEntries::default())?.0;
        let mut texts = HashSet::new();
        for stored in entries {
            if let Entry::Message { message, .. } | Entry::Compacted { replacement: message, .. } =
                &stored.entry
            {
                texts.extend(texts_of(message));
            }
            for call in stored.calls {
                texts.insert(call.outcome.text);
                texts.insert(match call.arguments {
                    Arguments::Object(value) => value.to_string(),
                    Arguments::Unusable { text, .. } => text,
                });
                for content in call.outcome.content {
                    if let CallContent::Diff { old, new, .. } = content {
                        texts.extend(old.into_iter().chain([new]));
                    }
                }
            }
        }
        Ok::<_, StoreError>(texts)
    });
    Ok(texts.map_err(io::Error::other)?.iter().map(String::len).sum())
}

fn texts_of(message: &Message) -> Vec<String> {
    match message {
        Message::User(user) => user.parts.iter().filter_map(part_text).collect(),
        Message::Assistant(answer) => vec![answer.text.clone(), answer.thought.clone()],
        Message::Tool(tool) => vec![tool.text.clone()],
    }
}

fn part_text(part: &PromptPart) -> Option<String> {
    match part {
        PromptPart::Context(text) if text.starts_with("The user said earlier:\n") => None,
        PromptPart::Text(text) | PromptPart::Context(text) => Some(text.clone()),
        PromptPart::Resource { text, .. } => Some(text.clone()),
        PromptPart::Image(media) | PromptPart::Audio(media) => Some(media.data.clone()),
        PromptPart::Link { uri, .. } => Some(uri.clone()),
        PromptPart::Skill(_) => None,
    }
}
