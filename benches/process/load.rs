//! Measures the CPU time of streaming, the memory of sessions and the size of the binary.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::Rounds;
use crate::agent::{Agent, binary, pause};
use crate::floor::Floor;
use crate::model::Model;
use crate::table::{Table, median, us};
use crate::usage;

/// Measures the CPU time per delta and the elapsed time per delta of a fast stream, for the agent and
/// for the floor program.
pub(crate) fn bursts(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    pause(300);
    let mut floor = Floor::start(&model.address())?;
    let streams = [
        ("burst 2000", "CPU time per delta, 64 deltas per write", 3.0),
        ("drip 2000", "CPU time per delta, one delta per write", f64::INFINITY),
    ];
    for (prompt, name, budget) in streams {
        agent.turn(&session, prompt)?;
        floor.turn(prompt)?;
        let (mut agent_cpu, mut floor_cpu) = (vec![], vec![]);
        let (mut agent_elapsed, mut floor_elapsed) = (vec![], vec![]);
        for _ in 0..rounds.bursts {
            agent_cpu.push(cpu_time_of(agent.pid(), || {
                agent_elapsed.push(us(agent.turn(&session, prompt)?.elapsed()));
                Ok(())
            })?);
            floor_cpu.push(cpu_time_of(floor.pid(), || {
                floor_elapsed.push(us(floor.turn(prompt)?.elapsed()));
                Ok(())
            })?);
        }
        let elapsed = [median(agent_elapsed), median(floor_elapsed)].map(|it| it / 2_000.0);
        let (agent_cpu, floor_cpu) = (median(agent_cpu) / 2_000.0, median(floor_cpu) / 2_000.0);
        if budget.is_finite() {
            table.row(name, agent_cpu, "µs", budget);
            table.row("… compared with the floor program", agent_cpu / floor_cpu, "×", 3.0);
            table.row("… elapsed time per delta", elapsed[0], "µs", 20.0);
            table.note("… elapsed time per delta, floor program", elapsed[1], "µs");
        } else {
            table.note(name, agent_cpu, "µs");
            table.note("… compared with the floor program", agent_cpu / floor_cpu, "×");
        }
    }
    model.take();
    Ok(())
}

/// Returns the CPU time that a process uses during `work`, in microseconds.
fn cpu_time_of(pid: u32, mut work: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let before = usage::cpu(pid)?;
    work()?;
    // Includes the work that the process does after the response.
    pause(20);
    Ok(us(usage::cpu(pid)?.saturating_sub(before)))
}

/// Measures the memory of an idle agent with one session and with many.
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
    let each = (many.pss - one.pss) / to_f64(rounds.sessions);
    table.row("… each further session, PSS", each, "MB", 0.2);
    agent.turn(&session, "say")?;
    agent.turn(&session, "burst 2000")?;
    pause(500);
    let after = usage::memory(agent.pid())?;
    table.note("… all sessions, after a prompt and a burst, PSS", after.pss, "MB");
    Ok(())
}

/// Measures how much memory stays in use after large calls, when their sessions are closed.
pub(crate) fn large_writes(table: &mut Table, model: &Model) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let session = agent.new_session()?;
    agent.turn(&session, "say")?;
    pause(500);
    let before = usage::memory(agent.pid())?.pss;
    let peak = Peak::watch(agent.pid());
    for _ in 0..8 {
        let session = agent.new_session()?;
        for number in 0..6 {
            agent.turn_with_approval(&session, &format!("write {number}"))?;
        }
        agent.close_session(&session)?;
    }
    let peak = peak.end();
    pause(1_000);
    let after = usage::memory(agent.pid())?.pss;
    table.row("48 writes of 7 MB, closed sessions, PSS growth", after - before, "MB", 30.0);
    table.note("… peak PSS growth", peak - before, "MB");
    Ok(())
}

/// Measures the peak memory and the CPU time while many sessions stream at once, and counts misrouted
/// and missing words.
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
    let mut received = vec![0_usize; sessions.len()];
    let (mut misrouted, mut ended) = (0_usize, 0);
    while ended < sessions.len() {
        let message: Value = serde_json::from_str(&agent.read()?)?;
        // The answer to the prompt, or the state of the session in version 2.
        let ends = [&message["result"], &message["params"]["update"]];
        ended += usize::from(ends.iter().any(|it| it["stopReason"] == "end_turn"));
        let Some((session, text)) = text_update(&message) else { continue };
        let number = sessions.iter().position(|it| it == session).unwrap_or(usize::MAX);
        for word in text.split_whitespace() {
            if word.parse() == Ok(number) {
                received[number] += 1;
            } else {
                misrouted += 1;
            }
        }
    }
    let cpu = usage::cpu(agent.pid())?.saturating_sub(before);
    let missing = received.iter().filter(|it| **it != 40).count();
    let name = format!("{} sessions streaming, peak PSS", sessions.len());
    table.row(&name, peak.end(), "MB", 40.0);
    table.row("… words in the wrong session", to_f64(misrouted), "", 0.0);
    table.row("… sessions with missing words", to_f64(missing), "", 0.0);
    table.note("… CPU time per delta", us(cpu) / to_f64(sessions.len() * 40), "µs");
    Ok(())
}

/// Returns the session and the text of a text update.
fn text_update(message: &Value) -> Option<(&str, &str)> {
    let session = message["params"]["sessionId"].as_str()?;
    let update = &message["params"]["update"];
    let is_text = update["sessionUpdate"] == "agent_message_chunk";
    is_text.then(|| update["content"]["text"].as_str().map(|it| (session, it)))?
}

/// Samples the memory of a process every 50 ms on a thread and keeps the maximum.
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

    /// Stops sampling and returns the highest PSS in MB.
    pub(crate) fn end(self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap_or(f64::NAN)
    }
}

/// Measures the size of the binary.
pub(crate) fn size(table: &mut Table) -> io::Result<()> {
    let bytes = u32::try_from(std::fs::metadata(binary())?.len()).unwrap_or(u32::MAX);
    table.row("binary size", f64::from(bytes) / 1e6, "MB", 15.0);
    Ok(())
}

fn to_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
