//! How long a client or a model waits. Medians: other programs on the machine cannot make one
//! smaller, and an outlier says little.

use std::io;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::Rounds;
use crate::agent::{Agent, command, pause, workspace};
use crate::floor::Floor;
use crate::model::{Exchange, Model};
use crate::table::{Table, median, ms};
use crate::usage;

/// From the start of the process to its first answers.
pub(crate) fn start(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut bare, mut initialize, mut first, mut next) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds.starts {
        let folder = workspace()?;
        let begun = Instant::now();
        command(folder.path()).arg("--version").stdout(Stdio::null()).status()?;
        bare.push(ms(begun.elapsed()));

        let begun = Instant::now();
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        initialize.push(ms(begun.elapsed()));

        let begun = Instant::now();
        agent.new_session()?;
        first.push(ms(begun.elapsed()));
        // The client for the model is built meanwhile.
        pause(20);
        let begun = Instant::now();
        agent.new_session()?;
        next.push(ms(begun.elapsed()));
    }
    let (bare, initialize) = (median(bare), median(initialize));
    table.note("exec → end of --version", bare, "ms");
    table.row("exec → initialize answered", initialize, "ms", 3.0);
    table.row("… compared with --version", initialize / bare, "×", 3.0);
    table.row("session/new, the first", median(first), "ms", 1.0);
    table.row("session/new, the second", median(next), "ms", 1.0);
    Ok(())
}

/// Sessions with rules: fifty of the user's, and as many as a project's file may hold of those that
/// take longest.
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
        ("… with 50 rules of the user's", "config/config.toml", file((0..50).map(usual).collect())),
        (
            "… with 300 of a hostile project's",
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
        table.note("… memory", usage::memory(agent.pid())?.rss, "MB");
    }
    Ok(())
}

/// Prompts and tool rounds, each in a session that has just begun: [`growth`] has the others.
pub(crate) fn turns(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(300);
    model.take();
    agent.turn(&session, "say")?;
    let first: Vec<Exchange> = model.take();
    let bytes = first.first().map_or(0, |it| u32::try_from(it.bytes).unwrap_or(u32::MAX));
    table.row("first request to the model", f64::from(bytes) / 1024.0, "KiB", 10.0);

    let mut floor = Floor::start(&model.address())?;
    let (mut least_request, mut least_chunk) = (vec![], vec![]);
    let (mut requests, mut chunks, mut reads) = (vec![], vec![], vec![]);
    let mut connections = vec![];
    for _ in 0..rounds.turns {
        let session = agent.new_session()?;
        agent.turn(&session, "say")?;
        model.take();
        let begun = floor.turn("say")?;
        least_request.push(between(begun, nth(model.take(), 0)?.received));
        let seen = floor.first_word("slow")?;
        least_chunk.push(between(nth(nth(model.take(), 0)?.writes, 1)?, seen));
        requests.push(prompt_to_request(&mut agent, model, &session, &mut connections)?);
        chunks.push(delta_to_chunk(&mut agent, model, &session)?);
        reads.push(tool_round(&mut agent, model, &session, "read")?);
    }
    table.row("prompt → request at the model, warm", median(requests), "ms", 0.5);
    table.note("… the floor", median(least_request), "ms");
    table.row("first delta → first chunk on stdout", median(chunks), "ms", 0.3);
    table.note("… the floor", median(least_chunk), "ms");
    table.row("one read-tool round", median(reads), "ms", 1.0);
    connections.sort_unstable();
    connections.dedup();
    let ratio = count(connections.len()) / count(rounds.turns);
    table.note("connections for each prompt", ratio, "");
    Ok(())
}

pub(crate) fn prompt_to_request(
    agent: &mut Agent,
    model: &Model,
    session: &str,
    connections: &mut Vec<usize>,
) -> io::Result<f64> {
    model.take();
    // Nobody types that fast, and what the last turn leaves to be done belongs to that.
    pause(5);
    let begun = agent.turn(session, "say")?;
    let exchange = nth(model.take(), 0)?;
    connections.push(exchange.connection);
    Ok(between(begun, exchange.received))
}

fn delta_to_chunk(agent: &mut Agent, model: &Model, session: &str) -> io::Result<f64> {
    model.take();
    let (id, _) = agent.prompt(session, "slow")?;
    agent.wait_for("begun")?;
    let seen = Instant::now();
    agent.answer(id)?;
    // The first write is the head.
    let written = nth(nth(model.take(), 0)?.writes, 1)?;
    Ok(between(written, seen))
}

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
    // Head and call, then the end of the stream, then the end of the body.
    let ended = nth(nth(exchanges, 0)?.writes, 1)?;
    Ok(between(ended, next.received))
}

/// From a cancel to the answer of the prompt.
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
    table.row("cancel → answer, streaming", median(streaming), "ms", 2.0);
    table.row("cancel → answer, in a command", median(command), "ms", 20.0);
    Ok(())
}

fn cancel(agent: &mut Agent, session: &str, id: u64) -> io::Result<f64> {
    pause(30);
    let begun = Instant::now();
    agent.cancel(session)?;
    agent.answer(id)?;
    Ok(ms(begun.elapsed()))
}

/// What a long conversation does to a prompt and to a tool round. The request grows with it, so
/// that something grows is in the nature of the thing.
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
    let grown = [("prompt → request", requests, 0.5), ("read-tool round", reads, 1.0)];
    model.take();
    let before = usage::cpu(agent.pid())?;
    agent.turn(&session, "say")?;
    pause(20);
    let spent = usage::cpu(agent.pid())?.saturating_sub(before);
    let bytes = nth(model.take(), 0)?.bytes;
    table.note(&format!("request at turn {}", rounds.length), count(bytes) / 1024.0, "KiB");
    table.note("… CPU of its turn", ms(spent), "ms");
    for (name, figures, budget) in grown {
        let around = |turn: usize| {
            let from = turn.saturating_sub(5).min(figures.len().saturating_sub(11));
            median(figures[from..].iter().copied().take(11).collect())
        };
        let (begin, middle, end) = (around(0), around(rounds.length / 3), around(rounds.length));
        table.note(&format!("{name}, turns 1–11"), begin, "ms");
        table.note(&format!("… turn {}", rounds.length / 3), middle, "ms");
        table.row(&format!("… turn {}", rounds.length), end, "ms", budget);
        table.note("… last to first", end / begin, "×");
    }
    Ok(())
}

fn between(from: Instant, to: Instant) -> f64 {
    ms(to.checked_duration_since(from).unwrap_or(Duration::ZERO))
}

fn nth<T>(items: Vec<T>, position: usize) -> io::Result<T> {
    let item = items.into_iter().nth(position);
    item.ok_or_else(|| io::Error::other("the model was not asked as often as expected"))
}

pub(crate) fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
