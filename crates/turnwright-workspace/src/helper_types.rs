//! Types of helpers that users define: Markdown files whose front matter has a name, a description, tools
//! and a model, and whose text is an instruction to the helper.

use crate::skills::{front_matter, slug};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::text;

/// The most characters of a description.
const MAX_DESCRIPTION_CHARS: usize = 300;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelperType {
    pub name: String,
    /// Describes its purpose to the model, in one line.
    pub description: String,
    /// The names of its only tools, as they are written; `None` if it has all.
    pub tools: Option<Vec<String>>,
    /// The names of tools that it must not have.
    pub denied_tools: Vec<String>,
    /// Its model, if it differs from the session's.
    pub model: Option<String>,
    /// True if it works in plan mode, whatever the mode of the session.
    pub is_read_only: bool,
    /// The most requests to the model; `None` for the usual limit.
    pub max_turns: Option<u32>,
    /// Instructions for the helper in addition to the usual ones.
    pub instructions: String,
}

impl HelperType {
    /// Parses a file. `stem` is the name of the file without its ending.
    ///
    /// # Errors
    /// Why it is no helper, as a phrase that follows the file's name.
    pub fn parse(stem: &str, text: &str) -> Result<HelperType, &'static str> {
        let (head, body) = front_matter::split(text);
        let name = slug(head.name.as_deref().unwrap_or(stem))
            .ok_or("has no letter and no digit in its name")?;
        let given = head.description.ok_or("has no description")?;
        let list = head.tools.unwrap_or_default();
        let (named, mut denied_tools) = tool_names(&list);
        denied_tools.extend(tool_names(&head.disallowed_tools.unwrap_or_default()).0);
        let is_limited = !named.is_empty() || list.starts_with('[');
        Ok(HelperType {
            name,
            description: text::cut(escape_hidden_line(&given), MAX_DESCRIPTION_CHARS),
            tools: Some(named).filter(|names| is_limited && names.iter().all(|name| name != "*")),
            denied_tools,
            model: head.model.filter(|model| !is_alias(model)),
            is_read_only: head.is_read_only,
            max_turns: head.max_turns,
            instructions: body.trim().to_owned(),
        })
    }
}

/// The names in a list, written with commas, brackets or dashes, and the names that a map turns off (`write: false`).
/// The tools that a map turns on are on anyway, unless it turns off `*`: then they are the only ones. A pattern belongs
/// to its name, `Bash(git *)`, and one for everything is left out.
fn tool_names(list: &str) -> (Vec<String>, Vec<String>) {
    let plain = list.replace(['"', '\''], "").replace(" (", "(");
    let mut depth = 0_usize;
    let mut words = plain
        .split(|c: char| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && (c.is_whitespace() || matches!(c, ',' | '[' | ']' | '{' | '}'))
        })
        .filter(|word| !matches!(*word, "" | "-") && !word.starts_with('#'));
    let mut named = Vec::new();
    let mut on = Vec::new();
    let mut off = Vec::new();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_suffix(':') else {
            named.push(word.trim_end_matches("(*)").to_owned());
            continue;
        };
        let value = words.next().unwrap_or_default().to_ascii_lowercase();
        let is_off = ["false", "no", "off", "deny"].contains(&value.as_str());
        let names = if is_off { &mut off } else { &mut on };
        names.push(name.to_owned());
    }
    if !on.is_empty() && off.iter().any(|name| name == "*") {
        off.retain(|name| name != "*");
        named.append(&mut on);
    }
    (named, off)
}

/// The names that files of another agent use for models that only its provider has, or for the model of the session.
const ALIASES: [&str; 8] =
    ["inherit", "default", "best", "sonnet", "opus", "opusplan", "haiku", "fable"];

/// Returns true for such a name, also with a window: `sonnet[1m]`.
fn is_alias(model: &str) -> bool {
    let name = model.split('[').next().unwrap_or_default();
    ALIASES.iter().any(|alias| name.eq_ignore_ascii_case(alias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_a_description_tools_and_a_model() {
        let head = "---\nname: reviewer\ndescription: Reviews changes\n";
        let names = |list: &[&str]| Some(list.iter().map(|name| (*name).to_owned()).collect());
        for (lines, tools, model) in [
            ("", None, None),
            (
                "tools: Read, Grep,Bash(git log:*)",
                names(&["Read", "Grep", "Bash(git log:*)"]),
                None,
            ),
            ("tools: Read, Bash(git * main)", names(&["Read", "Bash(git * main)"]), None),
            ("tools: Read(*), Bash(git log *)", names(&["Read", "Bash(git log *)"]), None),
            ("tools: Read, Bash (git log *)", names(&["Read", "Bash(git log *)"]), None),
            ("tools: [\"Read\", 'Grep']\nmodel: inherit", names(&["Read", "Grep"]), None),
            ("tools:\n  - Read\n  - Grep\nmodel: small", names(&["Read", "Grep"]), Some("small")),
            ("tools:\n- Read\n- Grep\nmodel: Sonnet", names(&["Read", "Grep"]), None),
            ("model: opus[1m]", None, None),
            ("model: fable", None, None),
            ("allowed-tools: Read, Grep", names(&["Read", "Grep"]), None),
            ("tools: Read\nallowed_tools: Bash", names(&["Read"]), None),
            ("allowedTools: Bash\ntools: Read", names(&["Read"]), None),
            ("tools:\n  - Read # not Edit\n  # - Bash\n  #- Write", names(&["Read"]), None),
            ("tools:\n# - Bash\n- Read #Write", names(&["Read"]), None),
            ("tools: []", names(&[]), None),
            ("tools: *", None, None),
            ("tools:", None, None),
        ] {
            let text = format!("{head}{lines}\n---\n\nBe strict.\n");
            let parsed = HelperType::parse("file", &text).unwrap();
            assert_eq!((&parsed.tools, parsed.model.as_deref()), (&tools, model), "{lines}");
            assert_eq!(parsed.name, "reviewer");
            assert_eq!(parsed.instructions, "Be strict.", "{lines}");
        }
    }

    #[test]
    fn the_most_requests_are_read_as_other_agents_write_them() {
        for (line, most) in [
            ("maxTurns: 5", Some(5)),
            ("max_turns: 5", Some(5)),
            ("steps: 5 # enough", Some(5)),
            ("maxTurns: many", None),
            ("maxTurns: 0", None),
        ] {
            let text = format!("---\ndescription: x\n{line}\n---\nBe strict.\n");
            assert_eq!(HelperType::parse("a", &text).unwrap().max_turns, most, "{line}");
        }
    }

    #[test]
    fn tools_that_a_file_turns_off_are_denied() {
        for (lines, tools, denied) in [
            ("disallowedTools: Write, Bash(rm -rf *)", "", "Write Bash(rm -rf *)"),
            ("tools: [Read]\ndisallowed-tools:\n  - mcp__a", "Read", "mcp__a"),
            ("tools:\n  write: false\n  \"edit\": false\n  bash: true", "", "write edit"),
            ("tools: { write: False, read: true }", "", "write"),
            ("tools:\n  \"*\": false\n  read: true\n  grep: true", "read grep", ""),
            ("tools: { read: true, mymcp_*: false, '*': false }", "read", "mymcp_*"),
            ("tools: { '*': false }", "", "*"),
            ("tools: { '*': true, bash: false }", "", "bash"),
            ("tools:\n  write: false # \"Nothing: changed\"\n  edit: false", "", "write edit"),
            ("tools: Read", "Read", ""),
        ] {
            let text = format!("---\nname: a\ndescription: x\n{lines}\n---\nBe strict.\n");
            let parsed = HelperType::parse("file", &text).unwrap();
            assert_eq!(parsed.tools.unwrap_or_default().join(" "), tools, "{lines}");
            assert_eq!(parsed.denied_tools.join(" "), denied, "{lines}");
        }
    }

    #[test]
    fn a_file_without_a_description_or_with_a_bad_name_is_no_helper() {
        for (stem, text, name) in [
            ("a", "---\ndescription: x\n---\n", "a"),
            ("code_reviewer", "---\ndescription: x\n---\n", "code-reviewer"),
            ("a", "---\nname: Python Engineer\ndescription: x\n---\n", "python-engineer"),
            ("a", "---\nname: 项目管理\ndescription: x\n---\n", "项目管理"),
        ] {
            assert_eq!(HelperType::parse(stem, text).unwrap().name, name);
        }
        for (stem, text) in [
            ("a", "Only text."),
            ("a", "---\nname: a\n---\nText."),
            ("\u{2026}", "---\ndescription: x\n---\n"),
        ] {
            assert!(HelperType::parse(stem, text).is_err(), "{stem} {text}");
        }
    }
}
