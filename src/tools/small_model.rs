//! The tools of a small model. It fills in every argument that it is offered, and loses its way among many tools, so
//! it is told of few of both; the others are accepted nevertheless.

use serde_json::Value;

use turnwright_types::message::ToolSpec;
use turnwright_types::work_settings::ToolChoice;

/// The largest window, in tokens, in which a model is taken for a small one.
const MOST_TOKENS: u64 = 16_384;
/// The most parameters, in billions, of a small model.
const MOST_BILLIONS: f64 = 9.0;

/// The tools that a small model is offered, as far as others would be.
const TOOLS: &[&str] = &[
    "apply_patch",
    "edit_file",
    "exec",
    "exec_output",
    "exit_plan",
    "find_files",
    "grep",
    "list_dir",
    "move_path",
    "read_file",
    "skill",
    "write_file",
];

/// The arguments that it is not told of.
const LEFT_OUT: &[&str] = &[
    "background",
    "context",
    "description",
    "escalate",
    "files_only",
    "hidden",
    "mode",
    "multiline",
    "offset",
    "show_line_numbers",
    "sort",
    "timeout",
    "workdir",
];

/// The descriptions of tools without what is said of these arguments.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("find_files", "Find files by name. A glob without a slash matches in any folder."),
    ("grep", "Search file contents by regex (ripgrep)."),
    ("write_file", "Create or replace a text file."),
];

/// Returns true if the model is offered few tools with few arguments.
pub(crate) fn is_small(choice: ToolChoice, model: &str, window: Option<u64>) -> bool {
    match choice {
        ToolChoice::All => false,
        ToolChoice::Few => true,
        ToolChoice::Auto => {
            window.is_some_and(|tokens| tokens <= MOST_TOKENS)
                || billions(model).is_some_and(|size| size <= MOST_BILLIONS)
        }
    }
}

/// Returns true if a small model is offered the built-in tool of that name.
pub(super) fn is_offered(tool: &str) -> bool {
    TOOLS.contains(&tool)
}

/// Leaves out of a built-in tool what a small model needs rarely.
pub(super) fn simplify(spec: &mut ToolSpec) {
    let properties = spec.parameters.get_mut("properties").and_then(Value::as_object_mut);
    if let Some(properties) = properties {
        properties.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
    }
    if let Some((_, shorter)) = DESCRIPTIONS.iter().find(|(name, _)| **name == *spec.name) {
        spec.description = (*shorter).to_owned();
    }
}

/// The number of parameters in billions that the name of a model says, such as `30b`; the largest one if it says
/// several, because a mixture of experts also names the active ones. `8x7b` is a product.
fn billions(model: &str) -> Option<f64> {
    let words = model.split(|char: char| !char.is_ascii_alphanumeric() && char != '.');
    words.filter_map(size_of_word).max_by(f64::total_cmp)
}

/// The number that ends a word before a `b`.
fn size_of_word(word: &str) -> Option<f64> {
    let digits = word.strip_suffix(['b', 'B'])?;
    let start = digits.rfind(|char: char| !char.is_ascii_digit() && char != '.');
    let number = start.map_or(digits, |at| &digits[at + 1..]);
    let size: f64 = number.parse().ok()?;
    let before = &digits[..digits.len() - number.len()];
    let experts = before.strip_suffix(['x', 'X']).and_then(|count| count.parse::<f64>().ok());
    Some(size * experts.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_small_model_is_known_by_its_name_or_its_window_unless_the_settings_say() {
        for (model, window, expected) in [
            ("qwen2.5-coder-1.5b", None, true),
            ("qwen2.5-coder:7b-instruct-q4_K_M", Some(32_768), true),
            ("Llama-3.1-8B-Instruct", Some(131_072), true),
            ("unsloth/gemma-3n-E4B-it", None, true),
            ("qwen3-30b-a3b", Some(32_768), false),
            ("qwen3-coder-30b", Some(8_192), true),
            ("mixtral-8x7b", None, false),
            ("gpt-5-mini", Some(400_000), false),
            ("gpt-5-mini", Some(16_384), true),
            ("bitnet-1.58bit", None, false),
            ("scripted", None, false),
            ("b", None, false),
            ("é7b", None, true),
        ] {
            assert_eq!(is_small(ToolChoice::Auto, model, window), expected, "{model} {window:?}");
            assert!(!is_small(ToolChoice::All, model, window));
            assert!(is_small(ToolChoice::Few, model, window));
        }
    }

    #[test]
    fn what_is_rarely_needed_is_left_out_of_a_schema() {
        let string = json!({ "type": "string" });
        let mut spec = ToolSpec {
            name: "write_file".into(),
            description: "Create, replace or append to a text file.".to_owned(),
            parameters: json!({ "type": "object", "required": ["path"],
                "properties": { "path": string, "mode": string } }),
        };
        simplify(&mut spec);
        assert_eq!(spec.description, "Create or replace a text file.");
        assert_eq!(spec.parameters["properties"], json!({ "path": string }));
    }
}
