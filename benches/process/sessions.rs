//! Measures loading a long session.

use std::io;
use std::time::Instant;

use turnwright_store::Store;
use turnwright_types::ids::SessionId;

use crate::Rounds;
use crate::agent::{Agent, pause, workspace};
use crate::latency::to_f64;
use crate::load::Peak;
use crate::model::Model;
use crate::seed::seed;
use crate::table::{Table, ms};
use crate::usage;

/// The number of turns of the session.
const TURNS: usize = 1_000;

/// Measures `session/new` and `session/load` with a long session in the store. Each round starts a new
/// agent.
pub(crate) fn load(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut first, mut complete, mut growth) = (Vec::new(), Vec::new(), Vec::new());
    let (mut new, mut requests, mut size) = (Vec::new(), Vec::new(), 0);
    let rounds = (rounds.starts / 5).max(2);
    for _ in 0..rounds {
        let folder = workspace()?;
        let id = SessionId::random();
        seed(&Store::new(&folder.path().join("state")), &id, folder.path(), TURNS)?;
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        let begun = Instant::now();
        agent.new_session()?;
        new.push(ms(begun.elapsed()));
        let before = usage::memory(agent.pid())?;
        let peak = Peak::watch(agent.pid());
        let begun = Instant::now();
        let request = agent.load(id.as_str())?;
        agent.wait_for("user_message_chunk")?;
        first.push(ms(begun.elapsed()));
        agent.answer(request)?;
        complete.push(ms(begun.elapsed()));
        growth.push(peak.end() - before.pss);
        // The first prompt renders the whole conversation.
        agent.turn(id.as_str(), "say")?;
        model.take();
        for _ in 0..5 {
            pause(20);
            let begun = agent.turn(id.as_str(), "say")?;
            let exchange = model.take().into_iter().next();
            let exchange = exchange.ok_or_else(|| io::Error::other("no request"))?;
            requests.push(ms(exchange.received.saturating_duration_since(begun)));
            size = exchange.bytes;
        }
    }
    table.row("session/new, with a long session in the store", median(new), "ms", 1.0);
    table.row("session/load of 1 000 turns, first update", median(first), "ms", 100.0);
    table.row("… all updates", median(complete), "ms", 1_000.0);
    table.note("… peak PSS growth", median(growth), "MB");
    table.row("… prompt → request, then", median(requests), "ms", 3.0);
    table.note("… size of the request", to_f64(size) / 1e6, "MB");
    table.note("… number of rounds", to_f64(rounds), "");
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
