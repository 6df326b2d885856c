//! Nothing that the client was told is lost: the agent is killed in the middle of a turn, and what
//! comes back is what was seen, once, in its order. `CRASH_KILLS` says how often, `CRASH_SEED` when.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::process_report;
use turnwright_testing::process_waits::{self, Input};
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{prompt, run_mark, says};

const PROMPT: &str = "Do all of it.";
const INTERRUPTED: &str = "This turn was interrupted: the agent ended in the middle of it.";

/// An agent that is not treated kindly.
struct Victim {
    child: Child,
    stdin: Option<Input>,
    /// The whole lines of its stdout.
    lines: Receiver<Value>,
    /// Those that were taken.
    heard: Vec<Value>,
    next: u64,
}

impl Victim {
    fn start(home: &Path, model: &Server) -> Victim {
        let mut child = Command::new(env!("CARGO_BIN_EXE_turnwright"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TURNWRIGHT_HOME", home)
            .env("OPENAI_BASE_URL", model.base_url())
            .env("OPENAI_API_KEY", "sk-test-0123456789")
            .env("TURNWRIGHT_MODEL", "scripted")
            .envs([run_mark()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // What is not taken stays in the pipe, but for a line or two.
        let (sender, lines) = sync_channel(0);
        std::thread::spawn(move || {
            let mut line = String::new();
            while stdout.read_line(&mut line).is_ok() && line.ends_with('\n') {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let stdin = Some(Input::of(&mut child));
        let mut victim = Victim { child, stdin, lines, heard: Vec::new(), next: 1 };
        victim.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        victim
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stdin.as_ref().unwrap().write(format!("{line}\n").as_bytes()).unwrap();
        id
    }

    /// The next whole line; `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(process_waits::LIMIT) {
            Ok(message) => {
                self.heard.push(message.clone());
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                process_report::give_up(self.child.id(), "it says nothing")
            }
        }
    }

    /// So many lines, or fewer if it answers this before: then nothing more may come, ever. How many
    /// lines a turn has depends on how fast they are taken.
    fn hear_some(&mut self, count: usize, id: u64) {
        for _ in 0..count {
            if self.answer_heard(id).is_some() || self.hear().is_none() {
                return;
            }
        }
    }

    fn answer_heard(&self, id: u64) -> Option<&Value> {
        self.heard.iter().find(|it| it["id"] == id && it.get("method").is_none())
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.hear().expect("the agent is alive");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Kills it. What it has written counts as seen.
    fn kill(&mut self) {
        process_waits::kill(&mut self.child);
        while self.hear().is_some() {}
    }

    /// Lets it end.
    fn end(mut self) {
        drop(self.stdin.take());
        while self.hear().is_some() {}
        assert!(process_waits::wait(&mut self.child).success());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        process_waits::kill(&mut self.child);
    }
}

/// What a user sees of a conversation, in order.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// A message with its sort, a card, or the plan.
    key: String,
    /// Words so far, or the fields of a card.
    shown: Value,
    is_final: bool,
}

fn fold(heard: &[Value]) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    for message in heard.iter().filter(|it| it["method"] == "session/update") {
        let update = &message["params"]["update"];
        let sort = update["sessionUpdate"].as_str().unwrap();
        match sort {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                let Some(id) = update["messageId"].as_str() else { continue };
                let key = format!("{sort} {id}");
                let words = update["content"]["text"].as_str().unwrap();
                match all.iter_mut().find(|it| it.key == key) {
                    Some(seen) => {
                        let so_far = seen.shown.as_str().unwrap();
                        seen.shown = format!("{so_far}{words}").into();
                    }
                    None => all.push(Seen { key, shown: words.into(), is_final: false }),
                }
            }
            "tool_call" | "tool_call_update" => {
                let key = format!("card {}", update["toolCallId"].as_str().unwrap());
                if sort == "tool_call" {
                    assert!(all.iter().all(|it| it.key != key), "{key} comes twice");
                    all.push(Seen { key: key.clone(), shown: json!({}), is_final: false });
                }
                let seen = all.iter_mut().find(|it| it.key == key).expect("a card is shown first");
                for field in ["title", "kind", "status", "content", "rawOutput"] {
                    if let Some(value) = update.get(field) {
                        seen.shown[field] = value.clone();
                    }
                }
                seen.is_final = ["completed", "failed"].iter().any(|it| update["status"] == *it);
            }
            "plan" => {
                all.retain(|it| it.key != "plan");
                let shown = update["entries"].clone();
                all.push(Seen { key: "plan".to_owned(), shown, is_final: true });
            }
            _ => {}
        }
    }
    all
}

fn step(name: &str, arguments: &Value) -> Value {
    json!({ "call": { "name": name, "arguments": arguments, "pieces": 3 } })
}

fn content(round: usize) -> String {
    format!("round {round}\n").repeat(40)
}

const ROUNDS: usize = 5;

/// The replies of a turn that does a lot.
fn script() -> Value {
    let mut replies = Vec::new();
    for round in 0..ROUNDS {
        let status = if round + 1 == ROUNDS { "completed" } else { "in_progress" };
        let plan =
            json!({ "entries": [{ "content": format!("Round {round}"), "status": status }] });
        let edit = json!({ "path": "edited", "edits": [{
            "old_text": format!("edit {round}\n"), "new_text": format!("edit {}\n", round + 1) }] });
        let command =
            json!({ "command": format!("printf '%s' {round} > ran; echo round {round}") });
        replies.push(json!([
            { "thought": format!("Thinking of round {round}. "), "chunks": 3, "every_ms": 1 },
            { "text": format!("These are the words of round {round}. "), "chunks": 4, "every_ms": 1 },
            step("plan", &plan),
            step("write_file", &json!({ "path": "written", "content": content(round) })),
            step("edit_file", &edit),
            step("exec", &command),
            step("read_file", &json!({ "path": "edited" })),
            step("read_file", &json!({ "path": "missing" })),
        ]));
    }
    replies.push(json!([{ "text": "All of it is done.", "chunks": 3, "every_ms": 1 }]));
    replies.into()
}

fn server(replies: &Value) -> Server {
    Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0).unwrap()
}

/// A small generator: a test that has failed can be had again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end.max(1)).unwrap()).unwrap()
    }
}

struct Place {
    workspace: TempDir,
    home: TempDir,
}

impl Place {
    fn new() -> Place {
        let place =
            Place { workspace: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        std::fs::write(place.workspace.path().join("edited"), "edit 0\n").unwrap();
        place
    }

    /// Opens a session and begins its turn.
    fn begin(&self, model: &Server) -> (Victim, String, u64) {
        let mut victim = Victim::start(self.home.path(), model);
        let params = json!({ "cwd": self.workspace.path(), "mcpServers": [] });
        let answer = victim.call("session/new", &params);
        let session = answer["sessionId"].as_str().unwrap().to_owned();
        victim.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
        victim.heard.clear();
        let id = victim.send("session/prompt", &prompt(&session, PROMPT));
        (victim, session, id)
    }

    fn load(&self, session: &str) -> Value {
        json!({ "sessionId": session, "cwd": self.workspace.path(), "mcpServers": [] })
    }

    /// Files are as one of the rounds has made them, and there are no others.
    fn check_files(&self) {
        for entry in std::fs::read_dir(self.workspace.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // What was to take a file's place when the process ended. It is nobody's content.
            if name.starts_with(".turnwright-") {
                eprintln!("left behind: {name}");
                continue;
            }
            let found = std::fs::read_to_string(&path).unwrap();
            let is_good = match name {
                "written" => (0..ROUNDS).any(|it| found == content(it)),
                "edited" => (0..=ROUNDS).any(|it| found == format!("edit {it}\n")),
                // The shell truncates before it writes.
                "ran" => found.is_empty() || (0..ROUNDS).any(|it| found == it.to_string()),
                _ => false,
            };
            assert!(is_good, "{name}: {found:?}");
        }
    }
}

/// What came back is what was seen.
fn compare(live: &[Seen], back: &[Seen], was_answered: bool) {
    let keys: BTreeSet<_> = back.iter().map(|it| &it.key).collect();
    assert_eq!(keys.len(), back.len(), "something comes twice");
    assert!(back.iter().all(|it| it.is_final || !it.key.starts_with("card")), "an open card");
    let prompts: Vec<_> = back.iter().filter(|it| it.key.starts_with("user")).collect();
    assert!(prompts.len() <= 1 && prompts.iter().all(|it| it.shown == PROMPT), "{prompts:?}");
    assert!(live.is_empty() || prompts.len() == 1, "the prompt is lost");
    let notes = back.iter().filter(|it| it.shown == INTERRUPTED).count();
    assert_eq!(notes, usize::from(!was_answered && !prompts.is_empty()), "interrupted");
    for (number, seen) in live.iter().enumerate() {
        let found = back.iter().find(|it| it.key == seen.key);
        // What was followed by the end of a card, or by another answer.
        let is_sure = was_answered
            || live[number + 1..]
                .iter()
                .any(|it| it.is_final || it.key.starts_with("agent_thought"));
        match (seen.key.split(' ').next().unwrap(), found) {
            ("card", Some(found)) if seen.is_final => assert_eq!(found, seen),
            ("card", None) => assert!(!seen.is_final, "{} is lost", seen.key),
            ("card", Some(_)) => {}
            ("plan", found) => {
                // A later one may have been written and not yet told.
                assert!(found.is_some(), "the plan is lost");
            }
            (_, Some(found)) if is_sure => assert_eq!(found, seen),
            (_, None) => assert!(!is_sure, "{} is lost", seen.key),
            (_, Some(found)) => {
                let (one, other) = (found.shown.as_str().unwrap(), seen.shown.as_str().unwrap());
                assert!(one.starts_with(other) || other.starts_with(one), "{one:?} {other:?}");
            }
        }
    }
    let order = |of: &[Seen], among: &[Seen]| -> Vec<String> {
        let both = of.iter().filter(|it| among.iter().any(|also| also.key == it.key));
        both.filter(|it| it.key != "plan").map(|it| it.key.clone()).collect()
    };
    assert_eq!(order(live, back), order(back, live), "the order");
}

/// A strict server takes it: each call is followed by its result.
fn check_request(body: &Value) {
    let mut owed: Vec<&Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            assert_eq!(owed.first(), Some(&&message["tool_call_id"]), "{body}");
            assert_ne!(message["content"], "");
            owed.remove(0);
        } else {
            assert!(owed.is_empty(), "{body}");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            owed = calls.map(|it| &it["id"]).collect();
        }
    }
    assert!(owed.is_empty(), "{body}");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// One death, and the life after it.
fn die(dice: &mut Dice, lines: usize) {
    let (place, model) = (Place::new(), server(&script()));
    let (mut victim, session, asked) = place.begin(&model);
    victim.hear_some(dice.below(lines + 1), asked);
    if dice.below(5) == 0 {
        let closed = victim.send("session/close", &json!({ "sessionId": session }));
        victim.hear_some(dice.below(3), closed);
    }
    let micros = u64::try_from(dice.below(3_000)).unwrap();
    std::thread::sleep(Duration::from_micros(micros));
    victim.kill();
    let was_answered = victim.answer_heard(asked).is_some();
    let live = fold(&victim.heard);
    place.check_files();

    let model = server(&json!([says("And on.")]));
    if dice.below(3) == 0 {
        // The one that wants to set things right dies, too.
        let mut second = Victim::start(place.home.path(), &model);
        second.send("session/load", &place.load(&session));
        let micros = u64::try_from(dice.below(30_000)).unwrap();
        std::thread::sleep(Duration::from_micros(micros));
        second.kill();
    }
    let mut first_back = Vec::new();
    for round in 0..2 {
        let mut third = Victim::start(place.home.path(), &model);
        let from = third.heard.len();
        third.call("session/load", &place.load(&session));
        let back = fold(&third.heard[from..]);
        // It may have ended without having been able to say so; then all of it is there.
        let has_ended = !back.is_empty() && back.iter().all(|it| it.shown != INTERRUPTED);
        compare(&live, &back, was_answered || has_ended);
        if round == 0 {
            first_back = back;
            third.end();
            continue;
        }
        assert_eq!(back, first_back, "loaded twice");
        let from = third.heard.len();
        let answer = third.call("session/prompt", &prompt(&session, "Go on."));
        assert_eq!(answer["stopReason"], "end_turn");
        let more = fold(&third.heard[from..]);
        let old = |it: &Seen| live.iter().chain(&back).any(|old| old.key == it.key);
        assert!(!more.iter().any(old), "an identifier comes again: {more:?}");
        let requests = model.wait_for_requests(1, Duration::from_secs(20)).unwrap();
        check_request(&requests[0].body);
        assert_eq!(
            requests[0].body.to_string().contains("The last turn was interrupted"),
            back.iter().any(|it| it.shown == INTERRUPTED)
        );
        third.end();
    }
    place.check_files();
}

#[test]
fn whenever_the_agent_is_killed_what_was_seen_comes_back_once() {
    let (place, model) = (Place::new(), server(&script()));
    let (mut victim, session, id) = place.begin(&model);
    victim.answer(id);
    let (lines, live) = (victim.heard.len(), fold(&victim.heard));
    victim.kill();
    let mut after = Victim::start(place.home.path(), &model);
    let from = after.heard.len();
    after.call("session/load", &place.load(&session));
    compare(&live, &fold(&after.heard[from..]), true);
    after.end();

    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = variable("CRASH_SEED").unwrap_or(since.as_secs() | 1);
    for number in 0..variable("CRASH_KILLS").unwrap_or(40) {
        // Shown if it fails.
        eprintln!("CRASH_SEED={} CRASH_KILLS=1 (number {number})", seed + 2 * number);
        let mut dice = Dice(seed + 2 * number);
        for _ in 0..8 {
            dice.below(2);
        }
        die(&mut dice, lines);
    }
}

#[test]
fn words_that_were_seen_for_a_while_outlive_the_process() {
    let place = Place::new();
    let model = server(&json!([[
        { "thought": "Slowly, ", "chunks": 2, "every_ms": 10 },
        { "text": "one two three", "chunks": 13, "every_ms": 20 },
        { "hang": true }
    ]]));
    let (mut victim, session, _) = place.begin(&model);
    let words = |heard: &[Value]| fold(heard).iter().any(|it| it.shown == "one two three");
    while !words(&victim.heard) {
        victim.hear().expect("the agent is alive");
    }
    std::thread::sleep(Duration::from_secs(1));
    victim.kill();
    let mut after = Victim::start(place.home.path(), &model);
    let from = after.heard.len();
    after.call("session/load", &place.load(&session));
    let back = fold(&after.heard[from..]);
    let shown: Vec<_> = back.iter().filter_map(|it| it.shown.as_str()).collect();
    assert_eq!(shown, [PROMPT, "Slowly, ", "one two three", INTERRUPTED]);
    after.end();
}
