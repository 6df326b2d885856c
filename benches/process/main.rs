//! Measures the whole program against its budgets: `cargo bench --bench process [-- --quick]`. A
//! missed budget is reported but is not an error, because the figures depend on the machine and on
//! what else runs on it. Only figures of the same run can be compared. `TURNWRIGHT_BENCH_BINARY`
//! names another agent to measure; `--long-work` measures only that; `--walk` runs one session with it and measures nothing. `--peers`
//! measures other ACP agents beside it.
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
        _ => measure(if arguments.contains(&"--quick") { QUICK } else { FULL }),
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

fn measure(rounds: Rounds) -> io::Result<()> {
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("process: the time limit of {} s is exceeded", LIMIT.as_secs());
        std::process::abort();
    });
    let model = Model::start()?;
    let mut table = Table::begin(&agent::binary().to_string_lossy());
    latency::start(&mut table, &model, rounds)?;
    latency::rules(&mut table, &model, rounds)?;
    latency::turns(&mut table, &model, rounds)?;
    latency::cancels(&mut table, &model, rounds)?;
    tools::files(&mut table, &model, rounds)?;
    tools::commands(&mut table, &model, rounds)?;
    tools::flood(&mut table, &model, rounds)?;
    tools::first_prompts(&mut table, &model, rounds)?;
    load::bursts(&mut table, &model, rounds)?;
    load::memory(&mut table, &model, rounds)?;
    load::streams(&mut table, &model, rounds)?;
    load::large_writes(&mut table, &model)?;
    load::size(&mut table)?;
    servers::all(&mut table, &model, rounds)?;
    sessions::load(&mut table, &model, rounds)?;
    latency::growth(&mut table, &model, rounds)?;
    long_work::compactions(&mut table, &model, rounds)?;
    table.end();
    Ok(())
}
