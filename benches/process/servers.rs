//! Measures MCP servers: `session/new` with servers, calls of their tools, and the cost of many tools.
//! The servers are processes of this program, started as `process --server TOOLS`.

use std::io::{self, BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::Rounds;
use crate::agent::{Agent, pause};
use crate::latency::tool_round;
use crate::model::Model;
use crate::table::{Table, median, ms};
use crate::usage;

/// The number of servers of a session.
const SERVERS: usize = 8;
/// The number of tools of each server.
const TOOLS: usize = 50;
/// The time allowed for connecting to all servers, in milliseconds.
const CONNECT_MS: u64 = 3_000;

/// Runs a server with this number of tools until stdin ends.
pub(crate) fn serve(tools: &str) -> io::Result<()> {
    let count = tools.parse().unwrap_or(1);
    for line in stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "bench", "version": "1" },
            }),
            "tools/list" => json!({ "tools": (0..count).map(tool).collect::<Vec<_>>() }),
            _ => json!({ "content": [{ "type": "text", "text": "done" }] }),
        };
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        let mut stdout = stdout().lock();
        writeln!(stdout, "{answer}")?;
        stdout.flush()?;
    }
    Ok(())
}

/// A tool of typical size, with a description and five arguments.
fn tool(number: usize) -> Value {
    let field = |it: usize| {
        let about = format!("What the field {it} is for, said in a line as servers do.");
        (format!("field_{it}"), json!({ "type": "string", "description": about }))
    };
    let fields: serde_json::Map<_, _> = (0..5).map(field).collect();
    // The first one reads, the second one does not say so.
    let name = if number == 0 { "echo".to_owned() } else { format!("tool_{number}") };
    json!({
        "name": name,
        "description": "Does one of many things that tools do. It says what, and when to use it.",
        "annotations": { "readOnlyHint": number != 1 },
        "inputSchema": { "type": "object", "properties": fields, "required": ["field_0"] },
    })
}

/// Servers of this program, of which each has this number of tools.
pub(crate) fn servers(count: usize, tools: usize) -> io::Result<Vec<Value>> {
    let program = std::env::current_exe()?;
    let server = |it| {
        let arguments = ["--server".to_owned(), tools.to_string()];
        json!({ "name": format!("bench{it}"), "command": program, "args": arguments, "env": [] })
    };
    Ok((0..count).map(server).collect())
}

/// Runs all measurements of MCP servers.
pub(crate) fn all(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    opening(table, model, rounds)?;
    calls(table, model, rounds)?;
    many_tools(table, model)
}

/// Measures how much longer `session/new` takes with servers than without.
fn opening(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    agent.new_session()?;
    let (mut without, mut with) = (vec![], vec![]);
    for _ in 0..rounds.starts {
        pause(20);
        without.push(open(&mut agent, &[])?.0);
        pause(20);
        let (time, session) = open(&mut agent, &servers(SERVERS, 1)?)?;
        with.push(time);
        let id = agent.request("session/close", &json!({ "sessionId": session }))?;
        agent.answer(id)?;
    }
    let (without, with) = (median(without), median(with));
    table.row("session/new, added by eight MCP servers", with - without, "ms", 0.5);
    Ok(())
}

/// Creates a session with these servers. Returns the duration in milliseconds and the id.
pub(crate) fn open(agent: &mut Agent, servers: &[Value]) -> io::Result<(f64, String)> {
    let mut params = json!({ "cwd": agent.folder(), "mcpServers": servers });
    for server in params["mcpServers"].as_array_mut().into_iter().flatten() {
        if agent.version() > 1 {
            server["type"] = "stdio".into();
        }
    }
    let begun = Instant::now();
    let id = agent.request("session/new", &params)?;
    let answer: Value = serde_json::from_str(&agent.answer(id)?)?;
    let time = ms(begun.elapsed());
    Ok((time, answer["result"]["sessionId"].as_str().unwrap_or_default().to_owned()))
}

/// Measures what a tool round with an MCP call costs beyond a `read_file` round and the call itself,
/// which is measured without the agent.
fn calls(table: &mut Table, model: &Model, rounds: Rounds) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let (_, session) = open(&mut agent, &servers(1, 2)?)?;
    pause(CONNECT_MS / 3);
    agent.turn_with_approval(&session, "remote")?;
    agent.turn_with_approval(&session, "change")?;
    let mut server = DirectServer::start()?;
    let (mut direct, mut reads, mut remote, mut change) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds.turns {
        pause(5);
        direct.push(server.call()?);
        reads.push(tool_round(&mut agent, model, &session, "read")?);
        remote.push(tool_round(&mut agent, model, &session, "remote")?);
        change.push(tool_round(&mut agent, model, &session, "change")?);
    }
    let (direct, reads) = (median(direct), median(reads));
    table.note("MCP tool call, without the agent", direct, "ms");
    for (name, rounds) in
        [("MCP tool round, a tool that reads", remote), ("MCP tool round, another tool", change)]
    {
        let round = median(rounds);
        table.note(name, round, "ms");
        table.row("… minus that call and a read_file round", round - direct - reads, "ms", 0.5);
    }
    Ok(())
}

/// A server that is called directly, without the agent.
struct DirectServer {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl DirectServer {
    fn start() -> io::Result<DirectServer> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--server", "1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no stdout"))?;
        Ok(DirectServer { child, lines: BufReader::new(stdout) })
    }

    /// Calls the tool. Returns the duration in milliseconds.
    fn call(&mut self) -> io::Result<f64> {
        let params = json!({ "name": "echo", "arguments": { "field_0": "a" } });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let line = format!("{call}\n");
        let stdin = self.child.stdin.as_mut().ok_or_else(|| io::Error::other("no stdin"))?;
        let begun = Instant::now();
        stdin.write_all(line.as_bytes())?;
        self.lines.read_line(&mut String::new())?;
        Ok(ms(begun.elapsed()))
    }
}

impl Drop for DirectServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Measures the memory and CPU time of a session with 400 tools, and the delay of a request that offers
/// them.
fn many_tools(table: &mut Table, model: &Model) -> io::Result<()> {
    let mut agent = Agent::start(model)?;
    let first = agent.new_session()?;
    agent.turn(&first, "say")?;
    pause(500);
    let before = usage::memory(agent.pid())?.pss;
    let used = usage::cpu(agent.pid())?;
    let (_, session) = open(&mut agent, &servers(SERVERS, TOOLS)?)?;
    pause(CONNECT_MS);
    agent.turn(&session, "say")?;
    pause(500);
    let grown = usage::memory(agent.pid())?.pss - before;
    table.row("400 tools of eight servers, PSS growth", grown, "MB", 4.0);
    let used = ms(usage::cpu(agent.pid())?.saturating_sub(used));
    table.note("… CPU time, from session/new to the response", used, "ms");
    model.take();
    let begun = agent.turn(&session, "say")?;
    let exchange = model.take().into_iter().next();
    let exchange = exchange.ok_or_else(|| io::Error::other("the model received no request"))?;
    let time = ms(exchange.received.saturating_duration_since(begun));
    table.row("… prompt → request", time, "ms", 5.0);
    Ok(())
}
