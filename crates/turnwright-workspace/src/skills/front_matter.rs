//! Parses the front matter of a SKILL.md, a custom command or a helper's file. This is not YAML, but covers what people write there:
//! unquoted text with colons, quotes, and values over several lines.

/// The fields that are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrontMatter {
    pub(crate) name: Option<String>,
    /// Describes the purpose of the skill in one line.
    pub(crate) description: Option<String>,
    pub(crate) argument_hint: Option<String>,
    /// True if only the user can invoke the skill.
    pub(crate) is_user_only: bool,
    /// The tools of a helper, as they are written, and those that it must not have.
    pub(crate) tools: Option<String>,
    pub(crate) disallowed_tools: Option<String>,
    pub(crate) model: Option<String>,
    /// True if the helper may change nothing.
    pub(crate) is_read_only: bool,
    /// The most requests of a helper.
    pub(crate) max_turns: Option<u32>,
}

/// Splits a text into the front matter and the body.
pub(crate) fn split(text: &str) -> (FrontMatter, &str) {
    let mut head = FrontMatter::default();
    let Some((lines, body)) = bounds(text) else { return (head, text) };
    let mut lines = lines.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((key, value)) = line.split_once(':') else { continue };
        if key.starts_with([' ', '\t', '#', '-']) {
            continue;
        }
        let mut below = Vec::new();
        // Blank lines and comments belong to the value around them.
        while let Some(more) =
            lines.next_if(|line| line.starts_with([' ', '\t', '-', '#']) || line.trim().is_empty())
        {
            below.push(if more.starts_with('#') { "" } else { more.trim() });
        }
        head.set(key.trim(), scalar(value.trim(), &below));
    }
    (head, body)
}

impl FrontMatter {
    fn set(&mut self, key: &str, value: String) {
        let value = Some(value).filter(|value| !value.is_empty());
        match key.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
            "name" => self.name = value,
            "description" => self.description = value,
            "argumenthint" => self.argument_hint = value,
            "tools" => self.tools = value.or_else(|| self.tools.take()),
            // A skill's are ignored: permissions are asked for as usual. In the file of a helper people mean its tools.
            "allowedtools" => self.tools = self.tools.take().or(value),
            "disallowedtools" => self.disallowed_tools = value,
            "model" => self.model = value,
            "disablemodelinvocation" => self.is_user_only = is_yes(value.as_deref()),
            "readonly" => self.is_read_only |= is_yes(value.as_deref()),
            "permissionmode" => self.is_read_only |= value.as_deref() == Some("plan"),
            "maxturns" | "maxsteps" | "steps" => {
                self.max_turns = value.and_then(|most| most.parse().ok()).filter(|most| *most > 0);
            }
            // Other fields are for other agents.
            _ => {}
        }
    }
}

fn is_yes(value: Option<&str>) -> bool {
    value.is_some_and(|word| ["true", "yes"].iter().any(|yes| word.eq_ignore_ascii_case(yes)))
}

/// The text between the two `---` lines, and the text after them. A byte order mark, blank lines and comments may stand
/// above.
fn bounds(text: &str) -> Option<(&str, &str)> {
    let mut text = text.trim_start_matches('\u{feff}').trim_start();
    while text.starts_with("<!--") {
        text = text.split_once("-->")?.1.trim_start();
    }
    let first = text.split_inclusive('\n').next().filter(|line| line.trim_end() == "---")?;
    let rest = &text[first.len()..];
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if matches!(line.trim_end(), "---" | "...") {
            return Some((&rest[..at], &rest[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

/// Joins a value and the lines indented below it into one line.
fn scalar(value: &str, below: &[&str]) -> String {
    let value = without_comment(value);
    let is_block = value.starts_with(['>', '|']) && value.len() <= 3;
    let first = if is_block { "" } else { value };
    let is_literal = is_block || value.starts_with(['"', '\'']);
    let more = below.iter().map(|line| if is_literal { *line } else { without_comment(line) });
    let words = std::iter::once(first).chain(more).filter(|line| !line.is_empty());
    let text = words.collect::<Vec<_>>().join(" ");
    if let Some(inner) = inside_quotes(&text, '"') {
        return inner.replace("\\\"", "\"").replace("\\n", " ").replace("\\\\", "\\");
    }
    match inside_quotes(&text, '\'') {
        Some(inner) => inner.replace("''", "'"),
        None => text,
    }
}

fn inside_quotes(text: &str, quote: char) -> Option<&str> {
    text.strip_prefix(quote)?.strip_suffix(quote)
}

/// A value without the comment behind it. What begins with `#` and a letter is no comment to people.
fn without_comment(value: &str) -> &str {
    let quote = value.get(..1).filter(|quote| ["\"", "'"].contains(quote)).unwrap_or_default();
    let end = value.find(&format!("{quote} # ")).map(|at| at + quote.len());
    let is_comment = value.starts_with("# ") || value.starts_with("#-");
    value[..end.filter(|_| !is_comment).unwrap_or(if is_comment { 0 } else { value.len() })]
        .trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_read_however_people_write_them() {
        let table = [
            ("description: Plain words", "Plain words"),
            ("description: Use when: the user says so", "Use when: the user says so"),
            ("description: \"Quoted: \\\"so\\\"\"", "Quoted: \"so\""),
            ("description: 'it''s quoted'", "it's quoted"),
            ("description: >\n  folded\n  text\nlicense: MIT", "folded text"),
            ("description: >-\n  folded\n\n  again", "folded again"),
            ("description: |\n  kept\n  lines", "kept lines"),
            ("description: goes on\n  below", "goes on below"),
            ("description:\n  below only", "below only"),
            ("metadata:\n  description: not this\ndescription: this", "this"),
            ("allowed-tools:\n- Bash\n- Read\ndescription: after a list", "after a list"),
            ("# description: no\ndescription: yes", "yes"),
            ("DESCRIPTION: loud", "loud"),
            ("description: >half", ">half"),
            ("description: \"", "\""),
            ("description: Plain # a comment", "Plain"),
            ("description: \"a # b\" # a comment", "a # b"),
            ("description: # a comment\n  below", "below"),
            ("description: |\n  # kept\n# a comment\n  as well", "# kept as well"),
            ("tools:\n# a comment\n- Read\ndescription: after a comment", "after a comment"),
            ("description: C# and #1", "C# and #1"),
        ];
        for (lines, expected) in table {
            let text = format!("---\nname: a\n{lines}\n---\nBody");
            let (head, body) = split(&text);
            assert_eq!(head.description.as_deref(), Some(expected), "{lines}");
            assert_eq!((head.name.as_deref(), body), (Some("a"), "Body"), "{lines}");
        }
    }

    #[test]
    fn comments_and_blank_lines_may_stand_above_a_head() {
        let comments = ["<!-- Made by\na tool. -->\n", "\n<!-- a --> <!-- b -->\r\n\r\n"];
        for above in ["\n", "\u{feff}"].into_iter().chain(comments) {
            let text = format!("{above}---\nname: a\ndisable-model-invocation: true\n---\nBody");
            let (head, body) = split(&text);
            assert_eq!((head.name.as_deref(), head.is_user_only, body), (Some("a"), true, "Body"));
        }
    }

    #[test]
    fn a_file_without_a_head_is_all_body() {
        for text in ["", "Body", "---\nname: never closed", "--- \n", "<!-- ---\nname: a\n---\n"] {
            assert_eq!(split(text), (FrontMatter::default(), text));
        }
        let crlf = "---\r\nname: a\r\nargument-hint: [version]\r\ndisable-model-invocation: true\r\n---\r\nBody\r\n";
        let (head, body) = split(crlf);
        assert_eq!(head.name.as_deref(), Some("a"));
        assert_eq!(head.argument_hint.as_deref(), Some("[version]"));
        assert!(head.is_user_only);
        assert_eq!(body, "Body\r\n");
    }
}
