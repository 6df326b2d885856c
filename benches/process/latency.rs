//! Measures latencies as the client and the model see them. Each figure is the median of several
//! rounds, so that a few rounds slowed down by other programs do not change it.

use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Rounds;
use crate::agent::{Agent, command, pause, workspace};
use crate::floor::Floor;
use crate::model::{Exchange, Model};
use crate::table::{Table, median, ms};
use crate::usage;

/// Measures the start of the process, its first response and the first sessions.
pub(crate) fn start(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut version, mut initialize, mut first, mut second) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds.starts {
        let folder = workspace()?;
        let begun = Instant::now();
        command(folder.path()).arg("--version").stdout(Stdio::null()).status()?;
        version.push(ms(begun.elapsed()));

        let begun = Instant::now();
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        initialize.push(ms(begun.elapsed()));

        let begun = Instant::now();
        agent.new_session()?;
        first.push(ms(begun.elapsed()));
        // The agent builds its HTTP client for the model in the background.
        pause(20);
        let begun = Instant::now();
        agent.new_session()?;
        second.push(ms(begun.elapsed()));
    }
    let (version, initialize) = (median(version), median(initialize));
    table.note("exec → exit of --version", version, "ms");
    table.row("exec → response to initialize", initialize, "ms", 2.0);
    table.row("… compared with --version", initialize / version, "×", 3.0);
    table.row("session/new, first", median(first), "ms", 0.5);
    table.row("session/new, second", median(second), "ms", 0.5);
    Ok(())
}

/// Measures `session/new` with permission rules: 50 typical ones in the user's file, and the 300 that
/// a project's file may hold, of the most expensive kind.
pub(crate) fn rules(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let usual = |it: usize| match it % 4 {
        0 => format!("exec(program{it} verb)"),
        1 => format!("read(.secret{it})"),
        2 => format!("read(*.key{it})"),
        _ => format!("edit(/generated{it}/**)"),
    };
    let hostile = |it: usize| format!("read(/a{it}/b/c/d/*x*{{y,z}}/**/[a-z]*{it}.?s)");
    let file = |rules: Vec<String>| format!("[permissions]\ndeny = {rules:?}\n");
    let files = [
        ("with 50 typical user rules", "config/config.toml", file((0..50).map(usual).collect())),
        (
            "with 300 hostile project rules",
            ".turnwright/config.toml",
            file((0..300).map(hostile).collect()),
        ),
    ];
    for (name, place, text) in files {
        let mut figures = vec![];
        let folder = workspace()?;
        let path = folder.path().join(place);
        std::fs::create_dir_all(path.parent().unwrap_or(folder.path()))?;
        std::fs::write(path, text)?;
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        for _ in 0..rounds.starts {
            let begun = Instant::now();
            agent.new_session()?;
            figures.push(ms(begun.elapsed()));
            pause(5);
        }
        table.row(&format!("session/new {name}"), median(figures), "ms", 1.0);
        table.note("… RSS", usage::memory(agent.pid())?.rss, "MB");
    }
    Ok(())
}

/// Measures prompts and tool rounds in new sessions. For long sessions see [`growth`].
pub(crate) fn turns(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(300);
    model.take();
    agent.turn(&session, "say")?;
    let first: Vec<Exchange> = model.take();
    let bytes = first.first().map_or(0, |it| u32::try_from(it.bytes).unwrap_or(u32::MAX));
    table.row("size of the first request to the model", f64::from(bytes) / 1024.0, "KiB", 8.0);

    let mut floor = Floor::start(&model.address())?;
    let (mut floor_requests, mut floor_chunks) = (vec![], vec![]);
    let (mut requests, mut chunks, mut reads) = (vec![], vec![], vec![]);
    let mut connections = vec![];
    for _ in 0..rounds.turns {
        let session = agent.new_session()?;
        agent.turn(&session, "say")?;
        model.take();
        let begun = floor.turn("say")?;
        floor_requests.push(ms_between(begun, nth(model.take(), 0)?.received));
        let seen = floor.first_update("slow")?;
        floor_chunks.push(ms_between(nth(nth(model.take(), 0)?.writes, 1)?, seen));
        requests.push(prompt_to_request(&mut agent, model, &session, &mut connections)?);
        chunks.push(delta_to_chunk(&mut agent, model, &session)?);
        reads.push(tool_round(&mut agent, model, &session, "read")?);
    }
    table.row("prompt → request at the model, warm", median(requests), "ms", 0.3);
    table.note("… floor program", median(floor_requests), "ms");
    table.row("first delta → first chunk on stdout", median(chunks), "ms", 0.2);
    table.note("… floor program", median(floor_chunks), "ms");
    table.row("read_file round, short file", median(reads), "ms", 0.5);
    connections.sort_unstable();
    connections.dedup();
    let ratio = to_f64(connections.len()) / to_f64(rounds.turns);
    table.note("connections per prompt", ratio, "");
    Ok(())
}

/// Runs a turn. Returns the time from the prompt to the complete request at the model in
/// milliseconds, and adds the number of the connection to `connections`.
pub(crate) fn prompt_to_request(
    agent: &mut Agent,
    model: &Model,
    session: &str,
    connections: &mut Vec<usize>,
) -> io::Result<f64> {
    model.take();
    // Lets the agent finish the background work of the previous turn, which a user's pause between
    // two prompts would also do.
    pause(5);
    let begun = agent.turn(session, "say")?;
    let exchange = nth(model.take(), 0)?;
    connections.push(exchange.connection);
    Ok(ms_between(begun, exchange.received))
}

/// Runs a turn. Returns the time from the first delta of the model to the update on the agent's
/// stdout in milliseconds.
fn delta_to_chunk(agent: &mut Agent, model: &Model, session: &str) -> io::Result<f64> {
    model.take();
    let (id, _) = agent.prompt(session, "slow")?;
    agent.wait_for("begun")?;
    let seen = Instant::now();
    agent.answer(id)?;
    // Write 0 is the response head.
    let written = nth(nth(model.take(), 0)?.writes, 1)?;
    Ok(ms_between(written, seen))
}

/// Runs a turn with one tool call. Returns the time from the end of the response with the call to the
/// request with its result in milliseconds.
pub(crate) fn tool_round(
    agent: &mut Agent,
    model: &Model,
    session: &str,
    word: &str,
) -> io::Result<f64> {
    model.take();
    agent.turn(session, word)?;
    let mut exchanges = model.take();
    let next = nth(exchanges.split_off(exchanges.len().min(1)), 0)?;
    // The writes are: head and call, end of the event stream, last chunk.
    let ended = nth(nth(exchanges, 0)?.writes, 1)?;
    Ok(ms_between(ended, next.received))
}

/// Measures the time from a cancellation to the response to the prompt.
pub(crate) fn cancels(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    let (mut streaming, mut command) = (vec![], vec![]);
    for _ in 0..rounds.turns.div_ceil(3) {
        let (id, _) = agent.prompt(&session, "hang")?;
        agent.wait_for("begun")?;
        streaming.push(cancel(&mut agent, &session, id)?);

        let (id, _) = agent.prompt(&session, "run")?;
        let question = agent.wait_for("session/request_permission")?;
        agent.allow(&question)?;
        agent.wait_for("in_progress")?;
        command.push(cancel(&mut agent, &session, id)?);
    }
    table.row("cancel → response, while streaming", median(streaming), "ms", 2.0);
    table.row("cancel → response, while a command runs", median(command), "ms", 20.0);
    Ok(())
}

/// Cancels a prompt. Returns the time until the response to it in milliseconds.
fn cancel(agent: &mut Agent, session: &str, id: u64) -> io::Result<f64> {
    pause(30);
    let begun = Instant::now();
    agent.cancel(session)?;
    agent.answer(id)?;
    Ok(ms(begun.elapsed()))
}

/// Measures how prompts and tool rounds slow down in a long conversation. Some growth is unavoidable,
/// because each request contains the whole conversation.
pub(crate) fn growth(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(300);
    agent.turn(&session, "say")?;
    let mut connections = vec![];
    let (mut requests, mut reads) = (vec![], vec![]);
    for _ in 0..rounds.length {
        requests.push(prompt_to_request(&mut agent, model, &session, &mut connections)?);
        reads.push(tool_round(&mut agent, model, &session, "read")?);
    }
    let series = [("prompt → request", requests, 0.5), ("read_file round", reads, 1.0)];
    model.take();
    let before = usage::cpu(agent.pid())?;
    agent.turn(&session, "say")?;
    pause(20);
    let spent = usage::cpu(agent.pid())?.saturating_sub(before);
    let bytes = nth(model.take(), 0)?.bytes;
    table.note(
        &format!("size of the request after {} rounds", rounds.length),
        to_f64(bytes) / 1024.0,
        "KiB",
    );
    table.note("… CPU time of that turn", ms(spent), "ms");
    for (name, figures, budget) in series {
        // The median of the eleven rounds around this one.
        let around = |round: usize| {
            let from = round.saturating_sub(5).min(figures.len().saturating_sub(11));
            median(figures[from..].iter().copied().take(11).collect())
        };
        let (begin, middle, end) = (around(0), around(rounds.length / 3), around(rounds.length));
        table.note(&format!("{name}, rounds 1–11"), begin, "ms");
        table.note(&format!("… around round {}", rounds.length / 3), middle, "ms");
        table.row("… last 11 rounds", end, "ms", budget);
        table.note("… last rounds compared with the first", end / begin, "×");
    }
    Ok(())
}

pub(crate) fn ms_between(from: Instant, to: Instant) -> f64 {
    ms(to.checked_duration_since(from).unwrap_or(Duration::ZERO))
}

/// Takes one item out of what the model recorded.
pub(crate) fn nth<T>(items: Vec<T>, position: usize) -> io::Result<T> {
    let item = items.into_iter().nth(position);
    item.ok_or_else(|| io::Error::other("the model received fewer requests than expected"))
}

pub(crate) fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
