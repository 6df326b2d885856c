//! Compares each request of a session with the one before. A provider has the beginning of a request in
//! its cache as long as it has the same bytes as the one before; what breaks that costs time and
//! money, so it is logged and shown by `/context`.

use std::collections::VecDeque;
use std::sync::Arc;

use turnwright_llm::Request;
use turnwright_types::message::{Message, TokenUsage, ToolSpecs};

/// The most breaks that are kept.
const MAX_BREAKS: usize = 5;

/// The last request of a conversation, and the last ones that did not begin like the request before.
#[derive(Debug, Default)]
pub(crate) struct CacheGuard {
    /// The name of the model, and what it was sent.
    last: Option<(String, Request)>,
    usage: Option<TokenUsage>,
    requests: u64,
    /// The number of each such request in this process, from 1, and its difference from the one before.
    breaks: VecDeque<(u64, String)>,
}

impl CacheGuard {
    /// Compares a request that is about to be made with the last one.
    pub(super) fn check(&mut self, model: &str, request: &Request) {
        self.requests += 1;
        let last = self.last.as_ref();
        let Some(why) = last.and_then(|(name, last)| difference((name, last), (model, request)))
        else {
            return;
        };
        tracing::info!(request = self.requests, why, "the provider has to read the request anew");
        self.breaks.push_back((self.requests, why));
        if self.breaks.len() > MAX_BREAKS {
            self.breaks.pop_front();
        }
    }

    /// Takes note of a request that was made.
    pub(super) fn remember(&mut self, model: &str, request: Request, usage: Option<TokenUsage>) {
        self.last = Some((model.to_owned(), request));
        self.usage = usage.or(self.usage);
    }

    /// The number of requests, what the provider has counted last, and the last breaks.
    pub(crate) fn report(&self) -> (u64, Option<TokenUsage>, Vec<(u64, String)>) {
        (self.requests, self.usage, self.breaks.iter().cloned().collect())
    }
}

/// Describes why a request to a model begins differently than the last one; `None` if it begins with it.
fn difference(
    (last_model, last): (&str, &Request),
    (model, next): (&str, &Request),
) -> Option<String> {
    if last_model != model {
        return Some(format!("the model was changed to {model}"));
    }
    if last.system != next.system {
        return Some("the system prompt was changed".to_owned());
    }
    if let Some(why) = changed_tools(&last.tools, &next.tools) {
        return Some(why);
    }
    let mut pairs = last.messages.iter().zip(&next.messages);
    let different = pairs.position(|(one, other)| !Arc::ptr_eq(one, other) && one != other);
    let first = different
        .or_else(|| (next.messages.len() < last.messages.len()).then_some(next.messages.len()))?;
    let kind = match next.messages.get(first).map(AsRef::as_ref) {
        Some(Message::User(_)) => "a message of the user",
        Some(Message::Assistant(_)) => "an answer",
        Some(Message::Tool(_)) => "a result",
        None => "what came after it is gone",
    };
    Some(format!("message {} of {} is different ({kind})", first + 1, last.messages.len()))
}

fn changed_tools(last: &ToolSpecs, next: &ToolSpecs) -> Option<String> {
    if Arc::ptr_eq(last, next) || last == next {
        return None;
    }
    let added = missing_in(last, next);
    let removed = missing_in(next, last);
    let changed = last.iter().find(|old| next.iter().all(|new| new != *old));
    Some(match (added.as_str(), removed.as_str()) {
        ("", "") => match changed {
            Some(tool) => format!("the description of {} was changed", tool.name),
            None => "the order of the tools was changed".to_owned(),
        },
        (added, "") => format!("tools were added: {added}"),
        ("", removed) => format!("tools were removed: {removed}"),
        (added, removed) => format!("tools were added: {added}; and removed: {removed}"),
    })
}

/// The tools of `all` that are not among `these`: our own by their names, and how many of each MCP server.
fn missing_in(these: &ToolSpecs, all: &ToolSpecs) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut servers: Vec<(&str, usize)> = Vec::new();
    for tool in all.iter().filter(|tool| these.iter().all(|known| known.name != tool.name)) {
        let server = tool.name.strip_prefix("mcp__").and_then(|name| name.split_once("__"));
        let Some((server, _)) = server else {
            words.push(tool.name.to_string());
            continue;
        };
        match servers.iter_mut().find(|(name, _)| *name == server) {
            Some((_, count)) => *count += 1,
            None => servers.push((server, 1)),
        }
    }
    words.extend(
        servers.iter().map(|(server, count)| format!("{count} of the MCP server {server}")),
    );
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_llm::ReasoningEffort;
    use turnwright_types::message::{ToolSpec, UserMessage};

    fn request(messages: &[&str], tools: &[&'static str]) -> Request {
        let spec = |name: &&'static str| {
            let description = String::new();
            Arc::new(ToolSpec {
                name: (*name).into(),
                description,
                parameters: serde_json::Value::default(),
            })
        };
        let message = |text: &&str| Arc::new(Message::User(UserMessage::text(*text)));
        Request {
            system: "s".into(),
            messages: messages.iter().map(message).collect(),
            tools: Arc::new(tools.iter().map(spec).collect()),
            effort: ReasoningEffort::Default,
            has_media: false,
        }
    }

    #[test]
    fn tools_that_only_change_are_named() {
        let first = request(&[], &["x", "y"]);
        let mut described = ToolSpec::clone(&first.tools[1]);
        described.description = "Otherwise.".to_owned();
        for (tools, expected) in [
            (
                vec![Arc::clone(&first.tools[0]), described.into()],
                "the description of y was changed",
            ),
            (first.tools.iter().rev().cloned().collect(), "the order of the tools was changed"),
        ] {
            let mut guard = CacheGuard::default();
            guard.check("m", &first);
            guard.remember("m", first.clone(), None);
            guard.check("m", &Request { tools: Arc::new(tools), ..first.clone() });
            assert_eq!(guard.report().2[0].1, expected);
        }
    }

    #[test]
    fn what_breaks_the_beginning_is_named() {
        let table = [
            (request(&["a", "b"], &["x"]), None),
            (request(&["a", "b", "c"], &["x"]), None),
            (request(&["a", "c"], &["x"]), Some("message 2 of 2 is different")),
            (request(&["a"], &["x"]), Some("message 2 of 2 is different (what came after")),
            (request(&["a", "b"], &["x", "y"]), Some("tools were added: y")),
            (request(&["a", "b"], &[]), Some("tools were removed: x")),
            (
                request(&["a", "b"], &["x", "mcp__s_1__a", "y", "mcp__t__a", "mcp__s_1__b__c"]),
                Some("tools were added: y, 2 of the MCP server s_1, 1 of the MCP server t"),
            ),
        ];
        for (next, expected) in table {
            let mut guard = CacheGuard::default();
            let first = request(&["a", "b"], &["x"]);
            guard.check("m", &first);
            guard.remember("m", first, None);
            guard.check("m", &next);
            let why = guard.report().2.pop().map(|(_, why)| why);
            match expected {
                None => assert_eq!(why, None),
                Some(start) => assert!(why.as_ref().unwrap().starts_with(start), "{why:?}"),
            }
        }
    }
}
