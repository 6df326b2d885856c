//! Measures the whole program against its budgets, and beside the figures of the last release: `cargo bench --bench
//! process [-- --quick]`. A missed budget or a worse figure is reported but is not an error, because the figures depend
//! on the machine and on what else runs on it. `--record` makes the figures those of the last release. `TURNWRIGHT_BENCH_BINARY`
//! names another agent to measure; `--only long_work` measures only that; `--walk` runs one session with it and measures nothing. `--peers`
//! measures other ACP agents beside it, and `--acp 2` version 2 of the protocol beside version 1, in so many pairs
//! as `--pairs` says.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark starts processes, reads its environment and prints its figures"
)]

mod agent;
mod floor;
mod latency;
mod load;
mod long_work;
mod model;
mod peers;
mod recorded;
mod seed;
mod servers;
mod sessions;
mod table;
mod tools;
mod unique_content;
mod usage;
mod versions;
mod walk;

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use model::Model;
use recorded::Recorded;
use table::Table;

/// The benchmark aborts after this time.
const LIMIT: Duration = Duration::from_secs(600);

/// The number of repetitions of each measurement.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// The number of agent processes to start.
    starts: usize,
    /// The number of prompts and tool rounds, from which other numbers are derived.
    turns: usize,
    /// The number of replies with 2 000 deltas.
    bursts: usize,
    /// The number of additional sessions when the memory of a session is measured.
    sessions: usize,
    /// The number of sessions that stream at once.
    streams: usize,
    /// The number of rounds of the long conversation.
    length: usize,
    /// The number of turns of the session with compactions.
    long_turns: usize,
}

const FULL: Rounds = Rounds {
    starts: 30,
    turns: 60,
    bursts: 20,
    sessions: 200,
    streams: 200,
    length: 300,
    long_turns: 1_000,
};
const QUICK: Rounds = Rounds {
    starts: 10,
    turns: 15,
    bursts: 5,
    sessions: 200,
    streams: 200,
    length: 60,
    long_turns: 200,
};

/// For one half of a pair, of which there are many.
const PAIR: Rounds = Rounds {
    starts: 10,
    turns: 12,
    bursts: 2,
    sessions: 50,
    streams: 100,
    length: 25,
    long_turns: 100,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["--floor", address] => floor::run(address),
        ["--server", tools] => servers::serve(tools),
        _ if arguments.contains(&"--walk") => walk::run(),
        _ if arguments.contains(&"--walk-start") => walk::start(),
        // `cargo bench` passes `--bench`. `cargo test` does not, and must not run the measurements.
        _ if !arguments.contains(&"--bench") || arguments.contains(&"--test") => Ok(()),
        _ if arguments.contains(&"--peers") => peers::measure(FULL),
        _ => {
            let rounds = if arguments.contains(&"--quick") { QUICK } else { FULL };
            let value_of =
                |option: &str| arguments.windows(2).find(|it| it[0] == option).map(|it| it[1]);
            let only = value_of("--only");
            let chosen = MEASUREMENTS.into_iter().filter(|it| only.is_none_or(|only| it.0 == only));
            if value_of("--acp") == Some("2") {
                abort_after(9 * LIMIT);
                let is_quick = arguments.contains(&"--quick");
                let pairs = value_of("--pairs").and_then(|it| it.parse().ok());
                let pairs = pairs.unwrap_or(if is_quick { 5 } else { 11 });
                versions::compare(chosen, pairs.max(1), PAIR)
            } else {
                abort_after(LIMIT);
                let is_quick = arguments.contains(&"--quick");
                match (arguments.contains(&"--record"), only.is_none() && !is_quick) {
                    (true, false) => Err(io::Error::other("--record needs all rows, in full")),
                    (is_recorded, _) => measure(chosen, rounds, is_quick, is_recorded),
                }
            }
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("process: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The name of a measurement, and what adds its rows to a table.
type Measurement = (&'static str, fn(&mut Table, &Model, Rounds) -> io::Result<()>);

const MEASUREMENTS: [Measurement; 17] = [
    ("start", latency::start),
    ("rules", latency::rules),
    ("turns", latency::turns),
    ("cancels", latency::cancels),
    ("files", tools::files),
    ("commands", tools::commands),
    ("flood", tools::flood),
    ("first_prompts", tools::first_prompts),
    ("bursts", load::bursts),
    ("memory", load::memory),
    ("streams", load::streams),
    ("large_writes", |table, model, _| load::large_writes(table, model)),
    ("size", |table, _, _| load::size(table)),
    ("servers", servers::all),
    ("load", sessions::load),
    ("growth", latency::growth),
    ("long_work", long_work::compactions),
];

fn abort_after(limit: Duration) {
    thread::spawn(move || {
        thread::sleep(limit);
        eprintln!("process: the time limit of {} s is exceeded", limit.as_secs());
        std::process::abort();
    });
}

/// Prints the rows beside those of the last release, or makes them the new ones if `is_recorded`. What a quick run
/// measures depends on its lower numbers of rounds, so it is not compared.
fn measure(
    chosen: impl Iterator<Item = Measurement>,
    rounds: Rounds,
    is_quick: bool,
    is_recorded: bool,
) -> io::Result<()> {
    let model = Model::start()?;
    let recorded = if is_quick { None } else { Some(Recorded::read(&model)?) };
    let floor = recorded.as_ref().map(Recorded::floor);
    let subject = agent::binary().to_string_lossy().into_owned();
    let mut table = match recorded {
        Some(mut recorded) => {
            Table::begin_beside(&subject, Box::new(move |it| recorded.compare(it)))
        }
        None => Table::begin(&subject),
    };
    for (_, measure) in chosen {
        measure(&mut table, &model, rounds)?;
    }
    table.end();
    match floor {
        Some(floor) if is_recorded => recorded::write(&table.into_figures(), floor),
        _ => Ok(()),
    }
}
