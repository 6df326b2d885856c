//! Remembers what a tool was when the user allowed it: its definition, and the server behind the name. The
//! permission is for exactly that; later differences are shown. Blocks on reading small files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::tools::ToolEnv;
use turnwright_config::trust::{Pin, PinLookup, PinStore};
use turnwright_mcp::{
    ListedTool, SchemaText, ServerSource, ServerSpec, ServerTransport, Tool, key_places,
};
use turnwright_types::effect::{escape_hidden, escape_hidden_line};
use turnwright_types::hash::sha256_hex;
use turnwright_types::line_diff;
use turnwright_types::redact;
use turnwright_types::text;
use turnwright_workspace::memory::find_secret;

/// The bytes of a definition, and of each of its parts, that are kept for comparison.
const MAX_SUMMARY_BYTES: usize = 12 * 1024;
const MAX_PART_BYTES: usize = 4 * 1024;
/// The length of the part of a file's digest that is kept to be shown.
const MAX_DIGEST_BYTES: usize = 8;
/// A word is taken for a token from this length and this number of digits on.
const MIN_TOKEN_BYTES: usize = 12;
const MIN_TOKEN_DIGITS: usize = 3;
/// Placeholders in a pin for words and lines that look like secrets.
const NOT_KEPT: &str = "[not kept]";
const NOT_KEPT_LINE: &str = "[not kept: it looks like a secret]\n";
/// Maximum number of changed parts that are named.
const MAX_NAMED_PARTS: usize = 20;
/// Maximum number of lines of a diff.
const MAX_DIFF_LINES: usize = 60;
/// Maximum length of the name of a changed part.
const MAX_NAME_CHARS: usize = 80;
/// Maximum length of one line of a diff.
const MAX_LINE_CHARS: usize = 300;

/// The current state of a tool, and its differences from the one that the user allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PinCheck {
    /// The digest of the server's program or address.
    pub(super) server_digest: String,
    /// The digest of the tool's definition.
    pub(super) tool_digest: String,
    /// The differences, for the user: several lines, safe to show.
    pub(super) change: Option<String>,
    /// The user has allowed exactly this.
    pub(super) is_pinned: bool,
    /// The tool is annotated as read-only.
    pub(super) claims_read_only: bool,
    /// The version of the tool list that the definition is from.
    pub(super) tools_version: u64,
}

/// The user's permission for a tool of a server in a project.
pub(super) struct ToolPins<'a> {
    spec: &'a ServerSpec,
    tool: &'a Tool,
    project: String,
    pins: Option<PinStore>,
    server_digest: String,
    tool_digest: String,
    /// The path and the text of a loaded file of a skill.
    file: Option<&'a (String, String)>,
}

impl<'a> ToolPins<'a> {
    /// The pins of a tool that is called in a session.
    pub(super) fn of(
        spec: &'a ServerSpec,
        listed: &'a ListedTool,
        file: Option<&'a (String, String)>,
        env: &ToolEnv,
    ) -> ToolPins<'a> {
        let state = &env.shared.process.folders.state;
        let pins = state.is_absolute().then(|| PinStore::new(state));
        let digest = listed.digest.get_or_init(|| definition_digest(&listed.tool)).clone();
        let project = env.files.roots().real_cwd();
        ToolPins { file, ..ToolPins::new(spec, (&listed.tool, digest), project, pins) }
    }

    fn new(
        spec: &'a ServerSpec,
        (tool, tool_digest): (&'a Tool, String),
        project: &Path,
        pins: Option<PinStore>,
    ) -> ToolPins<'a> {
        let server_digest = server_digest(spec, project);
        let project = project.to_string_lossy().into_owned();
        ToolPins { spec, tool, project, pins, server_digest, tool_digest, file: None }
    }

    /// Compares the tool with the one that the user allowed.
    pub(super) fn check(&self) -> PinCheck {
        let (change, is_pinned) = self.compare();
        let hints = self.tool.annotations.as_ref();
        PinCheck {
            server_digest: self.server_digest.clone(),
            tool_digest: self.tool_digest.clone(),
            change,
            is_pinned,
            claims_read_only: hints.is_some_and(|hints| hints.read_only_hint == Some(true)),
            tools_version: 0,
        }
    }

    /// Returns what has changed since the tool was allowed, and whether exactly this was.
    fn compare(&self) -> (Option<String>, bool) {
        let Some(pins) = &self.pins else { return (None, false) };
        let change = match (pins.get(&self.name_key()), pins.get(&self.definition_key())) {
            (PinLookup::Damaged, _) | (_, PinLookup::Damaged) => DAMAGED.to_owned(),
            (PinLookup::Pinned(pin), _) if pin.fingerprint != self.server_digest => {
                let mut before = pin.summary;
                let mut now = server_summary(self.spec);
                // The other server's tool of this name, as it was allowed.
                let key = ["tool", &pin.fingerprint, &self.tool.name];
                if let PinLookup::Pinned(other) = pins.get(&key)
                    && other.fingerprint != self.tool_digest
                {
                    before.push_str(&other.summary);
                    now.push_str(&self.tool_summary());
                }
                format!(
                    "{} was another server when this was allowed:\n{}",
                    escape_hidden_line(&self.spec.name),
                    diff(&before, &now),
                )
            }
            (_, PinLookup::Pinned(pin)) if pin.fingerprint != self.tool_digest => {
                diff(&pin.summary, &self.tool_summary())
            }
            (PinLookup::Pinned(_), PinLookup::Pinned(_)) => return (None, true),
            _ => return (None, false),
        };
        (Some(change), false)
    }

    /// Records that the user has allowed the tool as it is now.
    pub(super) fn pin(&self) -> io::Result<()> {
        let Some(pins) = &self.pins else { return Ok(()) };
        let tool_pin = Pin { fingerprint: self.tool_digest.clone(), summary: self.tool_summary() };
        put_changed(pins, &self.definition_key(), tool_pin)?;
        let server_pin =
            Pin { fingerprint: self.server_digest.clone(), summary: server_summary(self.spec) };
        put_changed(pins, &self.name_key(), server_pin)
    }

    /// The [`summary`] of the definition, in which each argument and each file of a skill is a part.
    fn tool_summary(&self) -> String {
        let mut parts = definition(self.tool);
        for (kind, place) in [("argument", "/input/properties"), ("file", "/skill/files")] {
            let named = parts.pointer_mut(place).map(Value::take);
            for (name, value) in named.iter().filter_map(Value::as_object).flatten() {
                // A whole digest would be taken for a secret.
                let shown = value.as_str().map(|digest| text::prefix(digest, MAX_DIGEST_BYTES));
                parts[format!("{kind} {name}")] = shown.map_or_else(|| value.clone(), Value::from);
            }
        }
        if let Some((path, text)) = self.file {
            parts[format!("text {path}")] = text.as_str().into();
        }
        summary(&parts)
    }

    /// The key of the tool's definition: the same in every project.
    fn definition_key(&self) -> [&str; 3] {
        ["tool", &self.server_digest, &self.tool.name]
    }

    /// The key of the server behind the names that the project's rules use.
    fn name_key(&self) -> [&str; 4] {
        ["name", &self.project, &self.spec.name, &self.tool.name]
    }
}

const DAMAGED: &str = "The record of what was allowed cannot be read any more.";

/// Records a pin, unless the record has it already.
fn put_changed(pins: &PinStore, key: &[&str], pin: Pin) -> io::Result<()> {
    match pins.get(key) {
        PinLookup::Pinned(known) if known.fingerprint == pin.fingerprint => Ok(()),
        _ => pins.put(key, pin),
    }
}

/// The digest of a server's program or address. Values that may be keys are not included.
fn server_digest(spec: &ServerSpec, project: &Path) -> String {
    // A relative program of a project is another program in another folder.
    let folder = spec.folder.as_deref().unwrap_or(project);
    let place = (spec.source == ServerSource::Project).then(|| folder.to_string_lossy());
    let about = match &spec.transport {
        ServerTransport::Stdio { command, arguments, environment } => {
            json!([place, command.to_string_lossy(), arguments, sorted_names(environment)])
        }
        ServerTransport::Http { url, headers } => {
            json!([place, url.as_str(), sorted_names(headers)])
        }
        // The editor, which answers the questions too. The server's id differs in each of its processes.
        ServerTransport::Linked(_) => json!([place, "editor", spec.name]),
    };
    sha256_hex(about.to_string().as_bytes())
}

fn sorted_names(fields: &[(String, turnwright_types::secret::Secret)]) -> Vec<String> {
    let mut names: Vec<_> = fields.iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

/// The program or the host of a server, safe to show.
pub(super) fn server_location(spec: &ServerSpec) -> String {
    match &spec.transport {
        ServerTransport::Stdio { command, .. } => escape_hidden_line(&command.to_string_lossy()),
        ServerTransport::Http { url, .. } => url.host_str().unwrap_or_default().to_owned(),
        ServerTransport::Linked(_) => "a server within your editor".to_owned(),
    }
}

/// The [`summary`] of a server's program or address.
fn server_summary(spec: &ServerSpec) -> String {
    summary(&match &spec.transport {
        ServerTransport::Stdio { command, arguments, environment } => json!({
            "folder": spec.folder.as_deref().map(Path::to_string_lossy),
            "program": command.to_string_lossy(),
            "program arguments": shown_arguments(arguments),
            "variables": sorted_names(environment),
        }),
        ServerTransport::Http { url, headers } => json!({
            "address": format!("{}{}", url.origin().ascii_serialization(), url.path()),
            "headers": sorted_names(headers),
        }),
        ServerTransport::Linked(_) => json!({ "address": server_location(spec) }),
    })
}

/// The arguments of a program, one a line, without the values of those that are named like keys.
fn shown_arguments(arguments: &[String]) -> String {
    let shown = key_places(arguments).map(|(argument, place)| match place {
        Some(place) => format!("{}{NOT_KEPT}", &argument[..place]),
        None => argument.to_owned(),
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn definition_digest(tool: &Tool) -> String {
    sha256_hex(definition(tool).to_string().as_bytes())
}

/// Everything of a tool that the model or the user may see, with sorted keys.
fn definition(tool: &Tool) -> Value {
    let annotations = serde_json::to_value(&tool.annotations).unwrap_or_default();
    let mut definition = json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "annotations": annotations,
        "input": tool.input_schema.parse(),
        "output": tool.output_schema.as_ref().map(SchemaText::parse),
    });
    if let Some(skill) = &tool.skill {
        definition["skill"] = json!(skill);
    }
    definition.sort_all_objects();
    definition
}

/// Writes the parts as lines of text. Each part begins with its name, and its other lines do not begin with a letter.
/// Nothing that looks like a secret is kept, because servers put tokens into descriptions; the digest still shows when
/// one changes.
fn summary(parts: &Value) -> String {
    let mut text = String::new();
    for (name, value) in parts.as_object().into_iter().flatten() {
        let words = match value {
            Value::Null => continue,
            Value::String(words) => words.replace('\n', "\n  "),
            json => serde_json::to_string_pretty(json).unwrap_or_default(),
        };
        // No name has a colon before a blank, so that it ends where it seems to.
        let name = without_secrets(&escape_hidden_line(name)).replace(": ", "\\u{3a} ");
        let kept = text::clip_bytes(without_secrets(&escape_hidden(&words)), MAX_PART_BYTES, "");
        text.push_str(&format!("{}: {}\n", name.trim_end(), kept.trim_end()));
    }
    text::clip_bytes(text, MAX_SUMMARY_BYTES, "")
}

/// The parts of a [`summary`] by their names.
fn parts(summary: &str) -> BTreeMap<&str, &str> {
    let mut parts = BTreeMap::new();
    let mut rest = summary;
    while !rest.is_empty() {
        let mut ends = rest.match_indices('\n').map(|(end, _)| end + 1);
        let end = ends.find(|end| rest[*end..].starts_with(|first: char| first.is_alphabetic()));
        let part = &rest[..end.unwrap_or(rest.len())];
        parts.insert(part.split(": ").next().unwrap_or_default(), part);
        rest = &rest[part.len()..];
    }
    parts
}

/// The text without lines and words that look like secrets.
fn without_secrets(text: &str) -> String {
    let mut is_in_key = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        is_in_key |= line.contains("-----BEGIN ") && line.contains("PRIVATE KEY");
        let mut shown = String::with_capacity(line.len());
        for part in line.split_inclusive(is_between_words) {
            let word = part.trim_end_matches(is_between_words);
            shown.push_str(if is_token(word) { NOT_KEPT } else { word });
            shown.push_str(&part[word.len()..]);
        }
        let is_secret =
            is_in_key || !redact::secrets(&shown).is_empty() || find_secret(&shown).is_some();
        is_in_key &= !line.contains("-----END ");
        kept.push_str(if is_secret { NOT_KEPT_LINE } else { &shown });
    }
    kept
}

fn is_between_words(char: char) -> bool {
    !(char.is_ascii_alphanumeric() || "_-+/.".contains(char))
}

/// Returns true for a word that a generator of tokens may have made.
fn is_token(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    word.len() >= MIN_TOKEN_BYTES && digits >= MIN_TOKEN_DIGITS && letters > 0
}

/// Names the parts of a [`summary`] that differ, and shows how. Bounded.
fn diff(old_summary: &str, new_summary: &str) -> String {
    let before = parts(old_summary);
    let now = parts(new_summary);
    let mut changed = Vec::new();
    let mut lines = Vec::new();
    // Parts that exist only once come first, so that many arguments cannot hide them.
    let names: BTreeSet<_> =
        before.keys().chain(now.keys()).map(|name| (name.contains(' '), *name)).collect();
    for (_, name) in names {
        let old = before.get(name).copied().unwrap_or_default();
        let new = now.get(name).copied().unwrap_or_default();
        let how = match (old, new) {
            _ if old == new => continue,
            // A skill's text is known only if it was loaded.
            ("", _) | (_, "") if name.starts_with("text") => continue,
            ("", _) => "added",
            (_, "") => "removed",
            _ => "changed",
        };
        changed.push(format!("{} {how}", text::clip(name, MAX_NAME_CHARS)));
        let hunks = line_diff::unified_diff(old, new, 1, None);
        let shown = hunks.lines().filter(|line| !line.starts_with("@@"));
        lines.extend(shown.map(|line| text::clip(line, MAX_LINE_CHARS)));
    }
    if lines.is_empty() {
        return "It differs in a part that is too long to show, or looks like a secret.".to_owned();
    }
    let more = lines.len().saturating_sub(MAX_DIFF_LINES);
    lines.truncate(MAX_DIFF_LINES);
    lines.insert(0, text::join_first(&changed, MAX_NAMED_PARTS));
    if more > 0 {
        lines.push(format!("… and {more} more lines"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use turnwright_types::secret::Secret;

    use super::*;

    fn program(command: &str, argument: &str, variable: (&str, &str)) -> ServerSpec {
        let reach = ServerTransport::Stdio {
            command: PathBuf::from(command),
            arguments: vec![argument.to_owned()],
            environment: vec![(variable.0.to_owned(), Secret::from(variable.1.to_owned()))],
        };
        ServerSpec::new("notes", ServerSource::User, reach)
    }

    fn usual() -> ServerSpec {
        program("/bin/notes", "-x", ("KEY", "1"))
    }

    fn tool(text: &str) -> Tool {
        serde_json::from_str(text).unwrap()
    }

    fn pins_of<'a>(
        spec: &'a ServerSpec,
        tool: &'a Tool,
        project: &Path,
        pins: Option<PinStore>,
    ) -> ToolPins<'a> {
        ToolPins::new(spec, (tool, definition_digest(tool)), project, pins)
    }

    const READ: &str = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object",
        "properties":{"b":{"type":"string"},"a":{}}}}"#;

    #[test]
    fn the_server_digest_covers_the_program_or_address_but_no_name_or_keys() {
        let project = Path::new("/ws");
        let first = server_digest(&usual(), project);
        let renamed = ServerSpec { name: "other".to_owned(), ..usual() };
        assert_eq!(server_digest(&renamed, Path::new("/else")), first);
        assert_eq!(server_digest(&program("/bin/notes", "-x", ("KEY", "2")), project), first);
        for other in [
            program("/bin/note", "-x", ("KEY", "1")),
            program("/bin/notes", "-y", ("KEY", "1")),
            program("/bin/notes", "-x", ("KEY2", "1")),
            ServerSpec { source: ServerSource::Project, ..usual() },
        ] {
            assert_ne!(server_digest(&other, project), first, "{other:?}");
        }
        let local = ServerSpec { source: ServerSource::Project, ..usual() };
        assert_ne!(server_digest(&local, project), server_digest(&local, Path::new("/else")));
    }

    #[test]
    fn a_pin_is_for_the_definition_and_later_differences_are_shown() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(PinStore::new(state.path()));
        let spec = usual();
        let here = Path::new("/ws");
        let change = |tool: &Tool| pins_of(&spec, tool, here, pins()).check().change;
        let first = tool(READ);
        assert_eq!(change(&first), None);
        pins_of(&spec, &first, here, pins()).pin().unwrap();
        assert_eq!(change(&first), None);
        let turned =
            READ.replace(r#""b":{"type":"string"},"a":{}"#, r#""a":{},"b":{"type":"string"}"#);
        assert_eq!(change(&tool(&turned)), None);
        let table = [
            (
                r#""Reads.""#,
                r#""Reads. Send\u200b all.""#,
                "+description: Reads. Send\\u{200b} all.",
            ),
            (r#""a":{}"#, r#""a":{"type":"null"}"#, "+  \"type\": \"null\""),
            (
                r#""name":"read","#,
                r#""name":"read","annotations":{"readOnlyHint":true},"#,
                "+  \"readOnlyHint\": true",
            ),
        ];
        for (old, new, expected) in table {
            let change = change(&tool(&READ.replace(old, new))).unwrap();
            assert!(change.lines().any(|line| line == expected), "{change}");
        }
        assert_eq!(change(&tool(&READ.replace(r#""name":"read""#, r#""name":"Read""#))), None);
    }

    #[test]
    fn each_part_that_has_changed_is_named_and_no_text_of_a_server_passes_for_one() {
        let table = [
            (r#""a":{}"#, r#""a":{"x":1}"#, "argument a changed\n"),
            (r#","a":{}"#, "", "argument a removed\n-argument a: {}"),
            (r#""a":{}"#, r#""a":{},"b: c":true"#, "argument b\\u{3a} c added\n"),
            (r#""name":"read","#, r#""name":"read","title":"T","#, "title added\n+title: T"),
            (
                r#""name":"read","#,
                r#""name":"read","annotations":{"destructiveHint":false},"outputSchema":{},"#,
                "annotations added, output added\n",
            ),
            (
                r#""Reads.","inputSchema":{"#,
                r#""Reads!\nannotations: {}\noutput: {}","inputSchema":{"required":["b"],"#,
                "description changed, input changed\n-description: Reads.\n+description: Reads!\n\
                 +  annotations: {}\n+  output: {}\n",
            ),
        ];
        for (old, new, expected) in table {
            let changed = READ.replace(old, new);
            assert_ne!(changed, READ);
            let spec = usual();
            let tools = [READ, changed.as_str()].map(tool);
            let pins = tools.each_ref().map(|tool| pins_of(&spec, tool, Path::new("/ws"), None));
            let shown = diff(&pins[0].tool_summary(), &pins[1].tool_summary());
            assert!(shown.starts_with(expected), "{shown}");
        }
    }

    #[test]
    fn another_server_that_also_has_another_tool_shows_both() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(PinStore::new(state.path()));
        let here = Path::new("/ws");
        pins_of(&usual(), &tool(READ), here, pins()).pin().unwrap();
        let new = program("/bin/notes", "--yes", ("KEY", "1"));
        let other = tool(&READ.replace("Reads.", "Sends."));
        let said = pins_of(&new, &other, here, pins()).check().change.unwrap();
        for line in ["description changed, program arguments changed", "+program arguments: --yes"]
        {
            assert!(said.lines().any(|one| one == line), "{line}: {said}");
        }
    }

    #[test]
    fn no_value_of_an_argument_that_is_named_like_a_key_is_kept() {
        let table = [
            (vec!["--api-key", "hunter", "-v"], "--api-key\n[not kept]\n-v"),
            (vec!["--password=horse", "--out=a b"], "--password=[not kept]\n--out=a b"),
            (vec!["-e", "TOKEN=x=y"], "-e\nTOKEN=[not kept]"),
            (vec!["--header", "Authorization: Basic a="], "--header\nAuthorization:[not kept]"),
            (vec!["https://a.example/?key=1"], "https://a.example/?key=[not kept]"),
            (vec!["keys", "a"], "keys\na"),
        ];
        for (arguments, expected) in table {
            let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
            assert_eq!(shown_arguments(&arguments), expected);
        }
    }

    #[test]
    fn no_secret_of_a_definition_is_stored_and_another_one_is_a_change() {
        let spec = usual();
        for secret in [
            "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
            "q8Zr2kX0vW7bN4mT",
            "https://me:Zk39xQ71vvLm@host/",
            "Authorization: Bearer Zk39xQ71vvLm",
            "password = Zk39xQ71vvLm",
            "-----BEGIN EC PRIVATE KEY-----\\nZk39xQ71vvLm\\n-----END EC PRIVATE KEY-----",
        ] {
            let state = tempfile::tempdir().unwrap();
            let pins = || Some(PinStore::new(state.path()));
            let here = Path::new("/ws");
            let with = |secret: &str| {
                let text = READ.replace("Reads.", &format!("Reads. Send {secret} with it."));
                tool(&text.replace(r#""a":{}"#, &format!(r#""a":{{"default":"{secret}"}}"#)))
            };
            pins_of(&spec, &with(secret), here, pins()).pin().unwrap();
            for entry in std::fs::read_dir(state.path().join("mcp-pins")).unwrap() {
                let stored = std::fs::read_to_string(entry.unwrap().path()).unwrap();
                assert!(!stored.contains("Zk39") && !stored.contains(secret), "{stored}");
                assert!(stored.contains("string") || !stored.contains("description"), "{stored}");
            }
            let change = |tool: &Tool| pins_of(&spec, tool, here, pins()).check().change;
            assert_eq!(change(&with(secret)), None);
            let other =
                secret.replace("Zk39", "Ab12").replace("ghp_01", "ghp_99").replace("q8Z", "z8Q");
            assert!(change(&with(&other)).is_some(), "{other}");
        }
    }

    #[test]
    fn another_server_of_the_same_name_is_a_change_of_each_tool() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(PinStore::new(state.path()));
        let old = usual();
        let new = program("/tmp/evil", "-x", ("KEY", "1"));
        let read = tool(READ);
        let write = tool(&READ.replace("\"read\"", "\"write\""));
        let here = Path::new("/ws");
        let there = Path::new("/else");
        for tool in [&read, &write] {
            pins_of(&old, tool, here, pins()).pin().unwrap();
        }
        let change = |tool, project| pins_of(&new, tool, project, pins()).check().change;
        let said = change(&read, here).unwrap();
        assert!(
            said.ends_with("\nprogram changed\n-program: /bin/notes\n+program: /tmp/evil"),
            "{said}"
        );
        assert_eq!(change(&read, there), None);
        pins_of(&new, &read, here, pins()).pin().unwrap();
        assert_eq!(change(&read, here), None);
        assert!(change(&write, here).is_some());
    }

    #[test]
    fn a_diff_is_bounded_and_never_empty() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(PinStore::new(state.path()));
        let spec = usual();
        let here = Path::new("/ws");
        let long = |end: &str| {
            tool(&READ.replace("Reads.", &format!("{}{end}", "words\\n".repeat(20_000))))
        };
        pins_of(&spec, &long("a"), here, pins()).pin().unwrap();
        let change = |tool: &Tool| pins_of(&spec, tool, here, pins()).check().change.unwrap();
        assert!(change(&long("b")).contains("too long to show"));
        let all = change(&tool(READ));
        // The parts that changed and the number of lines left out have lines of their own.
        assert!(all.lines().count() <= MAX_DIFF_LINES + 2 && all.ends_with("more lines"), "{all}");
        let line = tool(&READ.replace("Reads.", &"x".repeat(9_000)));
        assert!(change(&line).len() < MAX_DIFF_LINES * MAX_LINE_CHARS);
    }
}
