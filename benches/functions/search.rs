//! Measures searches in a large workspace against `rg` as a process on the same files, from its
//! start to the end of its output. The files are read once before, so both find them in the page
//! cache.
#![expect(clippy::disallowed_methods, reason = "the bans are for the agent")]

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnwright_workspace::search::{
    FindOptions, Glob, GrepQuery, SearchDeadline, SearchScope, find, grep,
};

use crate::table::{Table, ms};

const FILES: usize = 50_000;
const IN_FOLDER: usize = 50;
/// How often each measurement is repeated.
const ROUNDS: usize = 9;
/// How many times the duration of `rg` a search may take.
const BUDGET: f64 = 1.5;

pub(crate) fn measure() -> io::Result<()> {
    let workspace = tempfile::tempdir()?;
    let root = fs::canonicalize(workspace.path())?;
    let bytes = fill(&root)?;
    let peer = ripgrep();
    let (root, peer) = (root.as_path(), peer.as_deref());
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let megabytes = bytes as f64 / 1e6;
    let mut table = Table::begin(&format!("searching {FILES} files, {megabytes:.0} MB"));
    if peer.is_none() {
        println!("NO PEER: there is no rg; run benches/get-ripgrep to compare with it");
    }
    let rows = [
        ("one rare hit", query("needle_in_the_haystack")),
        ("a hit in each file", query("fn handle_")),
        ("a hit in most lines", query("let")),
        ("an expression", query(r"fn handle_\d+7\(")),
        ("ignoring case", GrepQuery { ignore_case: true, ..query("NEEDLE_in_the_haystack") }),
        ("only the files", GrepQuery { files_only: true, ..query("fn handle_") }),
    ];
    for (name, query) in rows {
        let query = &query;
        let theirs = peer.map(|rg| move || theirs(rg, root, query));
        compare(&mut table, &format!("grep: {name}"), || ours(root, query), theirs.as_ref());
    }
    let glob = Glob::parse("*7.rs", root).map_err(io::Error::other)?;
    let scope = SearchScope { glob: Some(glob), ..everything_below(root) };
    let ours = || assert_eq!(find(&scope, FindOptions::default(), &stop()).total, FILES / 10);
    let theirs =
        peer.map(|rg| move || run(Command::new(rg).args(["--files", "--glob", "*7.rs"]).arg(root)));
    compare(&mut table, "find_files: *7.rs", ours, theirs.as_ref());
    table.end();
    Ok(())
}

/// Runs both alternately, so that other load on the machine affects both, and compares the fastest
/// runs.
fn compare(table: &mut Table, name: &str, ours: impl Fn(), theirs: Option<&impl Fn()>) {
    let (mut own, mut peer) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        own = own.min(time(&ours));
        if let Some(theirs) = theirs {
            peer = peer.min(time(theirs));
        }
    }
    table.note(name, ms(own), "ms");
    if theirs.is_some() {
        table.note("… rg", ms(peer), "ms");
        table.row("… compared with rg", own.as_secs_f64() / peer.as_secs_f64(), "×", BUDGET);
    }
}

fn query(pattern: &str) -> GrepQuery {
    GrepQuery { pattern: pattern.to_owned(), ..GrepQuery::default() }
}

/// Everything below a folder that is neither hidden nor ignored.
fn everything_below(root: &Path) -> SearchScope {
    SearchScope {
        root: root.to_path_buf(),
        glob_base: root.to_path_buf(),
        excluded: Arc::new(|_: &Path| false),
        include_hidden: false,
        glob: None,
    }
}

fn stop() -> SearchDeadline {
    SearchDeadline::new(Arc::default(), Duration::from_secs(60))
}

fn ours(root: &Path, query: &GrepQuery) {
    let found = grep(&everything_below(root), query, &stop());
    assert!(found.is_ok_and(|it| it.files_with_matches > 0
        && !it.is_incomplete
        && it.files_searched == FILES));
}

fn theirs(rg: &Path, root: &Path, query: &GrepQuery) {
    let mut command = Command::new(rg);
    command.args(["--line-number", "--no-heading", "--color=never"]);
    if query.ignore_case {
        command.arg("--ignore-case");
    }
    if query.files_only {
        command.arg("--files-with-matches");
    }
    run(command.arg("-e").arg(&query.pattern).arg(root));
}

/// Reads the output through a pipe to the end, as an agent would.
fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    assert!(output.as_ref().is_ok_and(|it| it.status.success() && !it.stdout.is_empty()));
    drop(black_box(output));
}

fn time(work: impl Fn()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn ripgrep() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/rg");
    [PathBuf::from("rg"), own].into_iter().find(|it| {
        let version = Command::new(it).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|it| it.success())
    })
}

/// Creates a workspace of small source files with some ignore rules. Returns their total size.
fn fill(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    fs::create_dir(root.join(".git"))?;
    fs::write(root.join(".gitignore"), "target/\n*.log\nnode_modules/\n/dist\n*.tmp\n")?;
    for number in 0..FILES {
        let folder = root.join(format!("crate{}/src/part{}", number / 2_500, number / IN_FOLDER));
        if number % IN_FOLDER == 0 {
            fs::create_dir_all(&folder)?;
        }
        let text = source(number);
        bytes += text.len() as u64;
        fs::write(folder.join(format!("file{number}.rs")), text)?;
    }
    Ok(bytes)
}

/// A source file of about 1 to 6 KB.
fn source(number: usize) -> String {
    let mut text =
        format!("//! Part {number}.\n\npub fn handle_{number}(input: &str) -> usize {{\n");
    for line in 0..(20 + number * 7 % 80) {
        text.push_str(&format!("    let value_{line} = input.len() * {line} + {number};\n"));
    }
    if number == FILES / 3 {
        text.push_str("    // needle_in_the_haystack\n");
    }
    text.push_str("    input.len()\n}\n");
    text
}
