//! Checks requests as all strict servers do. The differences between the servers are data.

use serde_json::{Value, json};

use super::ProviderDialect;

/// The request rules of a provider.
pub struct RequestRules {
    /// The allowed keys of a request.
    pub keys: &'static [&'static str],
    /// Further allowed keys of an assistant message.
    pub answer_keys: &'static [&'static str],
    /// Further allowed keys of a tool call.
    pub call_keys: &'static [&'static str],
    /// Whether this is valid content of an assistant message.
    pub content: fn(&Value) -> bool,
    /// Whether this is a valid id of a call.
    pub id: fn(&str) -> bool,
    /// Whether the first role may follow the second.
    pub may_follow: fn(&str, &str) -> bool,
    /// Checks a tool's parameters. An error has the path and the reason.
    pub schema: fn(&Value) -> Result<(), (String, String)>,
}

/// A fault in a request. `at` is the index of a message.
#[derive(Debug)]
pub enum RequestFault {
    Model(String),
    Key(String),
    Value { key: &'static str, given: Value },
    Role { at: usize, role: String },
    MessageKey { at: usize, role: String, key: String },
    Content { at: usize, role: String },
    Empty { at: usize },
    Order { at: usize, role: String, after: String },
    Last { role: String },
    NoCalls { at: usize },
    Unanswered { ids: Vec<String> },
    Orphan { id: String },
    Repeated { id: String },
    Id { id: String },
    Arguments { id: String },
    Name { name: String },
    NoTools,
    Tool { name: String, why: &'static str },
    Schema { tool: String, path: String, why: String },
    Missing { at: usize, key: &'static str },
    NoSignature { at: usize, call: String },
    BadSignature { at: usize },
}

type CheckResult = Result<(), RequestFault>;

impl RequestFault {
    /// Returns the kind of fault and the key that it concerns, equal for equal faults.
    pub fn kind(&self) -> String {
        let kind = format!("{self:?}");
        let kind = kind.split([' ', '(']).next().unwrap_or_default();
        let key = match self {
            RequestFault::Key(key) | RequestFault::MessageKey { key, .. } => key,
            RequestFault::Value { key, .. } | RequestFault::Missing { key, .. } => *key,
            _ => "",
        };
        format!("{kind} {key}").trim_end().to_owned()
    }

    /// Returns OpenAI's message, or one close to it, for providers whose own message is unknown.
    pub fn openai_message(&self) -> String {
        match self {
            RequestFault::Model(name) => format!("The model `{name}` does not exist"),
            RequestFault::Key(key) => format!("Unrecognized request argument supplied: {key}"),
            RequestFault::Value { key, given } => format!("Invalid value for '{key}': {given}"),
            RequestFault::Role { at, role } => format!(
                "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', and \
                 'tool'. (messages[{at}].role)"
            ),
            RequestFault::MessageKey { at, key, .. } => {
                format!(
                    "Additional properties are not allowed ('{key}' was unexpected) - 'messages.{at}'"
                )
            }
            RequestFault::Content { at, .. } => {
                format!("Invalid value for 'content' of messages[{at}]: expected a string")
            }
            RequestFault::Empty { at } => {
                format!("messages[{at}]: an assistant message must have content or tool_calls")
            }
            RequestFault::Order { at, role, after } => {
                format!("messages[{at}]: role '{role}' must not follow role '{after}'")
            }
            RequestFault::Last { role } => format!("The last message must not be of role '{role}'"),
            RequestFault::NoCalls { at } => format!("[] is too short - 'messages.{at}.tool_calls'"),
            RequestFault::Unanswered { ids } => format!(
                "An assistant message with 'tool_calls' must be followed by tool messages \
                 responding to each 'tool_call_id'. The following tool_call_ids did not have \
                 response messages: {}",
                ids.join(", ")
            ),
            RequestFault::Orphan { .. } => {
                "messages with role 'tool' must be a response to a preceding \
                 message with 'tool_calls'."
                    .to_owned()
            }
            RequestFault::Repeated { id } => format!("Duplicate value for 'tool_call_id': {id}"),
            RequestFault::Id { id } => format!("Invalid tool call id: {id}"),
            RequestFault::Arguments { id } => {
                format!("Invalid function arguments, not a JSON object (tool_call_id {id})")
            }
            RequestFault::Name { name } => format!(
                "Invalid function name '{name}': it does not match the pattern \
                 '^[a-zA-Z0-9_-]{{1,64}}$'"
            ),
            RequestFault::NoTools => "[] is too short - 'tools'".to_owned(),
            RequestFault::Tool { name, why } => format!("Invalid tool '{name}': {why}"),
            RequestFault::Schema { tool, path, why } => {
                format!("Invalid schema for function '{tool}': at {path}: {why}")
            }
            RequestFault::Missing { at, key } => format!("messages[{at}]: {key} is missing"),
            RequestFault::NoSignature { at, .. } => format!("messages[{at}]: no signature"),
            RequestFault::BadSignature { at } => format!("messages[{at}]: not a valid signature"),
        }
    }
}

/// Accepts only a string.
pub fn is_text(content: &Value) -> bool {
    content.is_string()
}

/// Accepts a string or null.
pub fn is_text_or_null(content: &Value) -> bool {
    content.is_string() || content.is_null()
}

/// Forbids two user messages in a row, as common chat templates do.
pub fn no_consecutive_users(role: &str, after: &str) -> bool {
    (role, after) != ("user", "user")
}

pub fn any_id(_: &str) -> bool {
    true
}

pub fn check(provider: &ProviderDialect, body: &Value) -> CheckResult {
    let rules = &provider.rules;
    let unknown = keys(body).find(|it| !rules.keys.contains(&it.as_str()));
    unknown.map_or(Ok(()), |key| Err(RequestFault::Key(key.clone())))?;
    if body["model"] != provider.model {
        return Err(RequestFault::Model(text(&body["model"])));
    }
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for at in 0..messages.len() {
        check_message(rules, messages, at)?;
    }
    match messages.last().map(|it| text(&it["role"])).unwrap_or_default() {
        role if role == "user" || role == "tool" => {}
        role => return Err(RequestFault::Last { role }),
    }
    check_results(messages)?;
    match body.get("tools") {
        None => Ok(()),
        Some(Value::Array(tools)) if !tools.is_empty() => {
            tools.iter().try_for_each(|it| check_tool(rules, it))
        }
        Some(_) => Err(RequestFault::NoTools),
    }
}

fn check_message(rules: &RequestRules, messages: &[Value], at: usize) -> CheckResult {
    let message = &messages[at];
    let role = text(&message["role"]);
    let known: &[&str] = match role.as_str() {
        "system" | "user" => &["role", "content", "name"],
        "tool" => &["role", "content", "name", "tool_call_id"],
        "assistant" => &["role", "content", "name", "tool_calls"],
        _ => return Err(RequestFault::Role { at, role }),
    };
    let is_answer = role == "assistant";
    let more = if is_answer { rules.answer_keys } else { &[] };
    let is_known = |it: &&String| known.contains(&it.as_str()) || more.contains(&it.as_str());
    if let Some(key) = keys(message).find(|it| !is_known(it)) {
        return Err(RequestFault::MessageKey { at, role, key: key.clone() });
    }
    if let Some(before) = at.checked_sub(1) {
        let after = text(&messages[before]["role"]);
        if role == "system" || !(rules.may_follow)(&role, &after) {
            return Err(RequestFault::Order { at, role, after });
        }
    }
    let content = message.get("content");
    let is_fine = match (role.as_str(), content) {
        ("assistant", None) => true,
        ("assistant", Some(content)) => (rules.content)(content),
        ("user", Some(Value::Array(parts))) => !parts.is_empty(),
        (_, content) => content.is_some_and(Value::is_string),
    };
    if !is_fine {
        return Err(RequestFault::Content { at, role });
    }
    if is_answer { check_answer(rules, message, at) } else { Ok(()) }
}

fn check_answer(rules: &RequestRules, message: &Value, at: usize) -> CheckResult {
    match message.get("tool_calls") {
        None if is_blank(&message["content"]) => Err(RequestFault::Empty { at }),
        None => Ok(()),
        Some(Value::Array(calls)) if !calls.is_empty() => {
            calls.iter().try_for_each(|it| check_call(rules, it, at))
        }
        Some(_) => Err(RequestFault::NoCalls { at }),
    }
}

fn check_call(rules: &RequestRules, call: &Value, at: usize) -> CheckResult {
    let known = ["id", "type", "function", "index"];
    let is_known =
        |it: &&String| known.contains(&it.as_str()) || rules.call_keys.contains(&it.as_str());
    if let Some(key) = keys(call).find(|it| !is_known(it)) {
        let role = "assistant".to_owned();
        return Err(RequestFault::MessageKey { at, role, key: format!("tool_calls.{key}") });
    }
    let id = text(&call["id"]);
    if id.is_empty() || !(rules.id)(&id) {
        return Err(RequestFault::Id { id });
    }
    check_name(&call["function"]["name"])?;
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|it| it.is_object());
    if is_object { Ok(()) } else { Err(RequestFault::Arguments { id }) }
}

/// Checks that each call has exactly one result, directly after its message, and that each result belongs
/// to a call.
fn check_results(messages: &[Value]) -> CheckResult {
    let mut unanswered: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = text(&message["tool_call_id"]);
            match unanswered.iter().position(|it| *it == id) {
                Some(position) => drop(unanswered.remove(position)),
                None => return Err(RequestFault::Orphan { id }),
            }
        } else if !unanswered.is_empty() {
            return Err(RequestFault::Unanswered { ids: unanswered });
        }
        for id in calls(message).map(|it| text(&it["id"])) {
            if seen.contains(&id) {
                return Err(RequestFault::Repeated { id });
            }
            seen.push(id.clone());
            unanswered.push(id);
        }
    }
    if unanswered.is_empty() { Ok(()) } else { Err(RequestFault::Unanswered { ids: unanswered }) }
}

fn check_tool(rules: &RequestRules, tool: &Value) -> CheckResult {
    let function = &tool["function"];
    check_name(&function["name"])?;
    let name = text(&function["name"]);
    if tool["type"] != "function" {
        return Err(RequestFault::Tool { name, why: "its type is not function" });
    }
    let known = ["name", "description", "parameters", "strict"];
    if keys(function).any(|it| !known.contains(&it.as_str())) {
        return Err(RequestFault::Tool { name, why: "it has unknown fields" });
    }
    let parameters = function.get("parameters").unwrap_or(&Value::Null);
    if parameters.is_null() {
        return Ok(());
    }
    (rules.schema)(parameters).map_err(|(path, why)| RequestFault::Schema { tool: name, path, why })
}

fn check_name(name: &Value) -> CheckResult {
    let name = text(name);
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let is_fine = (1..=64).contains(&name.len()) && name.chars().all(fits);
    if is_fine { Ok(()) } else { Err(RequestFault::Name { name }) }
}

/// Returns the assistant messages with their indices.
pub fn assistant_messages(body: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let messages = body["messages"].as_array().into_iter().flatten().enumerate();
    messages.filter(|(_, it)| it["role"] == "assistant")
}

/// Returns the tool calls of a message.
pub fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    message["tool_calls"].as_array().into_iter().flatten()
}

/// Returns whether neither the content nor any of its parts has text.
fn is_blank(content: &Value) -> bool {
    match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(parts) => parts.iter().all(|it| is_blank(&it["text"])),
        _ => true,
    }
}

/// Returns the error format of most providers.
pub fn openai_error(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error" } })
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(serde_json::Map::keys)
}
