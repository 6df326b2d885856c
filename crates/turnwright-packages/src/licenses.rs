//! The licences of everything that the program contains, as `turnwright licenses` prints them.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::Value;

use crate::release::LICENSE;

/// The licence that is chosen wherever a package offers it. Its text is printed only once, because it does not
/// ask for the copyright lines.
const CHOSEN_LICENSE: &str = "Apache-2.0";
const INTRODUCTION: &str = "turnwright is licensed under the Apache License 2.0, which is at the end of this text. It contains the \
                    following packages.\n";

/// Third-party data in packages of the workspace, and the files with its licences.
const THIRD_PARTY_DATA: [(&str, &str); 1] =
    [("Adobe Glyph List 2.0 (BSD-3-Clause)", "crates/turnwright-documents/LICENSE-AGL")];

/// A package that the program contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    /// The licence, as an SPDX expression.
    expression: String,
    authors: Vec<String>,
    folder: PathBuf,
}

/// The packages whose licences have the same text, apart from the copyright lines.
#[derive(Debug, Default)]
struct Group {
    text: String,
    /// Each package with its copyright lines.
    members: BTreeMap<String, BTreeSet<String>>,
}

/// Returns the text that `turnwright licenses` prints.
pub(crate) fn text(workspace: &Path) -> Result<String, Box<dyn Error>> {
    let packages = packages(workspace)?;
    let mut text = String::from(INTRODUCTION);
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut chosen = String::new();
    let mut without_file = Vec::new();
    for package in &packages {
        let name = format!("{} {}", package.name, package.version);
        let is_chosen = offers_chosen(&package.expression);
        if is_chosen {
            writeln!(chosen, "  {name}")?;
        }
        let files = license_files(&package.folder, is_chosen)?;
        if files.is_empty() && !is_chosen {
            without_file.push(package);
        }
        for (file, content) in files {
            let member = format!("{name} ({}, {file})", package.expression);
            add_file(&mut groups, member, &content);
        }
    }
    for (member, file) in THIRD_PARTY_DATA {
        add_file(&mut groups, member.to_owned(), &fs::read_to_string(workspace.join(file))?);
    }
    for package in without_file {
        add_without_file(&mut groups, package)?;
    }
    for group in groups.values() {
        text.push_str(&format!("\n{}\n\n", "-".repeat(72)));
        for (member, copyright) in &group.members {
            writeln!(text, "  {member}")?;
            for line in copyright {
                writeln!(text, "    {line}")?;
            }
        }
        write!(text, "\n{}\n", group.text.trim())?;
    }
    write!(text, "\n{}\n\n{chosen}\n{}\n", "-".repeat(72), LICENSE.trim_matches('\n'))?;
    Ok(text)
}

/// Adds a member with the text of its licence.
fn add_file(groups: &mut BTreeMap<String, Group>, member: String, content: &str) {
    let (body, copyright) = without_copyright(content);
    let words: Vec<_> = body.split_whitespace().collect();
    let group = groups.entry(words.join(" ")).or_default();
    if group.text.is_empty() {
        group.text = body;
    }
    group.members.entry(member).or_default().extend(copyright);
}

/// Adds a package that comes without the text of its licence to the packages with the same licence.
fn add_without_file(groups: &mut BTreeMap<String, Group>, package: &Package) -> Result<(), String> {
    let Package { name, version, expression, authors, .. } = package;
    let count_same = |group: &Group| {
        let start = format!(" ({expression}, ");
        group.members.keys().filter(|member| member.contains(&start)).count()
    };
    let most = groups.values_mut().max_by_key(|it| count_same(it)).filter(|it| count_same(it) > 0);
    let group =
        most.ok_or_else(|| format!("no package has the text of {expression} for {name}"))?;
    let authors = authors.iter().map(|author| format!("by {author}"));
    group.members.insert(format!("{name} {version} ({expression})"), authors.collect());
    Ok(())
}

/// Returns true if the chosen licence alone is enough.
fn offers_chosen(expression: &str) -> bool {
    !expression.contains(" AND ")
        && expression.split([' ', '/', '(', ')']).any(|word| word == CHOSEN_LICENSE)
}

/// The third-party packages that the program contains on any platform.
fn packages(workspace: &Path) -> Result<Vec<Package>, Box<dyn Error>> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(workspace)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut graph: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        // The kind is null unless the dependency is for tests or for a build script.
        let is_contained =
            |need: &Value| list(&need["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        let dependencies = list(&node["deps"]).into_iter().filter(is_contained);
        graph.insert(text(&node["id"]), dependencies.map(|need| text(&need["pkg"])).collect());
    }
    let all = list(&metadata["packages"]);
    let root = all.iter().find(|it| it["name"] == "turnwright").ok_or("there is no turnwright")?;
    let (mut found, mut open) = (BTreeSet::new(), vec![text(&root["id"])]);
    while let Some(id) = open.pop() {
        if found.insert(id.clone()) {
            open.extend(graph.get(&id).into_iter().flatten().cloned());
        }
    }
    // Those of the workspace have no source.
    let contained =
        all.iter().filter(|it| found.contains(&text(&it["id"])) && it["source"].is_string());
    let mut packages: Vec<Package> = contained
        .map(|it| Package {
            name: text(&it["name"]),
            version: text(&it["version"]),
            expression: text(&it["license"]),
            authors: list(&it["authors"]).iter().map(text).collect(),
            folder: Path::new(&text(&it["manifest_path"])).parent().unwrap_or(workspace).to_owned(),
        })
        .collect();
    packages.sort();
    Ok(packages)
}

/// The names and contents of the files that must be passed on: notices, and the licence unless it is the one
/// that is chosen.
fn license_files(folder: &Path, is_chosen: bool) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_ascii_uppercase();
        let is_license =
            ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT"].iter().any(|it| upper.starts_with(it));
        let is_needed = upper.starts_with("NOTICE") || is_license && !is_chosen;
        if is_needed && entry.file_type()?.is_file() {
            files.push((name, fs::read_to_string(entry.path())?));
        }
    }
    files.sort();
    Ok(files)
}

/// The text without its title and its copyright lines, and those lines.
fn without_copyright(text: &str) -> (String, Vec<String>) {
    let is_copyright = |line: &&str| {
        let line = line.trim().to_ascii_lowercase();
        line.starts_with("copyright (c)")
            || line.starts_with("copyright ©")
            || line.starts_with("(c)")
            || line.starts_with("copyright 1")
            || line.starts_with("copyright 2")
    };
    let (copyright, body): (Vec<_>, Vec<_>) = text.lines().partition(is_copyright);
    let is_title = |line: &&str| {
        matches!(line.trim(), "" | "MIT License" | "The MIT License (MIT)" | "The MIT License")
    };
    let body =
        body.into_iter().skip_while(is_title).map(str::trim_end).collect::<Vec<_>>().join("\n");
    (body, copyright.into_iter().map(|line| line.trim().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licence_that_is_chosen_is_enough_where_it_is_an_alternative() {
        for (expression, expected) in [
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("Apache-2.0", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("Apache-2.0 AND ISC", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
            ("MIT", false),
        ] {
            assert_eq!(offers_chosen(expression), expected, "{expression}");
        }
    }

    #[test]
    fn the_program_has_the_licences_of_all_that_it_contains() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let expected = text(&workspace).unwrap();
        for Package { name, version, .. } in packages(&workspace).unwrap() {
            assert!(expected.contains(&format!("\n  {name} {version}")), "{name} {version}");
        }
        let path = workspace.join("src/cli/licenses.txt");
        let is_same = fs::read_to_string(&path).is_ok_and(|it| it == expected);
        assert!(
            is_same,
            "run `cargo run -p turnwright-packages -- licenses > src/cli/licenses.txt`"
        );
    }
}
