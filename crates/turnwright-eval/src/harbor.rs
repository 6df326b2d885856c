//! Writes tasks in the format of Harbor (schema 1.4), and the entry with which its generic ACP agent starts this
//! program.

use std::fs;
use std::path::Path;

use crate::copies::{copy_all, copy_into, files_below, write_into};
use crate::task::{CHECK_FILES, SOLUTION, Task};
use crate::tree::Start;
use crate::workplace::Workplace;
use crate::{EvalError, EvalResult};
use turnwright_config::string_text;
use turnwright_types::hash::sha256_hex;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The entry for Harbor's `-a acp --ak registry_entry_path=FILE`, and the name of its file.
pub const REGISTRY_ENTRY: &str = include_str!("harbor/registry.json");
const REGISTRY_FILE: &str = "turnwright.json";
const SCRIPT_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
/// The verifier starts and copies files besides the check itself.
const VERIFIER_SECONDS: u64 = 60;

const DOCKERFILE: &str = include_str!("harbor/Dockerfile");
const SOLVE: &str = include_str!("harbor/solve.sh");
/// `SECONDS` is replaced.
const TEST: &str = include_str!("harbor/test.sh");

/// Writes the tasks into a folder, a folder each, and the registry entry beside them. Returns sentences for the user.
pub async fn export(
    tasks: &[Task],
    place: &Path,
    workplace: &Workplace,
) -> EvalResult<Vec<String>> {
    let mut told = Vec::new();
    for task in tasks {
        let folder = place.join(ascii_name(&task.name));
        if folder.exists() {
            let text =
                format!("{} exists already. Remove it, or name another folder.", folder.display());
            return Err(EvalError::Unusable(text));
        }
        export_task(task, &folder, workplace).await?;
        told.push(format!("Wrote {}.", folder.display()));
    }
    write_into(place, Path::new(REGISTRY_FILE), REGISTRY_ENTRY.as_bytes(), FILE_MODE)?;
    told.push(format!("Wrote {}.", place.join(REGISTRY_FILE).display()));
    Ok(told)
}

async fn export_task(task: &Task, folder: &Path, workplace: &Workplace) -> EvalResult<()> {
    let temporary = PrivateTempFolder::create()?;
    let start = Start::prepare(task, &temporary.path().join("starts"), workplace).await?;
    let tree = temporary.path().join("tree");
    start.make_tree(&tree, None).await?;
    let shown = ["environment/tree", "tests/restore", "solution"].map(|name| folder.join(name));
    for below in &shown {
        fs::create_dir_all(below)?;
    }
    let [environment, restored, solution] = shown;
    copy_all(&tree, &environment)?;
    for path in files_below(&tree)?.iter().filter(|path| task.restored.is_match(path)) {
        copy_into(&tree, &restored, path)?;
    }
    let own = task.folder.join(CHECK_FILES);
    if own.is_dir() {
        copy_all(&own, &restored)?;
    }
    for (name, text, mode) in texts(task) {
        write_into(folder, Path::new(name), text.as_bytes(), mode)?;
    }
    if let Some(patch) = task.patch(SOLUTION) {
        fs::copy(patch, solution.join(SOLUTION))?;
        write_into(&solution, Path::new("solve.sh"), SOLVE.as_bytes(), SCRIPT_MODE)?;
    }
    Ok(())
}

/// The files of a task that are made from its definition, each with its mode.
fn texts(task: &Task) -> [(&'static str, String, u32); 5] {
    let test = TEST.replace("SECONDS", &task.definition.check_seconds().to_string());
    [
        ("task.toml", definition(task), FILE_MODE),
        ("instruction.md", format!("{}\n", task.prompt), FILE_MODE),
        ("tests/test.sh", test, SCRIPT_MODE),
        ("tests/command.sh", format!("{}\n", task.definition.check.command), FILE_MODE),
        ("environment/Dockerfile", DOCKERFILE.to_owned(), FILE_MODE),
    ]
}

fn definition(task: &Task) -> String {
    let name = string_text(&format!("turnwright/{}", ascii_name(&task.name)));
    let description = string_text(&task.name);
    format!(
        "schema_version = \"1.4\"\n\n[task]\nname = {name}\nversion = \"1\"\ndescription = {description}\n\n\
         [metadata]\n\n[agent]\ntimeout_sec = {}.0\n\n[verifier]\ntimeout_sec = {}.0\n\n[environment]\n\
         build_timeout_sec = 600.0\n",
        task.time.as_secs(),
        task.definition.check_seconds() + VERIFIER_SECONDS
    )
}

/// A name of letters that Harbor allows. One with others gets a part of its hash, so that it stays the only one.
fn ascii_name(name: &str) -> String {
    let mut letters = name.to_owned();
    letters.retain(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    let kept = letters.trim_matches(['-', '_', '.']).replace("..", ".");
    if kept == name {
        return kept;
    }
    let hash = &sha256_hex(name.as_bytes())[..8];
    if kept.is_empty() { format!("task-{hash}") } else { format!("{kept}-{hash}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_harbor_allows() {
        assert_eq!(ascii_name("fix-parser_2"), "fix-parser_2");
        let names = ["zh-修复排序", "zh-加一个选项", "修复"].map(ascii_name);
        assert!(names[0].starts_with("zh-") && names[2].starts_with("task-"), "{names:?}");
        assert_ne!(names[0], names[1]);
        assert!(names.iter().all(|name| name.is_ascii()));
    }

    #[test]
    fn the_registry_entry_is_of_this_version() {
        let entry: serde_json::Value = serde_json::from_str(REGISTRY_ENTRY).unwrap();
        assert_eq!(entry["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(entry["distribution"]["local"]["args"][0], "acp");
    }
}
