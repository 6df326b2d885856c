//! Tests of the architecture: which module may import which, which code may use which functions, and how
//! long a file and a function may be.
//!
//! The checks read source text, line by line and without comments. Each failure lists `file:line: what`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::source_files::{Source, all_sources, in_name, read, root, sources, words};

/// The modules that each module of the root package may use. A row names only rows below it. Missing
/// entries are deliberate: change this table in the same commit as `ARCHITECTURE.md`. The dependencies of
/// the crates are in [`CRATES`].
const MAY_USE: &[(&str, &[&str])] = &[
    ("cli", EVERYTHING),
    ("internals", EVERYTHING),
    ("acp", &["session", "runtime", "error", "completion"]),
    ("mcp_server", &["session", "turn", "tools"]),
    ("session", &["turn", "mcp", "tools", "error", "completion"]),
    ("turn", &["tools", "error", "completion"]),
    ("mcp", &["tools"]),
    ("tools", &[]),
    ("completion", &["error"]),
    ("error", &[]),
    ("runtime", &[]),
    ("log", &[]),
];

/// Marks a module that may use all other modules.
const EVERYTHING: &[&str] = &["*"];

/// The crates that each crate may depend on, as in the diagram of `ARCHITECTURE.md`.
const CRATES: &[(&str, &[&str])] = &[
    ("turnwright-types", &[]),
    ("turnwright-http", &[]),
    ("turnwright-rpc", &["turnwright-types"]),
    ("turnwright-sandbox", &[]),
    ("turnwright-testing", &[]),
    ("turnwright-llm", &["turnwright-http", "turnwright-types"]),
    ("turnwright-policy", &["turnwright-types"]),
    ("turnwright-store", &["turnwright-types"]),
    ("turnwright-workspace", &["turnwright-http", "turnwright-sandbox", "turnwright-types"]),
    ("turnwright-documents", &["turnwright-types", "turnwright-workspace"]),
    ("turnwright-proxy", &["turnwright-http", "turnwright-types", "turnwright-workspace"]),
    (
        "turnwright-guard",
        &[
            "turnwright-policy",
            "turnwright-proxy",
            "turnwright-sandbox",
            "turnwright-types",
            "turnwright-workspace",
        ],
    ),
    ("turnwright-hooks", &["turnwright-sandbox", "turnwright-types", "turnwright-workspace"]),
    (
        "turnwright-lsp",
        &["turnwright-rpc", "turnwright-sandbox", "turnwright-types", "turnwright-workspace"],
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
    (
        "turnwright-recording",
        &[
            "turnwright-llm",
            "turnwright-mcp",
            "turnwright-rpc",
            "turnwright-sandbox",
            "turnwright-store",
            "turnwright-types",
        ],
    ),
    ("turnwright-remote", &["turnwright-http", "turnwright-rpc"]),
    ("turnwright-undo", &["turnwright-store", "turnwright-types", "turnwright-workspace"]),
    (
        "turnwright-config",
        &[
            "turnwright-guard",
            "turnwright-hooks",
            "turnwright-http",
            "turnwright-llm",
            "turnwright-lsp",
            "turnwright-mcp",
            "turnwright-policy",
            "turnwright-sandbox",
            "turnwright-types",
            "turnwright-workspace",
        ],
    ),
    (
        "turnwright-eval",
        &["turnwright-config", "turnwright-store", "turnwright-types", "turnwright-workspace"],
    ),
    (
        "turnwright-terminal",
        &[
            "turnwright-config",
            "turnwright-guard",
            "turnwright-llm",
            "turnwright-mcp",
            "turnwright-policy",
            "turnwright-rpc",
            "turnwright-sandbox",
            "turnwright-store",
            "turnwright-testing",
            "turnwright-types",
            "turnwright-undo",
            "turnwright-workspace",
        ],
    ),
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
        match MAY_USE.iter().find(|(row, _)| *row == module) {
            None => wrong
                .push(file.at(1, "say in `MAY_USE` of tests/it/tidy.rs what this module may use")),
            // The setup of a test may use what its module must not use.
            Some((_, allowed)) if *allowed != EVERYTHING && !file.is_test() => {
                wrong.extend(forbidden_imports(&file, module, allowed));
            }
            Some(_) => {}
        }
    }
    check("forbidden dependencies", &wrong);
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
            for (number, line) in file.numbered_lines() {
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
            for (number, line) in file.numbered_lines() {
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
            wrong.push(file.at(1, "start with `//!`: its job, and what it must not do"));
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
        let code = file.code();
        if !file.is_test() && code.len() > MAX_CODE_LINES {
            let what =
                format!("{} lines of code without tests, at most {MAX_CODE_LINES}", code.len());
            wrong.push(file.at(code[MAX_CODE_LINES].0, &what));
        }
    }
    check("files to split", &wrong);
}

#[test]
fn no_function_is_longer_than_60_lines() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if file.is_test() {
            continue;
        }
        for (start, count) in function_lengths(&file) {
            if count > MAX_FUNCTION_LINES {
                let what = format!("{count} lines, at most {MAX_FUNCTION_LINES}");
                wrong.push(file.at(start, &what));
            }
        }
    }
    check("functions to split", &wrong);
}

#[test]
fn only_rpc_touches_stdin_and_stdout() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let may_touch = [
            "crates/turnwright-rpc/src",
            "src/cli",
            "crates/turnwright-terminal/src",
            "crates/turnwright-packages",
        ];
        if !file.is_in(&may_touch) {
            wrong.extend(file.uses_of(&["stdin()", "stdout()", "println!", "print!"]));
        }
    }
    check("stdin and stdout belong to `rpc` (and to `cli` and `terminal` in a terminal)", &wrong);
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

/// A recording is another world outside of a session, of which a turn and its tools know only the seam. They get the
/// settings that they need as values.
#[test]
fn a_turn_and_its_tools_know_of_no_recordings_and_settings() {
    let rows = [
        ("turnwright_recording", "::outside::", &["src/acp", "src/session", "src/cli"][..]),
        (
            "turnwright_config",
            "::trust::",
            // `tool_env.rs` holds the settings as they were when the session was opened.
            &[
                "src/acp",
                "src/session",
                "src/cli",
                "src/mcp_server",
                "src/internals.rs",
                "src/tools/tool_env.rs",
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for file in sources("src") {
        for (name, open, users) in rows {
            if file.is_in(users) {
                continue;
            }
            for (number, line) in file.code() {
                if words(line, name).any(|at| !line[at + name.len()..].starts_with(open)) {
                    wrong.push(file.at(number, &format!("use only `{name}{open}`")));
                }
            }
        }
    }
    check("recordings and settings that a turn or its tools know of", &wrong);
}

#[test]
fn rpc_errors_are_made_in_two_places() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        if file.is_in(&["crates/turnwright-rpc/src", "src/acp/error.rs"]) {
            continue;
        }
        // After these words, it is an item or a signature, not a value.
        let no_value = ["struct RpcError", "impl RpcError", "for RpcError", "-> RpcError"];
        for (number, line) in file.code() {
            if line.contains("RpcError {") && !no_value.iter().any(|words| line.contains(words)) {
                wrong.push(file.at(number, "return a `crate::error::Error`; `acp::error` maps it"));
            }
        }
    }
    check("JSON-RPC errors made elsewhere than in `rpc` and `acp::error`", &wrong);
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
            // A method may start a task, which may wait. The router does not take one that is async.
            let blocking = ["block_on", "blocking_recv", "blocking_send", "sleep"];
            wrong.extend(file.uses_of(&blocking));
        }
    }
    assert!(has_router && methods > 1, "the files of the router or of the methods have moved");
    check("what answers the next line must never wait", &wrong);
}

/// The source files of each crate. The root package is called `turnwright`.
fn by_crate() -> BTreeMap<String, Vec<Source>> {
    let mut crates: BTreeMap<String, Vec<Source>> = BTreeMap::new();
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

/// The first line of each function and the number of its lines. In formatted code a body ends with a brace that is
/// indented like the beginning.
fn function_lengths(file: &Source) -> Vec<(usize, usize)> {
    let code = file.code();
    let mut found = Vec::new();
    for (at, (start, line)) in code.iter().enumerate() {
        let is_function = words(line, "fn").any(|word| {
            line[word + 2..].strip_prefix(' ').is_some_and(|name| name.starts_with(in_name))
        });
        if !is_function {
            continue;
        }
        let head_end = code[at..].iter().find(|(_, line)| line.ends_with(['{', '}', ';']));
        if head_end.is_some_and(|(_, line)| line.ends_with('{')) {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let last = code[at..].iter().find(|(_, line)| *line == end);
            found.push((*start, last.map_or(code.len(), |(last, _)| last + 1 - start)));
        }
    }
    found
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

/// Each `crate::name` that `module` may not use, and each `super::` path to the crate root, which could
/// hide one.
fn forbidden_imports(file: &Source, module: &str, allowed: &[&str]) -> Vec<String> {
    let climb = "super::".repeat(file.depth());
    let mut found = Vec::new();
    for (number, line) in file.code() {
        for at in words(line, "crate::") {
            let rest = &line[at + "crate::".len()..];
            let used: String = rest.chars().take_while(|letter| in_name(*letter)).collect();
            if used.is_empty() {
                found.push(file.at(number, "write one `use crate::module` per line"));
            } else if used != module && !allowed.contains(&used.as_str()) {
                found.push(file.at(number, &format!("{module} → {used}")));
            }
        }
        if words(line, &climb).next().is_some() {
            found.push(file.at(number, &format!("`{climb}` is the crate: write `crate::module`")));
        }
    }
    found
}

fn check(title: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{title}:\n  {}", wrong.join("\n  "));
}
