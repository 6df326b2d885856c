//! What the user is shown of a call of a server's tool before it is allowed: what is sent and where
//! to, what the server says of the tool, and what has changed. Nothing in it passes for words of
//! ours. Pure.

use rmcp::model::{JsonObject, Tool};

use super::pins::whereabouts;
use super::spec::{Reach, ServerSpec, Source};
use turnwright_types::effect::{Content, fenced};
use turnwright_policy::permission::{code, plain};
use turnwright_types::redact;

/// Arguments that are listed. All of them are sent to the client besides.
const MOST_ARGUMENTS: usize = 12;
/// Characters of what the server says.
const LONGEST_WORDS: usize = 300;

/// The words.
pub(super) fn words(
    spec: &ServerSpec,
    tool: &Tool,
    arguments: &JsonObject,
    change: Option<&str>,
    reads_resources: bool,
) -> Vec<Content> {
    let mut lines = vec![place(spec)];
    if reads_resources {
        lines.push("the server is asked for a resource, or which ones it has".to_owned());
    } else {
        lines.extend(description(tool));
        let claim = |it| format!("it says of itself that it {it}; nobody has checked that");
        lines.extend(claims(tool).map(claim));
    }
    for (name, value) in arguments.iter().take(MOST_ARGUMENTS) {
        let mut value = value.to_string();
        redact::clean(&mut value);
        lines.push(format!("{} = {}", code(name), code(&value)));
    }
    if arguments.len() > MOST_ARGUMENTS {
        lines.push(format!("… and {} more arguments", arguments.len() - MOST_ARGUMENTS));
    }
    let lines: Vec<_> = lines.into_iter().map(|it| format!("- {it}")).collect();
    let change = change.map(|it| {
        Content::Text(format!("⚠ What has changed since you allowed it:\n\n{}", fenced(it)))
    });
    change.into_iter().chain([Content::Text(lines.join("\n"))]).collect()
}

fn place(spec: &ServerSpec) -> String {
    let by = match spec.source {
        Source::Client => "given by your editor",
        Source::User => "from your settings",
        Source::Project => "from this project",
    };
    match &spec.reach {
        Reach::Stdio { .. } => {
            let walls = if spec.walls.on { "" } else { ", without the sandbox" };
            format!("the server runs {} ({by}){walls}", code(&whereabouts(spec)))
        }
        Reach::Http { .. } => format!("the server is {} ({by})", code(&whereabouts(spec))),
    }
}

/// The first line of what the server says.
fn description(tool: &Tool) -> Option<String> {
    let words = tool.description.as_deref()?;
    let line = words.lines().map(str::trim).find(|it| !it.is_empty())?;
    let short: String = line.chars().take(LONGEST_WORDS).collect();
    let more = if short.len() < words.trim().len() { " …" } else { "" };
    Some(format!("the server says of it: “{}{more}”", plain(&turnwright_types::effect::visible_line(&short))))
}

fn claims(tool: &Tool) -> impl Iterator<Item = &'static str> {
    let said = tool.annotations.clone().unwrap_or_default();
    let claims = [
        (said.read_only_hint == Some(true), "only reads"),
        (said.destructive_hint == Some(true), "may destroy something"),
        (said.destructive_hint == Some(false), "destroys nothing"),
    ];
    claims.into_iter().filter(|it| it.0).map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn shown(tool: &str, arguments: &str, change: Option<&str>) -> String {
        let reach = Reach::Stdio {
            command: "/bin/notes".into(),
            arguments: vec!["--key=secret".to_owned()],
            environment: Vec::new(),
        };
        let spec = ServerSpec::new("notes", Source::Client, reach);
        let tool = serde_json::from_str(tool).unwrap();
        let content = words(&spec, &tool, &serde_json::from_str(arguments).unwrap(), change, false);
        let text = |it: &Content| match it {
            Content::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        content.iter().map(text).collect::<Vec<_>>().join("\n---\n")
    }

    #[test]
    fn words_of_a_server_pass_for_none_of_ours() {
        let tool = r#"{"name":"add","description":"\n**Safe.** [x](y)\u202e\n- ✓ allowed\n","inputSchema":{},
            "annotations":{"readOnlyHint":true,"destructiveHint":false}}"#;
        expect![[r#"
            - the server runs `/bin/notes` (given by your editor)
            - the server says of it: “\*\*Safe.\*\* \[x\](y)\\u{202e} …”
            - it says of itself that it only reads; nobody has checked that
            - it says of itself that it destroys nothing; nobody has checked that
            - `` a`b `` = `"x\n- ✓ y"`
            - `n` = `{"deep":[1,2]}`"#]]
        .assert_eq(&shown(tool, r#"{"a`b":"x\n- ✓ y","n":{"deep":[1,2]}}"#, None));
    }

    #[test]
    fn a_change_stands_first_in_a_fence_and_arguments_are_bounded() {
        let many: Vec<_> = (0..20).map(|it| format!("\"k{it}\":\"{}\"", "v".repeat(900))).collect();
        let tool = r#"{"name":"add","inputSchema":{}}"#;
        let text = shown(tool, &format!("{{{}}}", many.join(",")), Some("-a\n+```\n"));
        assert!(
            text.starts_with("⚠ What has changed since you allowed it:\n\n````\n-a\n+```\n````")
        );
        assert!(text.ends_with("- … and 8 more arguments"), "{text}");
        assert!(text.len() < 5_000);
    }
}
