//! The proof of a turn's work: which files it has changed since anything was run, and what the last run says. A
//! command line proves something only if its success depends on the project.

use super::Turn;
use crate::tools::AGENT_TOOL;
use turnwright_policy::shell::{self, SimpleCommand};
use turnwright_store::{ProofWord, TurnFacts};
use turnwright_types::effect::ToolKind;
use turnwright_types::message::{Arguments, ToolCall, ToolMessage};
use turnwright_types::update::COMMAND_TOOL;
use turnwright_workspace::exec::dialect;

/// Words at the beginning of a command that tests, builds or checks a project.
const CHECKS: &str = "--build build check clippy compile ctest eslint jest lint make mypy ninja phpunit \
                      pytest rspec rubocop ruff test tests tox tsc typecheck verify vet vitest";
/// The number of words at the beginning of a command that are examined, as in `npm --prefix web test`.
const FIRST_WORDS: usize = 4;
/// Programs for which these words may be names of files or branches.
const TAKE_NAMES: &str = "cd chmod cp git ln mkdir mv rm rmdir tar touch";
/// Programs that succeed whatever the project does.
const THIN: &str = ": [ cat command echo file find grep head ls printf pwd rg stat tail test tree \
                    true type wc which";
/// Programs that compare, or ask something that runs.
const SHOWING: &str = "cmp curl diff psql sqlite3";
/// Programs that run a file.
const INTERPRETERS: &str = "bash bun deno java lua node perl php python python3 ruby sh zsh";
/// Arguments with which an interpreter runs nothing or only text of the command line.
const INLINE: &str = "--check --eval -c -e -l -p -r";
/// The same for a shell.
const SHELL_INLINE: &str = "-c -n";
/// Modules of Python that do not run the project.
const FOREIGN_MODULES: &str = "compileall ensurepip http.server json.tool pip py_compile venv";
/// Programs whose first argument `run` runs the project.
const RUNNERS: &str = "cargo deno dotnet go npm pnpm poetry uv yarn";
/// The tool that shows the output of a command in the background.
const OUTPUT_TOOL: &str = "exec_output";
/// The tool that sets the plan.
const PLAN_TOOL: &str = "plan";

/// The worth of a command line as a proof, if it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Proof {
    /// It is about something else.
    None,
    /// It succeeds almost always.
    Thin,
    Real,
}

/// A run that says something about the work of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProvingRun {
    pub(super) line: String,
    pub(super) word: ProofWord,
}

/// The work of a turn, and its proof.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The changes of files by the session that the ledger knows of.
    known_changes: u64,
    pub(super) has_changed: bool,
    pub(super) has_planned: bool,
    /// The newest run since the last change.
    pub(super) last_run: Option<ProvingRun>,
    /// The commands in the background, each with its id.
    jobs: Vec<(String, String)>,
    /// The turn in numbers, without its proof.
    pub(super) counts: TurnFacts,
}

impl Turn {
    /// Takes note of calls that have ended. Their answer is the last message of the history.
    pub(super) fn note_work(&mut self, results: &[ToolMessage]) {
        let Some(last) = self.history.messages.last().cloned() else { return };
        let Some(answer) = last.as_assistant() else { return };
        let changes = self.conversation.env.shared.checkpoint.change_count();
        let ran_changes = self.checks.ledger.sync_changes(changes);
        for (call, result) in answer.calls.iter().zip(results) {
            let found = self.conversation.tools.find(&call.name).ok();
            let kind = found.and_then(|tool| tool.kind());
            self.checks.ledger.note(call, kind, result, ran_changes);
        }
    }

    /// The work of this turn, with changes of files that no call has been seen to make.
    pub(super) fn settled_ledger(&mut self) -> &Ledger {
        let changes = self.conversation.env.shared.checkpoint.change_count();
        if self.checks.ledger.sync_changes(changes) {
            self.checks.ledger.note_change();
        }
        &self.checks.ledger
    }
}

impl Ledger {
    /// Begins after this number of changes of files.
    pub(super) fn new(known_changes: u64) -> Ledger {
        Ledger { known_changes, ..Ledger::default() }
    }

    /// Takes note of the number of changes of files by now. Returns true if there are new ones.
    pub(super) fn sync_changes(&mut self, changes: u64) -> bool {
        std::mem::replace(&mut self.known_changes, changes) != changes
    }

    /// Takes note of a change of files. What was proven before is not proven any more.
    fn note_change(&mut self) {
        self.has_changed = true;
        self.last_run = None;
    }

    /// Takes note of a call that has ended. `ran_changes` is true if any call of its answer has changed files.
    fn note(
        &mut self,
        call: &ToolCall,
        kind: Option<ToolKind>,
        result: &ToolMessage,
        ran_changes: bool,
    ) {
        self.counts.calls += 1;
        self.counts.failed_calls += u32::from(!result.ok);
        match kind {
            Some(ToolKind::Read) if result.ok => self.counts.reads += 1,
            Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move) if result.ok => {
                self.counts.edits += 1;
                self.note_change();
            }
            Some(ToolKind::Edit | ToolKind::Delete | ToolKind::Move) => {
                self.counts.failed_edits += 1;
            }
            _ => {}
        }
        self.has_planned |= result.ok && call.name == PLAN_TOOL;
        if call.name == AGENT_TOOL && ran_changes {
            self.note_change();
        }
        let Some(line) = self.command_line(call) else { return };
        let proof = proof_of(&line);
        if ran_changes && proof != Proof::Real && !only_reads(&line) {
            self.note_change();
        }
        if let Some(id) = running_job(&result.text) {
            self.jobs.push((id.to_owned(), line));
            return;
        }
        // Any other result means that the command was refused, stopped or left running.
        let has_ended = ["[exit ", "[killed by "].iter().any(|end| result.text.starts_with(end));
        if has_ended {
            self.note_run(line, proof, result.ok);
        }
    }

    /// Takes note of a command that has ended. A thin proof takes nothing back.
    fn note_run(&mut self, line: String, proof: Proof, ok: bool) {
        let word = match (proof, ok) {
            (Proof::Real, true) => ProofWord::Green,
            (Proof::Real, false) => ProofWord::Red,
            (Proof::Thin, true) if self.last_run.is_none() => ProofWord::Thin,
            _ => return,
        };
        self.last_run = Some(ProvingRun { line, word });
    }

    /// Takes note of a check of ours that has ended.
    pub(super) fn note_check(&mut self, line: &str, ok: bool) {
        // A check that has failed is not made up for by the next one.
        if ok && self.proof() == ProofWord::Red {
            return;
        }
        self.note_run(line.to_owned(), Proof::Real, ok);
    }

    pub(super) fn proof(&self) -> ProofWord {
        self.last_run.as_ref().map_or(ProofWord::None, |run| run.word)
    }

    /// The turn in numbers.
    pub(super) fn facts(&self) -> TurnFacts {
        TurnFacts { proof: self.proof(), ..self.counts.clone() }
    }

    /// The command line that a call is about.
    fn command_line(&self, call: &ToolCall) -> Option<String> {
        let Arguments::Object(arguments) = &call.arguments else { return None };
        match call.name.as_str() {
            COMMAND_TOOL => {
                let line = arguments.get("command").or_else(|| arguments.get("cmd"))?;
                line.as_str().map(str::to_owned)
            }
            OUTPUT_TOOL => {
                let id = arguments.get("id")?.as_str()?.trim();
                let mut jobs = self.jobs.iter().rev();
                jobs.find(|(job, _)| job.trim_start_matches('p') == id.trim_start_matches('p'))
                    .map(|(_, line)| line.clone())
            }
            _ => None,
        }
    }
}

/// The id of the job in whose name the result of a command says that it is running.
fn running_job(result: &str) -> Option<&str> {
    let (head, _) = result.strip_prefix('[')?.split_once(']')?;
    head.split([' ', ',', ':']).find(|word| is_job_id(word)).filter(|_| head.contains("running"))
}

fn is_job_id(word: &str) -> bool {
    word.strip_prefix('p').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns true if a command line tests, builds or checks the project.
pub(super) fn is_check(line: &str) -> bool {
    shell::parse(line, dialect()).commands.iter().any(checks)
}

fn checks(command: &SimpleCommand) -> bool {
    let mut words = command.argv().take(FIRST_WORDS);
    words.any(|word| is_in(CHECKS, word))
        && !is_in(TAKE_NAMES, command.program())
        && !shell::classify(command).is_read_only
}

fn only_reads(line: &str) -> bool {
    let script = shell::parse(line, dialect());
    let has_writes = script
        .commands
        .iter()
        .flat_map(|command| &command.redirects)
        .any(|redirect| redirect.is_write);
    !has_writes && script.commands.iter().all(|command| shell::classify(command).is_read_only)
}

/// Returns true if a list of words has this one.
pub(super) fn is_in(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

/// The operator before a part of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joint {
    Then,
    And,
    Or,
    Pipe,
}

/// Returns the worth of a command line as a proof, if it succeeds: only what decides about its exit status counts.
pub(super) fn proof_of(line: &str) -> Proof {
    let text = without_documents(line);
    let parts = split_line(&text);
    let options: Vec<_> = parts
        .iter()
        .filter_map(|(_, part)| part.strip_prefix("set "))
        .flat_map(str::split_whitespace)
        .collect();
    let stops_at_failures = options.iter().any(|word| word.starts_with('-') && word.contains('e'));
    let fails_in_pipes = options.contains(&"pipefail");
    let mut whole = Proof::None;
    let mut is_comparison = false;
    for (joint, part) in parts {
        let (proof, compares) = proof_of_part(part);
        whole = match joint {
            Joint::Pipe if fails_in_pipes => whole.max(proof),
            Joint::And => whole.max(proof),
            // The other side would do as well.
            Joint::Or if is_exit(part) => whole,
            Joint::Or => whole.min(proof).max(Proof::Thin.min(whole)),
            Joint::Then if stops_at_failures => whole.max(proof),
            // Only the last comparison of several decides.
            Joint::Then if is_comparison && compares => Proof::Thin,
            // The last one decides; what was run before shows at least something.
            Joint::Pipe | Joint::Then => proof.max(Proof::Thin.min(whole)),
        };
        is_comparison = compares;
    }
    whole
}

fn is_exit(part: &str) -> bool {
    let words = part.trim_start_matches(['{', '(', ' ']);
    ["exit", "false", "return"].iter().any(|word| words.starts_with(word))
}

/// The worth of one command, and true if it compares something.
fn proof_of_part(part: &str) -> (Proof, bool) {
    let mut rest = part;
    for word in ["(", "{ ", "if ", "then ", "do ", "else "] {
        rest = rest.strip_prefix(word).unwrap_or(rest).trim_start();
    }
    let script = shell::parse(rest.trim_end_matches([')', '}']), dialect());
    let proof = script.commands.iter().map(proof_of_command).max().unwrap_or(Proof::None);
    let mut names = script.commands.iter().map(program_name);
    let compares = names.any(|name| is_in("[ cmp diff test", name));
    (proof, compares)
}

/// The name of the program without its folder.
fn program_name(command: &SimpleCommand) -> &str {
    let program = command.program();
    program.rsplit(['/', '\\']).next().unwrap_or(program).trim_end_matches(".exe")
}

fn proof_of_command(command: &SimpleCommand) -> Proof {
    let name = program_name(command);
    if name.is_empty() || is_in(TAKE_NAMES, name) {
        return Proof::None;
    }
    let words: Vec<_> = command.argv().collect();
    let is_about_itself = words.iter().any(|word| matches!(*word, "--help" | "--version"))
        || matches!(words.as_slice(), [_, "-h" | "-V" | "-v"]);
    if is_about_itself || is_in(THIN, name) {
        return Proof::Thin;
    }
    if is_in(INTERPRETERS, name) {
        return proof_of_interpreter(name, command);
    }
    let runs_project = is_in(RUNNERS, name) && words.get(1) == Some(&"run");
    if checks(command) || is_in(SHOWING, name) || runs_project || is_own_program(command.program())
    {
        return Proof::Real;
    }
    Proof::None
}

/// Returns true if a program is named by its path, and not in a folder of the system.
fn is_own_program(program: &str) -> bool {
    let of_system = ["/bin/", "/sbin/", "/usr/"];
    program.contains('/') && !of_system.iter().any(|folder| program.starts_with(folder))
}

/// The worth of a program that runs a file of the project, a module or a text.
fn proof_of_interpreter(name: &str, command: &SimpleCommand) -> Proof {
    let inline = if matches!(name, "bash" | "sh" | "zsh") { SHELL_INLINE } else { INLINE };
    let mut arguments = command.argv().skip(1);
    while let Some(word) = arguments.next() {
        if word == "-m" {
            let module = arguments.next().unwrap_or_default();
            return if is_in(FOREIGN_MODULES, module) { Proof::Thin } else { Proof::Real };
        }
        if is_in(inline, word) {
            return Proof::Thin;
        }
        // A file, or as in `node --test`.
        if !word.starts_with('-') || is_in(CHECKS, word.trim_start_matches('-')) {
            return Proof::Real;
        }
    }
    Proof::Thin
}

/// Leaves out the here-documents of a line, which are no commands, and the operators before them.
fn without_documents(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut end: Option<&str> = None;
    for row in line.lines() {
        if let Some(word) = end {
            end = Some(word).filter(|word| row.trim() != *word);
            continue;
        }
        let (head, rest) = row.split_once("<<").unwrap_or((row, ""));
        let marked = rest.trim_start_matches(['-', ' ', '\'', '"', '\\']);
        let length = marked.find(|char: char| !char.is_alphanumeric() && char != '_');
        let (word, tail) = marked.split_at(length.unwrap_or(marked.len()));
        if word.is_empty() || rest.starts_with('<') {
            text.push_str(row);
        } else {
            text.push_str(head);
            text.push_str(tail.trim_start_matches(['\'', '"']));
            end = Some(word);
        }
        text.push('\n');
    }
    text
}

/// Splits a line at its operators outside of quotes. Each part comes with the operator before it.
fn split_line(line: &str) -> Vec<(Joint, &str)> {
    let mut parts = Vec::new();
    let mut joint = Joint::Then;
    let mut start = 0;
    let mut quote = None;
    let mut previous = ' ';
    let mut letters = line.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map_or(' ', |(_, next)| *next);
        let before = std::mem::replace(&mut previous, letter);
        match letter {
            '\\' if quote != Some('\'') => drop_next(&mut letters),
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            '\'' | '"' if quote == Some(letter) => quote = None,
            ';' | '\n' | '&' | '|' if quote.is_none() => {
                // As in `2>&1` and `&>`.
                if matches!(before, '>' | '<') || letter == '&' && next == '>' {
                    continue;
                }
                let is_double =
                    matches!((letter, next), ('&', '&') | ('|', '|' | '&') | (';', ';'));
                let operator = match (letter, next) {
                    ('&', '&') => Joint::And,
                    ('|', '|') => Joint::Or,
                    ('|', _) => Joint::Pipe,
                    _ => Joint::Then,
                };
                add_part(&mut parts, &mut joint, line.get(start..at), operator);
                if is_double {
                    drop_next(&mut letters);
                }
                start = at + 1 + usize::from(is_double);
            }
            _ => {}
        }
    }
    add_part(&mut parts, &mut joint, line.get(start..), Joint::Then);
    parts
}

fn drop_next(letters: &mut impl Iterator<Item = (usize, char)>) {
    letters.next();
}

/// Adds a part that is neither blank nor a comment. A line may end after an operator.
fn add_part<'a>(
    parts: &mut Vec<(Joint, &'a str)>,
    joint: &mut Joint,
    part: Option<&'a str>,
    next: Joint,
) {
    let part = part.unwrap_or_default().trim();
    if !part.is_empty() && !part.starts_with('#') {
        parts.push((*joint, part));
        *joint = next;
    } else if next != Joint::Then {
        *joint = next;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_tests_builds_or_checks_is_a_check() {
        let checks = [
            "cargo test -p core",
            "cd web && npm run lint",
            "RUST_BACKTRACE=1 cargo +nightly clippy",
            "python3 -m pytest -q",
            "./gradlew check",
            "npx tsc --noEmit",
            "make",
            "timeout 9 go test ./... 2>&1 | tail",
        ];
        let others = [
            "cat test",
            "cargo run",
            "grep -r build .",
            "git commit -m test",
            "mkdir -p build && cd build",
            "python3 x.py",
            "rm -rf build",
        ];
        for (lines, expected) in [(&checks[..], true), (&others[..], false)] {
            for line in lines {
                assert_eq!(is_check(line), expected, "{line}");
            }
        }
    }

    #[test]
    #[cfg_attr(windows, ignore = "the lines are those of a POSIX shell")]
    fn the_worth_of_a_command_line_is_what_decides_about_its_success() {
        let table: &[(Proof, &[&str])] = &[
            (
                Proof::Real,
                &[
                    "cargo test",
                    "cd web && npm test",
                    "cargo test 2>&1",
                    "python3 x.py",
                    "python3 -m mypackage",
                    "node --test",
                    "./run-tests.sh",
                    "sh check.sh",
                    "bash -e check.sh",
                    "cargo run -- --list",
                    "curl -sf localhost:8000/health",
                    "sqlite3 a.db 'select 1'",
                    "diff a b",
                    "diff a b && diff c d",
                    "set -e; diff a b; diff c d",
                    "set -euo pipefail\ncargo test | tail",
                    "cargo build; cargo test",
                    "make || exit 1",
                    "cat > x.py <<'EOF'\nls\nEOF\npython3 x.py",
                ],
            ),
            (
                Proof::Thin,
                &[
                    "ls",
                    "cat a.txt",
                    "test -f a.txt",
                    "[ -f a.txt ]",
                    "cargo test --help",
                    "x --version",
                    "node -v",
                    "python3 -m py_compile a.py",
                    "python3 -m compileall .",
                    "python3 -c 'print(1)'",
                    "python3 - <<'EOF'\nprint(1)\nEOF",
                    "bash -n check.sh",
                    "diff a b; diff c d",
                    "cmp a b\ncmp c d\ntest -f e",
                    "cargo test; true",
                    "cargo test || true",
                    "cargo test || echo failed",
                    "cargo test | tail -5",
                    "cargo test; echo done",
                    "echo 'cargo test'",
                    "true",
                ],
            ),
            (Proof::None, &["", "mkdir -p build", "git commit -m test", "# cargo test", "cd src"]),
        ];
        for (expected, lines) in table {
            for line in *lines {
                assert_eq!(proof_of(line), *expected, "{line}");
            }
        }
    }

    /// Notes a call with this result. A command has this line.
    fn note(ledger: &mut Ledger, name: &str, line: &str, result: &str, ran_changes: bool) {
        let arguments = json!({ "command": line, "id": line });
        let call = ToolCall::new("call", "p", name, arguments);
        let ok = result == "[exit 0" || !result.starts_with("[exit");
        let result = ToolMessage::new(&call, format!("{result} · 0.1 s]\nout"), ok);
        let kind = (name == "edit_file").then_some(ToolKind::Edit);
        ledger.note(&call, kind, &result, ran_changes);
    }

    #[test]
    fn a_change_takes_the_proof_back_and_the_newest_run_counts() {
        let mut ledger = Ledger::default();
        let steps = [
            ("edit_file", "", "done", false, ProofWord::None),
            ("exec", "ls", "[exit 0", false, ProofWord::Thin),
            ("exec", "cargo test", "[exit 101", false, ProofWord::Red),
            ("exec", "ls", "[exit 0", false, ProofWord::Red),
            // It writes files of its own.
            ("exec", "cargo test", "[exit 0", true, ProofWord::Green),
            ("exec", "cat a", "[exit 0", false, ProofWord::Green),
            ("exec", "touch a", "[exit 0", true, ProofWord::None),
            ("exec", "cargo test", "[stopped: it held too much", false, ProofWord::None),
            ("exec", "cargo test", "[p1 running for 9.0 s", false, ProofWord::None),
            ("exec_output", "p1", "[exit 0", false, ProofWord::Green),
            ("agent", "", "done", true, ProofWord::None),
        ];
        for (name, line, result, ran_changes, expected) in steps {
            note(&mut ledger, name, line, result, ran_changes);
            assert_eq!(ledger.proof(), expected, "{name} {line} {result}");
        }
        assert!(ledger.has_changed);
        let facts = ledger.facts();
        assert_eq!((facts.calls, facts.failed_calls, facts.edits), (11, 1, 1));
    }

    #[test]
    fn a_check_that_fails_is_not_made_up_for_by_the_next_one() {
        let mut ledger = Ledger::default();
        let steps = [
            ("a", true, ProofWord::Green),
            ("b", false, ProofWord::Red),
            ("c", true, ProofWord::Red),
        ];
        for (line, ok, expected) in steps {
            ledger.note_check(line, ok);
            assert_eq!(ledger.proof(), expected, "{line}");
        }
    }
}
