//! What a tool was when it was said yes to: its words and schemas, and the server behind the name.
//! A yes is for exactly that; what is different later is shown. Blocks: small files are read.

use std::io;
use std::path::Path;

use ring::digest::{SHA256, digest};
use rmcp::model::Tool;
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::spec::{Reach, ServerSpec, Source};
use turnwright_types::effect::{visible, visible_line};
use turnwright_types::ids::hex;
use crate::tools::Bench;
use crate::trust::{Pin, Pinned, Pins};

/// Bytes of a tool's words that are kept to be compared with.
const MOST_KEPT: usize = 12 * 1024;
/// Lines of a difference.
const MOST_LINES: usize = 60;
/// Characters of one.
const LONGEST_LINE: usize = 300;

/// What a tool is now, and what of it is not as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// What identifies the server.
    pub(super) identity: String,
    /// What identifies the words and schemas of the tool.
    pub(super) content: String,
    /// What is different, for people. Several lines; nothing in it is hidden.
    pub(super) change: Option<String>,
    /// Exactly this was said yes to.
    pub(super) is_known: bool,
    /// It says of itself that it only reads.
    pub(super) claims_to_read: bool,
    /// The number of the list that it stands in.
    pub(super) edition: u64,
}

/// What comes of comparing.
enum Compared {
    New,
    Same,
    Other(String),
}

/// A tool of a server in a project.
pub(super) struct Subject<'a> {
    spec: &'a ServerSpec,
    tool: &'a Tool,
    project: String,
    pins: Option<Pins>,
    identity: String,
}

impl Subject<'_> {
    /// The tool as it is called in a session.
    pub(super) fn of<'a>(spec: &'a ServerSpec, tool: &'a Tool, bench: &Bench) -> Subject<'a> {
        let state = &bench.commons.folders.state;
        let pins = state.is_absolute().then(|| Pins::new(state));
        Subject::new(spec, tool, bench.files.roots().real_cwd(), pins)
    }

    fn new<'a>(
        spec: &'a ServerSpec,
        tool: &'a Tool,
        project: &Path,
        pins: Option<Pins>,
    ) -> Subject<'a> {
        let identity = identity(spec, project);
        Subject { spec, tool, project: project.to_string_lossy().into_owned(), pins, identity }
    }

    /// Compares it with what was said yes to.
    pub(super) fn look(&self) -> Look {
        let face = face(self.tool);
        let (identity, content) = (self.identity.clone(), print(&face.to_string()));
        let (change, is_known) = match self.compare(&face, &content) {
            Compared::Other(change) => (Some(change), false),
            Compared::Same => (None, true),
            Compared::New => (None, false),
        };
        let claims = self.tool.annotations.as_ref().and_then(|it| it.read_only_hint);
        let claims_to_read = claims.unwrap_or(false);
        Look { identity, content, change, is_known, claims_to_read, edition: 0 }
    }

    fn compare(&self, face: &Value, content: &str) -> Compared {
        let Some(pins) = &self.pins else { return Compared::New };
        let (place, thing) = (pins.get(&self.place()), pins.get(&self.thing()));
        match (place, thing) {
            (Pinned::Damaged, _) | (_, Pinned::Damaged) => Compared::Other(LOST.to_owned()),
            (Pinned::Known(pin), _) if pin.print != self.identity => Compared::Other(format!(
                "{} was another server when this was allowed:\n-{}\n+{}",
                visible_line(&self.spec.name),
                pin.shown,
                whereabouts(self.spec),
            )),
            (_, Pinned::Known(pin)) if pin.print != content => {
                Compared::Other(difference(&pin.shown, &shown(face)))
            }
            (Pinned::Known(_), Pinned::Known(_)) => Compared::Same,
            _ => Compared::New,
        }
    }

    /// What it is now is what was said yes to.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub(super) fn pin(&self) -> io::Result<()> {
        let Some(pins) = &self.pins else { return Ok(()) };
        let face = face(self.tool);
        let put = |key: &[&str], pin: Pin| match pins.get(key) {
            Pinned::Known(known) if known.print == pin.print => Ok(()),
            _ => pins.put(key, pin),
        };
        put(&self.thing(), Pin { print: print(&face.to_string()), shown: shown(&face) })?;
        put(&self.place(), Pin { print: self.identity.clone(), shown: whereabouts(self.spec) })
    }

    /// The tool, wherever it is called.
    fn thing(&self) -> [&str; 3] {
        ["tool", &self.identity, &self.tool.name]
    }

    /// The names by which rules of the project mean it.
    fn place(&self) -> [&str; 4] {
        ["name", &self.project, &self.spec.name, &self.tool.name]
    }
}

const LOST: &str = "What it was when it was allowed cannot be read any more.";

/// What stands behind a server's name. Values that may be keys have no part in it.
fn identity(spec: &ServerSpec, project: &Path) -> String {
    let names = |them: &[(String, super::spec::Hidden)]| {
        let mut names: Vec<_> = them.iter().map(|it| it.0.clone()).collect();
        names.sort();
        names
    };
    // What a project starts in its own folder is another program in another folder.
    let place = (spec.source == Source::Project).then(|| project.to_string_lossy());
    let about = match &spec.reach {
        Reach::Stdio { command, arguments, environment } => {
            json!([place, command.to_string_lossy(), arguments, names(environment)])
        }
        Reach::Http { url, headers } => json!([place, url.as_str(), names(headers)]),
    };
    print(&about.to_string())
}

/// Where a server runs: a program, or a host.
pub(super) fn whereabouts(spec: &ServerSpec) -> String {
    match &spec.reach {
        Reach::Stdio { command, .. } => visible_line(&command.to_string_lossy()),
        Reach::Http { url, .. } => url.host_str().unwrap_or_default().to_owned(),
    }
}

fn print(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// All that the model or the user may see of a tool, in an order that does not depend on the server.
fn face(tool: &Tool) -> Value {
    let annotations = serde_json::to_value(&tool.annotations).unwrap_or_default();
    sorted(json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "annotations": annotations,
        "input": tool.input_schema.as_ref(),
        "output": tool.output_schema.as_deref(),
    }))
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            let fields = fields.into_iter().map(|(name, value)| (name, sorted(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        plain => plain,
    }
}

/// The same in lines, as far as it is kept.
fn shown(face: &Value) -> String {
    let mut text = String::new();
    for part in ["title", "description"] {
        if let Some(words) = face[part].as_str() {
            text.push_str(&format!("{part}: {}\n", visible(words)));
        }
    }
    for part in ["annotations", "input", "output"] {
        if !face[part].is_null() {
            let json = serde_json::to_string_pretty(&face[part]).unwrap_or_default();
            text.push_str(&format!("{part}: {}\n", visible(&json)));
        }
    }
    let mut end = text.len().min(MOST_KEPT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// What is different between two texts, line by line.
fn difference(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let diff = diff.unified_diff().context_radius(1).to_string();
    let short = |it: &str| match it.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &it[..end]),
        None => it.to_owned(),
    };
    let lines: Vec<_> = diff.lines().filter(|it| !it.starts_with("@@")).collect();
    if lines.is_empty() {
        return "It is different in a part that is too long to be shown.".to_owned();
    }
    let mut text: Vec<_> = lines.iter().take(MOST_LINES).map(|it| short(it)).collect();
    if lines.len() > MOST_LINES {
        text.push(format!("… and {} more lines", lines.len() - MOST_LINES));
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::spec::Hidden;
    use std::path::PathBuf;

    use super::*;

    fn program(command: &str, argument: &str, variable: (&str, &str)) -> ServerSpec {
        let reach = Reach::Stdio {
            command: PathBuf::from(command),
            arguments: vec![argument.to_owned()],
            environment: vec![(variable.0.to_owned(), Hidden::from(variable.1.to_owned()))],
        };
        ServerSpec::new("notes", Source::User, reach)
    }

    fn usual() -> ServerSpec {
        program("/bin/notes", "-x", ("KEY", "1"))
    }

    fn tool(text: &str) -> Tool {
        serde_json::from_str(text).unwrap()
    }

    const READ: &str = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object",
        "properties":{"b":{"type":"string"},"a":{}}}}"#;

    #[test]
    fn a_server_is_known_by_what_is_started_or_asked_and_not_by_its_name_or_its_keys() {
        let project = Path::new("/ws");
        let first = identity(&usual(), project);
        let renamed = ServerSpec { name: "other".to_owned(), ..usual() };
        assert_eq!(identity(&renamed, Path::new("/else")), first);
        assert_eq!(identity(&program("/bin/notes", "-x", ("KEY", "2")), project), first);
        for other in [
            program("/bin/note", "-x", ("KEY", "1")),
            program("/bin/notes", "-y", ("KEY", "1")),
            program("/bin/notes", "-x", ("KEY2", "1")),
            ServerSpec { source: Source::Project, ..usual() },
        ] {
            assert_ne!(identity(&other, project), first, "{other:?}");
        }
        let local = ServerSpec { source: Source::Project, ..usual() };
        assert_ne!(identity(&local, project), identity(&local, Path::new("/else")));
    }

    #[test]
    fn a_yes_is_for_what_the_tool_was_and_what_is_different_is_shown() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(Pins::new(state.path()));
        let (spec, here) = (usual(), Path::new("/ws"));
        let change = |tool: &Tool| Subject::new(&spec, tool, here, pins()).look().change;
        let first = tool(READ);
        assert_eq!(change(&first), None);
        Subject::new(&spec, &first, here, pins()).pin().unwrap();
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
            (r#""a":{}"#, r#""a":{"type":"null"}"#, "+      \"type\": \"null\""),
            (
                r#""name":"read","#,
                r#""name":"read","annotations":{"readOnlyHint":true},"#,
                "+  \"readOnlyHint\": true",
            ),
        ];
        for (old, new, expected) in table {
            let change = change(&tool(&READ.replace(old, new))).unwrap();
            assert!(change.lines().any(|it| it == expected), "{change}");
        }
        assert_eq!(change(&tool(&READ.replace(r#""name":"read""#, r#""name":"Read""#))), None);
    }

    #[test]
    fn another_server_by_the_same_name_is_asked_about_tool_by_tool() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(Pins::new(state.path()));
        let (old, new) = (usual(), program("/tmp/evil", "-x", ("KEY", "1")));
        let (read, write) = (tool(READ), tool(&READ.replace("\"read\"", "\"write\"")));
        let (here, there) = (Path::new("/ws"), Path::new("/else"));
        for it in [&read, &write] {
            Subject::new(&old, it, here, pins()).pin().unwrap();
        }
        let change = |it, project| Subject::new(&new, it, project, pins()).look().change;
        let said = change(&read, here).unwrap();
        assert!(said.ends_with("\n-/bin/notes\n+/tmp/evil"), "{said}");
        assert_eq!(change(&read, there), None);
        Subject::new(&new, &read, here, pins()).pin().unwrap();
        assert_eq!(change(&read, here), None);
        assert!(change(&write, here).is_some());
    }

    #[test]
    fn a_difference_is_bounded_and_never_silent() {
        let state = tempfile::tempdir().unwrap();
        let pins = || Some(Pins::new(state.path()));
        let (spec, here) = (usual(), Path::new("/ws"));
        let long = |end: &str| {
            tool(&READ.replace("Reads.", &format!("{}{end}", "words\\n".repeat(20_000))))
        };
        Subject::new(&spec, &long("a"), here, pins()).pin().unwrap();
        let change = |it: &Tool| Subject::new(&spec, it, here, pins()).look().change.unwrap();
        assert!(change(&long("b")).contains("too long to be shown"));
        let all = change(&tool(READ));
        assert!(all.lines().count() <= MOST_LINES + 1 && all.ends_with("more lines"), "{all}");
        let line = tool(&READ.replace("Reads.", &"x".repeat(9_000)));
        assert!(change(&line).len() < MOST_LINES * LONGEST_LINE);
    }
}
