//! What any strict server checks in a request, with the differences between them as data.

use serde_json::{Value, json};

use super::Provider;

/// How strict a provider is.
pub struct Rules {
    /// The keys that a request may have.
    pub keys: &'static [&'static str],
    /// The keys of an answer that comes back, besides those that all know.
    pub answer_keys: &'static [&'static str],
    /// The keys of a call that comes back, besides those that all know.
    pub call_keys: &'static [&'static str],
    /// Whether the content of an answer may be this.
    pub content: fn(&Value) -> bool,
    /// Whether a call may have this identifier.
    pub id: fn(&str) -> bool,
    /// Whether this role may follow that one.
    pub follows: fn(&str, &str) -> bool,
    /// Where a tool's parameters are outside of the subset of JSON Schema, and why.
    pub schema: fn(&Value) -> Result<(), (String, String)>,
}

/// What is wrong with a request. `at` is the position of a message.
#[derive(Debug)]
pub enum Wrong {
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

type Checked = Result<(), Wrong>;

impl Wrong {
    /// The same word for the same thing: its sort, and the key if it is about one.
    pub fn about(&self) -> String {
        let sort = format!("{self:?}");
        let sort = sort.split([' ', '(']).next().unwrap_or_default();
        let key = match self {
            Wrong::Key(key) | Wrong::MessageKey { key, .. } => key,
            Wrong::Value { key, .. } | Wrong::Missing { key, .. } => *key,
            _ => "",
        };
        format!("{sort} {key}").trim_end().to_owned()
    }

    /// OpenAI's words, or close to them, for a provider of which none are known.
    pub fn plain(&self) -> String {
        match self {
            Wrong::Model(name) => format!("The model `{name}` does not exist"),
            Wrong::Key(key) => format!("Unrecognized request argument supplied: {key}"),
            Wrong::Value { key, given } => format!("Invalid value for '{key}': {given}"),
            Wrong::Role { at, role } => format!(
                "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', and \
                 'tool'. (messages[{at}].role)"
            ),
            Wrong::MessageKey { at, key, .. } => {
                format!(
                    "Additional properties are not allowed ('{key}' was unexpected) - 'messages.{at}'"
                )
            }
            Wrong::Content { at, .. } => {
                format!("Invalid value for 'content' of messages[{at}]: expected a string")
            }
            Wrong::Empty { at } => {
                format!("messages[{at}]: an assistant message must have content or tool_calls")
            }
            Wrong::Order { at, role, after } => {
                format!("messages[{at}]: role '{role}' must not follow role '{after}'")
            }
            Wrong::Last { role } => format!("The last message must not be of role '{role}'"),
            Wrong::NoCalls { at } => format!("[] is too short - 'messages.{at}.tool_calls'"),
            Wrong::Unanswered { ids } => format!(
                "An assistant message with 'tool_calls' must be followed by tool messages \
                 responding to each 'tool_call_id'. The following tool_call_ids did not have \
                 response messages: {}",
                ids.join(", ")
            ),
            Wrong::Orphan { .. } => "messages with role 'tool' must be a response to a preceding \
                 message with 'tool_calls'."
                .to_owned(),
            Wrong::Repeated { id } => format!("Duplicate value for 'tool_call_id': {id}"),
            Wrong::Id { id } => format!("Invalid tool call id: {id}"),
            Wrong::Arguments { id } => {
                format!("Invalid function arguments, not a JSON object (tool_call_id {id})")
            }
            Wrong::Name { name } => format!(
                "Invalid function name '{name}': it does not match the pattern \
                 '^[a-zA-Z0-9_-]{{1,64}}$'"
            ),
            Wrong::NoTools => "[] is too short - 'tools'".to_owned(),
            Wrong::Tool { name, why } => format!("Invalid tool '{name}': {why}"),
            Wrong::Schema { tool, path, why } => {
                format!("Invalid schema for function '{tool}': at {path}: {why}")
            }
            Wrong::Missing { at, key } => format!("messages[{at}]: {key} is missing"),
            Wrong::NoSignature { at, .. } => format!("messages[{at}]: no signature"),
            Wrong::BadSignature { at } => format!("messages[{at}]: not a valid signature"),
        }
    }
}

/// A string and nothing else.
pub fn is_text(content: &Value) -> bool {
    content.is_string()
}

/// Also null, beside calls.
pub fn is_text_or_null(content: &Value) -> bool {
    content.is_string() || content.is_null()
}

/// What every one of the common templates minds: two prompts in a row.
pub fn no_two_users(role: &str, after: &str) -> bool {
    (role, after) != ("user", "user")
}

pub fn any_id(_: &str) -> bool {
    true
}

pub fn check(provider: &Provider, body: &Value) -> Checked {
    let rules = &provider.rules;
    let unknown = keys(body).find(|it| !rules.keys.contains(&it.as_str()));
    unknown.map_or(Ok(()), |key| Err(Wrong::Key(key.clone())))?;
    if body["model"] != provider.model {
        return Err(Wrong::Model(text(&body["model"])));
    }
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    for at in 0..messages.len() {
        check_message(rules, messages, at)?;
    }
    match messages.last().map(|it| text(&it["role"])).unwrap_or_default() {
        role if role == "user" || role == "tool" => {}
        role => return Err(Wrong::Last { role }),
    }
    check_results(messages)?;
    match body.get("tools") {
        None => Ok(()),
        Some(Value::Array(tools)) if !tools.is_empty() => {
            tools.iter().try_for_each(|it| check_tool(rules, it))
        }
        Some(_) => Err(Wrong::NoTools),
    }
}

fn check_message(rules: &Rules, messages: &[Value], at: usize) -> Checked {
    let message = &messages[at];
    let role = text(&message["role"]);
    let known: &[&str] = match role.as_str() {
        "system" | "user" => &["role", "content", "name"],
        "tool" => &["role", "content", "name", "tool_call_id"],
        "assistant" => &["role", "content", "name", "tool_calls"],
        _ => return Err(Wrong::Role { at, role }),
    };
    let is_answer = role == "assistant";
    let more = if is_answer { rules.answer_keys } else { &[] };
    let is_known = |it: &&String| known.contains(&it.as_str()) || more.contains(&it.as_str());
    if let Some(key) = keys(message).find(|it| !is_known(it)) {
        return Err(Wrong::MessageKey { at, role, key: key.clone() });
    }
    if let Some(before) = at.checked_sub(1) {
        let after = text(&messages[before]["role"]);
        if role == "system" || !(rules.follows)(&role, &after) {
            return Err(Wrong::Order { at, role, after });
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
        return Err(Wrong::Content { at, role });
    }
    if is_answer { check_answer(rules, message, at) } else { Ok(()) }
}

fn check_answer(rules: &Rules, message: &Value, at: usize) -> Checked {
    match message.get("tool_calls") {
        None if says_nothing(&message["content"]) => Err(Wrong::Empty { at }),
        None => Ok(()),
        Some(Value::Array(calls)) if !calls.is_empty() => {
            calls.iter().try_for_each(|it| check_call(rules, it, at))
        }
        Some(_) => Err(Wrong::NoCalls { at }),
    }
}

fn check_call(rules: &Rules, call: &Value, at: usize) -> Checked {
    let known = ["id", "type", "function", "index"];
    let is_known =
        |it: &&String| known.contains(&it.as_str()) || rules.call_keys.contains(&it.as_str());
    if let Some(key) = keys(call).find(|it| !is_known(it)) {
        let role = "assistant".to_owned();
        return Err(Wrong::MessageKey { at, role, key: format!("tool_calls.{key}") });
    }
    let id = text(&call["id"]);
    if id.is_empty() || !(rules.id)(&id) {
        return Err(Wrong::Id { id });
    }
    check_name(&call["function"]["name"])?;
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|it| it.is_object());
    if is_object { Ok(()) } else { Err(Wrong::Arguments { id }) }
}

/// Each call has exactly one result, right behind its message, and no result is of nobody.
fn check_results(messages: &[Value]) -> Checked {
    let mut owed: Vec<String> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let id = text(&message["tool_call_id"]);
            match owed.iter().position(|it| *it == id) {
                Some(position) => drop(owed.remove(position)),
                None => return Err(Wrong::Orphan { id }),
            }
        } else if !owed.is_empty() {
            return Err(Wrong::Unanswered { ids: owed });
        }
        for id in calls(message).map(|it| text(&it["id"])) {
            if seen.contains(&id) {
                return Err(Wrong::Repeated { id });
            }
            seen.push(id.clone());
            owed.push(id);
        }
    }
    if owed.is_empty() { Ok(()) } else { Err(Wrong::Unanswered { ids: owed }) }
}

fn check_tool(rules: &Rules, tool: &Value) -> Checked {
    let function = &tool["function"];
    check_name(&function["name"])?;
    let name = text(&function["name"]);
    if tool["type"] != "function" {
        return Err(Wrong::Tool { name, why: "its type is not function" });
    }
    let known = ["name", "description", "parameters", "strict"];
    if keys(function).any(|it| !known.contains(&it.as_str())) {
        return Err(Wrong::Tool { name, why: "it has unknown fields" });
    }
    let parameters = function.get("parameters").unwrap_or(&Value::Null);
    if parameters.is_null() {
        return Ok(());
    }
    (rules.schema)(parameters).map_err(|(path, why)| Wrong::Schema { tool: name, path, why })
}

fn check_name(name: &Value) -> Checked {
    let name = text(name);
    let fits = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    let is_fine = (1..=64).contains(&name.len()) && name.chars().all(fits);
    if is_fine { Ok(()) } else { Err(Wrong::Name { name }) }
}

/// The messages of the model, with their positions.
pub fn answers(body: &Value) -> impl Iterator<Item = (usize, &Value)> {
    let messages = body["messages"].as_array().into_iter().flatten().enumerate();
    messages.filter(|(_, it)| it["role"] == "assistant")
}

/// The calls of a message.
pub fn calls(message: &Value) -> impl Iterator<Item = &Value> {
    message["tool_calls"].as_array().into_iter().flatten()
}

/// Whether there are no words in it, also not in parts.
fn says_nothing(content: &Value) -> bool {
    match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(parts) => parts.iter().all(|it| says_nothing(&it["text"])),
        _ => true,
    }
}

/// The error most of them have.
pub fn openai_error(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error" } })
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn keys(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(serde_json::Map::keys)
}
