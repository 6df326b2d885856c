//! Measures the whole program against its budgets: `cargo bench --bench process [-- --quick]`. A
//! missed budget is reported but is not an error, because the figures depend on the machine and on
//! what else runs on it. Only figures of the same run can be compared. `TURNWRIGHT_BENCH_BINARY`
//! names another agent to measure; `--long-work` measures only that; `--walk` runs one session with it and measures nothing. `--peers`
//! measures other ACP agents beside it, and `--acp 2` version 2 of the protocol beside version 1.
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
mod seed;
mod servers;
mod sessions;
mod table;
mod tools;
mod usage;
mod versions;
mod walk;

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use model::Model;
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
        _ if arguments.contains(&"--long-work") => measure_long_work(),
        _ => {
            let rounds = if arguments.contains(&"--quick") { QUICK } else { FULL };
            if arguments.windows(2).any(|it| it == ["--acp", "2"]) {
                abort_after(4 * LIMIT);
                versions::compare(&MEASUREMENTS, rounds)
            } else {
                abort_after(LIMIT);
                measure(rounds)
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

fn measure_long_work() -> io::Result<()> {
    let model = Model::start()?;
    let mut table = Table::begin("long work");
    long_work::compactions(&mut table, &model, FULL)?;
    table.end();
    Ok(())
}

/// Adds some rows to a table.
type Measurement = fn(&mut Table, &Model, Rounds) -> io::Result<()>;

const MEASUREMENTS: [Measurement; 17] = [
    latency::start,
    latency::rules,
    latency::turns,
    latency::cancels,
    tools::files,
    tools::commands,
    tools::flood,
    tools::first_prompts,
    load::bursts,
    load::memory,
    load::streams,
    |table, model, _| load::large_writes(table, model),
    |table, _, _| load::size(table),
    servers::all,
    sessions::load,
    latency::growth,
    long_work::compactions,
];

fn abort_after(limit: Duration) {
    thread::spawn(move || {
        thread::sleep(limit);
        eprintln!("process: the time limit of {} s is exceeded", limit.as_secs());
        std::process::abort();
    });
}

fn measure(rounds: Rounds) -> io::Result<()> {
    let model = Model::start()?;
    let mut table = Table::begin(&agent::binary().to_string_lossy());
    for measure in MEASUREMENTS {
        measure(&mut table, &model, rounds)?;
    }
    table.end();
    Ok(())
}
