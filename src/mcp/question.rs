//! The question to the user before a call of a server's tool is allowed: what is sent and to which server,
//! how the server describes the tool, and what has changed. No text of a server can pass for our own.
//! Pure.

use super::tool_pins::server_location;
use turnwright_mcp::{JsonObject, ServerSource, ServerSpec, ServerTransport, Tool};
use turnwright_policy::permission::{escape_markdown, markdown_code};
use turnwright_types::effect::{CallContent, fenced};
use turnwright_types::redact;
use turnwright_types::text;

/// Maximum number of arguments that are listed. The client also receives all of them as the raw input.
const MAX_ARGUMENTS: usize = 12;
/// Maximum length of the server's description.
const MAX_DESCRIPTION_CHARS: usize = 300;

pub(super) fn question_content(
    spec: &ServerSpec,
    tool: &Tool,
    arguments: &JsonObject,
    change: Option<&str>,
    reads_resources: bool,
) -> Vec<CallContent> {
    let mut lines = vec![server_line(spec)];
    if reads_resources {
        lines.push("reads a resource of the server, or lists its resources".to_owned());
    } else {
        lines.extend(description(tool));
        lines.extend(
            claims(tool).map(|words| format!("the server claims that it {words} (not verified)")),
        );
    }
    for (name, value) in arguments.iter().take(MAX_ARGUMENTS) {
        let mut value = value.to_string();
        redact::redact_in_place(&mut value);
        lines.push(format!("{} = {}", markdown_code(name), markdown_code(&value)));
    }
    if arguments.len() > MAX_ARGUMENTS {
        lines.push(format!("… and {} more arguments", arguments.len() - MAX_ARGUMENTS));
    }
    let lines: Vec<_> = lines.into_iter().map(|line| format!("- {line}")).collect();
    let change = change.map(|change| {
        CallContent::Text(format!("⚠ Changed since you allowed it:\n\n{}", fenced(change)))
    });
    change.into_iter().chain([CallContent::Text(lines.join("\n"))]).collect()
}

fn server_line(spec: &ServerSpec) -> String {
    let source = match spec.source {
        ServerSource::Client => "configured by your editor",
        ServerSource::User => "from your settings",
        ServerSource::Project => "from this project",
    };
    match &spec.transport {
        ServerTransport::Stdio { .. } => {
            let sandbox = if spec.sandbox.is_enabled { "" } else { ", without the sandbox" };
            let program = markdown_code(&server_location(spec));
            format!("the server runs {program} ({source}){sandbox}")
        }
        ServerTransport::Http { .. } => {
            format!("the server is {} ({source})", markdown_code(&server_location(spec)))
        }
        ServerTransport::Linked(_) => {
            "the server runs within your editor, outside of the sandbox".to_owned()
        }
    }
}

/// The first line of the server's description.
fn description(tool: &Tool) -> Option<String> {
    let text = tool.description.as_deref()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let short = text::first_chars(line, MAX_DESCRIPTION_CHARS);
    let more = if short.len() < text.trim().len() { " …" } else { "" };
    Some(format!(
        "the server's description: “{}{more}”",
        escape_markdown(&turnwright_types::effect::escape_hidden_line(short))
    ))
}

fn claims(tool: &Tool) -> impl Iterator<Item = &'static str> {
    let hints = tool.annotations.clone().unwrap_or_default();
    let claims = [
        (hints.read_only_hint == Some(true), "only reads"),
        (hints.destructive_hint == Some(true), "may destroy data"),
        (hints.destructive_hint == Some(false), "destroys nothing"),
    ];
    claims.into_iter().filter(|claim| claim.0).map(|claim| claim.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn shown(tool: &str, arguments: &str, change: Option<&str>) -> String {
        let reach = ServerTransport::Stdio {
            command: "/bin/notes".into(),
            arguments: vec!["--key=secret".to_owned()],
            environment: Vec::new(),
        };
        let spec = ServerSpec::new("notes", ServerSource::Client, reach);
        let tool = serde_json::from_str(tool).unwrap();
        let content = question_content(
            &spec,
            &tool,
            &serde_json::from_str(arguments).unwrap(),
            change,
            false,
        );
        let texts = content.iter().map(|content| match content {
            CallContent::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        });
        texts.collect::<Vec<_>>().join("\n---\n")
    }

    #[test]
    fn text_of_a_server_cannot_pass_for_ours() {
        let tool = r#"{"name":"add","description":"\n**Safe.** [x](y)\u202e\n- ✓ allowed\n","inputSchema":{},
            "annotations":{"readOnlyHint":true,"destructiveHint":false}}"#;
        expect![[r#"
            - the server runs `/bin/notes` (configured by your editor)
            - the server's description: “\*\*Safe.\*\* \[x\](y)\\u{202e} …”
            - the server claims that it only reads (not verified)
            - the server claims that it destroys nothing (not verified)
            - `` a`b `` = `"x\n- ✓ y"`
            - `n` = `{"deep":[1,2]}`"#]]
        .assert_eq(&shown(tool, r#"{"a`b":"x\n- ✓ y","n":{"deep":[1,2]}}"#, None));
    }

    #[test]
    fn a_change_comes_first_in_a_fence_and_arguments_are_bounded() {
        let many: Vec<_> =
            (0..20).map(|number| format!("\"k{number}\":\"{}\"", "v".repeat(900))).collect();
        let tool = r#"{"name":"add","inputSchema":{}}"#;
        let text = shown(tool, &format!("{{{}}}", many.join(",")), Some("-a\n+```\n"));
        assert!(text.starts_with("⚠ Changed since you allowed it:\n\n````\n-a\n+```\n````"));
        assert!(text.ends_with("- … and 8 more arguments"), "{text}");
        assert!(text.len() < 5_000);
    }
}
