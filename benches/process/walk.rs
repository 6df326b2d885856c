//! One session that uses what most sessions use, for a profiler: start, prompts, a read, an edit and a
//! command with permission, a cancellation, and the end of stdin. See `release/record-order`.

use std::fs;
use std::io;

use crate::agent::Agent;
use crate::model::Model;

pub(crate) fn run() -> io::Result<()> {
    let model = Model::start()?;
    let mut agent = Agent::start(&model)?;
    let line = |it| format!("    let value_{it} = compute({it});\n");
    fs::write(agent.folder().join("longer.rs"), (0..200).map(line).collect::<String>())?;
    let session = agent.new_session()?;
    for prompt in ["say", "read", "edit 3", "true", "burst 100"] {
        agent.turn_with_approval(&session, prompt)?;
    }
    let (id, _) = agent.prompt(&session, "hang")?;
    agent.wait_for("begun")?;
    agent.cancel(&session)?;
    agent.answer(id)?;
    agent.end()
}
