//! Measures what the tools do besides waiting for a disk or a process, against their budgets:
//! finding and applying an edit, and cleaning the output of a command. The latter runs on the
//! runtime's thread, so every chunk must be fast, whatever it contains.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use turnwright_workspace::edit::{TextEdit, apply};
use turnwright_workspace::exec::CommandOutput;

use crate::table::{Table, ms};

/// How often each measurement is repeated.
const ROUNDS: usize = 15;
/// The size of a chunk of output.
const CHUNK: usize = 32 * 1024;
/// The number of chunks of a command's output.
const CHUNKS: usize = 32;

pub(crate) fn measure() {
    let mut table = Table::begin("the tools");
    edits(&mut table);
    output(&mut table);
    table.end();
}

/// Measures one edit near the end of a text.
fn edits(table: &mut Table) {
    let (small, large) = (text(200), text(25_000));
    let pieces = |lines: usize, indent: &str| {
        let line = lines - 20;
        format!(
            "{indent}let value_{line} = compute({line});\n{indent}let value_{} = compute({});",
            line + 1,
            line + 1
        )
    };
    let absent =
        "    let nothing_like_it = 1;\n    if value_777.is_some() {\n        run();\n    }\n";
    let rows = [
        ("edit of 200 lines", &small, pieces(200, "    "), 0.1),
        ("… by its indentation", &small, pieces(200, ""), 0.3),
        ("… a miss, with the closest lines", &small, absent.to_owned(), 2.0),
        ("edit of 25 000 lines, 1 MB", &large, pieces(25_000, "    "), 10.0),
        ("… by its indentation", &large, pieces(25_000, ""), 30.0),
        ("… a miss, with the closest lines", &large, absent.to_owned(), 100.0),
    ];
    for (name, text, old, budget) in rows {
        let is_miss = old == absent;
        let edit =
            [TextEdit { old, new: "    replaced();\n    other();".to_owned(), replace_all: false }];
        let took = fastest(|| {
            let applied = apply(black_box(text), &edit);
            assert_eq!(applied.is_err(), is_miss);
            applied.err().map(|it| it.explain("src/main.rs", 1))
        });
        table.row(name, ms(took), "ms", budget);
    }
}

/// A source of this many distinct lines.
fn text(lines: usize) -> String {
    let line = |it| format!("    let value_{it} = compute({it});\n");
    (0..lines).map(line).collect()
}

/// Measures the slowest chunk of different kinds of output.
fn output(table: &mut Table) {
    let numbered = |line: fn(usize) -> String| (0..600_000).map(line).collect::<String>();
    let mut noise = 88_172_645_463_325_252_u64;
    let random = std::iter::repeat_with(|| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise.to_le_bytes()[0]
    });
    let kinds = [
        (
            "lines of a log",
            numbered(|it| format!("{it} INFO server: a request has been answered\n")),
        ),
        ("seq", numbered(|it| format!("{it}\n"))),
        ("lines of one letter", numbered(|it| format!("{:x}\n", it % 16))),
        ("empty lines", "\n".repeat(CHUNK * CHUNKS)),
        ("the same line", "yes\n".repeat(CHUNK * CHUNKS / 4)),
        ("colours", numbered(|it| format!("\x1b[3{}m{it}\x1b[0m ok\n", it % 8))),
        ("progress", numbered(|it| format!("{it}%\r"))),
        ("a line without an end", "x".repeat(CHUNK * CHUNKS)),
        ("backspaces", "|\u{8}/\u{8}".repeat(CHUNK * CHUNKS / 4)),
        ("foreign letters", "日本語のテキスト\n".repeat(CHUNK * CHUNKS / 25 + 1)),
        ("control characters", "\u{7}".repeat(CHUNK * CHUNKS)),
        ("a title without an end", "\u{1b}]0;".to_owned() + &"t".repeat(CHUNK * CHUNKS)),
    ];
    let kinds = kinds.map(|(name, text)| (name, text.into_bytes())).into_iter().chain([
        ("bytes that are no text", vec![0xff; CHUNK * CHUNKS]),
        ("any bytes", random.take(CHUNK * CHUNKS).collect()),
    ]);
    for (name, bytes) in kinds {
        let mut took = vec![Duration::MAX; CHUNKS];
        for _ in 0..ROUNDS {
            let mut output = CommandOutput::new(Path::new("/nowhere/p1.txt"));
            for (took, chunk) in took.iter_mut().zip(bytes.chunks(CHUNK)) {
                let begun = Instant::now();
                output.push(black_box(chunk));
                *took = begun.elapsed().min(*took);
            }
            black_box(output.take_excerpt());
        }
        let slowest = took.into_iter().max().unwrap_or_default();
        table.row(&format!("32 KiB of output: {name}"), ms(slowest), "ms", 1.0);
    }
}

fn fastest<T>(work: impl Fn() -> T) -> Duration {
    let time = || {
        let begun = Instant::now();
        black_box(work());
        begun.elapsed()
    };
    (0..ROUNDS).map(|_| time()).min().unwrap_or_default()
}
