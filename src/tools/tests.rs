//! Tests of all built-in tools: their schemas and names as the model sees them.

use std::collections::HashSet;

use expect_test::expect_file;
use serde_json::{Value, json};

use std::sync::Arc;

use super::{
    OfferContext, Tool, ToolIndex, Toolbox, agent, apply_patch, arguments, ask_user, built_in,
    delete_path, edit_file, exec, exec_output, exit_plan, find_files, grep, history, list_dir,
    memory, move_path, plan, read_file, registry, rename_symbol, skill, symbols, web_fetch,
    web_search, write_file,
};

fn toolbox() -> Toolbox {
    Toolbox::new(Arc::new(ToolIndex::new(built_in())))
}

/// The context in which all tools are advertised.
fn full_context() -> OfferContext {
    OfferContext {
        prefers_patches: true,
        skills: vec!["release-notes".to_owned()],
        is_planning: true,
        helpers: Some(Arc::default()),
        has_search: true,
        is_alone: false,
        can_find_symbols: true,
        is_small: false,
    }
}

/// Calls `visit` for each schema of a tool's arguments, with its path.
fn walk(schema: &Value, place: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(place, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{place}.{name}"), visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{place}[]"), visit);
    }
}

fn each(mut visit: impl FnMut(&str, &Value)) {
    for tool in built_in() {
        let Some(spec) = tool.spec(&full_context()) else { panic!("{tool:?} is never offered") };
        walk(&spec.parameters, &spec.name, &mut visit);
    }
}

/// `UPDATE_EXPECT=1 cargo test --lib specs` writes the file after a change of an argument.
#[test]
fn the_specs_in_the_file_are_those_of_the_argument_types() {
    fn line<T: Tool>() -> String {
        format!("{:?}:{}", T::NAME, arguments::derive_spec::<T>())
    }
    let lines = [
        line::<agent::Agent>(),
        line::<apply_patch::ApplyPatch>(),
        line::<ask_user::AskUser>(),
        line::<symbols::Definition>(),
        line::<delete_path::DeletePath>(),
        line::<edit_file::EditFile>(),
        line::<exec::Exec>(),
        line::<exec_output::ExecOutput>(),
        line::<exit_plan::ExitPlan>(),
        line::<find_files::FindFiles>(),
        line::<grep::Grep>(),
        line::<history::History>(),
        line::<list_dir::ListDir>(),
        line::<skill::LoadSkill>(),
        line::<memory::Memory>(),
        line::<move_path::MovePath>(),
        line::<plan::Plan>(),
        line::<read_file::ReadFile>(),
        line::<symbols::References>(),
        line::<rename_symbol::RenameSymbol>(),
        line::<registry::ToolSearchCall>(),
        line::<web_fetch::WebFetch>(),
        line::<web_search::WebSearch>(),
        line::<write_file::WriteFile>(),
    ];
    let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
    for tool in built_in() {
        assert!(text.contains(&format!("\n{:?}:", tool.name())), "{tool:?} is not listed here");
    }
    expect_file!["arguments/specs.json"].assert_eq(&text);
}

#[test]
fn schemas_hold_nothing_that_strict_servers_refuse() {
    let known: HashSet<_> =
        ["type", "description", "properties", "required", "items", "enum"].into();
    let mut seen = 0;
    each(|place, schema| {
        seen += 1;
        for key in schema.as_object().unwrap().keys() {
            assert!(known.contains(key.as_str()), "{place} has `{key}`: {schema}");
        }
        assert!(schema["type"].is_string(), "{place} has no single type: {schema}");
    });
    assert!(seen > 15, "the walk has seen only {seen} schemas");
}

#[test]
fn descriptions_are_short() {
    each(|place, schema| {
        // An argument whose name and type say everything needs none.
        let Some(description) = schema["description"].as_str() else { return };
        let words = description.split_whitespace().count();
        assert!((1..=16).contains(&words), "{place}: {description:?}");
        assert!(!description.contains('\n'), "{place}: {description:?}");
    });
}

#[test]
fn what_is_required_exists_and_objects_say_what_they_hold() {
    each(|place, schema| {
        if schema["type"] != "object" {
            assert!(schema["properties"].is_null(), "{place}: {schema}");
            return;
        }
        assert!(schema["properties"].is_object(), "{place}: {schema}");
        for name in schema["required"].as_array().into_iter().flatten() {
            let name = name.as_str().unwrap();
            assert!(schema["properties"][name].is_object(), "{place}: {name} is not there");
        }
    });
}

#[test]
fn names_are_unique_and_descriptions_are_there() {
    let mut names = HashSet::new();
    for tool in built_in() {
        let Some(spec) = tool.spec(&full_context()) else { panic!("{tool:?} is never offered") };
        assert_eq!(spec.name, tool.name());
        assert!(names.insert(spec.name.clone()), "{} is there twice", spec.name);
        let fits = |char: char| char.is_ascii_lowercase() || char == '_';
        assert!(spec.name.chars().all(fits), "{}", spec.name);
        assert!(spec.description.len() > 30, "{}: {}", spec.name, spec.description);
        assert!(!spec.description.contains('\n'), "{}: {}", spec.name, spec.description);
    }
}

#[test]
fn the_arguments_that_models_are_used_to_are_all_there() {
    let arguments = |name: &str| {
        let spec = toolbox().find(name).unwrap().spec(&full_context()).unwrap();
        spec.parameters["properties"].as_object().unwrap().clone()
    };
    for (tool, name, json_type) in [
        ("read_file", "path", "string"),
        ("read_file", "paths", "array"),
        ("read_file", "start_line", "integer"),
        ("read_file", "end_line", "integer"),
        ("read_file", "show_line_numbers", "boolean"),
        ("write_file", "path", "string"),
        ("write_file", "content", "string"),
        ("write_file", "mode", "string"),
        ("edit_file", "path", "string"),
        ("edit_file", "old_string", "string"),
        ("edit_file", "new_string", "string"),
        ("edit_file", "replace_all", "boolean"),
        ("apply_patch", "patch", "string"),
        ("move_path", "from", "string"),
        ("move_path", "to", "string"),
        ("delete_path", "path", "string"),
        ("exec", "command", "string"),
        ("exec", "timeout", "integer"),
        ("list_dir", "path", "string"),
        ("plan", "entries", "array"),
    ] {
        assert_eq!(arguments(tool)[name]["type"], json_type, "{tool}.{name}");
    }
    let edit_file = toolbox().find("edit_file").unwrap();
    let required = edit_file.spec(&full_context()).unwrap().parameters["required"].clone();
    assert_eq!(required, json!(["path", "old_string", "new_string"]));
    let edit = arguments("edit_file");
    let names: Vec<_> = edit.keys().collect();
    assert_eq!(names, ["path", "old_string", "new_string", "replace_all"]);
    assert_eq!(arguments("write_file")["mode"]["enum"], json!(["overwrite", "append"]));
}

#[test]
fn specs_are_deterministic() {
    let told = || {
        let specs = toolbox().specs(&full_context(), None);
        specs.iter().map(|spec| format!("{spec:?}")).collect::<Vec<_>>()
    };
    assert_eq!(told(), told());
}

#[test]
fn a_helper_that_may_run_commands_may_read_their_output() {
    let named = ["Read", "Bash(git log:*)"].map(str::to_owned);
    let helper = toolbox().for_helper(Some(&named), &[]);
    assert!(helper.find("exec_output").is_ok() && helper.find("write_file").is_err());
    let helper = toolbox().for_helper(None, &["Bash".to_owned()]);
    assert!(helper.find("exec").is_err() && helper.find("exec_output").is_err());
}

#[test]
fn names_are_found_as_models_write_them() {
    let registry = toolbox();
    for (written, meant) in [
        ("exec", "exec"),
        (" exec ", "exec"),
        ("Exec", "exec"),
        ("functions.read_file", "read_file"),
        ("default_api:write_file", "write_file"),
        ("mcp__turnwright__functions.read_file", "read_file"),
        ("functions.read_file:0", "read_file"),
        ("read_file<|channel|>commentary", "read_file"),
        ("read-file()", "read_file"),
        ("readFile", "read_file"),
        // Names from other agents.
        ("Read", "read_file"),
        ("Write", "write_file"),
        ("LS", "list_dir"),
        ("Bash", "exec"),
        ("run_shell_command", "exec"),
        ("execute_bash", "exec"),
        ("container.exec", "exec"),
        ("view", "read_file"),
        ("str_replace", "edit_file"),
    ] {
        assert_eq!(registry.find(written).unwrap().name(), meant, "{written}");
    }
    for unknown in ["", "exe", "execute", "reed", "functions.", "str_replace_editor", ":", "():0"] {
        let reason = registry.find(unknown).unwrap_err().for_model;
        assert!(reason.contains("Available: read_file, write_file"), "{unknown}: {reason}");
    }
    for (unknown, meant) in
        [("exek", "exec"), ("write_fil", "write_file"), ("ReadFiles", "read_file")]
    {
        let reason = registry.find(unknown).unwrap_err().for_model;
        let start = format!("No tool \"{unknown}\". Did you mean {meant}? Available: ");
        assert!(reason.starts_with(&start), "{reason}");
    }
    assert!(!registry.find("fly").unwrap_err().for_model.contains("mean"));
}
