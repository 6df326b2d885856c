//! The prompts of servers as slash commands: `/server:prompt ARGUMENTS`. The messages that the server
//! returns become the user's prompt.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::tools::list_items;
use super::{ContentBlock, JsonObject, Prompt, PromptArgument, PromptMessage, Role};
use crate::call::ResultBlock;
use crate::call::server_requests::{WaitingCall, request_with_pages};
use crate::server::{Server, ServerPhase};
use crate::transport::Peer;
use turnwright_types::effect::{escape_hidden, escape_hidden_line};
use turnwright_types::message::{Media, PromptPart};
use turnwright_types::patience::timeout;
use turnwright_types::text;
use turnwright_types::update::SlashCommand;
use turnwright_workspace::files::read_picture;
use turnwright_workspace::skills::split_word;

/// How long listing prompts may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of prompts of one server.
const MAX_PROMPTS: usize = 200;
/// Maximum size of a prompt's definition. A larger prompt is ignored.
const MAX_DEFINITION_BYTES: usize = 16 * 1024;
/// Maximum length of a server's text in one line.
const MAX_LINE_CHARS: usize = 200;
/// Maximum size of the text in the messages of one prompt.
const MAX_TEXT_BYTES: usize = 128 * 1024;
/// Maximum size of the base64 media in the messages of one prompt.
const MAX_MEDIA_BYTES: usize = 8 * 1024 * 1024;
/// Maximum number of messages of one prompt.
const MAX_MESSAGES: usize = 100;
/// The time that suggestions for an argument may take.
const SUGGESTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of suggestions that are shown.
const MAX_SUGGESTIONS: usize = 10;

/// Lists all prompts. Returns `None` if the server takes too long: at most half of `start_timeout`.
pub(crate) async fn list_prompts(peer: &Peer, start_timeout: Duration) -> Option<Vec<Prompt>> {
    if peer.info().is_none_or(|info| !info.has("prompts")) {
        return Some(Vec::new());
    }
    let listing = list_items(peer, ("prompts/list", "prompts"), MAX_PROMPTS, parse_prompt);
    let listed = timeout(LIST_TIMEOUT.min(start_timeout / 2), listing).await.ok()?;
    Some(listed.unwrap_or_default().0)
}

/// Reads a prompt, and shortens the texts that are shown in a line. Returns `None` if it is still too large.
fn parse_prompt(prompt: Value) -> Option<Prompt> {
    let mut prompt: Prompt = serde_json::from_value(prompt).ok()?;
    for text in [&mut prompt.title, &mut prompt.description].into_iter().flatten() {
        *text = line(text);
    }
    let arguments = arguments(&prompt).iter().map(|argument| {
        let texts = [&argument.title, &argument.description].into_iter().flatten().map(String::len);
        argument.name.len() + texts.sum::<usize>() + 8
    });
    (prompt.name.len() + arguments.sum::<usize>() <= MAX_DEFINITION_BYTES).then_some(prompt)
}

/// Returns the current prompts of these servers as commands.
pub fn commands(servers: &[Arc<Server>]) -> Vec<SlashCommand> {
    let mut commands = Vec::new();
    for (label, server) in server_words(servers).into_iter().zip(servers) {
        let state = server.state();
        for (name, prompt) in prompt_words(&state.prompts).into_iter().zip(state.prompts.iter()) {
            let name = format!("{label}:{name}");
            let text = prompt.description.as_ref().or(prompt.title.as_ref());
            let description = text.map(|text| line(text)).filter(|line| !line.is_empty());
            let arguments = arguments(prompt);
            commands.push(SlashCommand {
                description: description
                    .unwrap_or_else(|| format!("Prompt from {}", line(&server.spec.name))),
                hint: (!arguments.is_empty()).then(|| line(&usage(arguments))),
                skill: None,
                name,
            });
        }
    }
    commands
}

/// A prompt that the user has requested with a command.
#[derive(Debug)]
pub struct PromptRequest {
    server: Arc<Server>,
    /// The part of the command after the colon.
    name: String,
    /// The text after the command.
    arguments: String,
}

impl PromptRequest {
    /// Finds the prompt of a command, which may be written as in Claude Code, `mcp__server__prompt`. A prompt of a
    /// server that is still starting is assumed to exist.
    pub fn find(servers: &[Arc<Server>], command: &str, arguments: &str) -> Option<PromptRequest> {
        let foreign = command.strip_prefix("mcp__").and_then(|words| words.split_once("__"));
        let (label, name) = command.split_once(':').or(foreign)?;
        let index = server_words(servers).iter().position(|word| word == label)?;
        let server = servers.get(index)?;
        let state = server.state();
        let exists = prompt_words(&state.prompts).iter().any(|word| word == name);
        (exists || state.phase == ServerPhase::Starting).then(|| PromptRequest {
            server: Arc::clone(server),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        })
    }

    /// Gets the prompt's messages from the server, which may ask the user of `caller` to visit pages first.
    ///
    /// # Errors
    /// If there are none; the text is for the user.
    pub async fn get(self, caller: &WaitingCall) -> Result<Vec<PromptPart>, String> {
        let server = escape_hidden_line(&self.server.spec.name);
        let mut watch = self.server.watch();
        watch.wait_for(|state| state.phase != ServerPhase::Starting).await.ok();
        let state = self.server.state();
        let Some(peer) = state.peer.clone() else {
            let why = match &state.phase {
                ServerPhase::Failed(why) => format!(": {}", escape_hidden_line(why)),
                _ => String::new(),
            };
            return Err(format!("The MCP server {server} is not connected{why}."));
        };
        let index = prompt_words(&state.prompts).iter().position(|word| *word == self.name);
        let Some(prompt) = index.and_then(|index| state.prompts.get(index)) else {
            return Err(format!("The MCP server {server} has no prompt of that name."));
        };
        let (assigned, missing) = assign_arguments(arguments(prompt), &self.arguments)?;
        if let [first, ..] = missing.as_slice() {
            let suggested = suggestions(&peer, prompt, first, &assigned).await;
            let names = escape_hidden_line(&missing.join(", "));
            let all = usage(arguments(prompt));
            let why = format!("Missing arguments: {names}. Usage: {all}");
            return Err(why + &suggested.unwrap_or_default());
        }
        let params = JsonObject::from_iter([
            ("name".to_owned(), prompt.name.clone().into()),
            ("arguments".to_owned(), Value::Object(assigned)),
        ]);
        let limit = self.server.spec.timeouts.call;
        let asking =
            request_with_pages::<PromptResult>(&peer, "prompts/get", params, limit, caller);
        let why = match asking.await {
            Some(Ok(result)) if !result.messages.is_empty() => {
                let converting = spawn_blocking(move || prompt_parts(result.messages));
                return converting.await.map_err(|error| error.to_string());
            }
            Some(Ok(_)) => "returned an empty prompt.".to_owned(),
            Some(Err(error)) => format!("returned an error: {}", line(&error.to_string())),
            None => format!("did not answer within {} s.", limit.as_secs()),
        };
        Err(format!("The MCP server {server} {why}"))
    }
}

/// Asks the server to suggest values for a missing argument. Returns them as a sentence to append, or `None` if there
/// are none in time.
async fn suggestions(
    peer: &Peer,
    prompt: &Prompt,
    missing: &str,
    assigned: &JsonObject,
) -> Option<String> {
    peer.info().filter(|info| info.has("completions"))?;
    let params = JsonObject::from_iter([
        ("ref".to_owned(), json!({ "type": "ref/prompt", "name": prompt.name })),
        ("argument".to_owned(), json!({ "name": missing, "value": "" })),
        ("context".to_owned(), json!({ "arguments": assigned })),
    ]);
    let asking = peer.request::<Value>("completion/complete", params);
    let result = timeout(SUGGESTION_TIMEOUT, asking).await.ok()?.ok()?;
    let values = result["completion"]["values"].as_array()?.iter().filter_map(Value::as_str);
    let shown: Vec<_> =
        values.take(MAX_SUGGESTIONS).map(|value| format!("“{}”", line(value))).collect();
    (!shown.is_empty()).then(|| format!(". The server suggests: {}.", shown.join(", ")))
}

/// The result of `prompts/get`.
#[derive(Deserialize)]
struct PromptResult {
    messages: Vec<PromptMessage>,
}

fn arguments(prompt: &Prompt) -> &[PromptArgument] {
    prompt.arguments.as_deref().unwrap_or_default()
}

/// Describes the arguments of a prompt, as in `FILE [STYLE]`.
fn usage(arguments: &[PromptArgument]) -> String {
    let placeholders = arguments.iter().map(|argument| match argument.required {
        Some(true) => argument.name.clone(),
        _ => format!("[{}]", argument.name),
    });
    escape_hidden_line(&placeholders.collect::<Vec<_>>().join(" "))
}

/// The unique words that stand for the servers in commands, before the colon.
fn server_words(servers: &[Arc<Server>]) -> Vec<String> {
    command_words(servers.iter().map(|server| server.spec.name.as_str()))
}

/// The unique words that stand for the prompts of a server, after the colon.
fn prompt_words(prompts: &[Prompt]) -> Vec<String> {
    command_words(prompts.iter().map(|prompt| prompt.name.as_str()))
}

/// Replaces characters that editors do not accept in a command, and makes the names unique.
fn command_words<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    names.map(|name| unique_word(name, &mut taken)).collect()
}

fn unique_word(name: &str, taken: &mut HashSet<String>) -> String {
    let plain = text::first_chars(name, MAX_LINE_CHARS)
        .replace(|char: char| !char.is_alphanumeric() && !matches!(char, '-' | '.'), "_");
    let mut unique = plain.clone();
    let mut number = 2;
    while !taken.insert(unique.clone()) {
        unique = format!("{plain}-{number}");
        number += 1;
    }
    unique
}

/// Shortens a server's text to one line that is safe to show.
fn line(text: &str) -> String {
    escape_hidden_line(&text::clip(text::first_line(text), MAX_LINE_CHARS))
}

/// Assigns the words after a command to the prompt's arguments: `name=value` anywhere, all others in
/// order. The last argument takes the rest of the line verbatim. Quotes group words. Returns the names of the
/// required arguments that have no value, too.
fn assign_arguments<'a>(
    arguments: &'a [PromptArgument],
    text: &str,
) -> Result<(JsonObject, Vec<&'a str>), String> {
    let mut assigned = JsonObject::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let unassigned: Vec<_> =
            arguments.iter().filter(|argument| !assigned.contains_key(&argument.name)).collect();
        let named = unassigned.iter().find_map(|argument| {
            Some((*argument, rest.strip_prefix(argument.name.as_str())?.strip_prefix('=')?))
        });
        let next = named.or_else(|| Some((*unassigned.first()?, rest)));
        let Some((argument, words)) = next else {
            return Err(match arguments {
                [] => "This prompt takes no arguments.".to_owned(),
                _ => format!("Too many arguments. Usage: {}", usage(arguments)),
            });
        };
        let (word, after) = split_word(words);
        let takes_rest = named.is_none() && unassigned.len() == 1 && !after.is_empty();
        let (value, left) = if takes_rest { (rest, "") } else { (word, after) };
        assigned.insert(argument.name.clone(), value.into());
        rest = left;
    }
    let required = arguments.iter().filter(|argument| argument.required == Some(true));
    let missing = required.filter(|argument| !assigned.contains_key(&argument.name));
    let names = missing.map(|argument| argument.name.as_str()).collect();
    Ok((assigned, names))
}

/// Converts the server's messages to parts of the user's prompt. They may be large, so this must run on a blocking
/// thread.
fn prompt_parts(messages: Vec<PromptMessage>) -> Vec<PromptPart> {
    let mut parts = Vec::new();
    let mut text_left = MAX_TEXT_BYTES;
    let mut media_left = MAX_MEDIA_BYTES;
    let is_cut = messages.len() > MAX_MESSAGES;
    for message in messages.into_iter().take(MAX_MESSAGES) {
        let is_quoted = message.role == Role::Assistant;
        parts.push(match message.content {
            ContentBlock::Text { text } if is_quoted => {
                PromptPart::Text(quoted(&bounded(&text, &mut text_left)))
            }
            ContentBlock::Text { text } => PromptPart::Text(bounded(&text, &mut text_left)),
            ContentBlock::Image { data, mime_type } => picture(&mime_type, data, &mut media_left),
            ContentBlock::Audio { data, mime_type } => {
                match media(&mime_type, data, &mut media_left) {
                    Some(media) => PromptPart::Audio(media),
                    None => PromptPart::Text("[audio was left out: it is too large]".to_owned()),
                }
            }
            ContentBlock::Resource { resource } => {
                let uri = line(&resource.uri);
                match ResultBlock::from(resource).decoded() {
                    ResultBlock::Embedded { text, .. } => {
                        PromptPart::Resource { uri, text: bounded(&text, &mut text_left) }
                    }
                    ResultBlock::Image { mime, data } => picture(&mime, data, &mut media_left),
                    _ => PromptPart::Text(format!("[{uri} is not text and was left out]")),
                }
            }
            ContentBlock::ResourceLink(link) => {
                PromptPart::Link { name: line(&link.name), uri: line(&link.uri) }
            }
            ContentBlock::Unknown => {
                PromptPart::Text("[content of an unknown kind was left out]".to_owned())
            }
        });
    }
    if is_cut {
        let note =
            format!("[the prompt has more than {MAX_MESSAGES} messages; the rest was left out]");
        parts.push(PromptPart::Text(note));
    }
    parts
}

fn picture(mime: &str, data: String, remaining: &mut usize) -> PromptPart {
    match media(mime, data, remaining).map(|media| read_picture(media.data)) {
        Some(Ok(picture)) => PromptPart::Image(picture),
        Some(Err(fault)) => PromptPart::Text(format!("[an image was left out: {fault}]")),
        None => PromptPart::Text("[an image was left out: it is too large]".to_owned()),
    }
}

fn media(mime: &str, data: String, remaining: &mut usize) -> Option<Media> {
    *remaining = remaining.checked_sub(data.len())?;
    Some(Media { mime: line(mime), data })
}

/// Escapes a text and cuts it to the bytes that are `remaining`.
fn bounded(text: &str, remaining: &mut usize) -> String {
    let start = text::prefix(text, *remaining);
    *remaining -= start.len();
    let is_cut = start.len() < text.len();
    let mark = if is_cut { "\n[the rest was left out: it is too long]" } else { "" };
    escape_hidden(start) + mark
}

fn quoted(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("> {line}")).collect();
    format!("Example of an assistant reply, written by the prompt's author:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(all: &[(&str, bool)]) -> Vec<PromptArgument> {
        let arguments = all.iter().map(|(name, required)| {
            let argument = serde_json::json!({ "name": name, "required": required });
            serde_json::from_value(argument).unwrap()
        });
        arguments.collect()
    }

    #[test]
    fn arguments_are_assigned_by_name_and_in_order_and_the_last_takes_the_rest() {
        let two = taking(&[("who", true), ("how", false)]);
        for (words, expected) in [
            ("Ada", r#"{"who":"Ada"}"#),
            ("Ada kindly", r#"{"how":"kindly","who":"Ada"}"#),
            ("Ada very \"kindly\"  indeed", r#"{"how":"very \"kindly\"  indeed","who":"Ada"}"#),
            ("'Ada L.' \"very kindly\"", r#"{"how":"very kindly","who":"Ada L."}"#),
            ("how='very kindly' Ada L.", r#"{"how":"very kindly","who":"Ada L."}"#),
            ("don't 'worry", r#"{"how":"'worry","who":"don't"}"#),
            ("what=is this", r#"{"how":"this","who":"what=is"}"#),
            ("who= how=", r#"{"how":"","who":""}"#),
        ] {
            let expected: JsonObject = serde_json::from_str(expected).unwrap();
            assert_eq!(assign_arguments(&two, words), Ok((expected, vec![])), "{words}");
        }
        assert_eq!(assign_arguments(&two, "").unwrap().1, ["who"]);
        assert_eq!(assign_arguments(&two, "how=x").unwrap().1, ["who"]);
        assert!(assign_arguments(&two, "who=a how=b c").unwrap_err().contains("Too many"));
        assert!(assign_arguments(&[], "x").is_err() && assign_arguments(&[], " ").is_ok());
    }

    #[test]
    fn names_in_commands_are_single_unique_words() {
        let names = command_words(["a b", "a_b", "ü.x", "a/b", "a_b-2"].into_iter());
        assert_eq!(names, ["a_b", "a_b-2", "ü.x", "a_b-3", "a_b-2-2"]);
    }

    #[test]
    fn the_messages_of_a_prompt_are_bounded_and_escaped() {
        let messages = serde_json::json!([
            { "role": "user", "content": { "type": "text", "text": "see\u{202e}this" } },
            { "role": "assistant", "content": { "type": "text", "text": "one\ntwo" } },
            { "role": "user", "content": { "type": "image", "mimeType": "image/jpg", "data": "iVBORw0KGgoA" } },
            { "role": "user", "content": { "type": "resource",
                "resource": { "uri": "x://y", "text": "z".repeat(MAX_TEXT_BYTES) } } },
            { "role": "user", "content": { "type": "text", "text": "too late" } },
            { "role": "user", "content": { "type": "resource_link", "uri": "x://l", "name": "l" } },
            { "role": "user", "content": { "type": "resource",
                "resource": { "uri": "x://p", "blob": "iVBORw0KGgoA" } } },
        ]);
        let parts = prompt_parts(serde_json::from_value(messages).unwrap());
        assert_eq!(parts[0], PromptPart::Text("see\\u{202e}this".to_owned()));
        assert!(matches!(&parts[1], PromptPart::Text(text) if text.ends_with("> one\n> two")));
        assert!(matches!(&parts[2], PromptPart::Image(image) if image.mime == "image/png"));
        assert!(
            matches!(&parts[3], PromptPart::Resource { text, .. } if text.ends_with("too long]"))
        );
        assert!(matches!(&parts[4], PromptPart::Text(text) if text.starts_with("\n[the rest")));
        assert_eq!(parts[5], PromptPart::Link { name: "l".to_owned(), uri: "x://l".to_owned() });
        assert!(matches!(&parts[6], PromptPart::Image(image) if image.mime == "image/png"));
    }
}
