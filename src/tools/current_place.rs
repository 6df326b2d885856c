//! Shows a model whose edits keep failing the current text at the place.

use serde_json::Value;

use super::ToolEnv;
use super::edit_common;
use turnwright_types::text;
use turnwright_workspace::files::Freshness;

/// The number of lines that are shown before the place, and in all.
const LINES_BEFORE: usize = 5;
const LINES_SHOWN: usize = 40;
const MAX_LINE_CHARS: usize = 300;

/// The file that a call would edit, by its arguments.
pub(crate) fn edited_path(arguments: &Value) -> Option<&str> {
    let mut names = ["path", "file_path", "file"].iter();
    let named = names.find_map(|name| arguments.get(name)?.as_str());
    named.or_else(|| {
        let patch = ["patch", "input"].iter().find_map(|name| arguments.get(name)?.as_str())?;
        patch.lines().find_map(|line| line.strip_prefix("*** Update File: ")).map(str::trim)
    })
}

/// The numbered lines around the place that a call would edit. `None` unless the model has read the
/// file and may read it now.
pub(crate) async fn current_place(env: &ToolEnv, arguments: &Value) -> Option<String> {
    let path = edited_path(arguments)?;
    let target = env.files.resolve(path).await.ok()?;
    let now = env.files.read(&target).await.ok()?;
    let is_known = env.files.freshness(&target, &now).await != Freshness::Unseen;
    if !is_known || !edit_common::may_quote(&env.files, &target, &now).await {
        return None;
    }
    Some(excerpt(&now.text, arguments))
}

/// The lines from shortly before the first one that the arguments quote.
fn excerpt(text: &str, arguments: &Value) -> String {
    let mut quoted = Vec::new();
    quoted_lines(arguments, &mut quoted);
    let lines: Vec<_> = text.lines().collect();
    let place = quoted.iter().find_map(|quote| lines.iter().position(|line| line.trim() == *quote));
    let first = place.unwrap_or(0).saturating_sub(LINES_BEFORE);
    let around = lines.iter().enumerate().skip(first).take(LINES_SHOWN);
    let shown = around.map(|(number, line)| {
        format!("{:>5}| {}", number + 1, text::first_chars(line, MAX_LINE_CHARS))
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The lines of all texts that an edit or a patch may quote, without their marks.
fn quoted_lines<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => {
            let old = text.lines().filter(|line| !line.starts_with(['+', '*', '@']));
            let unmarked = old.map(|line| line.strip_prefix('-').unwrap_or(line).trim());
            found.extend(unmarked.filter(|line| line.len() > 3));
        }
        Value::Array(items) => items.iter().for_each(|item| quoted_lines(item, found)),
        Value::Object(fields) => {
            for (_, field) in fields.iter().filter(|(name, _)| !name.starts_with("new")) {
                quoted_lines(field, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_place_is_found_by_a_line_that_is_there() {
        let lines: Vec<_> = (1..=100).map(|number| format!("    line number {number}\n")).collect();
        let text = lines.concat();
        let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-line number 60\n-gone\n+new";
        for (arguments, path, first) in [
            (json!({ "path": "a", "old_text": "gone\nline number 50" }), Some("a"), 45),
            (json!({ "path": "a", "edits": [{ "old_text": "  line number 7" }] }), Some("a"), 2),
            (json!({ "path": "a", "new_text": "line number 90", "old_text": "no" }), Some("a"), 1),
            (json!({ "patch": patch }), Some("a.txt"), 55),
            (json!({ "x": 1 }), None, 1),
        ] {
            assert_eq!(edited_path(&arguments), path, "{arguments}");
            let shown = excerpt(&text, &arguments);
            let expected = format!("{first:>5}|     line number {first}\n");
            assert!(shown.starts_with(&expected), "{arguments}: {shown}");
            assert_eq!(shown.lines().count(), LINES_SHOWN);
        }
    }
}
