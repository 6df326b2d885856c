//! Reads what clients ask for when they open a session: instructions in `systemPrompt`, and the rest in
//! `_meta`, in the form in which the adapters of other agents take it.

use std::num::NonZeroU32;

use serde_json::Value;

use super::schema::{self, ContentBlock, Meta, SystemPromptMode};
use crate::error::Error;
use crate::session::{ClientOptions, SystemPrompt};

/// The longest instructions, in bytes. They are sent with each request.
const MAX_PROMPT_BYTES: usize = 64 * 1024;
/// The most tools that may be named.
const MAX_TOOLS: usize = 1000;

/// Reads the options; `None` if there are none. A malformed one has no effect, because `_meta` may hold
/// anything, and the user is told; but a malformed restriction allows nothing.
///
/// # Errors
/// If `systemPrompt`, which is a part of the protocol, cannot be followed (R-SYS-1).
pub(super) fn read(
    meta: Option<&Meta>,
    instructions: Option<schema::SystemPrompt>,
) -> Result<Option<ClientOptions>, Error> {
    let options = read_meta(meta);
    let Some(instructions) = instructions else { return Ok(options) };
    let system_prompt = Some(read_instructions(instructions)?);
    Ok(Some(ClientOptions { system_prompt, ..options.unwrap_or_default() }))
}

fn read_instructions(wanted: schema::SystemPrompt) -> Result<SystemPrompt, Error> {
    let mut texts = Vec::with_capacity(wanted.content.len());
    for block in wanted.content {
        let ContentBlock::Text(text) = block else {
            return refused_prompt("`content` may have only blocks of the type `text`");
        };
        texts.push(text.text);
    }
    let text = texts.join("\n\n");
    if text.trim().is_empty() || text.len() > MAX_PROMPT_BYTES {
        return refused_prompt("`content` must have a text of at most 64 KiB");
    }
    match wanted.mode {
        SystemPromptMode::Append => Ok(SystemPrompt::Append(text)),
        SystemPromptMode::Override => Ok(SystemPrompt::Replace(text)),
        _ => refused_prompt("`mode` must be `append` or `override`"),
    }
}

fn refused_prompt(why: &str) -> Result<SystemPrompt, Error> {
    Err(Error::InvalidParams(format!("`systemPrompt`: {why}")))
}

fn read_meta(meta: Option<&Meta>) -> Option<ClientOptions> {
    let field = |name: &str| meta.and_then(|meta| meta.get(name)).filter(|value| !value.is_null());
    let option = |name: &str| {
        let options = field("claudeCode").and_then(|code| code.get("options"));
        options.and_then(|options| options.get(name)).filter(|value| !value.is_null())
    };
    let mut options = ClientOptions::default();
    if let Some(value) = field("systemPrompt") {
        options.system_prompt = system_prompt(value);
        if options.system_prompt.is_none() {
            options.notices.push(ignored(
                "systemPrompt",
                "a text of at most 64 KiB, or an object with such a text as `append`",
            ));
        }
    }
    if let Some(value) = option("allowedTools") {
        options.allowed_tools = Some(allowed_tools(value).unwrap_or_else(|| {
            options.notices.push(
                "The editor restricts this session to some tools in a form that is not understood \
                 (`_meta.claudeCode.options.allowedTools`), so it has none."
                    .to_owned(),
            );
            Vec::new()
        }));
    }
    if options.allowed_tools.as_ref().is_some_and(Vec::is_empty) && options.notices.is_empty() {
        let notice = "The editor allows no tools in this session (`_meta.claudeCode.options.allowedTools` is empty).";
        options.notices.push(notice.to_owned());
    }
    if let Some(value) = option("maxTurns") {
        options.max_requests = max_requests(value);
        if options.max_requests.is_none() {
            options.notices.push(ignored("claudeCode.options.maxTurns", "a number above 0"));
        }
    }
    (options != ClientOptions::default()).then_some(options)
}

fn system_prompt(value: &Value) -> Option<SystemPrompt> {
    let is_usable = |text: &&str| !text.trim().is_empty() && text.len() <= MAX_PROMPT_BYTES;
    match value.as_str() {
        Some(text) => {
            Some(text).filter(is_usable).map(|text| SystemPrompt::Replace(text.to_owned()))
        }
        None => {
            let text = value.get("append").and_then(Value::as_str).filter(is_usable);
            text.map(|text| SystemPrompt::Append(text.to_owned()))
        }
    }
}

fn allowed_tools(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array().filter(|names| names.len() <= MAX_TOOLS)?.iter();
    names.map(|name| name.as_str().map(str::to_owned)).collect()
}

fn max_requests(value: &Value) -> Option<NonZeroU32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new)
}

fn ignored(name: &str, expected: &str) -> String {
    format!("The editor's `_meta.{name}` was ignored: it must be {expected}.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_forms_of_other_adapters_are_read() {
        let none = ClientOptions::default();
        let append = |text: &str| Some(SystemPrompt::Append(text.to_owned()));
        for (meta, expected) in [
            (json!({}), None),
            (json!({ "systemPrompt": null, "claudeCode": { "options": {} } }), None),
            (json!({ "other": { "systemPrompt": 1 } }), None),
            (
                json!({ "systemPrompt": "Be brief." }),
                Some(ClientOptions {
                    system_prompt: Some(SystemPrompt::Replace("Be brief.".to_owned())),
                    ..none.clone()
                }),
            ),
            (
                json!({ "systemPrompt": { "type": "preset", "append": "Be brief." } }),
                Some(ClientOptions { system_prompt: append("Be brief."), ..none.clone() }),
            ),
            (
                json!({ "claudeCode": { "options": { "allowedTools": [], "maxTurns": 3 } } }),
                Some(ClientOptions {
                    allowed_tools: Some(Vec::new()),
                    notices: vec![
                        "The editor allows no tools in this session (`_meta.claudeCode.options.allowedTools` \
                         is empty)."
                            .to_owned(),
                    ],
                    max_requests: NonZeroU32::new(3),
                    ..none
                }),
            ),
        ] {
            assert_eq!(read_meta(meta.as_object()), expected, "{meta}");
        }
    }

    #[test]
    fn a_malformed_option_gives_nothing_and_is_named() {
        for (meta, name) in [
            (json!({ "systemPrompt": 1 }), "systemPrompt"),
            (json!({ "systemPrompt": " " }), "systemPrompt"),
            (json!({ "systemPrompt": { "preset": "x" } }), "systemPrompt"),
            (json!({ "systemPrompt": "x".repeat(70_000) }), "systemPrompt"),
            (json!({ "claudeCode": { "options": { "allowedTools": "Read" } } }), "allowedTools"),
            (json!({ "claudeCode": { "options": { "allowedTools": [1] } } }), "allowedTools"),
            (json!({ "claudeCode": { "options": { "maxTurns": 0 } } }), "maxTurns"),
            (json!({ "claudeCode": { "options": { "maxTurns": "3" } } }), "maxTurns"),
        ] {
            let options = read_meta(meta.as_object()).unwrap();
            assert!(options.notices[0].contains(name), "{meta}: {options:?}");
            let allowed = (name == "allowedTools").then(Vec::new);
            let expected = ClientOptions {
                allowed_tools: allowed,
                notices: options.notices.clone(),
                ..ClientOptions::default()
            };
            assert_eq!(options, expected, "{meta}");
        }
    }
}
