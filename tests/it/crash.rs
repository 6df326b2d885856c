//! Crash safety: the agent is killed during a turn, and a load must replay what the client had received,
//! without losses, repetitions or changes of the order. `CRASH_KILLS` sets the number of kills and
//! `CRASH_SEED` the seed of the random moments.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::command_lines::run_on;
use turnwright_testing::process_report;
use turnwright_testing::process_waits::{self, Input};
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::{eventually, prompt, run_mark, says, subcommand};

/// How long what a killed process has written may take to arrive.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
const PROMPT: &str = "Do all of it.";
const INTERRUPTED: &str = "This turn was interrupted: the agent ended in the middle of it.";

/// An agent process that the test kills, and the client's end of the connection.
struct Victim {
    child: Child,
    stdin: Option<Input>,
    /// The complete lines of its stdout.
    lines: Receiver<Value>,
    /// The messages that were taken from `lines`.
    received: Vec<Value>,
    next_id: u64,
}

impl Victim {
    fn start(home: &Path, model: &Server) -> Victim {
        let mut child = subcommand(home, &[])
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
        // Apart from a line or two, messages that the test has not taken stay in the pipe.
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
        let mut victim = Victim { child, stdin, lines, received: Vec::new(), next_id: 1 };
        victim.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        victim
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stdin.as_ref().unwrap().write(format!("{line}\n").as_bytes()).unwrap();
        id
    }

    /// Takes the next complete line, or returns `None` at the end of stdout.
    fn receive(&mut self) -> Option<Value> {
        match self.lines.recv_timeout(process_waits::LIMIT) {
            Ok(message) => {
                self.received.push(message.clone());
                Some(message)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                process_report::give_up(self.child.id(), "the agent sends nothing")
            }
        }
    }

    /// Takes up to `count` lines, but none after the answer to the request `id`, since no line may
    /// follow. The number of lines of a turn depends on how fast they are read.
    fn receive_some(&mut self, count: usize, id: u64) {
        for _ in 0..count {
            if self.received_answer(id).is_some() || self.receive().is_none() {
                return;
            }
        }
    }

    fn received_answer(&self, id: u64) -> Option<&Value> {
        self.received.iter().find(|it| it["id"] == id && it.get("method").is_none())
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive().expect("the agent is alive");
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

    /// Kills the process. Lines that it had written count as received.
    fn kill(&mut self) {
        process_waits::kill(&mut self.child);
        if cfg!(windows) {
            // Under Wine the pipe of a process that was killed while it wrote may stay open.
            let messages = std::iter::from_fn(|| self.lines.recv_timeout(DRAIN_LIMIT).ok());
            self.received.extend(messages);
        } else {
            while self.receive().is_some() {}
        }
    }

    /// Closes stdin and waits until the process has ended with status 0.
    fn end(mut self) {
        drop(self.stdin.take());
        while self.receive().is_some() {}
        assert!(process_waits::wait(&mut self.child).success());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        process_waits::kill(&mut self.child);
    }
}

/// An entry of the conversation as the client shows it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// The identifier of a message with its kind, of a card, or of the plan.
    key: String,
    /// The text of a message so far, the fields of a card, or the entries of the plan.
    shown: Value,
    is_final: bool,
}

/// The conversation that the client shows after these messages.
fn fold(messages: &[Value]) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    for message in messages.iter().filter(|it| it["method"] == "session/update") {
        let update = &message["params"]["update"];
        let kind = update["sessionUpdate"].as_str().unwrap();
        match kind {
            "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
                let Some(id) = update["messageId"].as_str() else { continue };
                let key = format!("{kind} {id}");
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
                if kind == "tool_call" {
                    assert!(all.iter().all(|it| it.key != key), "{key} is created twice");
                    all.push(Seen { key: key.clone(), shown: json!({}), is_final: false });
                }
                let seen =
                    all.iter_mut().find(|it| it.key == key).expect("an update of an unknown card");
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

/// The model's replies in a turn with many updates of all kinds.
fn script() -> Value {
    let mut replies = Vec::new();
    for round in 0..ROUNDS {
        let status = if round + 1 == ROUNDS { "completed" } else { "in_progress" };
        let plan =
            json!({ "entries": [{ "content": format!("Round {round}"), "status": status }] });
        let edit = json!({ "path": "edited", "edits": [{
            "old_text": format!("edit {round}\n"), "new_text": format!("edit {}\n", round + 1) }] });
        let command = if cfg!(windows) {
            format!("<nul set /p \"={round}\" > ran & echo round {round}")
        } else {
            format!("printf '%s' {round} > ran; echo round {round}")
        };
        let command = json!({ "command": command });
        replies.push(json!([
            { "thought": format!("Thinking of round {round}. "), "chunks": 3, "every_ms": 1 },
            { "text": format!("These are the words of round {round}. "), "chunks": 4, "every_ms": 1 },
            step("plan", &plan),
            step("write_file", &json!({ "path": "written", "content": content(round) })),
            step("edit_file", &edit),
            step("exec", &command),
            step("read_file", &json!({ "path": "edited" })),
            step("read_file", &json!({ "path": "missing" })),
            step("agent", &json!({ "description": "help", "prompt": format!("Helper {round}") })),
        ]));
        let again = step("write_file", &json!({ "path": "written", "content": content(round) }));
        for reply in
            [json!([again]), json!([{ "text": "It is written.", "chunks": 3, "every_ms": 1 }])]
        {
            replies.push(json!({ "when": format!("Helper {round}"), "steps": reply }));
        }
    }
    replies.push(json!([{ "text": "All of it is done.", "chunks": 3, "every_ms": 1 }]));
    replies.into()
}

fn server(replies: &Value) -> Server {
    Server::start(Scenario::from_value(json!({ "replies": replies })).unwrap(), 0).unwrap()
}

/// A generator of pseudo-random numbers. Its seed makes failures reproducible.
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
        let place = Place {
            workspace: turnwright_testing::temporary_folder(),
            home: turnwright_testing::temporary_folder(),
        };
        std::fs::write(place.workspace.path().join("edited"), "edit 0\n").unwrap();
        place
    }

    /// Opens a session and starts its turn.
    fn begin(&self, model: &Server) -> (Victim, String, u64) {
        self.begin_in("full", model)
    }

    fn begin_in(&self, mode: &str, model: &Server) -> (Victim, String, u64) {
        let mut victim = Victim::start(self.home.path(), model);
        let params = json!({ "cwd": self.workspace.path(), "mcpServers": [] });
        let answer = victim.call("session/new", &params);
        let session = answer["sessionId"].as_str().unwrap().to_owned();
        victim.call("session/set_mode", &json!({ "sessionId": session, "modeId": mode }));
        victim.received.clear();
        let id = victim.send("session/prompt", &prompt(&session, PROMPT));
        (victim, session, id)
    }

    fn load(&self, session: &str) -> Value {
        json!({ "sessionId": session, "cwd": self.workspace.path(), "mcpServers": [] })
    }

    /// Checks that each file has the content of one of the rounds, and that there are no other files.
    fn check_files(&self) {
        for entry in std::fs::read_dir(self.workspace.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // The process ended before this temporary file could replace a file.
            if name.starts_with(".turnwright-") {
                eprintln!("the process left a temporary file: {name}");
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

/// Checks that a loaded conversation matches what the client had received before the kill.
fn compare(live: &[Seen], loaded: &[Seen], was_answered: bool) {
    let keys: BTreeSet<_> = loaded.iter().map(|it| &it.key).collect();
    assert_eq!(keys.len(), loaded.len(), "an entry is replayed twice");
    assert!(
        loaded.iter().all(|it| it.is_final || !it.key.starts_with("card")),
        "a replayed card has no final status"
    );
    let prompts: Vec<_> = loaded.iter().filter(|it| it.key.starts_with("user")).collect();
    assert!(prompts.len() <= 1 && prompts.iter().all(|it| it.shown == PROMPT), "{prompts:?}");
    assert!(live.is_empty() || prompts.len() == 1, "the prompt is lost");
    let notes = loaded.iter().filter(|it| it.shown == INTERRUPTED).count();
    assert_eq!(notes, usize::from(!was_answered && !prompts.is_empty()), "interrupted");
    for (number, seen) in live.iter().enumerate() {
        let found = loaded.iter().find(|it| it.key == seen.key);
        // A text is certainly stored if a finished card or the next reply came after it.
        let is_sure = was_answered
            || live[number + 1..]
                .iter()
                .any(|it| it.is_final || it.key.starts_with("agent_thought"));
        match (seen.key.split(' ').next().unwrap(), found) {
            ("card", Some(found)) if seen.is_final => assert_eq!(found, seen),
            ("card", None) => assert!(!seen.is_final, "{} is lost", seen.key),
            ("card", Some(_)) => {}
            ("plan", found) => {
                // A later plan may have been stored and not sent yet, so the entries are not compared.
                assert!(found.is_some(), "the plan is lost");
            }
            (_, Some(found)) if is_sure => assert_eq!(found, seen),
            (_, None) => assert!(!is_sure, "{} is lost", seen.key),
            (_, Some(found)) => {
                let (a, b) = (found.shown.as_str().unwrap(), seen.shown.as_str().unwrap());
                assert!(a.starts_with(b) || b.starts_with(a), "{a:?} {b:?}");
            }
        }
    }
    let order = |of: &[Seen], among: &[Seen]| -> Vec<String> {
        let both = of.iter().filter(|it| among.iter().any(|also| also.key == it.key));
        both.filter(|it| it.key != "plan").map(|it| it.key.clone()).collect()
    };
    assert_eq!(order(live, loaded), order(loaded, live), "the order has changed");
}

/// Checks that each tool call in a model request is followed by its result, as strict providers require.
fn check_request(body: &Value) {
    let mut open_calls: Vec<&Value> = Vec::new();
    for message in body["messages"].as_array().unwrap() {
        if message["role"] == "tool" {
            assert_eq!(open_calls.first(), Some(&&message["tool_call_id"]), "{body}");
            assert_ne!(message["content"], "");
            open_calls.remove(0);
        } else {
            assert!(open_calls.is_empty(), "{body}");
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            open_calls = calls.map(|it| &it["id"]).collect();
        }
    }
    assert!(open_calls.is_empty(), "{body}");
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Kills the agent at a random moment of the turn, loads the session twice, and goes on.
fn kill_and_load(dice: &mut Dice, lines: usize) {
    let (place, model) = (Place::new(), server(&script()));
    let (mut victim, session, prompt_id) = place.begin(&model);
    victim.receive_some(dice.below(lines + 1), prompt_id);
    if dice.below(5) == 0 {
        let close_id = victim.send("session/close", &json!({ "sessionId": session }));
        victim.receive_some(dice.below(3), close_id);
    }
    let micros = u64::try_from(dice.below(3_000)).unwrap();
    std::thread::sleep(Duration::from_micros(micros));
    victim.kill();
    let was_answered = victim.received_answer(prompt_id).is_some();
    let live = fold(&victim.received);
    place.check_files();

    let model = server(&json!([says("And on.")]));
    if dice.below(3) == 0 {
        // The process that repairs the session is killed, too.
        let mut second = Victim::start(place.home.path(), &model);
        second.send("session/load", &place.load(&session));
        let micros = u64::try_from(dice.below(30_000)).unwrap();
        std::thread::sleep(Duration::from_micros(micros));
        second.kill();
    }
    let mut first_loaded = Vec::new();
    for round in 0..2 {
        let mut third = Victim::start(place.home.path(), &model);
        let start = third.received.len();
        third.call("session/load", &place.load(&session));
        let loaded = fold(&third.received[start..]);
        // The turn may have ended without its answer having been sent. Then it is complete.
        let has_ended = !loaded.is_empty() && loaded.iter().all(|it| it.shown != INTERRUPTED);
        compare(&live, &loaded, was_answered || has_ended);
        if round == 0 {
            first_loaded = loaded;
            third.end();
            continue;
        }
        assert_eq!(loaded, first_loaded, "the second load differs from the first");
        let start = third.received.len();
        let answer = third.call("session/prompt", &prompt(&session, "Go on."));
        assert_eq!(answer["stopReason"], "end_turn");
        let new = fold(&third.received[start..]);
        let is_known = |it: &Seen| live.iter().chain(&loaded).any(|old| old.key == it.key);
        assert!(!new.iter().any(is_known), "an identifier is used again: {new:?}");
        let requests = model.wait_for_requests(1, process_waits::LIMIT).unwrap();
        check_request(&requests[0].body);
        assert_eq!(
            requests[0].body.to_string().contains("The last turn was interrupted"),
            loaded.iter().any(|it| it.shown == INTERRUPTED)
        );
        third.end();
    }
    place.check_files();
}

#[test]
fn a_load_replays_what_the_client_had_received_before_a_kill() {
    let (place, model) = (Place::new(), server(&script()));
    let (mut victim, session, id) = place.begin(&model);
    victim.answer(id);
    let (lines, live) = (victim.received.len(), fold(&victim.received));
    victim.kill();
    let mut after = Victim::start(place.home.path(), &model);
    let start = after.received.len();
    after.call("session/load", &place.load(&session));
    compare(&live, &fold(&after.received[start..]), true);
    after.end();

    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = variable("CRASH_SEED").unwrap_or(now.as_secs() | 1);
    for number in 0..variable("CRASH_KILLS").unwrap_or(40) {
        // The test runner shows this line if the test fails.
        eprintln!("CRASH_SEED={} CRASH_KILLS=1 (number {number})", seed + 2 * number);
        let mut dice = Dice(seed + 2 * number);
        for _ in 0..8 {
            dice.below(2);
        }
        kill_and_load(&mut dice, lines);
    }
}

/// The pieces of the answer that the store has.
fn stored_draft(database: &Path) -> String {
    let connection = rusqlite::Connection::open(database).unwrap();
    let mut pieces = connection.prepare("SELECT words FROM drafts ORDER BY id").unwrap();
    let pieces = pieces.query_map([], |row| row.get::<_, String>(0)).unwrap();
    pieces.map_while(Result::ok).collect()
}

#[test]
fn text_that_is_shown_is_stored_while_the_answer_goes_on() {
    let place = Place::new();
    let model = server(&json!([[
        { "thought": "Slowly, ", "chunks": 2, "every_ms": 10 },
        { "text": "one two three", "chunks": 13, "every_ms": 20 },
        { "hang": true }
    ]]));
    let (mut victim, session, _) = place.begin(&model);
    let words = |messages: &[Value]| fold(messages).iter().any(|it| it.shown == "one two three");
    while !words(&victim.received) {
        victim.receive().expect("the agent is alive");
    }
    let database = place.home.path().join("state/sessions.db");
    eventually("the text is stored", || stored_draft(&database).ends_with("one two three"));
    victim.kill();
    let mut second = Victim::start(place.home.path(), &model);
    let start = second.received.len();
    second.call("session/load", &place.load(&session));
    let loaded = fold(&second.received[start..]);
    let shown: Vec<_> = loaded.iter().filter_map(|it| it.shown.as_str()).collect();
    assert_eq!(shown, [PROMPT, "Slowly, ", "one two three", INTERRUPTED]);
    second.end();
}

#[test]
fn a_kill_in_the_middle_of_a_compaction_leaves_the_conversation_as_it_was() {
    let place = Place::new();
    let model = server(&json!([
        says("One."),
        [{ "text": "# Goal" }, { "hang": true }],
        says("Two."),
    ]));
    let (mut victim, session, id) = place.begin(&model);
    victim.answer(id);
    victim.send("session/prompt", &prompt(&session, "/compact"));
    model.wait_for_requests(2, process_waits::LIMIT).unwrap();
    victim.kill();
    let mut next = Victim::start(place.home.path(), &model);
    next.call("session/load", &place.load(&session));
    next.call("session/prompt", &prompt(&session, "Go on."));
    let requests = model.wait_for_requests(3, process_waits::LIMIT).unwrap();
    let body = &requests.last().unwrap().body;
    let texts: Vec<_> = body["messages"].as_array().unwrap()[1..]
        .iter()
        .map(|it| it["content"].as_str().unwrap().lines().next().unwrap_or_default())
        .collect();
    assert_eq!(texts, [PROMPT, "One.", "Go on."], "{body}");
    next.end();
}

#[test]
fn a_prompt_that_a_kill_left_unanswered_is_not_joined_to_the_next_one() {
    let place = Place::new();
    let model = server(&json!([[{ "hang": true }], says("And on."), says("And on.")]));
    let (mut victim, session, _) = place.begin(&model);
    model.wait_for_requests(1, process_waits::LIMIT).unwrap();
    // Its answer waits for what was written before.
    victim.call("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" }));
    victim.kill();
    let roles = |body: &Value| -> Vec<String> {
        let messages = body["messages"].as_array().unwrap().iter();
        messages.map(|it| it["role"].as_str().unwrap().to_owned()).skip(1).collect()
    };
    let mut expected = vec!["user"];
    for round in 2..4 {
        let mut next = Victim::start(place.home.path(), &model);
        next.call("session/load", &place.load(&session));
        next.call("session/prompt", &prompt(&session, "Go on."));
        let requests = model.wait_for_requests(round, process_waits::LIMIT).unwrap();
        expected.extend(["assistant", "user"]);
        let body = &requests.last().unwrap().body;
        assert_eq!(roles(body), expected, "{body}");
        assert_eq!(body["messages"][2]["content"], "[Stopped here: the agent ended.]");
        next.end();
    }
}

#[test]
fn a_card_that_was_open_at_a_kill_has_failed_when_the_session_is_loaded() {
    type Phase<'a> = (&'a str, Value, &'a dyn Fn(&Value) -> bool);
    let command = step("exec", &json!({ "command": run_on("1000.7") }));
    let is_card = |it: &Value| it["params"]["update"]["sessionUpdate"] == "tool_call";
    let is_running = |it: &Value| it["params"]["update"]["status"] == "in_progress";
    let is_question = |it: &Value| it["method"] == "session/request_permission";
    let phases: [Phase<'_>; 3] = [
        ("full", json!([command, { "hang": true }]), &is_card),
        ("ask", json!([command]), &is_question),
        ("full", json!([command]), &is_running),
    ];
    for (mode, reply, is_reached) in phases {
        let (place, model) = (Place::new(), server(&json!([reply])));
        let (mut victim, session, _) = place.begin_in(mode, &model);
        while !victim.received.iter().any(is_reached) {
            victim.receive().expect("the agent is alive");
        }
        // Its answer waits for what was written before.
        victim.call("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" }));
        victim.kill();
        let cards = |messages: &[Value]| -> Vec<Seen> {
            fold(messages).into_iter().filter(|it| it.key.starts_with("card")).collect()
        };
        let keys = |all: &[Seen]| all.iter().map(|it| it.key.clone()).collect::<Vec<_>>();
        let live = cards(&victim.received);
        assert_eq!(live.len(), 1);
        for _ in 0..2 {
            let mut second = Victim::start(place.home.path(), &model);
            let start = second.received.len();
            second.call("session/load", &place.load(&session));
            let loaded = cards(&second.received[start..]);
            assert_eq!(keys(&loaded), keys(&live));
            assert_eq!(loaded[0].shown["status"], "failed", "{loaded:?}");
            assert!(loaded[0].shown.to_string().contains("The agent ended"), "{loaded:?}");
            second.end();
        }
    }
}

fn said(victim: &mut Victim, session: &str, words: &str) -> String {
    let start = victim.received.len();
    victim.call("session/prompt", &prompt(session, words));
    let texts = fold(&victim.received[start..]);
    let answers = texts.iter().filter(|it| it.key.starts_with("agent_message"));
    answers.filter_map(|it| it.shown.as_str()).collect()
}

#[test]
#[cfg_attr(windows, ignore = "its command is a script of sh")]
fn a_command_in_whose_middle_the_agent_was_killed_is_named_as_not_covered() {
    let write = step("write_file", &json!({ "path": "written", "content": "by a tool\n" }));
    let command = "echo changed > edited; touch begun; exec sleep 1000.8";
    let run = step("exec", &json!({ "command": command }));
    let fine = step("exec", &json!({ "command": "echo fine > ran" }));
    let place = Place::new();
    let model = server(&json!([[write], says("Done."), [fine], says("Done."), [run]]));
    let (mut victim, session, id) = place.begin(&model);
    victim.answer(id);
    assert_eq!(said(&mut victim, &session, "And this."), "Done.");
    victim.send("session/prompt", &prompt(&session, "Run it."));
    eventually("the command runs", || place.workspace.path().join("begun").exists());
    victim.kill();

    let mut next = Victim::start(place.home.path(), &model);
    next.call("session/load", &place.load(&session));
    let named = "Not covered is what commands have changed in:\n\n\
                 * turn 3 (Run it.) – the agent ended while a command ran";
    let not_named = "* turn 2";
    let diff = said(&mut next, &session, "/diff");
    assert!(diff.contains("+fine") && diff.contains(named) && !diff.contains(not_named), "{diff}");
    let output = said(&mut next, &session, "/undo");
    assert!(output.contains("Undone: turn 2") && output.contains(named), "{output}");
    let output = said(&mut next, &session, "/undo");
    assert!(output.contains("Undone: turn 1") && output.contains(named), "{output}");
    let output = said(&mut next, &session, "/undo");
    assert!(output.contains("Nothing to undo") && output.contains(named), "{output}");
    assert!(!output.contains(not_named), "{output}");
    let kept = std::fs::read_to_string(place.workspace.path().join("edited")).unwrap();
    assert_eq!(kept, "changed\n");
    next.end();
}

#[test]
#[cfg_attr(windows, ignore = "the command is one of Unix")]
fn a_goal_that_was_worked_on_at_a_kill_is_paused_when_the_session_is_loaded() {
    let place = Place::new();
    let model = server(&json!([says("Hello."), [{ "hang": true }]]));
    let (mut victim, session, id) = place.begin(&model);
    victim.answer(id);
    victim.send("session/prompt", &prompt(&session, "/goal Write it. --check grep good a.txt"));
    eventually("the request of the goal", || model.requests().len() == 2);
    // Its answer waits for what was written before.
    victim.call("session/set_mode", &json!({ "sessionId": session, "modeId": "ask" }));
    victim.kill();
    let mut next = Victim::start(place.home.path(), &model);
    next.call("session/load", &place.load(&session));
    let shown = said(&mut next, &session, "/goal");
    assert!(shown.starts_with("The goal is paused: its turn was interrupted."), "{shown}");
    next.end();
}

#[test]
fn what_a_kill_in_the_middle_of_an_edit_has_left_is_gone_when_the_session_is_loaded() {
    let write = step("write_file", &json!({ "path": "sub/new", "content": "x" }));
    let place = Place::new();
    let model = server(&json!([[write], [{ "hang": true }]]));
    let (mut victim, session, _) = place.begin(&model);
    eventually("the file is written", || place.workspace.path().join("sub/new").exists());
    victim.kill();
    // As if it had been killed a moment earlier.
    let left = place.workspace.path().join("sub/.turnwright-aB3xYz.tmp");
    std::fs::write(&left, "half a te").unwrap();
    let connection =
        rusqlite::Connection::open(place.home.path().join("state/sessions.db")).unwrap();
    let set = "UPDATE calls SET status = 'running', ended_at = NULL, result = NULL";
    connection.execute(set, []).unwrap();
    drop(connection);
    let mut next = Victim::start(place.home.path(), &model);
    next.call("session/load", &place.load(&session));
    assert!(!left.exists());
    next.end();
}
