//! Tests of how arguments that models send are parsed and repaired.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::tools::exec::Exec;
use crate::tools::{CallPlan, CallSite, ToolAnswer, ToolCtx};
use turnwright_policy::permission::Pass;
use turnwright_types::effect::{CallView, ToolKind};

/// Change a file.
#[derive(Debug, Deserialize, JsonSchema)]
struct SampleArgs {
    /// Which
    path: String,
    /// How
    edits: Vec<SampleEdit>,
    /// How often
    #[serde(alias = "repeat")]
    times: Option<u8>,
    /// Or not
    #[serde(default)]
    dry: bool,
    /// Labels
    #[serde(default)]
    tags: Vec<String>,
    /// In which way
    #[serde(default)]
    mode: SampleMode,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct SampleEdit {
    /// Before
    #[serde(alias = "gone")]
    old_string: String,
    /// After
    #[serde(default)]
    new_string: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SampleMode {
    #[default]
    Careful,
    QuickAndDirty,
}

impl Tool for SampleArgs {
    const NAME: &'static str = "edit";
    const KIND: ToolKind = ToolKind::Edit;
    const PENDING_TITLE: &'static str = "Edit";
    type Preview = ();

    fn plan(&mut self, _: &mut CallSite<'_>) -> CallPlan {
        let title = Self::PENDING_TITLE.to_owned();
        CallPlan::in_session(CallView::new(title, Self::KIND))
    }

    async fn run(self, (): (), _: &Pass, _: &ToolCtx) -> ToolAnswer {
        Err("It never runs.".into())
    }
}

/// Renders the parsed arguments in a few words.
fn describe_parsed(args: Value) -> String {
    match parse_arguments::<SampleArgs>(args) {
        Ok((args, ignored)) => {
            let edits: Vec<_> = args
                .edits
                .iter()
                .map(|edit| format!("{}>{}", edit.old_string, edit.new_string))
                .collect();
            let mut text = format!("{} {}", args.path, edits.join(","));
            if let Some(times) = args.times {
                text.push_str(&format!(" ×{times}"));
            }
            if args.dry {
                text.push_str(" dry");
            }
            for tag in args.tags {
                text.push_str(&format!(" #{tag}"));
            }
            if matches!(args.mode, SampleMode::QuickAndDirty) {
                text.push_str(" quick");
            }
            for name in ignored {
                text.push_str(&format!(" -{name}"));
            }
            text
        }
        Err(error) => error.for_model,
    }
}

#[test]
fn harmless_mistakes_are_repaired() {
    let edits = json!([{ "old_string": "x", "new_string": "y" }]);
    for (arguments, expected) in [
        (json!({ "path": "a", "edits": edits }), "a x>y"),
        // Wrong types of values.
        (json!({ "path": "a", "edits": edits, "times": "3", "dry": "true" }), "a x>y ×3 dry"),
        (json!({ "path": "a", "edits": edits, "times": 3.0, "tags": "t" }), "a x>y ×3 #t"),
        (
            json!({ "path": "a", "edits": edits, "times": " 3.0 ", "tags": "[\"t\",5]" }),
            "a x>y ×3 #t #5",
        ),
        (json!({ "path": "a", "edits": edits.to_string(), "mode": null, "dry": null }), "a x>y"),
        (
            json!({ "path": "a", "edits": edits, "tags": [{ "label": "t", "description": "d" }, "u"] }),
            "a x>y #t: d #u",
        ),
        (json!({ "path": "a", "edits": edits[0], "times": "" }), "a x>y"),
        (json!({ "path": "a", "edits": edits[0].to_string() }), "a x>y"),
        (json!({ "path": "a", "edits": [edits[0].to_string()] }), "a x>y"),
        (json!({ "path": "a", "edits": edits, "mode": "Quick-and-dirty" }), "a x>y quick"),
        (json!({ "path": 5, "edits": [] }), "5 "),
        (json!({ "path": ["a"], "edits": edits }), "a x>y"),
        (
            json!({ "path": "a", "edits": [{ "old_string": "x", "new_string": { "b": [] } }] }),
            "a x>{\n  \"b\": []\n}",
        ),
        // Other names.
        (json!({ "file_path": "a", "edits": edits }), "a x>y"),
        (json!({ "filePath": "a", "edits": edits, "repeat": 2 }), "a x>y ×2"),
        (json!({ "path": "a", "edits": [{ "oldString": "x", "newText": "y" }] }), "a x>y"),
        (json!({ "path": "a", "edits": [{ "search": "x", "replace": "y" }] }), "a x>y"),
        (json!({ "file_path": "a", "old_text": "x", "new_text": "y" }), "a x>y"),
        // Unknown arguments are reported.
        (json!({ "path": "a", "edits": edits, "foo": 1, "bar": null }), "a x>y -foo"),
        (json!({ "path": "a", "file": "b", "edits": edits }), "a x>y -file"),
        (json!({ "path": "a", "edits": edits, "timess": 2 }), "a x>y -timess, did you mean times?"),
        (
            json!({ "path": "a", "edits": [{ "old_string": "x", "line": 1 }] }),
            "a x> -edits[0].line",
        ),
    ] {
        assert_eq!(describe_parsed(arguments.clone()), expected, "{arguments}");
    }
}

#[test]
fn ambiguous_arguments_are_rejected() {
    let edits = json!([]);
    for (arguments, problem) in [
        (
            json!({ "file": "a", "file_path": "b", "edits": edits }),
            "`path` is missing, there is file, file_path, edits",
        ),
        (json!({ "edits": edits }), "`path` is missing"),
        (json!({ "path": "a" }), "`edits` is missing, there is path"),
        (json!({}), "`path` is missing, there is nothing"),
        (json!({ "path": ["a", "b"], "edits": edits }), "`path` must be text, not [\"a\",\"b\"]"),
        (
            json!({ "path": "a", "edits": [{ "old_string": { "a": 1 } }] }),
            "`edits[0].old_string` must be text, not {\"a\":1}",
        ),
        (json!({ "path": null, "edits": edits }), "`path` must be text, not null"),
        (json!({ "path": "a", "edits": "x" }), "`edits` must be a list, not \"x\""),
        (
            json!({ "path": "a", "edits": [{ "gone": "x" }], "times": "three" }),
            "`times` must be a whole number",
        ),
        (json!({ "path": "a", "edits": [{}] }), "`edits[0].old_string` is missing"),
        (
            json!({ "path": "a", "edits": edits, "times": "three" }),
            "`times` must be a whole number, not \"three\"",
        ),
        (
            json!({ "path": "a", "edits": edits, "times": 2.5 }),
            "`times` must be a whole number, not 2.5",
        ),
        (
            json!({ "path": "a", "edits": edits, "times": -1 }),
            "`times` must be a whole number ≥ 0, not -1",
        ),
        (
            json!({ "path": "a", "edits": edits, "dry": "yes" }),
            "`dry` must be true or false, not \"yes\"",
        ),
        (
            json!({ "path": "a", "edits": edits, "mode": "fast" }),
            "`mode` must be one of careful, quick_and_dirty, not \"fast\"",
        ),
        (json!({ "path": "a", "edits": edits, "times": 1, "repeat": 2 }), "`times` occurs twice"),
    ] {
        let error = describe_parsed(arguments.clone());
        assert!(error.starts_with("Invalid arguments for edit: "), "{error}");
        assert!(error.contains(problem), "{arguments}: {error}");
        let end = "Nothing was executed. It takes: path (required), edits (required), times, dry, tags, mode.";
        assert!(error.ends_with(end), "{error}");
    }
}

#[test]
fn an_error_quotes_little_of_a_long_value() {
    let long = "é".repeat(1_000_000);
    let error = describe_parsed(json!({ "path": "a", "edits": [], "times": long }));
    assert!(error.len() < 500, "{}", error.len());
}

#[test]
fn numbers_of_lines_are_repaired_only_where_there_are_lines() {
    let sent = json!({ "offset": "2", "limit": "", "other": "3" });
    let lines = json!({ "type": "object", "properties": { "start_line": { "type": "integer" } } });
    let repaired = repair_arguments(sent.clone(), &lines);
    assert_eq!(repaired, json!({ "offset": 2, "other": "3" }));
    // Tools of other servers may expect any type.
    assert_eq!(repair_arguments(sent.clone(), &json!({ "type": "object" })), sent);
}

#[test]
fn everything_that_looks_at_a_command_sees_it_without_its_fence() {
    for sent in [
        json!({ "command": "```sh\r\nls\r\n```" }),
        json!({ "arguments": { "cmd": "```\nls\n```" } }),
    ] {
        assert_eq!(understood::<Exec>(sent.clone()), json!({ "command": "ls" }), "{sent}");
    }
}

#[test]
fn arguments_in_a_wrapper_and_steps_that_are_words_are_understood() {
    let schema = json!({ "type": "object", "required": ["path"], "properties": {
        "path": { "type": "string" },
        "steps": { "type": "array", "items": { "type": "object", "required": ["content"],
            "properties": { "content": { "type": "string" }, "status": { "type": "string" } } } },
    } });
    let expected = json!({ "path": "a", "steps": [{ "content": "one" }] });
    let bare = json!({ "file_path": "a", "steps": ["one"] });
    for sent in [
        bare.clone(),
        json!({ "arguments": bare }),
        json!({ "name": "edit", "parameters": bare }),
        json!({ "input": bare.to_string() }),
        // The same after one repair and after two.
        json!({ "steps": null, "args": { "params": bare } }),
        json!({ "filepath": null, "file_path": "a", "steps": ["one"], "other": null }),
    ] {
        assert_eq!(repair_arguments(sent.clone(), &schema), expected, "{sent}");
    }
    for kept in [
        json!({ "path": "a", "input": { "path": "b" } }),
        json!({ "input": "text" }),
        json!({ "other": 1, "args": { "path": "b" } }),
    ] {
        assert_eq!(repair_arguments(kept.clone(), &schema), kept);
    }
    let open = json!({ "arguments": { "any": 1 } });
    assert_eq!(repair_arguments(open.clone(), &json!({ "type": "object" })), open);
}
