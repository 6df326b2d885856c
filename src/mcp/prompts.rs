//! The prompts of servers: each is a command `server:prompt` that the user can type, with the
//! arguments behind it. What the server makes of it becomes the user's prompt.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ContentBlock, GetPromptRequestParams, JsonObject, PaginatedRequestParams, Prompt,
    PromptArgument, PromptMessage, ResourceContents, Role,
};
use rmcp::{Peer, RoleClient};
use tokio::time::timeout;

use super::server::{Phase, Server};
use turnwright_types::effect::{visible, visible_line};
use turnwright_types::message::{Media, Part};

/// How long a list may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pages of a list. One that never ends is cut.
const MOST_PAGES: usize = 20;
/// Prompts of one server.
const MOST_PROMPTS: usize = 200;
/// Bytes of what a server says of one prompt.
const LARGEST: usize = 16 * 1024;
/// Characters of a description, and of a hint.
const LONGEST_LINE: usize = 200;
/// Bytes of what one prompt becomes, in text and in pictures.
const MOST_TEXT: usize = 128 * 1024;
const MOST_MEDIA: usize = 8 * 1024 * 1024;
/// Messages of one prompt.
const MOST_MESSAGES: usize = 100;

/// A prompt as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptCommand {
    /// Without the slash.
    pub name: String,
    /// One line.
    pub description: String,
    /// What may stand behind it.
    pub hint: Option<String>,
}

/// All prompts. A server that has none, or does not tell them soon, is one without: its tools do not
/// wait for that.
pub(super) async fn list(peer: &Peer<RoleClient>, limit: Duration) -> Vec<Prompt> {
    if peer.peer_info().is_none_or(|it| it.capabilities.prompts.is_none()) {
        return Vec::new();
    }
    let listed = timeout(limit.min(PATIENCE * 2) / 2, pages(peer)).await;
    listed.unwrap_or_default()
}

async fn pages(peer: &Peer<RoleClient>) -> Vec<Prompt> {
    let (mut prompts, mut cursor) = (Vec::new(), None);
    for _ in 0..MOST_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor.take());
        match peer.list_prompts(Some(params)).await {
            Ok(page) => {
                prompts.extend(page.prompts.into_iter().filter_map(light));
                cursor = page.next_cursor;
            }
            Err(error) => tracing::warn!(%error, "prompts could not be listed"),
        }
        if cursor.is_none() || prompts.len() >= MOST_PROMPTS {
            break;
        }
    }
    prompts.truncate(MOST_PROMPTS);
    prompts
}

/// A prompt without what is not shown; none if it is too large all the same.
fn light(mut prompt: Prompt) -> Option<Prompt> {
    (prompt.icons, prompt.meta) = (None, None);
    for text in [&mut prompt.title, &mut prompt.description].into_iter().flatten() {
        *text = line(text);
    }
    let arguments = arguments(&prompt).iter().map(|it| {
        let about = [&it.title, &it.description].into_iter().flatten().map(String::len);
        it.name.len() + about.sum::<usize>() + 8
    });
    (prompt.name.len() + arguments.sum::<usize>() <= LARGEST).then_some(prompt)
}

/// The prompts that these servers have now.
pub(super) fn commands(servers: &[Arc<Server>]) -> Vec<PromptCommand> {
    let mut commands = Vec::new();
    for (label, server) in labels(servers).into_iter().zip(servers) {
        let state = server.state();
        for (name, prompt) in names(&state.prompts).into_iter().zip(state.prompts.iter()) {
            let name = format!("{label}:{name}");
            let said = prompt.description.as_ref().or(prompt.title.as_ref());
            let said = said.map(|it| line(it)).filter(|it| !it.is_empty());
            let arguments = arguments(prompt);
            commands.push(PromptCommand {
                description: said
                    .unwrap_or_else(|| format!("A prompt of {}", line(&server.spec.name))),
                hint: (!arguments.is_empty()).then(|| line(&wanted(arguments))),
                name,
            });
        }
    }
    commands
}

/// A prompt that the user has asked for.
#[derive(Debug)]
pub struct Asked {
    server: Arc<Server>,
    /// Behind the colon.
    name: String,
    words: String,
}

impl Asked {
    /// The prompt that a word means. A server that is still on its way may have it.
    pub(super) fn find(servers: &[Arc<Server>], word: &str, words: &str) -> Option<Asked> {
        let (label, name) = word.split_once(':')?;
        let place = labels(servers).iter().position(|it| it == label)?;
        let server = servers.get(place)?;
        let state = server.state();
        let is_there = names(&state.prompts).iter().any(|it| it == name);
        (is_there || state.phase == Phase::Starting).then(|| Asked {
            server: Arc::clone(server),
            name: name.to_owned(),
            words: words.to_owned(),
        })
    }

    /// What the server makes of it.
    ///
    /// # Errors
    /// Why there is nothing, for the user.
    pub async fn get(self) -> Result<Vec<Part>, String> {
        let server = visible_line(&self.server.spec.name);
        let mut watch = self.server.watch();
        drop(watch.wait_for(|it| it.phase != Phase::Starting).await);
        let state = self.server.state();
        let Some(peer) = state.peer.clone() else {
            let why = match &state.phase {
                Phase::Failed(why) => format!(": {}", visible(why)),
                _ => String::new(),
            };
            return Err(format!("The MCP server {server} is not connected{why}."));
        };
        let place = names(&state.prompts).iter().position(|it| *it == self.name);
        let Some(prompt) = place.and_then(|it| state.prompts.get(it)) else {
            return Err(format!("The MCP server {server} has no prompt of that name."));
        };
        let mut params = GetPromptRequestParams::new(prompt.name.clone());
        params.arguments = Some(assign(arguments(prompt), &self.words)?);
        let limit = self.server.spec.limits.call;
        match timeout(limit, peer.get_prompt(params)).await {
            Ok(Ok(result)) => match parts(result.messages) {
                parts if parts.is_empty() => {
                    Err(format!("The MCP server {server} has made nothing of it."))
                }
                parts => Ok(parts),
            },
            Ok(Err(error)) => {
                Err(format!("The MCP server {server} has answered: {}", line(&error.to_string())))
            }
            Err(_) => Err(format!(
                "The MCP server {server} has not answered within {} s.",
                limit.as_secs()
            )),
        }
    }
}

fn arguments(prompt: &Prompt) -> &[PromptArgument] {
    prompt.arguments.as_deref().unwrap_or_default()
}

/// What may stand behind a command, as in `FILE [STYLE]`.
fn wanted(arguments: &[PromptArgument]) -> String {
    let shown = |it: &PromptArgument| match it.required {
        Some(true) => it.name.clone(),
        _ => format!("[{}]", it.name),
    };
    arguments.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// The words that name the servers in commands, each once.
fn labels(servers: &[Arc<Server>]) -> Vec<String> {
    distinct(servers.iter().map(|it| it.spec.name.as_str()))
}

fn names(prompts: &[Prompt]) -> Vec<String> {
    distinct(prompts.iter().map(|it| it.name.as_str()))
}

/// The names without what editors would not take in a command.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let fits = |it: char| it.is_alphanumeric() || ['_', '-', '.'].contains(&it);
    let mut taken = HashSet::new();
    let mut one = |name: &str| {
        let name = name.chars().take(LONGEST_LINE);
        let plain: String = name.map(|it| if fits(it) { it } else { '_' }).collect();
        let mut unique = plain.clone();
        let mut number = 2;
        while !taken.insert(unique.clone()) {
            unique = format!("{plain}-{number}");
            number += 1;
        }
        unique
    };
    names.map(&mut one).collect()
}

/// Something that a server says in one line.
fn line(text: &str) -> String {
    let first = text.trim().lines().next().unwrap_or_default();
    let short: String = first.chars().take(LONGEST_LINE).collect();
    let mark = if short.len() < first.len() { "…" } else { "" };
    visible_line(&short) + mark
}

/// The words as arguments: `name=value` wherever that is one, the others in their order; the last
/// takes all that is left, as it stands there. Quotes hold words together.
fn assign(arguments: &[PromptArgument], words: &str) -> Result<JsonObject, String> {
    let mut given = JsonObject::new();
    let mut rest = words.trim();
    while !rest.is_empty() {
        let open: Vec<_> = arguments.iter().filter(|it| !given.contains_key(&it.name)).collect();
        let named = open.iter().find_map(|it| {
            let value = rest.strip_prefix(it.name.as_str())?.strip_prefix('=')?;
            Some((it.name.clone(), value))
        });
        let (name, value, behind) = match (named, open.as_slice()) {
            (Some((name, value)), _) => {
                let (value, behind) = word(value);
                (name, value, behind)
            }
            (None, []) => {
                let most = arguments.len();
                return Err(format!(
                    "There is more than it takes ({most}: {}).",
                    wanted(arguments)
                ));
            }
            (None, [last]) => {
                let (value, behind) = word(rest);
                let whole = if behind.is_empty() { value } else { rest };
                (last.name.clone(), whole, "")
            }
            (None, [next, ..]) => {
                let (value, behind) = word(rest);
                (next.name.clone(), value, behind)
            }
        };
        given.insert(name, value.into());
        rest = behind;
    }
    let is_missing =
        |it: &&PromptArgument| it.required == Some(true) && !given.contains_key(&it.name);
    let missing: Vec<_> = arguments.iter().filter(is_missing).map(|it| it.name.as_str()).collect();
    if missing.is_empty() {
        return Ok(given);
    }
    let (missing, all) = (visible_line(&missing.join(", ")), visible_line(&wanted(arguments)));
    Err(format!("It also wants: {missing}. Behind the command may stand: {all}"))
}

/// The first word and what stands behind it. A quote that does not end is a character like others.
fn word(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some((word, behind)) = inner.split_once(quote)
            && (behind.is_empty() || behind.starts_with(char::is_whitespace))
        {
            return (word, behind.trim_start());
        }
    }
    let (word, behind) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, behind.trim_start())
}

/// The messages as blocks of a prompt of the user's.
fn parts(messages: Vec<PromptMessage>) -> Vec<Part> {
    let (mut parts, mut text_left, mut media_left) = (Vec::new(), MOST_TEXT, MOST_MEDIA);
    let is_cut = messages.len() > MOST_MESSAGES;
    for message in messages.into_iter().take(MOST_MESSAGES) {
        let is_quoted = message.role == Role::Assistant;
        parts.push(match message.content {
            ContentBlock::Text(text) if is_quoted => {
                Part::Text(quoted(&bounded(&text.text, &mut text_left)))
            }
            ContentBlock::Text(text) => Part::Text(bounded(&text.text, &mut text_left)),
            ContentBlock::Image(it) => match media(&it.mime_type, it.data, &mut media_left) {
                Some(media) => Part::Image(media),
                None => Part::Text("[a picture was left out: it is too large]".to_owned()),
            },
            ContentBlock::Audio(it) => match media(&it.mime_type, it.data, &mut media_left) {
                Some(media) => Part::Audio(media),
                None => Part::Text("[a recording was left out: it is too large]".to_owned()),
            },
            ContentBlock::Resource(it) => match it.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    Part::Resource { uri: line(&uri), text: bounded(&text, &mut text_left) }
                }
                ResourceContents::BlobResourceContents { uri, .. } => {
                    Part::Text(format!("[{} is not text and was left out]", line(&uri)))
                }
                _ => Part::Text("[a resource of an unknown sort was left out]".to_owned()),
            },
            ContentBlock::ResourceLink(it) => {
                Part::Link { name: line(&it.name), uri: line(&it.uri) }
            }
            _ => Part::Text("[content of an unknown sort was left out]".to_owned()),
        });
    }
    if is_cut {
        parts.push(Part::Text(format!("[only the first {MOST_MESSAGES} messages]")));
    }
    parts
}

fn media(mime: &str, data: String, left: &mut usize) -> Option<Media> {
    *left = left.checked_sub(data.len())?;
    Some(Media { mime: line(mime), data })
}

/// What can be seen of a text, as far as there is room.
fn bounded(text: &str, left: &mut usize) -> String {
    let most = text.len().min(*left);
    let end = (0..=most).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    *left -= end;
    let mark = if end < text.len() { "\n[the rest was left out: it is too long]" } else { "" };
    visible(&text[..end]) + mark
}

fn quoted(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|it| format!("> {it}")).collect();
    format!("An answer that you have not given, as an example:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(all: &[(&str, bool)]) -> Vec<PromptArgument> {
        let one = |(name, required): &(&str, bool)| {
            serde_json::from_value(serde_json::json!({ "name": name, "required": required }))
        };
        all.iter().map(|it| one(it).unwrap()).collect()
    }

    #[test]
    fn words_become_arguments_by_name_and_in_order_and_the_last_takes_the_rest() {
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
            let given = assign(&two, words).map(serde_json::Value::Object);
            let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
            assert_eq!(given, Ok(expected), "{words}");
        }
        assert!(assign(&two, "").unwrap_err().contains("wants: who"));
        assert!(assign(&two, "how=x").unwrap_err().contains("who [how]"));
        assert!(assign(&two, "who=a how=b c").unwrap_err().contains("more"));
        assert!(assign(&[], "x").is_err() && assign(&[], " ").is_ok());
    }

    #[test]
    fn names_in_commands_are_words_and_each_is_there_once() {
        let names = distinct(["a b", "a_b", "ü.x", "a/b", "a_b-2"].into_iter());
        assert_eq!(names, ["a_b", "a_b-2", "ü.x", "a_b-3", "a_b-2-2"]);
    }

    #[test]
    fn what_a_server_makes_of_a_prompt_is_bounded_and_nothing_in_it_is_hidden() {
        let messages = serde_json::json!([
            { "role": "user", "content": { "type": "text", "text": "see\u{202e}this" } },
            { "role": "assistant", "content": { "type": "text", "text": "one\ntwo" } },
            { "role": "user", "content": { "type": "image", "mimeType": "image/png", "data": "AAAA" } },
            { "role": "user", "content": { "type": "resource",
                "resource": { "uri": "x://y", "text": "z".repeat(MOST_TEXT) } } },
            { "role": "user", "content": { "type": "text", "text": "too late" } },
            { "role": "user", "content": { "type": "resource_link", "uri": "x://l", "name": "l" } },
        ]);
        let parts = parts(serde_json::from_value(messages).unwrap());
        assert_eq!(parts[0], Part::Text("see\\u{202e}this".to_owned()));
        assert!(matches!(&parts[1], Part::Text(it) if it.ends_with("> one\n> two")));
        assert!(matches!(&parts[2], Part::Image(it) if it.mime == "image/png"));
        assert!(matches!(&parts[3], Part::Resource { text, .. } if text.ends_with("too long]")));
        assert!(matches!(&parts[4], Part::Text(it) if it.starts_with("\n[the rest")));
        assert_eq!(parts[5], Part::Link { name: "l".to_owned(), uri: "x://l".to_owned() });
    }
}
