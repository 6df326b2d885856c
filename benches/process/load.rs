//! What it takes: CPU time under a flood, memory, and bytes on the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::Rounds;
use crate::agent::{Agent, BINARY, pause};
use crate::floor::Floor;
use crate::model::Model;
use crate::table::{Table, median, us};
use crate::usage;

/// CPU time for each delta of a flood, beside that of a program which does nothing else, and how
/// long the whole flood takes.
pub(crate) fn bursts(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(300);
    let mut floor = Floor::start(&model.address())?;
    let floods = [
        ("burst 2000", "CPU per delta, 2 000 in a burst", 5.0),
        ("drip 2000", "CPU per delta, each in a write of its own", f64::INFINITY),
    ];
    for (prompt, name, budget) in floods {
        agent.turn(&session, prompt)?;
        floor.turn(prompt)?;
        let (mut ours, mut least) = (vec![], vec![]);
        let (mut waited, mut least_waited) = (vec![], vec![]);
        for _ in 0..rounds.bursts {
            ours.push(spent(agent.pid(), || {
                waited.push(us(agent.turn(&session, prompt)?.elapsed()));
                Ok(())
            })?);
            least.push(spent(floor.pid(), || {
                least_waited.push(us(floor.turn(prompt)?.elapsed()));
                Ok(())
            })?);
        }
        let waited = [median(waited), median(least_waited)].map(|it| it / 2_000.0);
        let (ours, least) = (median(ours) / 2_000.0, median(least) / 2_000.0);
        if budget.is_finite() {
            table.row(name, ours, "µs", budget);
            table.row("… compared with the floor", ours / least, "×", 3.0);
            table.row("… end to end", waited[0], "µs", 20.0);
            table.note("… end to end, the floor", waited[1], "µs");
        } else {
            table.note(name, ours, "µs");
            table.note("… compared with the floor", ours / least, "×");
        }
    }
    model.take();
    Ok(())
}

/// CPU microseconds that a process uses meanwhile.
fn spent(pid: u32, mut work: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let before = usage::cpu(pid)?;
    work()?;
    // What is left to be done when the answer is out belongs to it.
    pause(20);
    Ok(us(usage::cpu(pid)?.saturating_sub(before)))
}

/// Memory of a process that waits, with one session and with many.
pub(crate) fn memory(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(500);
    let one = usage::memory(agent.pid())?;
    table.row("idle, one session, PSS", one.pss, "MB", 8.0);
    table.note("idle, one session, RSS", one.rss, "MB");
    for _ in 0..rounds.sessions {
        agent.new_session()?;
    }
    pause(500);
    let many = usage::memory(agent.pid())?;
    let each = (many.pss - one.pss) / count(rounds.sessions);
    table.row("… each further session, PSS", each, "MB", 0.2);
    agent.turn(&session, "say")?;
    agent.turn(&session, "burst 2000")?;
    pause(500);
    let after = usage::memory(agent.pid())?;
    table.note("… all of them after a prompt and a burst, PSS", after.pss, "MB");
    Ok(())
}

/// Many sessions that stream at once.
pub(crate) fn streams(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let mut sessions = Vec::new();
    for _ in 0..rounds.streams {
        sessions.push(agent.new_session()?);
    }
    let peak = Peak::watch(agent.pid());
    let before = usage::cpu(agent.pid())?;
    for (number, session) in sessions.iter().enumerate() {
        agent.prompt(session, &format!("stream {number}"))?;
    }
    let mut heard = vec![0_usize; sessions.len()];
    let (mut mixed, mut ended) = (0_usize, 0);
    while ended < sessions.len() {
        let message: Value = serde_json::from_str(&agent.read()?)?;
        ended +=
            usize::from(message.get("result").is_some_and(|it| it["stopReason"] == "end_turn"));
        let Some((session, text)) = words(&message) else { continue };
        let number = sessions.iter().position(|it| it == session).unwrap_or(usize::MAX);
        for word in text.split_whitespace() {
            if word.parse() == Ok(number) {
                heard[number] += 1;
            } else {
                mixed += 1;
            }
        }
    }
    let cpu = usage::cpu(agent.pid())?.saturating_sub(before);
    let missing = heard.iter().filter(|it| **it != 40).count();
    let name = format!("{} sessions streaming, PSS at most", sessions.len());
    table.row(&name, peak.end(), "MB", 60.0);
    table.row("… words in the wrong session", count(mixed), "", 0.0);
    table.row("… sessions that did not get all words", count(missing), "", 0.0);
    table.note("… CPU per delta", us(cpu) / count(sessions.len() * 40), "µs");
    Ok(())
}

/// The words of an update and whose they are.
fn words(message: &Value) -> Option<(&str, &str)> {
    let session = message["params"]["sessionId"].as_str()?;
    let update = &message["params"]["update"];
    let is_text = update["sessionUpdate"] == "agent_message_chunk";
    is_text.then(|| update["content"]["text"].as_str().map(|it| (session, it)))?
}

/// Looks at the memory of a process again and again.
pub(crate) struct Peak {
    stop: Arc<AtomicBool>,
    watcher: thread::JoinHandle<f64>,
}

impl Peak {
    pub(crate) fn watch(pid: u32) -> Peak {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watcher = thread::spawn(move || {
            let mut most = 0.0;
            while !stopped.load(Ordering::Relaxed) {
                most = usage::memory(pid).map_or(most, |it| it.pss.max(most));
                pause(50);
            }
            most
        });
        Peak { stop, watcher }
    }

    pub(crate) fn end(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap_or(f64::NAN)
    }
}

/// The program's size.
pub(crate) fn size(table: &mut Table) -> io::Result<()> {
    let bytes = u32::try_from(std::fs::metadata(BINARY)?.len()).unwrap_or(u32::MAX);
    table.row("binary", f64::from(bytes) / 1e6, "MB", 15.0);
    Ok(())
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
