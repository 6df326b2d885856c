//! The messages of a request to a model, as a recording keeps them: those that earlier requests did not
//! have, without the instructions, which every version of this program words in its own way.

use serde_json::{Value, json};

use turnwright_types::hash::std_hash;

/// The messages of the last request, as digests.
#[derive(Default)]
pub(crate) struct SentMessages(Vec<u64>);

impl SentMessages {
    /// The part of a request that is new: how many of the last request's messages stay, and those that
    /// follow them.
    pub(crate) fn describe(&mut self, body: &[u8]) -> Value {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let messages = body.get("messages").or_else(|| body.get("input"));
        let all = messages.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let messages: Vec<_> = all
            .iter()
            .filter(|message| !matches!(message["role"].as_str(), Some("system" | "developer")))
            .collect();
        let digests: Vec<_> =
            messages.iter().map(|message| std_hash(message.to_string())).collect();
        let kept = digests.iter().zip(&self.0).take_while(|(new, old)| new == old).count();
        self.0 = digests;
        json!({ "model": body["model"], "kept": kept, "messages": &messages[kept..] })
    }
}
