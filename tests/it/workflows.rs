//! The workflows in `.github`, the scripts that they run, and the workflow in the manual: their shell parses, and
//! what they name is in the repository.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use turnwright_testing::process_waits;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A `run` of a workflow.
struct Step {
    /// The file and the line.
    place: String,
    script: String,
}

/// Finds the steps of a workflow. Expressions become words.
fn steps(name: &str, text: &str) -> Vec<Step> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let key = line.trim_start().trim_start_matches("- ");
        // `defaults` has a key of this name, and its value is on the lines below it.
        let Some(command) = key.strip_prefix("run:").map(str::trim).filter(|it| !it.is_empty())
        else {
            continue;
        };
        let is_inside = |it: &&&str| it.trim().is_empty() || indent(it) > indent(line);
        let script = match command {
            "|" => lines[number + 1..]
                .iter()
                .take_while(is_inside)
                .fold(String::new(), |all, it| all + it + "\n"),
            _ => command.to_owned(),
        };
        found.push(Step {
            place: format!("{name}:{}", number + 1),
            script: without_expressions(&script),
        });
    }
    found
}

/// Replaces `${{ … }}`.
fn without_expressions(script: &str) -> String {
    let mut parts = script.split("${{");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "EXPRESSION" + part.split_once("}}").unwrap().1)
}

/// The workflows with their names, and those in the manual.
fn workflows() -> Vec<(String, String)> {
    let folder = repository().join(".github/workflows");
    let files = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let mut all: Vec<(String, String)> =
        files.map(|it| (it.display().to_string(), std::fs::read_to_string(&it).unwrap())).collect();
    assert!(all.len() >= 2, "{all:?}");
    let manual = std::fs::read_to_string(repository().join("docs/run.md")).unwrap();
    let example = manual.split_once("```yaml\n").unwrap().1.split_once("\n```").unwrap().0;
    all.push(("docs/run.md".to_owned(), example.to_owned()));
    all
}

/// The scripts of the repository that bash runs.
fn scripts() -> Vec<PathBuf> {
    let folders = [".ci", "release", "tests/real"].map(|it| repository().join(it));
    let files = folders.iter().flat_map(|it| std::fs::read_dir(it).unwrap());
    let is_bash = |path: &PathBuf| {
        path.is_file() && std::fs::read(path).unwrap().starts_with(b"#!/usr/bin/env bash\n")
    };
    files.map(|it| it.unwrap().path()).filter(is_bash).collect()
}

/// What bash says against a script; `None` if there is no bash.
fn complaints(script: &[u8]) -> Option<String> {
    let mut command = Command::new("bash");
    command.arg("-n").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    std::io::Write::write_all(&mut child.stdin.take()?, script).unwrap();
    let output = process_waits::wait_with_output(child);
    Some(String::from_utf8(output.stderr).unwrap())
}

#[test]
#[cfg_attr(windows, ignore = "there is no bash for scripts of the repository")]
fn the_shell_of_the_workflows_and_scripts_parses() {
    let steps = workflows().iter().flat_map(|(name, text)| steps(name, text)).collect::<Vec<_>>();
    assert!(steps.len() > 20, "{}", steps.len());
    let steps = steps.into_iter().map(|it| (it.place, it.script.into_bytes()));
    let scripts =
        scripts().into_iter().map(|it| (it.display().to_string(), std::fs::read(it).unwrap()));
    for (place, script) in steps.chain(scripts) {
        match complaints(&script) {
            None => return eprintln!("NOT TESTED: there is no bash"),
            Some(complaints) => assert_eq!(complaints, "", "{place}"),
        }
    }
}

#[test]
fn what_the_workflows_name_is_in_the_repository() {
    const FOLDERS: [&str; 5] = [".ci/", ".github/", "release/", "tests/", "docs/"];
    let mut named = 0;
    for (name, text) in workflows() {
        for Step { place, script } in steps(&name, &text) {
            let words = script.split(|it: char| it.is_whitespace() || "\"'$()<>;".contains(it));
            for word in words.filter(|word| FOLDERS.iter().any(|it| word.starts_with(it))) {
                assert!(repository().join(word).exists(), "{place}: {word}");
                named += 1;
            }
        }
        // What `hashFiles` takes decides when a cache is new.
        for pattern in text.split("hashFiles(").skip(1).flat_map(|it| it.split(')').take(1)) {
            for file in pattern.split(',').map(|it| it.trim().trim_matches('\'')) {
                let file = file.split('*').next().unwrap();
                assert!(repository().join(file).exists(), "{name}: {file}");
            }
        }
    }
    assert!(named >= 5, "{named}");
}

/// A tag makes packages for each system that the packages know.
#[test]
fn the_release_builds_each_target_of_the_packages() {
    let release =
        std::fs::read_to_string(repository().join(".github/workflows/release.yml")).unwrap();
    let platforms =
        std::fs::read_to_string(repository().join("crates/turnwright-packages/src/platform.rs"))
            .unwrap();
    let mut built = release.split("{ target: ").skip(1).map(|it| it.split(',').next().unwrap());
    assert!(built.clone().count() >= 5);
    assert!(built.all(|it| platforms.contains(&format!("\"{it}\""))));
}

/// A tag of an action can be moved; a commit cannot. The version stands behind it for readers.
#[test]
fn the_workflows_use_actions_at_a_commit() {
    let mut used = 0;
    for (name, text) in workflows().iter().filter(|it| it.0 != "docs/run.md") {
        for line in
            text.lines().filter_map(|it| it.trim_start_matches([' ', '-']).strip_prefix("uses: "))
        {
            let (_, version) = line.split_once('@').unwrap();
            let (commit, comment) = version.split_once("  # v").unwrap_or_default();
            let is_hash = commit.len() == 40 && commit.bytes().all(|it| it.is_ascii_hexdigit());
            assert!(is_hash && !comment.is_empty(), "{name}: {line}");
            used += 1;
        }
    }
    assert!(used > 10, "{used}");
}

/// Runs `release/notes` for a tag and a changelog. Returns the exit status, what it prints and its complaint.
#[cfg(unix)]
fn notes(tag: &str, changelog: &str) -> (Option<i32>, String, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, changelog).unwrap();
    let mut command = Command::new(repository().join("release/notes"));
    let output = process_waits::output(command.arg(tag).arg(file.path())).unwrap();
    let [printed, complaint] =
        [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code(), printed, complaint)
}

#[test]
#[cfg(unix)]
fn the_notes_of_a_release_are_the_section_of_its_version() {
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");
    let rest = "## Unreleased\n\n* later\n";
    for heading in [format!("## {version}"), format!("## {version} (2030-01-31)")] {
        let changelog = format!(
            "# Changelog\n\n{rest}\n{heading}\n\n### Agent\n\n* now\n\n## 0.0.1\n\n* old\n"
        );
        let (status, printed, complaint) = notes(&tag, &changelog);
        assert_eq!((status, printed.trim(), &*complaint), (Some(0), "### Agent\n\n* now", ""));
    }
    let empty = format!("{rest}\n## {version}\n\n## 0.0.1\n\n* old\n");
    let long = format!("## {version}\n\n{}\n", "* word\n".repeat(20_000));
    for (tag, changelog, reason) in [
        (&*tag, rest, "has no section"),
        (&tag, &empty, "has no section"),
        (&tag, &long, "of 125000 allowed"),
        ("v0.0.1", &empty, "is not the version of Cargo.toml"),
    ] {
        let (status, printed, complaint) = notes(tag, changelog);
        assert_eq!((status, &*printed), (Some(1), ""));
        assert!(complaint.starts_with("::error::") && complaint.contains(reason), "{complaint}");
    }
}
