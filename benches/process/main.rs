//! What the whole program costs, beside its budgets (DESIGN §9):
//! `cargo bench --bench process [-- --quick]`. Nothing is asserted: figures depend on the
//! machine, so compare those of one run, and mind what else runs on it.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench starts processes, looks at its own environment and prints its figures"
)]

mod agent;
mod floor;
mod latency;
mod load;
mod model;
mod seed;
mod servers;
mod sessions;
mod table;
mod tools;
mod usage;

use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use model::Model;
use table::Table;

/// No run takes this long.
const LIMIT: Duration = Duration::from_secs(600);

/// How often each thing is done.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// Processes that are started.
    starts: usize,
    /// Prompts, rounds and cancels.
    turns: usize,
    /// Bursts of 2 000 deltas.
    bursts: usize,
    /// Sessions beside the first, for the memory of each.
    sessions: usize,
    /// Sessions that stream at once.
    streams: usize,
    /// Turns of the long conversation.
    length: usize,
}

const FULL: Rounds =
    Rounds { starts: 30, turns: 60, bursts: 20, sessions: 200, streams: 200, length: 300 };
const QUICK: Rounds =
    Rounds { starts: 10, turns: 15, bursts: 5, sessions: 200, streams: 200, length: 60 };

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["--floor", address] => floor::run(address),
        ["--server", tools] => servers::serve(tools),
        // Cargo passes `--bench` to a bench that is to be run; anything else is a test run.
        _ if !arguments.contains(&"--bench") || arguments.contains(&"--test") => Ok(()),
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

fn measure(rounds: Rounds) -> io::Result<()> {
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("process: something hangs");
        std::process::abort();
    });
    let model = Model::start()?;
    let mut table = Table::begin(agent::BINARY);
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
    load::size(&mut table)?;
    servers::all(&mut table, &model, rounds)?;
    sessions::load(&mut table, &model, rounds)?;
    latency::growth(&mut table, &model, rounds)?;
    table.end();
    Ok(())
}
