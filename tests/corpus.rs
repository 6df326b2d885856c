//! Tests the readers of reply streams against recorded streams. Each file of `tests/data/sse` holds a
//! stream and the transcript that must result from it, wherever the stream is cut into pieces.
//! `BLESS=1 cargo test --test corpus` updates the transcripts. `tests/data/sse/README.md` describes the
//! format of the files.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test runner of its own: it reads BLESS, rewrites the corpus and prints its count"
)]

#[path = "corpus/transcript.rs"]
mod transcript;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use transcript::transcribe;
use turnwright_llm::Protocol;
use turnwright_types::line_diff::unified_diff;

/// The minimum number of files. A smaller number means that files have been lost.
const MIN_FILES: usize = 120;
/// Files up to this size are cut at every character, longer files at no more than [`MAX_CUTS`]
/// places, so that the test stays fast.
const SHORT_FILE_BYTES: usize = 4 * 1024;
const MAX_CUTS: usize = 512;

/// The tables of provider quirks in the requirements, each with the number of its last row.
const QUIRK_TABLES: [(&str, u8); 3] = [("C.1", 40), ("C.2", 23), ("C.3", 16)];
/// The rows whose number has a letter.
const EXTRA_ROWS: [&str; 1] = ["C.1 #28b"];
/// The rows that no recorded stream can cover, with the reason.
const EXEMPT_ROWS: [(&str, &str); 5] = [
    ("C.1 #36", "what a request must not ask for; we always stream"),
    ("C.1 #40", "certificates, proxies and resets, before any byte of an answer"),
    ("C.2 #23", "a parameter of the request"),
    ("C.3 #15", "what is left out of the next request when the model changes"),
    ("C.3 #16", "which of two endpoints to use"),
];

/// The options that the header of a file may have after its title.
const HEADER_OPTIONS: [&str; 5] = ["api", "model", "tools", "note", "todo"];

fn main() -> ExitCode {
    if std::env::args().any(|it| it == "--list") {
        println!("corpus: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    match load(&filters) {
        Ok(cases) if std::env::var_os("BLESS").is_some() => bless(&cases),
        Ok(cases) => check(&cases, filters.is_empty()),
        Err(error) => fail(&[error]),
    }
}

/// One file of the corpus.
struct CorpusCase {
    path: PathBuf,
    /// The path from the root of the package.
    name: String,
    /// Everything before the expected transcript, verbatim.
    header: String,
    /// The rows of the quirk tables that the file covers.
    rows: Vec<String>,
    /// Whether the file is in `todo`: its transcript describes behaviour that is not implemented yet.
    todo: bool,
    api: String,
    model: String,
    tools: Vec<String>,
    expected: String,
    wire: Vec<u8>,
}

fn load(filters: &[String]) -> Result<Vec<CorpusCase>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases = Vec::new();
    for (folder, todo) in [("tests/data/sse", false), ("tests/data/sse/todo", true)] {
        // Git stores no empty folders, so `todo` may be missing.
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| format!("{folder}: {error}"))?.path();
            if path.extension().is_some_and(|value| value == "sse") {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let name = format!("{folder}/{file}");
                let bytes = fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
                let case = parse(&bytes, path, &name, todo);
                cases.push(case.map_err(|what| format!("{name}: {what}"))?);
            }
        }
    }
    cases.retain(|case| {
        filters.is_empty() || filters.iter().any(|value| case.name.contains(&**value))
    });
    cases.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(cases)
}

fn parse(bytes: &[u8], path: PathBuf, name: &str, todo: bool) -> Result<CorpusCase, String> {
    let (header, rest) = split_at_line(bytes, b"=== expect\n").ok_or("no line `=== expect`")?;
    let (expected, wire) = split_at_line(rest, b"=== wire\n").ok_or("no line `=== wire`")?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "not UTF-8".to_owned());
    let (header, expected) = (text(header)?, text(expected)?);
    let mut lines = header.lines();
    let title = lines.next().and_then(|it| it.strip_prefix("# "));
    let title: Vec<&str> = title.unwrap_or_default().split(" | ").collect();
    let [rows, _, _] = title[..] else { return Err("no title `# ROWS | SERVER | WHAT`".into()) };
    let (mut api, mut model, mut tools, mut has_reason) = ("chat", "", Vec::new(), false);
    for line in lines {
        let option = line.strip_prefix("# ").and_then(|it| it.split_once(": "));
        let Some((key, value)) = option.filter(|(key, _)| HEADER_OPTIONS.contains(key)) else {
            return Err(format!("not an option: {line}"));
        };
        has_reason |= key == "todo";
        match key {
            "api" => api = value,
            "model" => model = value,
            "tools" => tools = value.split(", ").map(str::to_owned).collect(),
            _ => {}
        }
    }
    if todo != has_reason {
        return Err("a file says `# todo: WHY` if and only if it is in todo/".to_owned());
    }
    Ok(CorpusCase {
        rows: rows.split(", ").map(str::to_owned).collect(),
        api: api.to_owned(),
        model: model.to_owned(),
        tools,
        name: name.to_owned(),
        wire: wire.to_vec(),
        path,
        header,
        todo,
        expected,
    })
}

/// Splits `bytes` at the first occurrence of `line` and returns the text before and after that line.
fn split_at_line<'a>(bytes: &'a [u8], line: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = |at: &usize| bytes[*at..].starts_with(line) && (*at == 0 || bytes[at - 1] == b'\n');
    let at = (0..bytes.len()).find(found)?;
    Some((&bytes[..at], &bytes[at + line.len()..]))
}

impl CorpusCase {
    fn transcribe<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        match Protocol::parse(&self.api) {
            Some(protocol) => transcribe(protocol, &self.model, &self.tools, pieces),
            None => format!("no such api: {}\n", self.api),
        }
    }

    /// The stream with each kind of line ending. A stream that contains a CR is only used unchanged.
    fn endings(&self) -> Vec<(&'static str, Vec<u8>)> {
        if self.wire.contains(&b'\r') {
            return vec![("as it stands", self.wire.clone())];
        }
        let with = |ending: &[u8]| {
            let lines: Vec<&[u8]> = self.wire.split(|it| *it == b'\n').collect();
            lines.join(ending)
        };
        vec![("with LF", with(b"\n")), ("with CRLF", with(b"\r\n")), ("with CR", with(b"\r"))]
    }

    /// Reads the stream once for each way of cutting it. Returns the number of readings, or the first
    /// difference from the expected transcript.
    fn run(&self) -> Result<usize, String> {
        let mut count = 0;
        let mut read = |how: &str, pieces: &mut dyn Iterator<Item = &[u8]>| {
            count += 1;
            let result = self.transcribe(pieces);
            if result == self.expected { Ok(()) } else { Err(self.diff(how, &result)) }
        };
        for (number, (ending, bytes)) in self.endings().into_iter().enumerate() {
            read(&format!("{ending}, whole"), &mut [&*bytes].into_iter())?;
            read(&format!("{ending}, 1 byte each"), &mut bytes.chunks(1))?;
            read(&format!("{ending}, 7 bytes each"), &mut bytes.chunks(7))?;
            // The first pass has cut everywhere. Another line ending can only change the result of
            // cuts at line ends.
            let cuts = if number == 0 { cuts(&bytes) } else { line_ends(&bytes) };
            for cut in cuts {
                let (start, end) = bytes.split_at(cut);
                let how = format!("{ending}, cut after {cut} bytes");
                read(&how, &mut [start, end].into_iter())?;
            }
        }
        Ok(count)
    }

    fn diff(&self, how: &str, result: &str) -> String {
        let diff = unified_diff(&self.expected, result, 3, None);
        format!("{}: {how}\n--- expected\n+++ read\n{diff}", self.name)
    }
}

/// The offsets at which a stream is cut: all character boundaries, or evenly spaced boundaries if the
/// stream is long.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let is_start = |at: &usize| bytes[*at] & 0b1100_0000 != 0b1000_0000;
    let all: Vec<usize> = (1..bytes.len()).filter(is_start).collect();
    let step = if bytes.len() > SHORT_FILE_BYTES { all.len().div_ceil(MAX_CUTS) } else { 1 };
    all.into_iter().step_by(step).collect()
}

/// The offsets before, within and after each line ending.
fn line_ends(bytes: &[u8]) -> Vec<usize> {
    let is_end = |byte: u8| byte == b'\n' || byte == b'\r';
    (1..bytes.len()).filter(|at| is_end(bytes[*at]) || is_end(bytes[at - 1])).collect()
}

fn check(cases: &[CorpusCase], is_all: bool) -> ExitCode {
    let (todo, done): (Vec<&CorpusCase>, Vec<&CorpusCase>) = cases.iter().partition(|it| it.todo);
    let (readings, mut errors) = run_all(&done);
    if is_all {
        errors.extend(coverage_errors(cases));
    }
    let failing = todo.iter().filter(|it| it.run().is_err()).count();
    for case in todo.iter().filter(|it| it.run().is_ok()) {
        println!("corpus: {} is as expected: move it out of todo/", case.name);
    }
    if !errors.is_empty() {
        return fail(&errors);
    }
    let (files, readings) = (grouped(done.len()), grouped(readings));
    println!("corpus: {files} files, {readings} readings, all as expected; {failing} todo");
    ExitCode::SUCCESS
}

/// Runs the cases on all cores. Returns the number of readings and the failures.
fn run_all(cases: &[&CorpusCase]) -> (usize, Vec<String>) {
    let (next, readings) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let errors = Mutex::new(Vec::new());
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match case.run() {
                Ok(count) => drop(readings.fetch_add(count, Ordering::Relaxed)),
                Err(error) => errors.lock().unwrap_or_else(PoisonError::into_inner).push(error),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    let mut errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    errors.sort();
    (readings.into_inner(), errors)
}

/// The errors that concern the corpus as a whole: missing files, and rows that are not covered or do
/// not exist.
fn coverage_errors(cases: &[CorpusCase]) -> Vec<String> {
    let mut errors = Vec::new();
    if cases.len() < MIN_FILES {
        errors.push(format!("{} files, at least {MIN_FILES} should be there", cases.len()));
    }
    let numbered = QUIRK_TABLES
        .iter()
        .flat_map(|(table, last)| (1..=*last).map(move |number| format!("{table} #{number}")));
    let rows: Vec<String> = numbered.chain(EXTRA_ROWS.map(str::to_owned)).collect();
    let covered: BTreeSet<&str> =
        cases.iter().flat_map(|it| &it.rows).map(String::as_str).collect();
    let is_exempt = |row: &str| EXEMPT_ROWS.iter().any(|(it, _)| *it == row);
    let without: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|it| !covered.contains(it) && !is_exempt(it))
        .collect();
    if !without.is_empty() {
        errors.push(format!("rows without a file: {}", without.join(", ")));
    }
    for (row, reason) in EXEMPT_ROWS.iter().filter(|(row, _)| covered.contains(row)) {
        errors.push(format!("{row} has a file although it is exempt: {reason}"));
    }
    for row in
        covered.into_iter().filter(|it| QUIRK_TABLES.iter().any(|(table, _)| it.starts_with(table)))
    {
        if row.contains('#') && !rows.iter().any(|it| it == row) {
            errors.push(format!("no such row: {row}"));
        }
    }
    errors
}

/// Writes the current transcripts into the files, except into those of `todo`.
fn bless(cases: &[CorpusCase]) -> ExitCode {
    for case in cases.iter().filter(|it| !it.todo) {
        let transcript = case.transcribe([case.wire.as_slice()]);
        if transcript == case.expected {
            continue;
        }
        let head = format!("{}=== expect\n{transcript}=== wire\n", case.header);
        let bytes = [head.as_bytes(), &case.wire].concat();
        match fs::write(&case.path, bytes) {
            Ok(()) => println!("corpus: {}", case.diff("blessed", &transcript)),
            Err(error) => return fail(&[format!("{}: {error}", case.name)]),
        }
    }
    ExitCode::SUCCESS
}

fn fail(errors: &[String]) -> ExitCode {
    for error in errors {
        println!("corpus: {error}");
    }
    println!("corpus: {} not as expected", errors.len());
    ExitCode::FAILURE
}

/// The number with its digits in groups of three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|it| std::str::from_utf8(it).ok()).collect();
    groups.join(" ")
}
