//! Tool calls in the words of Claude Code, which scripts know: names and inputs, and changed inputs back. A call that
//! touches several files is several uses, one a file.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use turnwright_types::update::COMMAND_TOOL;

/// A tool call as the agent knows it.
#[derive(Clone, Copy, Debug)]
pub struct HookedTool<'a> {
    /// The agent's name of the tool.
    pub name: &'a str,
    /// True for the tool of an MCP server, which is called by the same name everywhere.
    pub is_remote: bool,
    pub arguments: &'a Value,
    /// The files that it would read, write or delete, with absolute paths.
    pub files: &'a [TouchedFile],
}

/// A file of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TouchedFile {
    pub path: PathBuf,
    /// True if the call changes or deletes it.
    pub is_changed: bool,
}

/// A use of a tool, as handlers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolUse {
    /// The names that matchers look at: Claude Code's first, which handlers are told, and the agent's own.
    pub names: Vec<String>,
    pub input: Value,
}

/// The agent's tools, with their names in Claude Code.
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

fn names_of(tool: &HookedTool<'_>) -> Vec<String> {
    let row = NAMES.iter().find(|(name, _)| *name == tool.name && !tool.is_remote);
    let known = row.map_or(&[][..], |(_, names)| *names).iter();
    known.copied().chain([tool.name]).map(str::to_owned).collect()
}

/// The first of these arguments that is given, with other names that models use.
fn argument<'a>(arguments: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| arguments.get(name)).filter(|value| !value.is_null())
}

/// An input of the fields that are known.
fn input<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let known = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(known.collect::<Map<_, _>>())
}

impl HookedTool<'_> {
    /// Returns the uses of tools that the call stands for.
    pub fn uses(&self) -> Vec<ToolUse> {
        let names = names_of(self);
        if self.is_remote {
            return vec![ToolUse { names, input: self.arguments.clone() }];
        }
        let changed: Vec<_> = self.files.iter().filter(|file| file.is_changed).collect();
        let touched = match self.name {
            "edit_file" | "apply_patch" | "delete_path" | "move_path" | "write_file" => changed,
            "read_file" => self.files.iter().collect(),
            _ => Vec::new(),
        };
        if touched.is_empty() {
            return vec![ToolUse { names, input: self.input(None) }];
        }
        let uses = touched
            .into_iter()
            .map(|file| ToolUse { names: names.clone(), input: self.input(Some(&file.path)) });
        uses.collect()
    }

    /// The input of the use that concerns this file.
    fn input(&self, file: Option<&Path>) -> Value {
        let get = |names: &[&str]| argument(self.arguments, names).cloned();
        let file_path = file.map(|path| json!(path.to_string_lossy()));
        match self.name {
            COMMAND_TOOL => input([
                ("command", get(&["command", "cmd"])),
                ("description", get(&["description"])),
                ("timeout", self.seconds().map(|seconds| json!(seconds.saturating_mul(1000)))),
                ("run_in_background", get(&["background"])),
            ]),
            "write_file" => input([
                ("file_path", file_path),
                ("content", get(&["content", "contents", "text"])),
            ]),
            "edit_file" | "apply_patch" => {
                let (old, new) = self.passages();
                input([
                    ("file_path", file_path),
                    ("old_string", Some(old.into())),
                    ("new_string", Some(new.into())),
                    ("replace_all", get(&["replace_all", "replaceAll"])),
                ])
            }
            "delete_path" | "move_path" => input([("file_path", file_path)]),
            "read_file" => input([
                ("file_path", file_path),
                ("offset", get(&["start_line", "offset"])),
                ("limit", get(&["limit"])),
            ]),
            "grep" => input([
                ("pattern", get(&["pattern", "query", "regex"])),
                ("path", get(&["path", "directory", "dir"])),
                ("glob", get(&["glob", "include"])),
            ]),
            "find_files" => input([
                ("pattern", get(&["glob", "pattern", "name", "query"])),
                ("path", get(&["path", "directory", "dir"])),
            ]),
            "agent" => input([
                ("description", get(&["description", "title"])),
                ("prompt", get(&["prompt", "task"])),
                ("subagent_type", get(&["type", "subagent_type", "agent"])),
            ]),
            _ => self.arguments.clone(),
        }
    }

    fn seconds(&self) -> Option<u64> {
        self.arguments.get("timeout")?.as_u64()
    }

    /// The texts that the call takes away and puts in, of all places in all files.
    fn passages(&self) -> (String, String) {
        if let Some(patch) = argument(self.arguments, &["patch", "input"]).and_then(Value::as_str) {
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
        (
            texts(&["old_string", "old_text", "old_str", "oldText"]),
            texts(&["new_string", "new_text", "new_str", "newText"]),
        )
    }

    /// The arguments of the call with the input that a handler has put in place of that of a use.
    ///
    /// # Errors
    /// Why there are none, as a phrase.
    pub fn updated_arguments(&self, of: &ToolUse, updated: &Value) -> Result<Value, String> {
        if self.is_remote {
            return Ok(updated.clone());
        }
        let is_list = self.arguments.get("edits").is_some_and(|edits| !edits.is_null());
        let fields: &[(&str, &str)] = match self.name {
            COMMAND_TOOL => &[("command", "command"), ("description", "description")],
            "write_file" => &[("content", "content")],
            "edit_file" if !is_list => {
                &[("old_string", "old_string"), ("new_string", "new_string")]
            }
            "web_fetch" => &[("url", "url")],
            _ => return Err("the input of this call cannot be changed".to_owned()),
        };
        let names = updated.as_object().into_iter().flat_map(|fields| fields.keys());
        for name in names {
            let is_known = fields.iter().any(|(theirs, _)| theirs == name);
            let is_same = updated.get(name) == of.input.get(name);
            if !is_known && !is_same && !name.starts_with("tw_") {
                return Err(format!("`{name}` cannot be changed"));
            }
        }
        let mut arguments = self.arguments.clone();
        let Some(table) = arguments.as_object_mut() else {
            return Err("the call has no arguments".to_owned());
        };
        for (theirs, ours) in fields {
            if let Some(value) = updated.get(*theirs).filter(|value| value.is_string()) {
                for other in ALIASES.iter().filter(|(name, _)| name == ours) {
                    table.retain(|name, _| !other.1.contains(&name.as_str()));
                }
                table.insert((*ours).to_owned(), value.clone());
            } else if *theirs != "description" {
                return Err(format!("it has no `{theirs}`, which is needed"));
            }
        }
        Ok(arguments)
    }
}

/// Arguments under other names, which a changed one replaces.
const ALIASES: [(&str, &[&str]); 5] = [
    ("command", &["cmd"]),
    ("content", &["contents", "text"]),
    ("old_string", &["old_text", "old_str", "oldText"]),
    ("new_string", &["new_text", "new_str", "newText"]),
    ("url", &["uri", "link"]),
];

/// The result of a call as a handler sees it.
pub fn tool_response(of: &ToolUse, output: &str, raw: &Value, was_cancelled: bool) -> Value {
    match of.names.first().map(String::as_str) {
        Some("Bash") => {
            let printed = raw.get("output").and_then(Value::as_str).unwrap_or(output);
            json!({ "stdout": printed, "stderr": "", "interrupted": was_cancelled })
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

    fn changed(path: &str) -> TouchedFile {
        TouchedFile { path: path.into(), is_changed: true }
    }

    fn tool<'a>(name: &'a str, arguments: &'a Value, files: &'a [TouchedFile]) -> HookedTool<'a> {
        HookedTool { name, is_remote: name.starts_with("mcp__"), arguments, files }
    }

    #[test]
    fn calls_have_the_names_and_inputs_that_scripts_know() {
        let file = [changed("/ws/a.rs")];
        let read = [TouchedFile { path: "/ws/a.rs".into(), is_changed: false }];
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
                &read[..],
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
    fn a_change_of_several_files_is_a_use_for_each() {
        let arguments = json!({ "from": "a", "to": "b" });
        let files = [changed("/ws/a"), changed("/ws/b")];
        let uses = tool("move_path", &arguments, &files).uses();
        let paths: Vec<_> = uses.iter().map(|of| of.input["file_path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/ws/a", "/ws/b"]);
    }

    #[test]
    fn only_what_translates_back_can_be_changed() {
        let file = [changed("/ws/a")];
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
            ("mcp__n__s", json!({ "q": 1 }), json!({ "q": 2 }), Ok(json!({ "q": 2 }))),
        ] {
            let call = tool(name, &arguments, &file);
            let back = call.updated_arguments(&call.uses()[0], &updated);
            assert_eq!(back, expected.map_err(str::to_owned), "{name} {updated}");
        }
    }
}
