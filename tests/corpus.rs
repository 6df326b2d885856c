//! The wire corpus: each file of `tests/data/sse`, read in every way a network can deliver it,
//! must mean what the file says. `BLESS=1 cargo test --test corpus` writes what they mean now;
//! the format is in `tests/data/sse/README.md`.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test runner of its own: it reads BLESS, rewrites the corpus and prints its count"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use similar::TextDiff;
use turnwright_llm::{chat, responses};

/// Fewer files than this, and some have been lost.
const FEWEST_FILES: usize = 120;
/// A file of more bytes is not cut in two at each place, but at some, so that it does not hold up
/// the rest.
const SHORT: usize = 4 * 1024;
/// At how many.
const SOME_CUTS: usize = 512;

/// The tables of providers' quirks: their names and their last rows.
const TABLES: [(&str, u8); 3] = [("C.1", 40), ("C.2", 23), ("C.3", 16)];
/// Rows beside the numbers.
const EXTRA_ROWS: [&str; 1] = ["C.1 #28b"];
/// Rows that no bytes of an answer can show.
const NOT_ON_THE_WIRE: [(&str, &str); 5] = [
    ("C.1 #36", "what a request must not ask for; we always stream"),
    ("C.1 #40", "certificates, proxies and resets, before any byte of an answer"),
    ("C.2 #23", "a parameter of the request"),
    ("C.3 #15", "what is left out of the next request when the model changes"),
    ("C.3 #16", "which of two endpoints to use"),
];

/// What a file's header may say besides its title.
const OPTIONS: [&str; 5] = ["api", "model", "tools", "note", "todo"];

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

/// One file.
struct Case {
    path: PathBuf,
    /// From the root of the package.
    name: String,
    /// What stands before the expected transcript, verbatim.
    header: String,
    /// The rows that it is about.
    rows: Vec<String>,
    /// Whether it says what should be and is not yet.
    todo: bool,
    api: String,
    model: String,
    tools: Vec<String>,
    expected: String,
    wire: Vec<u8>,
}

fn load(filters: &[String]) -> Result<Vec<Case>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut cases = Vec::new();
    for (folder, todo) in [("tests/data/sse", false), ("tests/data/sse/todo", true)] {
        // The second is empty, and so not there, when nothing is to be done.
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let path = entry.map_err(|error| format!("{folder}: {error}"))?.path();
            if path.extension().is_some_and(|it| it == "sse") {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let name = format!("{folder}/{file}");
                let bytes = fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
                let case = parse(&bytes, path, &name, todo);
                cases.push(case.map_err(|what| format!("{name}: {what}"))?);
            }
        }
    }
    cases.retain(|case| filters.is_empty() || filters.iter().any(|it| case.name.contains(&**it)));
    cases.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(cases)
}

fn parse(bytes: &[u8], path: PathBuf, name: &str, todo: bool) -> Result<Case, String> {
    let (header, rest) = split(bytes, b"=== expect\n").ok_or("no line `=== expect`")?;
    let (expected, wire) = split(rest, b"=== wire\n").ok_or("no line `=== wire`")?;
    let text = |it: &[u8]| String::from_utf8(it.to_vec()).map_err(|_| "not UTF-8".to_owned());
    let (header, expected) = (text(header)?, text(expected)?);
    let mut lines = header.lines();
    let title = lines.next().and_then(|it| it.strip_prefix("# "));
    let title: Vec<&str> = title.unwrap_or_default().split(" | ").collect();
    let [rows, _, _] = title[..] else { return Err("no title `# ROWS | SERVER | WHAT`".into()) };
    let (mut api, mut model, mut tools, mut has_reason) = ("chat", "", Vec::new(), false);
    for line in lines {
        let option = line.strip_prefix("# ").and_then(|it| it.split_once(": "));
        let Some((key, value)) = option.filter(|(key, _)| OPTIONS.contains(key)) else {
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
    Ok(Case {
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

/// What stands before and after a line.
fn split<'a>(bytes: &'a [u8], line: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let found = |at: &usize| bytes[*at..].starts_with(line) && (*at == 0 || bytes[at - 1] == b'\n');
    let at = (0..bytes.len()).find(found)?;
    Some((&bytes[..at], &bytes[at + line.len()..]))
}

impl Case {
    fn transcribe<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        match self.api.as_str() {
            "chat" => chat::transcribe(&self.model, &self.tools, pieces),
            "responses" => responses::transcribe(&self.model, &self.tools, pieces),
            other => format!("no such api: {other}\n"),
        }
    }

    /// The bytes with each line ending that they may have. Those with a CR are as they should be.
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

    /// Reads the file in every way and counts the readings; the first that is not as expected
    /// ends it.
    fn run(&self) -> Result<usize, String> {
        let mut count = 0;
        let mut read = |how: &str, pieces: &mut dyn Iterator<Item = &[u8]>| {
            count += 1;
            let result = self.transcribe(pieces);
            if result == self.expected { Ok(()) } else { Err(self.differs(how, &result)) }
        };
        for (number, (ending, bytes)) in self.endings().into_iter().enumerate() {
            read(&format!("{ending}, whole"), &mut [&*bytes].into_iter())?;
            read(&format!("{ending}, 1 byte each"), &mut bytes.chunks(1))?;
            read(&format!("{ending}, 7 bytes each"), &mut bytes.chunks(7))?;
            // Another line ending can make a difference only where a line ends.
            let cuts = if number == 0 { cuts(&bytes) } else { line_ends(&bytes) };
            for cut in cuts {
                let (start, end) = bytes.split_at(cut);
                let how = format!("{ending}, cut after {cut} bytes");
                read(&how, &mut [start, end].into_iter())?;
            }
        }
        Ok(count)
    }

    fn differs(&self, how: &str, result: &str) -> String {
        let diff = TextDiff::from_lines(self.expected.as_str(), result);
        let diff = diff.unified_diff().header("expected", "read").to_string();
        format!("{}: {how}\n{diff}", self.name)
    }
}

/// Where to cut: between any two characters, or between some of them, evenly, in a long file.
fn cuts(bytes: &[u8]) -> Vec<usize> {
    let is_start = |at: &usize| bytes[*at] & 0b1100_0000 != 0b1000_0000;
    let all: Vec<usize> = (1..bytes.len()).filter(is_start).collect();
    let step = if bytes.len() > SHORT { all.len().div_ceil(SOME_CUTS) } else { 1 };
    all.into_iter().step_by(step).collect()
}

/// Before, within and after each line end.
fn line_ends(bytes: &[u8]) -> Vec<usize> {
    let is_end = |it: u8| it == b'\n' || it == b'\r';
    (1..bytes.len()).filter(|at| is_end(bytes[*at]) || is_end(bytes[at - 1])).collect()
}

fn check(cases: &[Case], is_all: bool) -> ExitCode {
    let (todo, done): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|it| it.todo);
    let (readings, mut wrong) = run_all(&done);
    if is_all {
        wrong.extend(missing(cases));
    }
    let red = todo.iter().filter(|it| it.run().is_err()).count();
    for case in todo.iter().filter(|it| it.run().is_ok()) {
        println!("corpus: {} is as expected now: move it out of todo/", case.name);
    }
    if !wrong.is_empty() {
        return fail(&wrong);
    }
    let (files, readings) = (grouped(done.len()), grouped(readings));
    println!("corpus: {files} files, {readings} readings, all as expected; {red} more to do");
    ExitCode::SUCCESS
}

/// Runs them on all cores: how many readings there were, and what was wrong.
fn run_all(cases: &[&Case]) -> (usize, Vec<String>) {
    let (next, readings) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match case.run() {
                Ok(count) => drop(readings.fetch_add(count, Ordering::Relaxed)),
                Err(what) => wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    let mut wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort();
    (readings.into_inner(), wrong)
}

/// What the corpus lacks as a whole.
fn missing(cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    if cases.len() < FEWEST_FILES {
        wrong.push(format!("{} files, at least {FEWEST_FILES} should be there", cases.len()));
    }
    let numbered = TABLES
        .iter()
        .flat_map(|(table, last)| (1..=*last).map(move |number| format!("{table} #{number}")));
    let rows: Vec<String> = numbered.chain(EXTRA_ROWS.map(str::to_owned)).collect();
    let covered: BTreeSet<&str> =
        cases.iter().flat_map(|it| &it.rows).map(String::as_str).collect();
    let is_excused = |row: &str| NOT_ON_THE_WIRE.iter().any(|(it, _)| *it == row);
    let without: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|it| !covered.contains(it) && !is_excused(it))
        .collect();
    if !without.is_empty() {
        wrong.push(format!("rows without a file: {}", without.join(", ")));
    }
    for (row, reason) in NOT_ON_THE_WIRE.iter().filter(|(row, _)| covered.contains(row)) {
        wrong.push(format!("{row} has a file and an excuse not to have one: {reason}"));
    }
    for row in
        covered.into_iter().filter(|it| TABLES.iter().any(|(table, _)| it.starts_with(table)))
    {
        if row.contains('#') && !rows.iter().any(|it| it == row) {
            wrong.push(format!("no such row: {row}"));
        }
    }
    wrong
}

/// Writes what each file means now. Those in todo/ say what should be and stay.
fn bless(cases: &[Case]) -> ExitCode {
    for case in cases.iter().filter(|it| !it.todo) {
        let now = case.transcribe([case.wire.as_slice()]);
        if now == case.expected {
            continue;
        }
        let head = format!("{}=== expect\n{now}=== wire\n", case.header);
        let bytes = [head.as_bytes(), &case.wire].concat();
        match fs::write(&case.path, bytes) {
            Ok(()) => println!("corpus: {}", case.differs("blessed", &now)),
            Err(error) => return fail(&[format!("{}: {error}", case.name)]),
        }
    }
    ExitCode::SUCCESS
}

fn fail(wrong: &[String]) -> ExitCode {
    for what in wrong {
        println!("corpus: {what}");
    }
    println!("corpus: {} not as expected", wrong.len());
    ExitCode::FAILURE
}

/// With a space between each three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|it| std::str::from_utf8(it).ok()).collect();
    groups.join(" ")
}
