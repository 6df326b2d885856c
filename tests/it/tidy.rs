//! Tests of the architecture: which module may import which, which code may use which functions, and how
//! long a file and a function may be.
//!
//! The checks read source text. Comments and the contents of strings are blanked first, so that a comment
//! about a rule does not violate it. Each failure lists `file:line: what`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// The modules that each module of the root package may use. A row names only rows below it. Missing
/// entries are deliberate: change this table in the same commit as `ARCHITECTURE.md`. The dependencies of
/// the crates are in [`CRATES`].
const MAY_USE: &[(&str, &[&str])] = &[
    ("cli", EVERYTHING),
    ("internals", EVERYTHING),
    ("acp", &["session", "config", "recording", "runtime", "error", "completion"]),
    ("mcp_server", &["session", "turn", "tools", "undo", "config"]),
    (
        "session",
        &[
            "turn",
            "mcp",
            "tools",
            "undo",
            "config",
            "trust",
            "recording",
            "outside",
            "error",
            "completion",
            "jsonc",
        ],
    ),
    ("turn", &["tools", "undo", "outside", "error", "completion"]),
    ("mcp", &["tools", "trust", "outside"]),
    ("tools", &["outside"]),
    ("undo", &[]),
    ("trust", &[]),
    ("recording", &["outside"]),
    ("outside", &[]),
    ("completion", &["error"]),
    ("error", &[]),
    ("runtime", &[]),
    ("log", &["config"]),
    ("config", &[]),
    ("jsonc", &[]),
];

/// Marks a module that may use all other modules.
const EVERYTHING: &[&str] = &["*"];

/// The crates that each crate may depend on, as in the diagram of `ARCHITECTURE.md`.
const CRATES: &[(&str, &[&str])] = &[
    ("turnwright-types", &[]),
    ("turnwright-http", &[]),
    ("turnwright-rpc", &[]),
    ("turnwright-sandbox", &[]),
    ("turnwright-testing", &[]),
    ("turnwright-llm", &["turnwright-http", "turnwright-types"]),
    ("turnwright-policy", &["turnwright-types"]),
    ("turnwright-store", &["turnwright-types"]),
    ("turnwright-workspace", &["turnwright-http", "turnwright-sandbox", "turnwright-types"]),
    (
        "turnwright-guard",
        &["turnwright-policy", "turnwright-sandbox", "turnwright-types", "turnwright-workspace"],
    ),
    (
        "turnwright-mcp",
        &[
            "turnwright-http",
            "turnwright-rpc",
            "turnwright-sandbox",
            "turnwright-types",
            "turnwright-workspace",
        ],
    ),
    ("turnwright-remote", &["turnwright-http", "turnwright-rpc"]),
    // It needs the root package, for the definition of the command line.
    ("turnwright-packages", &[]),
];

/// The maximum number of code lines of a file, without its tests.
const MAX_CODE_LINES: usize = 500;
/// The maximum number of lines of a file.
const MAX_LINES: usize = 800;
/// The maximum number of lines of a function that is not a test.
const MAX_FUNCTION_LINES: usize = 60;

#[test]
fn modules_depend_only_downwards() {
    let mut wrong = Vec::new();
    for (row, (module, allowed)) in MAY_USE.iter().enumerate() {
        for name in allowed.iter().filter(|_| *allowed != EVERYTHING) {
            if !MAY_USE[row + 1..].iter().any(|(below, _)| below == name) {
                wrong.push(format!("MAY_USE: {module} → {name}, which is not a row below it"));
            }
        }
    }
    for file in sources("src") {
        let Some(module) = file.module() else { continue };
        // The setup of a test may use what its module must not use.
        if !may_use_anything(module) && !file.is_test() {
            wrong.extend(forbidden_imports(file, module));
        }
    }
    check("forbidden dependencies", &wrong);
}

#[test]
fn every_module_has_a_row_in_the_table() {
    let mut wrong = Vec::new();
    for file in sources("src") {
        let Some(module) = file.module() else { continue };
        if !MAY_USE.iter().any(|(known, _)| *known == module) {
            wrong.push(file.at(0, "say in `MAY_USE` of tests/it/tidy.rs what this module may use"));
        }
    }
    check("modules without a rule", &wrong);
}

#[test]
fn crates_depend_only_on_what_the_architecture_draws() {
    let mut folders: Vec<String> = fs::read_dir(root().join("crates"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut wrong = Vec::new();
    for folder in &folders {
        let manifest = read(&format!("crates/{folder}/Cargo.toml"));
        let Some((_, allowed)) = CRATES.iter().find(|(name, _)| name == folder) else {
            wrong.push(format!("crates/{folder}: say in `CRATES` what this crate may use"));
            continue;
        };
        let used = manifest.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        for name in used.filter(|name| name.starts_with("turnwright-")) {
            if !allowed.contains(&name) {
                wrong.push(format!("crates/{folder}/Cargo.toml: {folder} → {name}"));
            }
        }
        if !root().join(format!("crates/{folder}/README.md")).is_file() {
            wrong.push(format!("crates/{folder}: a README.md says what the crate is for"));
        }
    }
    assert_eq!(folders.len(), CRATES.len(), "`CRATES` names a crate that does not exist");
    check("forbidden dependencies between crates", &wrong);
}

/// Within a crate, the name of a type identifies it.
#[test]
fn no_two_types_of_a_crate_share_a_name() {
    let mut wrong = Vec::new();
    for (name, files) in by_crate() {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for file in &files {
            for (number, line) in file.code().iter().enumerate() {
                let Some(defined) = defined_type(line) else { continue };
                let at = file.at(number, &defined);
                if let Some(first) = seen.insert(defined, at.clone()) {
                    wrong.push(format!("{at}, also at {first} ({name})"));
                }
            }
        }
    }
    check("type names that are defined twice in a crate", &wrong);
}

/// Each entry of the lists of stories to skip is a story or a file of stories. An old name would skip nothing.
#[test]
fn stories_that_are_only_about_version_1_exist() {
    let lists = read("tests/data/only-v1.txt") + &read("tests/data/only-pipe.txt");
    for entry in lists.lines().filter(|it| !it.starts_with('#')) {
        let (file, story) = entry.split_once("::").expect("FILE:: or FILE::STORY");
        let text = read(&format!("tests/stories/{file}.rs"));
        assert!(text.contains(&format!("fn {story}")), "there is no story {entry}");
    }
}

/// Citations of the forms `R-…`, `M-…`, `Sn-m` and `C.n #m` refer to rows of `docs/requirements.md`.
#[test]
fn every_cited_requirement_has_a_row() {
    let text = read("docs/requirements.md");
    let rows: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    let mut found = 0;
    let mut wrong = Vec::new();
    for place in ["src", "crates", "tests", "benches", "examples"] {
        for file in sources(place) {
            for (number, line) in file.text.lines().enumerate() {
                for cited in citations(line) {
                    found += 1;
                    if !rows.contains(cited.as_str()) {
                        wrong.push(file.at(number, &cited));
                    }
                }
            }
        }
    }
    assert!(found > 100, "only {found} citations were found: has their form changed?");
    check("citations without a row in docs/requirements.md", &wrong);
}

/// The tables on what goes beyond version 1 over a pipe name stories in their last column, some by their beginning.
#[test]
fn every_story_that_a_requirement_names_exists() {
    let files: Vec<_> = ["src", "crates", "tests"].into_iter().flat_map(sources).collect();
    let text = read("docs/requirements.md");
    let begin = text.find("\n### Unstable surfaces").unwrap();
    let end = text.find("\n## Model Context Protocol").unwrap();
    let mut found = 0;
    let mut wrong = Vec::new();
    for row in text[begin..end].lines().filter(|it| it.starts_with("| ")) {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        for name in last.split('`').skip(1).step_by(2).filter(|it| !it.contains('.')) {
            found += 1;
            let start = match name.strip_suffix('…') {
                Some(start) => format!("fn {start}"),
                None => format!("fn {name}("),
            };
            if !files.iter().any(|it| it.text.contains(&start)) {
                wrong.push(name.to_owned());
            }
        }
    }
    assert!(found > 50, "only {found} stories were found: has their form changed?");
    check("stories in docs/requirements.md that do not exist", &wrong);
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if !file.text.starts_with("//!") {
            wrong.push(file.at(0, "start with `//!`: its job, and what it must not do"));
        }
    }
    check("files without a first word", &wrong);
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let all = file.text.lines().count();
        if all > MAX_LINES {
            wrong.push(file.at(MAX_LINES, &format!("{all} lines, at most {MAX_LINES}")));
        }
        if file.is_test() {
            continue;
        }
        let code = file.code_without_tests();
        let filled: Vec<usize> =
            (0..code.len()).filter(|number| !code[*number].trim().is_empty()).collect();
        if let Some(first_too_many) = filled.get(MAX_CODE_LINES) {
            let count = filled.len();
            let what = format!("{count} lines of code without tests, at most {MAX_CODE_LINES}");
            wrong.push(file.at(*first_too_many, &what));
        }
    }
    check("files to split", &wrong);
}

#[test]
fn no_function_is_longer_than_60_lines() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if file.is_test() || file.name.ends_with("_tests.rs") {
            continue;
        }
        for (start, count) in file.functions() {
            if count > MAX_FUNCTION_LINES {
                let what = format!("{count} lines, at most {MAX_FUNCTION_LINES}");
                wrong.push(file.at(start, &what));
            }
        }
    }
    check("functions to split", &wrong);
}

#[test]
fn only_config_reads_the_environment() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        // Tests give the agent, or a command, the `PATH` of their own process.
        let of_tests =
            ["crates/turnwright-testing", "crates/turnwright-workspace/src/exec/windows_tests.rs"];
        if file.is_in(&["src/config"]) || file.is_in(&of_tests) {
            continue;
        }
        let mut banned = vec![
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "env::set_var",
            "env::remove_var",
            "env::home_dir",
            "dirs::",
            "etcetera::",
        ];
        if !file.is_in(&["src/cli", "src/main.rs"]) {
            banned.extend(["env::args", "env::args_os"]);
        }
        wrong.extend(file.uses_of(&banned));
    }
    check("the environment is read outside of `config`", &wrong);
}

#[test]
fn only_rpc_touches_stdin_and_stdout() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if !file.is_in(&["crates/turnwright-rpc/src", "src/cli", "crates/turnwright-packages"]) {
            wrong.extend(file.uses_of(&["stdin()", "stdout()", "println!", "print!"]));
        }
    }
    check("stdin and stdout belong to `rpc` (and to `cli` in a terminal)", &wrong);
}

#[test]
fn only_acp_knows_the_wire_types() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if !file.is_in(&["src/acp"]) {
            wrong.extend(file.uses_of(&["agent_client_protocol_schema"]));
        }
    }
    check("wire types outside of `acp`", &wrong);
}

#[test]
fn rpc_errors_are_made_in_two_places() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if file.is_in(&["crates/turnwright-rpc/src", "src/acp/error.rs"]) {
            continue;
        }
        for (number, line) in file.code().iter().enumerate() {
            let made = words(line, "RpcError {").any(|at| {
                // After these words, it is an item, a signature or a pattern, not a value.
                let path_start = line[..at].trim_end_matches(|it: char| in_name(it) || it == ':');
                let last = path_start.split_whitespace().next_back().unwrap_or_default();
                !["struct", "impl", "for", "->", "let"].contains(&last)
            });
            if made {
                wrong.push(file.at(number, "return a `crate::error::Error`; `acp::error` maps it"));
            }
        }
    }
    check("JSON-RPC errors made elsewhere than in `rpc` and `acp::error`", &wrong);
}

#[test]
fn every_tool_file_is_in_the_table() {
    let files = sources("src/tools");
    let Some(table) = files.iter().find(|file| file.name == "src/tools/mod.rs") else {
        assert!(files.is_empty(), "src/tools has no mod.rs to hold the table");
        return;
    };
    let mut found = 0;
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| file.name != table.name && !file.is_test()) {
        let tool = file.code_without_tests().into_iter().enumerate().find_map(|(number, line)| {
            let at = words(&line, "Tool for ").next()?;
            let name: String =
                line[at + "Tool for ".len()..].chars().take_while(|it| in_name(*it)).collect();
            line.trim_start().starts_with("impl").then_some((number, name))
        });
        let Some((number, name)) = tool else { continue };
        found += 1;
        let listed =
            table.code_without_tests().iter().any(|line| words(line, &name).next().is_some());
        if !listed {
            wrong.push(file.at(number, &format!("`{name}` is not in src/tools/mod.rs")));
        }
    }
    assert!(found > 0 || files.len() == 1, "no `impl Tool for` found: what is the trait called?");
    check("tools that no table lists", &wrong);
}

#[test]
fn neither_the_router_nor_a_method_waits() {
    let mut has_router = false;
    let mut methods = 0;
    let mut wrong = Vec::new();
    for file in sources("src/acp") {
        if file.is_in(&["src/acp/router"]) {
            has_router = true;
            wrong.extend(file.uses_of(&["async fn", ".await"]));
        } else if file.is_in(&["src/acp/methods"]) {
            methods += 1;
            // A method may start a task, which may wait.
            let blocking =
                ["async fn handle", "block_on", "blocking_recv", "blocking_send", "sleep"];
            wrong.extend(file.uses_of(&blocking));
        }
    }
    assert!(has_router && methods > 1, "the files of the router or of the methods have moved");
    check("what answers the next line must never wait", &wrong);
}

/// A method that no table lists would be answered with "method not found".
#[test]
fn every_method_is_in_the_table() {
    let files = sources("src/acp/methods");
    let table = files.iter().find(|file| file.name.ends_with("/mod.rs")).expect("a table");
    let mut wrong = Vec::new();
    for file in &files {
        for (number, line) in file.code().iter().enumerate() {
            let name = line.strip_prefix("impl RequestMethod for ");
            let Some(method) = name.and_then(|rest| rest.strip_suffix(" {")) else { continue };
            let row = format!("::{method}>()");
            if !table.code().iter().any(|line| line.contains(&row)) {
                wrong.push(file.at(number, method));
            }
        }
    }
    check("methods that no table lists", &wrong);
}

#[test]
fn the_license_and_the_changelog_are_there() {
    let license = read("LICENSE");
    for part in ["Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"] {
        assert!(license.contains(part), "LICENSE:1: {part:?} is missing: not the full licence");
    }
    let changelog = read("CHANGELOG.md");
    let version = env!("CARGO_PKG_VERSION");
    let told = changelog.lines().any(|line| {
        line.starts_with('#') && (line.contains(version) || line.contains("Unreleased"))
    });
    assert!(told, "CHANGELOG.md:1: no heading names {version} or Unreleased");
}

#[test]
fn readme_test_command_is_what_ci_runs() {
    let mut in_block = false;
    let promised = read("README.md").lines().any(|line| {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        in_block && command(line) == "cargo test"
    });
    assert!(promised, "README.md:1: no code block has the line `cargo test`");
    let kept = read(".ci/run").lines().any(|line| line.trim() == "cargo test");
    assert!(kept, ".ci/run:1: no line is exactly the README's `cargo test`");
}

/// The checks report each kind of violation, and ignore each kind of text that is not a violation.
#[test]
fn the_checks_see_code_and_nothing_else() {
    let text = "\
//! crate::turn in a comment
/* crate::turn /* nested */ still */ use crate::exec::run;
use crate::{turn, llm};
const A: &str = \"crate::turn \\\" println!\"; const B: char = '\"';
const C: &str = r#\"crate::turn \" stdout()\"#; fn f<'a>(_: &'a str) {}
fn g() { eprintln!(); println!(); child.stdout(Stdio::null()); io::stdout(); }
use super::turn;
#[cfg(test)]
mod tests { use super::turn; use super::super::turn; fn h() -> &'static str { \"}\" } }
fn after() {}
";
    let file = Source::new("src/mcp/mod.rs".to_owned(), text.to_owned());
    let lines = |found: Vec<String>| -> Vec<usize> {
        found.iter().filter_map(|it| it.split(':').nth(1)?.parse().ok()).collect()
    };
    assert_eq!(lines(forbidden_imports(&file, "mcp")), [2, 3, 7, 9]);
    assert_eq!(lines(file.uses_of(&["stdout()", "println!", "print!"])), [6, 6]);
    let without_tests = file.code_without_tests();
    assert_eq!(without_tests.len(), 10);
    assert!(without_tests[7].trim().is_empty() && without_tests[8].trim().is_empty());
    assert_eq!(without_tests[9], "fn after() {}");
    let functions = "fn a(\n    b: fn() -> u8,\n) {\n    fn c() {}\n}\ntrait T {\n    fn d(\n    );\n    fn e() {\n        f();\n    }\n}\n";
    let functions = Source::new("src/x.rs".to_owned(), functions.into()).functions();
    assert_eq!(functions, [(0, 5), (3, 1), (8, 3)]);
    let outer = Source::new("src/mcp/tool/wire.rs".to_owned(), "use super::super::Delta;".into());
    assert!(forbidden_imports(&outer, "mcp").is_empty());
}

/// A `.rs` file.
struct Source {
    /// The path from the repository's root, with `/`.
    name: String,
    text: String,
    blanked: OnceLock<Vec<String>>,
}

impl Source {
    fn new(name: String, text: String) -> Source {
        Source { name, text, blanked: OnceLock::new() }
    }

    /// The lines of `text`, with comments and the contents of strings and characters blanked.
    fn code(&self) -> &[String] {
        self.blanked.get_or_init(|| blank(&self.text).lines().map(str::to_owned).collect())
    }

    /// The top-level module, or `None` for a crate root.
    fn module(&self) -> Option<&str> {
        let first = self.name.strip_prefix("src/")?.split('/').next()?;
        let module = first.trim_end_matches(".rs");
        (!["lib", "main"].contains(&module)).then_some(module)
    }

    /// The number of `super::` that lead from the file's own scope to the crate root.
    fn depth(&self) -> usize {
        let parts = self.name.split('/').skip(1);
        parts.filter(|part| *part != "mod.rs").count()
    }

    /// For each line, the number of inline modules that contain it.
    fn inline_modules(&self) -> Vec<usize> {
        let mut open_braces = Vec::new();
        let mut depths = Vec::with_capacity(self.code().len());
        for line in self.code() {
            let modules = |open: &[bool]| open.iter().filter(|is_module| **is_module).count();
            let mut depth = modules(&open_braces);
            for (at, character) in line.char_indices() {
                match character {
                    '{' => {
                        open_braces.push(line[..at].split_whitespace().nth_back(1) == Some("mod"));
                        depth = depth.max(modules(&open_braces));
                    }
                    '}' => drop(open_braces.pop()),
                    _ => {}
                }
            }
            depths.push(depth);
        }
        depths
    }

    /// Whether the file is one of `places`, each a folder or a file; `src/x` is also `src/x.rs`.
    fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| {
            self.name
                .strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
        })
    }

    /// Whether the whole file is test code: a `tests.rs`, a `fixture.rs` that tests share, or a file below
    /// a folder `tests`.
    fn is_test(&self) -> bool {
        self.name
            .split('/')
            .any(|part| part == "tests.rs" || part == "tests" || part == "fixture.rs")
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.name, line + 1)
    }

    fn uses_of(&self, banned: &[&str]) -> Vec<String> {
        let mut found = Vec::new();
        for (number, line) in self.code().iter().enumerate() {
            for what in banned.iter().filter(|what| words(line, what).next().is_some()) {
                found.push(self.at(number, what));
            }
        }
        found
    }

    /// The functions that have a body, without tests: the number of the first line and the count of
    /// lines. A body ends, as in all formatted code, with a brace that is indented like the beginning.
    fn functions(&self) -> Vec<(usize, usize)> {
        let code = self.code_without_tests();
        let mut found = Vec::new();
        for (start, line) in code.iter().enumerate() {
            let is_name =
                |rest: &str| rest.strip_prefix(" ").is_some_and(|it| it.starts_with(in_name));
            let is_function = words(line, "fn").any(|at| is_name(&line[at + 2..]));
            let ends_head = |line: &&String| line.trim_end().ends_with(['{', '}', ';']);
            let Some(head_end) = code[start..].iter().find(ends_head).filter(|_| is_function)
            else {
                continue;
            };
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            match head_end.trim_end().chars().last() {
                Some('{') => {
                    let count = code[start..].iter().position(|line| line.trim_end() == end);
                    found.push((start, count.map_or(code.len() - start, |count| count + 1)));
                }
                Some('}') => found.push((start, 1)),
                _ => {}
            }
        }
        found
    }

    /// `code` with each item under `#[cfg(test)]` blanked.
    fn code_without_tests(&self) -> Vec<String> {
        let mut lines = self.code().to_vec();
        let mut number = 0;
        while number < lines.len() {
            let attributes = ["#[cfg(test)]", "#[cfg(all(test,"];
            let Some(start) = attributes.iter().find_map(|it| lines[number].find(it)) else {
                number += 1;
                continue;
            };
            // Blanks up to the `;` or the closing brace of the item, or to the end of the enclosing block.
            let mut depth = 0_usize;
            let mut column = start;
            let mut keep = lines[number][..start].to_owned();
            'item: loop {
                let line = lines[number].clone();
                for (at, character) in line.char_indices().filter(|(at, _)| *at >= column) {
                    let end = match character {
                        '{' | '(' | '[' => {
                            depth += 1;
                            None
                        }
                        '}' | ')' | ']' if depth == 0 => Some(at),
                        '}' | ')' | ']' => {
                            depth -= 1;
                            (depth == 0 && character == '}').then_some(at + 1)
                        }
                        ';' if depth == 0 => Some(at + 1),
                        _ => None,
                    };
                    if let Some(end) = end {
                        keep.push_str(&line[end..]);
                        lines[number] = keep;
                        break 'item;
                    }
                }
                lines[number] = std::mem::take(&mut keep);
                number += 1;
                column = 0;
                if number == lines.len() {
                    break;
                }
            }
        }
        lines
    }
}

/// The source files of the root package and of the crates, without their examples.
fn all_sources() -> Vec<&'static Source> {
    let mut files = sources("src");
    files.extend(sources("crates").into_iter().filter(|file| file.name.contains("/src/")));
    files
}

/// The source files of each crate. The root package is called `turnwright`.
fn by_crate() -> BTreeMap<String, Vec<&'static Source>> {
    let mut crates: BTreeMap<String, Vec<&'static Source>> = BTreeMap::new();
    for file in all_sources() {
        let name = file.name.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        crates.entry(name.unwrap_or("turnwright").to_owned()).or_default().push(file);
    }
    crates
}

/// The type that a line of code defines: its name follows `struct`, `enum` or `trait`.
fn defined_type(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let mut keyword = words.next()?;
    while ["(crate)", "(super)", "unsafe", "in"].contains(&keyword) {
        keyword = words.next()?;
    }
    if !["struct", "enum", "trait", "union"].contains(&keyword) {
        return None;
    }
    let name: String = words.next()?.chars().take_while(|letter| in_name(*letter)).collect();
    name.starts_with(char::is_uppercase).then_some(name)
}

/// The numbers of requirements in a line: `R-TURN-4`, `M-9`, `S4-6`, `C.1 #23`.
fn citations(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words: Vec<&str> =
        line.split(|letter: char| !letter.is_alphanumeric() && !"-.#".contains(letter)).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    for (at, word) in words.iter().enumerate() {
        let word = word.trim_matches(['.', '-']);
        let parts: Vec<&str> = word.split('-').collect();
        let cites = match parts.as_slice() {
            ["R", area, number] => area.chars().all(char::is_uppercase) && is_number(number),
            ["M", number] => is_number(number),
            [area, number] => {
                area.strip_prefix('S').is_some_and(|digit| digit.len() == 1 && is_number(digit))
                    && is_number(number)
            }
            _ => false,
        };
        if cites {
            found.push(word.to_owned());
        }
        let table = word.strip_prefix("C.").filter(|number| is_number(number));
        let row = words.get(at + 1).and_then(|next| next.strip_prefix('#'));
        let row = row.map(|row| row.trim_end_matches(['.', '-'])).filter(|row| is_number(row));
        if let (Some(table), Some(row)) = (table, row) {
            found.push(format!("C.{table} #{row}"));
        }
    }
    found
}

fn may_use_anything(module: &str) -> bool {
    MAY_USE.iter().any(|(row, allowed)| *row == module && *allowed == EVERYTHING)
}

fn may_use(module: &str, used: &str) -> bool {
    let row = MAY_USE.iter().find(|(row, _)| *row == module);
    used == module || row.is_some_and(|(_, allowed)| allowed.contains(&used))
}

/// Each `crate::name` that `module` may not use, and each `super::` path to the crate root, which could
/// hide one.
fn forbidden_imports(file: &Source, module: &str) -> Vec<String> {
    let mut found = Vec::new();
    let inline_modules = file.inline_modules();
    for (number, line) in file.code().iter().enumerate() {
        for at in words(line, "crate::") {
            let rest = &line[at + "crate::".len()..];
            let used: String = rest.chars().take_while(|it| in_name(*it)).collect();
            if used.is_empty() {
                found.push(file.at(number, "write one `use crate::module` per line"));
            } else if !may_use(module, &used) {
                found.push(file.at(number, &format!("{module} → {used}")));
            }
        }
        // Each inline `mod tests { … }` needs one more `super` to leave the file.
        let climb = "super::".repeat(file.depth() + inline_modules[number]);
        if words(line, &climb).next().is_some() {
            found.push(file.at(number, &format!("`{climb}` is the crate: write `crate::module`")));
        }
    }
    found
}

fn in_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The positions of `what` in `line`, except where it is only a part of a longer name.
fn words<'a>(line: &'a str, what: &'a str) -> impl Iterator<Item = usize> {
    line.match_indices(what).map(|(at, _)| at).filter(move |at| {
        let starts = !what.starts_with(in_name) || !line[..*at].ends_with(in_name);
        let ends = !what.ends_with(in_name) || !line[at + what.len()..].starts_with(in_name);
        starts && ends
    })
}

/// Replaces comments and the contents of literals by spaces. Line breaks stay.
fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let after_name = code.ends_with(in_name);
        let literal = if rest.starts_with("//") {
            Some(rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            Some(block_comment(rest))
        } else if next == '"' {
            Some(quoted(rest, '"'))
        } else if next == '\'' {
            character(rest)
        } else if after_name {
            None
        } else {
            raw_string(rest)
        };
        let (length, visible) = literal.map_or((next.len_utf8(), true), |length| (length, false));
        let (taken, left) = rest.split_at(length);
        if visible {
            code.push_str(taken);
        } else {
            code.extend(taken.chars().map(|it| if it == '\n' { '\n' } else { ' ' }));
        }
        rest = left;
    }
    code
}

/// The length of the block comment at the start of `text`. Block comments nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the literal at the start of `text`, which ends at the next unescaped `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, it) in text.char_indices().skip(1) {
        if it == quote && !escaped {
            return at + it.len_utf8();
        }
        escaped = it == '\\' && !escaped;
    }
    text.len()
}

/// The length of the character literal at the start of `text`, or `None` for a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut rest = text.chars().skip(1);
    let (first, second) = (rest.next()?, rest.next()?);
    (first == '\\' || second == '\'').then(|| quoted(text, '\''))
}

/// The length of the raw string (`r"…"`, `br#"…"#`, `cr"…"`) at the start of `text`, or `None`.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|it| {
        text.strip_prefix(it).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = text[prefix.len()..].chars().take_while(|it| *it == '#').count();
    let open = prefix.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(text[open..].find(&close).map_or(text.len(), |at| open + at + close.len()))
}

/// Removes the prompt and the comment from a line of a shell block.
fn command(line: &str) -> &str {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    line.split(" #").next().unwrap_or_default().trim()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, or an empty string if it cannot be read, in which case the caller's check fails.
fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_default().replace("\r\n", "\n")
}

/// The `.rs` files at or below `place`, sorted by path. There are none if `place` does not exist.
fn sources(place: &str) -> Vec<&'static Source> {
    // The tests share what is read and blanked.
    static FILES: OnceLock<Mutex<BTreeMap<PathBuf, &'static Source>>> = OnceLock::new();
    let mut paths = Vec::new();
    collect(&root().join(place), &mut paths);
    paths.sort();
    let mut files = FILES.get_or_init(Mutex::default).lock().unwrap();
    let file = |path: PathBuf| {
        let name = path.strip_prefix(root()).ok()?.to_string_lossy().replace('\\', "/");
        let new = || Box::leak(Box::new(Source::new(name.clone(), read(&name))));
        Some(*files.entry(path).or_insert_with(|| new()))
    };
    paths.into_iter().filter_map(file).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn check(title: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{title}:\n  {}", wrong.join("\n  "));
}
