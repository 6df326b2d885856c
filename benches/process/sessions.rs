//! A long session that comes back.

use std::io;
use std::time::Instant;

use serde_json::json;
use turnwright_store::Store;
use turnwright_types::ids::SessionId;

use crate::Rounds;
use crate::agent::{Agent, workspace};
use crate::latency::count;
use crate::load::Peak;
use crate::model::Model;
use crate::seed::seed;
use crate::table::{Table, ms};
use crate::usage;

/// Turns of the session.
const TURNS: usize = 1_000;

/// Loads it in a process of its own each time.
pub(crate) fn load(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let (mut first, mut all, mut grown) = (Vec::new(), Vec::new(), Vec::new());
    let mut news = Vec::new();
    let rounds = (rounds.starts / 5).max(2);
    for _ in 0..rounds {
        let folder = workspace()?;
        let id = SessionId::random();
        seed(&Store::new(&folder.path().join("state")), &id, folder.path(), TURNS)?;
        let mut agent = Agent::spawn(model, folder)?;
        agent.initialize()?;
        let begun = Instant::now();
        agent.new_session()?;
        news.push(ms(begun.elapsed()));
        let before = usage::memory(agent.pid())?;
        let peak = Peak::watch(agent.pid());
        let cwd = agent.folder().to_path_buf();
        let params = json!({ "sessionId": id.as_str(), "cwd": cwd, "mcpServers": [] });
        let begun = Instant::now();
        let request = agent.request("session/load", &params)?;
        agent.wait_for("user_message_chunk")?;
        first.push(ms(begun.elapsed()));
        agent.answer(request)?;
        all.push(ms(begun.elapsed()));
        grown.push(peak.end() - before.pss);
    }
    table.row("session/new beside a long session", median(news), "ms", 1.0);
    table.row("session/load of 1 000 turns, first update", median(first), "ms", 100.0);
    table.row("… all of them", median(all), "ms", 1_000.0);
    table.note("… memory meanwhile and after, PSS more", median(grown), "MB");
    table.note("… times that was done", count(rounds), "");
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
