//! Translates the names and inputs of tool calls into those of Claude Code, which hook scripts expect, and changed
//! inputs back. A call that touches several files becomes several uses, one for each file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use turnwright_types::update::COMMAND_TOOL;

/// A tool call as the agent knows it.
#[derive(Clone, Debug)]
pub struct HookedTool<'a> {
    /// The agent's name of the tool.
    pub name: &'a str,
    /// True for the tool of an MCP server, whose name is the same for all agents.
    pub is_remote: bool,
    pub arguments: &'a Value,
    /// The absolute paths of the files that the call would write or delete.
    pub changed: Vec<PathBuf>,
    /// The absolute paths of the files that it would read.
    pub read: Vec<PathBuf>,
}

/// A use of a tool, as handlers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// The names that matchers are tested against: Claude Code's, then the agent's own. Handlers are given the first.
    pub names: Vec<String>,
    pub input: Value,
}

/// The agent's tools and their names in Claude Code. All others that change files are an `Edit`.
const NAMES: [(&str, &[&str]); 16] = [
    (COMMAND_TOOL, &["Bash"]),
    ("exec_output", &["BashOutput"]),
    ("edit_file", &["Edit"]),
    ("apply_patch", &["Edit"]),
    ("delete_path", &["Edit"]),
    ("move_path", &["Write"]),
    ("write_file", &["Write"]),
    ("read_file", &["Read"]),
    ("grep", &["Grep"]),
    ("find_files", &["Glob"]),
    ("list_dir", &["LS"]),
    ("web_fetch", &["WebFetch"]),
    ("web_search", &["WebSearch"]),
    ("agent", &["Agent", "Task"]),
    ("ask_user", &["AskUserQuestion"]),
    ("plan", &["TodoWrite"]),
];

/// Returns the names of the tools that Claude Code has as well, those that they have there and here.
pub(crate) fn usual_names() -> Vec<String> {
    let names = NAMES.iter().flat_map(|(name, names)| names.iter().chain([name]));
    names.map(|name| (*name).to_owned()).collect()
}

fn names_of(tool: &HookedTool<'_>) -> Vec<String> {
    let row = NAMES.iter().find(|(name, _)| *name == tool.name && !tool.is_remote);
    let is_input = tool.name == "exec_output" && argument(tool.arguments, &["input"]).is_some();
    let known: &[&str] = match row {
        // Input to a running shell counts as a command.
        _ if is_input => &["Bash", "BashOutput"],
        Some(row) => row.1,
        None if tool.changed.is_empty() => &[],
        None => &["Edit"],
    };
    known.iter().copied().chain([tool.name]).map(str::to_owned).collect()
}

/// A field of an input, with the names of the argument it represents: the agent's own, then others that models use.
type FieldRow = (&'static str, &'static [&'static str]);

const OLD_STRING: FieldRow = ("old_string", &["old_string", "old_text", "old_str", "oldText"]);
const NEW_STRING: FieldRow = ("new_string", &["new_string", "new_text", "new_str", "newText"]);
const PATCH: &[&str] = &["patch", "input"];
const PATH: FieldRow = ("path", &["path", "directory", "dir"]);
/// The fields that handlers may change. A changed input must contain all of the tool's except the description.
const CHANGEABLE: [&str; 6] =
    ["command", "content", "old_string", "new_string", "url", DESCRIPTION];
const DESCRIPTION: &str = "description";

/// Returns the input fields of a tool except the file and the time limit; `None` if the arguments are used unchanged.
fn fields_of(tool: &str) -> Option<&'static [FieldRow]> {
    let rows: &[FieldRow] = match tool {
        COMMAND_TOOL => &[
            ("command", &["command", "cmd"]),
            (DESCRIPTION, &[DESCRIPTION]),
            ("run_in_background", &["background"]),
        ],
        "exec_output" => &[("bash_id", &["id", "job"]), ("command", &["input"])],
        "write_file" => &[("content", &["content", "contents", "text"])],
        "edit_file" => &[OLD_STRING, NEW_STRING, ("replace_all", &["replace_all", "replaceAll"])],
        "apply_patch" | "delete_path" | "move_path" => &[],
        "read_file" => &[("offset", &["start_line", "offset"]), ("limit", &["limit"])],
        "grep" => {
            &[("pattern", &["pattern", "query", "regex"]), PATH, ("glob", &["glob", "include"])]
        }
        "find_files" => &[("pattern", &["glob", "pattern", "name", "query"]), PATH],
        "web_fetch" => &[("url", &["url", "uri", "link"])],
        "web_search" => &[("query", &["query", "q", "search_query"])],
        "agent" => &[
            (DESCRIPTION, &[DESCRIPTION, "title"]),
            ("prompt", &["prompt", "task"]),
            ("subagent_type", &["type", "subagent_type", "agent"]),
        ],
        _ => return None,
    };
    Some(rows)
}

/// Returns the first of these arguments that is present and not null.
fn argument<'a>(arguments: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| arguments.get(name).filter(|value| !value.is_null()))
}

impl HookedTool<'_> {
    /// Returns the tool uses that the call corresponds to.
    pub fn uses(&self) -> Vec<ToolUse> {
        let names = names_of(self);
        let touched = match self.name {
            "read_file" => &self.read[..],
            COMMAND_TOOL => &[],
            _ if self.is_remote => &[],
            _ => &self.changed[..],
        };
        if touched.is_empty() {
            return vec![ToolUse { names, input: self.input(None) }];
        }
        let uses = touched.iter().map(|file| {
            let mut of = ToolUse { names: names.clone(), input: self.input(Some(file)) };
            if self.adds(file) {
                of.names.insert(0, "Write".to_owned());
                of.input["content"] = of.input["new_string"].clone();
            }
            of
        });
        uses.collect()
    }

    /// Returns true if the call is a patch that makes this file.
    fn adds(&self, file: &Path) -> bool {
        let patch = argument(self.arguments, PATCH).and_then(Value::as_str).unwrap_or_default();
        let is_below = |mark: &str| {
            let mut names = patch.lines().filter_map(|line| line.strip_prefix(mark));
            names.any(|name| file.ends_with(name.trim().trim_start_matches("./")))
        };
        is_below("*** Add File:") && !is_below("*** Update File:")
    }

    /// Returns the input of the use for this file.
    fn input(&self, file: Option<&Path>) -> Value {
        let rows = fields_of(self.name);
        let mut input = match (rows, self.arguments) {
            (None, Value::Object(arguments)) => arguments.clone(),
            _ => Map::new(),
        };
        if let Some(path) = file {
            input.insert("file_path".to_owned(), json!(path.to_string_lossy()));
        }
        for (name, names) in rows.unwrap_or_default() {
            if let Some(value) = argument(self.arguments, names) {
                input.insert((*name).to_owned(), value.clone());
            }
        }
        if matches!(self.name, "edit_file" | "apply_patch") {
            let (old, new) = self.passages();
            input.insert("old_string".to_owned(), old.into());
            input.insert("new_string".to_owned(), new.into());
        }
        let seconds = self.arguments.get("timeout").and_then(Value::as_u64);
        if let (COMMAND_TOOL, Some(seconds)) = (self.name, seconds) {
            input.insert("timeout".to_owned(), json!(seconds.saturating_mul(1000)));
        }
        Value::Object(input)
    }

    /// Returns the texts that the call removes and inserts, joined over all places in all files.
    fn passages(&self) -> (String, String) {
        if let Some(patch) = argument(self.arguments, PATCH).and_then(Value::as_str) {
            let lines = |mark: char| {
                let marked = patch.lines().filter_map(move |line| line.strip_prefix(mark));
                marked.collect::<Vec<_>>().join("\n")
            };
            return (lines('-'), lines('+'));
        }
        let listed = self.arguments.get("edits").and_then(Value::as_array);
        let edits: Vec<_> = listed.into_iter().flatten().chain([self.arguments]).collect();
        let texts = |names: &[&str]| {
            let texts = edits.iter().filter_map(|edit| argument(edit, names)?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        };
        (texts(OLD_STRING.1), texts(NEW_STRING.1))
    }

    /// Returns the arguments of the call with a handler's changed input applied.
    ///
    /// # Errors
    /// Returns the reason, as a phrase, if the change is not possible.
    pub fn updated_arguments(&self, updated: &Value) -> Result<Value, String> {
        let uses = self.uses();
        let [of] = uses.as_slice() else { return Err("it touches several files".to_owned()) };
        if self.is_remote {
            return Ok(updated.clone());
        }
        let is_list = self.arguments.get("edits").is_some_and(|edits| !edits.is_null());
        let rows = fields_of(self.name).filter(|_| !is_list).unwrap_or_default();
        let fields: Vec<_> = rows.iter().filter(|row| CHANGEABLE.contains(&row.0)).collect();
        let mut arguments = self.arguments.clone();
        let Some(table) = arguments.as_object_mut().filter(|_| !fields.is_empty()) else {
            return Err("the input of this call cannot be changed".to_owned());
        };
        for (name, value) in updated.as_object().into_iter().flatten() {
            let is_known = fields.iter().any(|row| row.0 == name);
            let is_same = of.input.get(name) == Some(value);
            if !is_known && !is_same && !name.starts_with("tw_") {
                return Err(format!("`{name}` cannot be changed"));
            }
        }
        for (name, names) in fields {
            if let Some(value) = updated.get(*name).filter(|value| value.is_string()) {
                table.retain(|known, _| !names.contains(&known.as_str()));
                table.insert(names[0].to_owned(), value.clone());
            } else if *name != DESCRIPTION {
                return Err(format!("it has no `{name}`, which is needed"));
            }
        }
        Ok(arguments)
    }
}

/// Returns the result of a call as handlers see it.
pub fn tool_response(of: &ToolUse, output: &str, raw: &Value) -> Value {
    match of.names.first().map(String::as_str) {
        Some("Bash") => {
            let printed = raw.get("output").and_then(Value::as_str).unwrap_or(output);
            json!({ "stdout": printed, "stderr": "", "interrupted": false })
        }
        Some("Edit" | "Write") => {
            json!({ "filePath": of.input.get("file_path"), "success": true, "content": output })
        }
        _ => json!({ "content": output }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool<'a>(name: &'a str, arguments: &'a Value, files: &[&str]) -> HookedTool<'a> {
        let is_remote = name.starts_with("mcp__");
        let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
        let (changed, read) = if name == "read_file" { (vec![], paths) } else { (paths, vec![]) };
        HookedTool { name, is_remote, arguments, changed, read }
    }

    #[test]
    fn calls_have_the_names_and_inputs_that_scripts_know() {
        let file = ["/ws/a.rs"];
        for (name, arguments, files, expected) in [
            (
                "exec",
                json!({ "cmd": "ls", "timeout": 5, "background": true }),
                &[][..],
                json!(["Bash", { "command": "ls", "timeout": 5000, "run_in_background": true }]),
            ),
            (
                "write_file",
                json!({ "path": "a.rs", "text": "x" }),
                &file[..],
                json!(["Write", { "file_path": "/ws/a.rs", "content": "x" }]),
            ),
            (
                "edit_file",
                json!({ "path": "a.rs", "old_str": "x", "new_string": "y" }),
                &file[..],
                json!(["Edit", { "file_path": "/ws/a.rs", "old_string": "x", "new_string": "y" }]),
            ),
            (
                "apply_patch",
                json!({ "patch": "*** Update File: a.rs\n@@\n-x\n+y" }),
                &file[..],
                json!(["Edit", { "file_path": "/ws/a.rs", "old_string": "x", "new_string": "y" }]),
            ),
            (
                "read_file",
                json!({ "path": "a.rs", "start_line": 3 }),
                &file[..],
                json!(["Read", { "file_path": "/ws/a.rs", "offset": 3 }]),
            ),
            ("grep", json!({ "query": "x" }), &[][..], json!(["Grep", { "pattern": "x" }])),
            ("find_files", json!({ "glob": "*" }), &[][..], json!(["Glob", { "pattern": "*" }])),
            (
                "agent",
                json!({ "prompt": "p", "type": "explore" }),
                &[][..],
                json!(["Agent", { "prompt": "p", "subagent_type": "explore" }]),
            ),
            ("mcp__n__s", json!({ "q": 1 }), &[][..], json!(["mcp__n__s", { "q": 1 }])),
            ("remember", json!({ "q": 1 }), &[][..], json!(["remember", { "q": 1 }])),
        ] {
            let uses = tool(name, &arguments, files).uses();
            assert_eq!(uses.len(), 1, "{name}");
            assert_eq!(json!([uses[0].names[0], uses[0].input]), expected, "{name}");
            assert!(uses[0].names.iter().any(|known| known == name), "{name}");
        }
    }

    #[test]
    fn other_tools_that_change_files_edit_them_and_input_for_a_shell_is_a_command() {
        let file = ["/ws/a.rs"];
        let arguments = json!({ "symbol": "a", "new_name": "b" });
        let renames = &tool("rename_symbol", &arguments, &file).uses()[0];
        assert_eq!(renames.names, ["Edit", "rename_symbol"]);
        assert_eq!(
            renames.input,
            json!({ "symbol": "a", "new_name": "b", "file_path": "/ws/a.rs" })
        );
        let arguments = json!({ "id": "p1", "input": "ls\n" });
        let types = &tool("exec_output", &arguments, &[]).uses()[0];
        assert_eq!(types.names, ["Bash", "BashOutput", "exec_output"]);
        assert_eq!(types.input, json!({ "bash_id": "p1", "command": "ls\n" }));
    }

    #[test]
    fn a_change_of_several_files_is_a_use_for_each() {
        let arguments = json!({ "from": "a", "to": "b" });
        let files = ["/ws/a", "/ws/b"];
        let uses = tool("move_path", &arguments, &files).uses();
        let paths: Vec<_> = uses.iter().map(|of| of.input["file_path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/ws/a", "/ws/b"]);
    }

    #[test]
    fn a_file_that_a_patch_adds_is_written() {
        let patch = "*** Begin Patch\n*** Add File: ./doc/a.md\n+x\n*** Update File: b.md\n@@\n-o\n+y\n\
                     *** End Patch";
        let arguments = json!({ "patch": patch });
        let uses = tool("apply_patch", &arguments, &["/ws/doc/a.md", "/ws/b.md"]).uses();
        assert_eq!(uses[0].names, ["Write", "Edit", "apply_patch"]);
        assert_eq!(uses[0].input["file_path"], "/ws/doc/a.md");
        assert_eq!(uses[0].input["content"], "x\ny");
        assert_eq!(uses[1].names, ["Edit", "apply_patch"]);
        assert_eq!(uses[1].input["content"], Value::Null);
    }

    #[test]
    fn only_what_translates_back_can_be_changed() {
        let file = ["/ws/a"];
        for (name, arguments, updated, expected) in [
            (
                "exec",
                json!({ "cmd": "ls", "workdir": "x" }),
                json!({ "command": "ls -l" }),
                Ok(json!({ "workdir": "x", "command": "ls -l" })),
            ),
            (
                "exec",
                json!({ "command": "ls" }),
                json!({}),
                Err("it has no `command`, which is needed"),
            ),
            (
                "exec",
                json!({ "command": "ls" }),
                json!({ "command": "ls", "timeout": 1 }),
                Err("`timeout` cannot be changed"),
            ),
            (
                "write_file",
                json!({ "path": "a", "content": "x" }),
                json!({ "file_path": "/ws/a", "content": "y" }),
                Ok(json!({ "path": "a", "content": "y" })),
            ),
            (
                "write_file",
                json!({ "path": "a", "content": "x" }),
                json!({ "file_path": "/etc/passwd", "content": "y" }),
                Err("`file_path` cannot be changed"),
            ),
            (
                "apply_patch",
                json!({ "patch": "x" }),
                json!({ "new_string": "y" }),
                Err("the input of this call cannot be changed"),
            ),
            (
                "edit_file",
                json!({ "path": "a", "edits": [] }),
                json!({ "old_string": "x", "new_string": "y" }),
                Err("the input of this call cannot be changed"),
            ),
            (
                "web_fetch",
                json!({ "uri": "http://a", "raw": true }),
                json!({ "url": "https://a" }),
                Ok(json!({ "raw": true, "url": "https://a" })),
            ),
            ("mcp__n__s", json!({ "q": 1 }), json!({ "q": 2 }), Ok(json!({ "q": 2 }))),
        ] {
            let call = tool(name, &arguments, &file);
            let back = call.updated_arguments(&updated);
            assert_eq!(back, expected.map_err(str::to_owned), "{name} {updated}");
        }
    }
}
