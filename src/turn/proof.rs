//! The proof of a turn's work: which files it has changed since anything was run, and what the last run says. A
//! command line proves something only if its success depends on the project.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::iter::repeat_n;

use super::Turn;
use super::checks::edits_files;
use crate::tools::AGENT_TOOL;
use turnwright_policy::shell::{self, SimpleCommand};
use turnwright_store::{ProofWord, TurnFacts};
use turnwright_types::effect::ToolKind;
use turnwright_types::hash::std_hash;
use turnwright_types::message::{Arguments, ToolMessage};
use turnwright_types::update::COMMAND_TOOL;
use turnwright_workspace::exec::dialect;

/// Words at the beginning of a command that builds or checks a project.
const CHECKS: &str = "--build analyze build cc check clang clippy compile eslint flake8 g++ gcc golangci-lint javac \
    lint mypy phpstan pylint pyright rubocop ruff rustc shellcheck svelte-check tsc typecheck vet vue-tsc";
/// Words at the beginning of a command that tests a project, or may do so.
const TESTS: &str = "bats ctest cypress ginkgo gotestsum jest make mocha mvn nextest ninja nox phpunit pytest rspec \
                     test tests tox unittest verify vitest";
/// The number of words at the beginning of a command that are examined, without its options, as in
/// `docker compose exec -T web npm test`.
const FIRST_WORDS: usize = 6;
/// Words after which another one is the name of a package, a folder or an image with its tag.
const SET_UP: &str =
    "add ci create get i init install new pull push remove rm rmi tag uninstall update upgrade";
/// Programs for which such words may be names of files, branches, packages or places.
const TAKE_NAMES: &str = "aws cd chmod chown cp createdb dropdb gcloud gh git kill killall kubectl ln mkdir mv pip \
                          pip3 pkill rm rmdir rsync scp sed tar tee touch unzip zip";
/// Programs that succeed whatever the project does.
const THIN: &str = ": [ cat command echo file find grep head ls printf pwd rg stat tail test tree \
                    true type wc which";
/// Programs that compare, or ask something that runs.
const SHOWING: &str = "cmp curl diff psql sqlite3";
const SHELLS: &str = "bash dash sh zsh";
/// Programs that run a file, besides shells.
const INTERPRETERS: &str = "bun deno java lua node perl php python python3 ruby";
/// Arguments with which an interpreter runs nothing or only text of the command line.
const INLINE: &str = "--check --eval -c -e -l -p -r";
/// Modules of Python that do not run the project.
const FOREIGN_MODULES: &str = "compileall ensurepip http.server json.tool pip py_compile venv";
/// Arguments with which a program only says something, of itself or of what it would do.
const ONLY_SAYS: &str = "--co --collect-only --dry-run --help --just-print --list-tests --version";
/// Programs whose first argument `run` runs the project.
const RUNNERS: &str = "cargo deno dotnet go npm pnpm poetry uv yarn";
/// Formatters: they succeed almost always, and take no proof back.
const FORMATTERS: &str =
    "black clang-format fmt format gofmt goimports isort prettier rustfmt yapf";
/// Words that may stand before the name of a formatter. `make` is not among them, because checks may follow its first
/// target.
const LEADING: &str =
    "-m cargo dart deno dotnet exec go mix npm npx pnpm poetry python python3 ruff run uv uvx yarn";
/// Text that looks like an operator of a shell, but lets no failure be forgotten.
const FORGETS_NOTHING: &str = ">&,<&,&>,>|,&&,|| exit,|| false,|| return";
/// The beginnings of the result of a command that has ended. Any other result means that it was refused, stopped or
/// left running.
const ENDED: [&str; 2] = ["[exit ", "[killed by "];
/// Words of test runners that have found no test.
const NO_TESTS: &str = "running 0 tests|ran 0 tests|executed 0 tests|tests run: 0,|tests 0 \n|\
                        0 passing|0 examples,|0 runs,|no test files|no test matches the|no tests found|\
                        no tests to run|no tests were found|no tests executed|no test is available";
/// Words in the output of a command that fails because the test, or the program that would run it, does not exist.
const NOT_THERE: &str = "issing script: |no test specified|No module named pytest|no tests ran in";
/// Words of test runners beside the number of the tests that they have run.
const COUNTED: &str = "assertions examples ok pass passed passing run runs succeeded test tests";
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

/// A step of a turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A command that has ended. `is_here` is true if it ran in the working folder.
    Ran { line: String, proof: Proof, is_good: bool, is_here: bool },
    /// A change of files, which may be the reason for everything that follows.
    Changed,
}

/// The work of a turn, and its proof.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The changes of files by the session that the ledger knows of.
    known_changes: u64,
    pub(super) has_changed: bool,
    pub(super) has_planned: bool,
    /// True if any tool was called.
    pub(super) has_called: bool,
    /// The newest run since the last change.
    pub(super) last_run: Option<ProvingRun>,
    /// The commands in the background, each with its id.
    jobs: Vec<(String, String)>,
    /// The commands and changes, in order.
    pub(super) steps: Vec<Step>,
    /// Hashes of the results of commands, without their numbers: times differ from run to run.
    results: HashSet<u64>,
    /// Set when files have changed, or a command has a result that none had before.
    pub(super) has_news: bool,
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
            // Models call a tool by the name that another agent has for it.
            let tool = self.conversation.tools.find(&call.name).ok();
            let name = tool.as_ref().map_or(call.name.as_str(), |tool| tool.name());
            let kind = tool.as_ref().and_then(|tool| tool.kind());
            self.checks.ledger.note(name, kind, &call.arguments, result, ran_changes);
            if let Some(tool) = &tool {
                self.note_edit(tool.as_ref(), call, result.ok);
            }
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
    /// Takes note of the number of changes of files by now. Returns true if there are new ones.
    pub(super) fn sync_changes(&mut self, changes: u64) -> bool {
        let is_new = self.known_changes != changes;
        self.known_changes = changes;
        self.has_news |= is_new;
        is_new
    }

    /// Takes the changes of files by now for none of the turn's work.
    pub(super) fn ignore_changes(&mut self, changes: u64) {
        self.known_changes = changes;
    }

    /// Takes note of a change of files. What was proven before is not proven any more, nor by what is still running.
    fn note_change(&mut self) {
        self.has_changed = true;
        self.last_run = None;
        self.jobs.clear();
        self.steps.push(Step::Changed);
    }

    /// Takes note of a call of the tool with this name. `ran_changes` is true if any call of its answer has changed
    /// files.
    fn note(
        &mut self,
        name: &str,
        kind: Option<ToolKind>,
        arguments: &Arguments,
        result: &ToolMessage,
        ran_changes: bool,
    ) {
        let ok = result.ok;
        // A helper, or a tool of an MCP server.
        let may_edit = name == AGENT_TOOL || kind == Some(ToolKind::Other);
        self.has_called = true;
        self.has_planned |= ok && name == PLAN_TOOL;
        if ok && edits_files(kind) || ran_changes && may_edit {
            self.note_change();
        }
        if name == COMMAND_TOOL {
            let words = result.text.replace(|char: char| char.is_ascii_digit(), "");
            self.has_news |= self.results.insert(std_hash(words));
        }
        let Some(line) = self.command_line(name, arguments) else { return };
        let proof = proof_of(&line);
        if ran_changes && proof != Proof::Real && !only_formats(&line) {
            self.note_change();
        }
        if let Some(id) = running_job(&result.text) {
            self.jobs.push((id.to_owned(), line));
        } else if ENDED.iter().any(|start| result.text.starts_with(start)) {
            let is_here = name == COMMAND_TOOL && !names_folder(arguments);
            // Of a command in the background, the tool shows only what is new.
            let is_empty = ok && name == COMMAND_TOOL && ran_nothing(&line, &result.text);
            let proof = if is_empty { proof.min(Proof::Thin) } else { proof };
            self.steps.push(Step::Ran { line: line.clone(), proof, is_good: ok, is_here });
            // A test that is missing has not failed.
            let is_missing = NOT_THERE.split('|').any(|part| result.text.contains(part));
            if ok || !is_missing || counts_failures(&result.text) {
                self.note_run(line, proof, ok);
            }
        }
    }

    /// The command line of the last run of the turn that would prove something, if it failed.
    pub(super) fn failed_check(&self) -> Option<&str> {
        let mut runs = self.steps.iter().rev().filter_map(|step| match step {
            Step::Ran { line, proof: Proof::Real, is_good, .. } => Some((line, *is_good)),
            _ => None,
        });
        runs.next().filter(|(_, is_good)| !is_good).map(|(line, _)| line.as_str())
    }

    /// Takes note of a command that has ended. A thin proof takes nothing back.
    fn note_run(&mut self, line: String, proof: Proof, ok: bool) {
        // A build or a linter does not make up for a test that has failed.
        let failed = self.last_run.as_ref().filter(|run| run.word == ProofWord::Red);
        let has_failed_test = failed.and_then(|run| is_test_run(&run.line)) == Some(true);
        let word = match (proof, ok) {
            (Proof::Real, true) if has_failed_test && is_test_run(&line) == Some(false) => return,
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
        if !ok || self.proof() != ProofWord::Red {
            self.note_run(line.to_owned(), Proof::Real, ok);
        }
    }

    pub(super) fn proof(&self) -> ProofWord {
        self.last_run.as_ref().map_or(ProofWord::None, |run| run.word)
    }

    /// The turn in numbers.
    pub(super) fn facts(&self) -> TurnFacts {
        TurnFacts { proof: self.proof(), ..self.counts.clone() }
    }

    /// The command line that a call is about.
    pub(super) fn command_line(&self, name: &str, arguments: &Arguments) -> Option<String> {
        let Arguments::Object(arguments) = arguments else { return None };
        if name == COMMAND_TOOL {
            return arguments.get("command")?.as_str().map(str::to_owned);
        }
        let id = arguments.get("id").filter(|_| name == OUTPUT_TOOL)?.as_str()?;
        let number = id.trim().trim_start_matches('p');
        let mut jobs = self.jobs.iter().rev();
        let found = jobs.find(|(job, _)| job.trim_start_matches('p') == number);
        found.map(|(_, line)| line.clone())
    }
}

/// Returns true if the arguments of a command name another folder than the working folder.
fn names_folder(arguments: &Arguments) -> bool {
    let Arguments::Object(arguments) = arguments else { return false };
    !["", "."].contains(&arguments["workdir"].as_str().unwrap_or_default().trim())
}

/// Returns true if a command line has succeeded because it found no test to run, or skipped all: its output says so,
/// and nowhere that one has run.
pub(super) fn ran_nothing(line: &str, output: &str) -> bool {
    // The number of tests that were skipped is none of tests that have run, and any belongs to a word of its own line.
    let text = output.to_ascii_lowercase().replace(" skipped", "-skipped").replace('\n', " \n ");
    let parts = text.split([' ', '\t', '\r', '(', ')', ',', ':', ';', '=']);
    let words: Vec<_> = parts.filter(|word| !word.is_empty()).collect();
    let mut skipped = words.iter().filter_map(|word| word.strip_suffix("-skipped"));
    let has_skipped = skipped.any(|number| number.parse::<u32>().is_ok_and(|count| count > 0));
    if !has_skipped && !NO_TESTS.split('|').any(|part| text.contains(part)) {
        return false;
    }
    let is_counted = words.windows(2).any(|pair| {
        pair.iter().any(|word| is_in(COUNTED, word))
            && pair.iter().any(|word| word.parse::<u32>().is_ok_and(|count| count > 0))
    });
    // Go gives no number, and one may be in what was left out.
    let may_have_run = is_counted
        || text.contains(" omitted")
        || text.lines().any(|row| row.contains("ok  ") && !row.contains("no test"));
    // Another command may have proven something, or have cut the output.
    let mut commands = shell::parse(line, dialect()).commands;
    commands.retain(|command| command.program() != "cd");
    commands.dedup_by(|one, other| one.words == other.words);
    !may_have_run && commands.len() == 1
}

/// Returns true if a text has a number of failures, as in `3 failed` or `Failures: 1`.
fn counts_failures(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let parts = text.split([' ', ',', ':', ';', '=', '\n']).filter(|word| !word.is_empty());
    let words: Vec<_> = parts.collect();
    words.windows(2).any(|pair| {
        pair.iter().any(|word| is_in("fail failed failing failures", word))
            && pair.iter().any(|word| word.parse::<u32>().is_ok_and(|count| count > 0))
    })
}

/// The id of the job in whose name the result of a command says that it is running.
fn running_job(result: &str) -> Option<&str> {
    let (head, _) = result.strip_prefix('[')?.split_once(']')?;
    let mut words = head.split([' ', ',', ':']).filter(|_| head.contains("running"));
    words.find(|word| word.strip_prefix('p').is_some_and(|number| number.parse::<u32>().is_ok()))
}

/// The word that tells that a command tests, builds or checks the project, as in `npm run test:unit`.
fn checking_word(command: &SimpleCommand) -> Option<&str> {
    let words = command.argv().filter(|word| !word.starts_with('-') || is_in(CHECKS, word));
    let first = words.take(FIRST_WORDS).take_while(|word| !is_in(SET_UP, word));
    let mut parts = first.flat_map(|word| word.split(':'));
    let found = parts.find(|part| is_in(TESTS, part) || is_in(CHECKS, part))?;
    let takes_names = is_in(TAKE_NAMES, program_name(command));
    (!takes_names && !shell::classify(command).is_read_only).then_some(found)
}

/// Returns true if a line may test the project, and false if it only builds or checks it; `None` if it does neither.
fn is_test_run(line: &str) -> Option<bool> {
    let commands = shell::parse(line, dialect()).commands;
    let tests = commands.iter().filter_map(|command| {
        if let Some(line) = inner_line(command) {
            return is_test_run(line);
        }
        let word = checking_word(command)?;
        let is_gradle = program_name(command).starts_with("gradle");
        Some(is_in(TESTS, word) || is_gradle && is_in("build check", word))
    });
    tests.max()
}

/// Returns true if a line hides the failure of a check, as `cargo test | tail` does. A line that shows or handles the
/// status of the check, or looks for words in its output, hides nothing.
pub(super) fn hides_failure(line: &str) -> bool {
    let shows_status = line.split_once("$?").is_some_and(|(before, _)| !before.contains('|'))
        || line.contains("PIPESTATUS");
    let mut words = line.split_whitespace();
    if !line.contains(['|', ';', '\n'])
        || shows_status
        || words.any(|word| is_in("grep if rg until wc while ||", word))
        || proof_of(line) == Proof::Real
    {
        return false;
    }
    let commands = shell::parse(line, dialect()).commands;
    is_test_run(line).is_some() && best_proof(&commands) == Proof::Real
}

/// Returns true if a line that has changed files leaves a proof as it is: what it does not only read, it formats.
fn only_formats(line: &str) -> bool {
    shell::parse(line, dialect()).commands.iter().all(|command| {
        (formats(command) || shell::classify(command).is_read_only) && !command.writes_file()
    })
}

/// Returns true if a command formats files, and does not only look at them.
fn formats(command: &SimpleCommand) -> bool {
    let mut words = command.argv();
    let first = words.find(|word| !word.starts_with('+') && !is_in(LEADING, word));
    first.is_some_and(|word| is_in(FORMATTERS, word)) && words.all(|word| word != "--check")
}

/// Returns true if a list of words, separated by spaces, contains this one.
pub(super) fn is_in(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

/// Returns the worth of a command line as a proof, if it succeeds. Commands that do not decide about that are thin at
/// best.
pub(super) fn proof_of(line: &str) -> Proof {
    let mut commands = shell::parse(line, dialect()).commands;
    // Behind a `cd` that may have failed, each command is there once for each folder.
    commands.dedup_by(|one, other| one.words == other.words);
    let best = best_proof(&commands);
    if !line.contains(['&', '|', ';', '\n']) {
        return best;
    }
    let deciding = deciding_commands(line, &commands);
    let [all, some] = [&commands, &deciding]
        .map(|list| list.iter().filter(|command| is_in("cmp diff", program_name(command))).count());
    // Of several comparisons only the last one decides, which is not meant.
    let worth = match deciding.first() {
        _ if (1..all).contains(&some) => Proof::Thin,
        // The commands of its line follow it.
        Some(shell) if is_in(SHELLS, program_name(shell)) => proof_of_command(shell),
        _ => best_proof(&deciding),
    };
    worth.max(Proof::Thin).min(best)
}

fn best_proof(commands: &[SimpleCommand]) -> Proof {
    commands.iter().map(proof_of_command).max().unwrap_or(Proof::None)
}

/// The commands that decide about the success of a line with these commands: those behind the last operator that lets
/// a failure be forgotten. There are none if the last command runs in the background.
fn deciding_commands(line: &str, commands: &[SimpleCommand]) -> Vec<SimpleCommand> {
    let set = commands.iter().filter(|command| command.program() == "set");
    let options: Vec<_> = set.flat_map(SimpleCommand::argv).collect();
    let stops = options.iter().any(|word| word.starts_with('-') && word.contains('e'));
    let pipes_decide = options.contains(&"pipefail");
    let mut bare = bare_line(line).replace("|| exit 0", " & exit 0").replace("|&", "| ");
    for word in FORGETS_NOTHING.split(',') {
        bare = bare.replace(word, &"_".repeat(word.len()));
    }
    // Like a command in the background, one before `||` may fail whatever is set.
    bare = bare.replace("||", "&&");
    let last = bare.trim_end_matches([' ', '\t', ';', '\n']).rfind(|letter: char| match letter {
        '&' => true,
        '|' => !pipes_decide,
        ';' | '\n' => !stops,
        _ => false,
    });
    let Some(last) = last else { return commands.to_vec() };
    let part = line[last + 1..].trim_matches(['(', ')', '{', '}', ' ', ';', '\n']);
    shell::parse(part, dialect()).commands
}

/// The line with blanks in place of comments and here-documents, and other letters in place of quoted and escaped ones,
/// byte by byte: what looks like an operator is one.
fn bare_line(line: &str) -> String {
    let mut bare = String::with_capacity(line.len());
    let mut quote = None;
    let mut is_escaped = false;
    let mut document_end: Option<&str> = None;
    for row in line.split_inclusive('\n') {
        let is_comment = row.trim_start().starts_with('#');
        if document_end.is_some() || quote.is_none() && is_comment {
            document_end = document_end.filter(|end| row.trim() != *end);
            bare.extend(row.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
            continue;
        }
        document_end = end_of_document(row);
        for letter in row.chars() {
            let is_mark = matches!(letter, '\'' | '"' | '\\');
            if quote.is_some() || is_escaped || is_mark {
                bare.extend(repeat_n('_', letter.len_utf8()));
            } else {
                bare.push(letter);
            }
            if is_escaped || letter == '\\' && quote != Some('\'') {
                is_escaped = !is_escaped;
            } else if quote == Some(letter) {
                quote = None;
            } else if is_mark {
                quote = quote.or(Some(letter));
            }
        }
    }
    bare
}

/// The word that ends the here-document which begins in a row, if one does.
fn end_of_document(row: &str) -> Option<&str> {
    let (_, rest) = row.split_once("<<").filter(|(_, rest)| !rest.starts_with('<'))?;
    let mut words = rest.split(|char: char| !char.is_alphanumeric() && char != '_');
    words.find(|word| !word.is_empty())
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
    let only_says = words.iter().any(|word| is_in(ONLY_SAYS, word))
        || matches!(words.as_slice(), [_, "-h" | "-V" | "-v"])
        || is_in("gmake make ninja", name) && words.contains(&"-n");
    if only_says || formats(command) || is_in(THIN, name) {
        return Proof::Thin;
    }
    let is_shell = is_in(SHELLS, name);
    if is_shell || is_in(INTERPRETERS, name) {
        return proof_of_interpreter(is_shell, command);
    }
    let runs_project = is_in(RUNNERS, name) && words.get(1) == Some(&"run");
    let is_check = checking_word(command).is_some() || is_in(SHOWING, name) || runs_project;
    if is_check || is_own_program(command.program()) { Proof::Real } else { Proof::None }
}

/// Returns true if a program is named by its path, and not in a folder of the system.
fn is_own_program(program: &str) -> bool {
    let of_system = ["/bin/", "/sbin/", "/usr/"];
    program.contains('/') && !of_system.iter().any(|folder| program.starts_with(folder))
}

/// The line that a shell gets as an argument, as in `bash -lc "cargo test"`.
fn inner_line(command: &SimpleCommand) -> Option<&str> {
    let is_option =
        |word: &str| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
    let mut arguments =
        command.argv().skip(1).skip_while(|word| word.starts_with('-') && !is_option(word));
    arguments.next().filter(|word| is_option(word) && is_in(SHELLS, program_name(command)))?;
    arguments.next()
}

/// The worth of a program that runs a file of the project, a module or a text.
fn proof_of_interpreter(is_shell: bool, command: &SimpleCommand) -> Proof {
    if let Some(line) = inner_line(command) {
        return proof_of(line);
    }
    let inline = if is_shell { "-n" } else { INLINE };
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
        if !word.starts_with('-') || is_in(TESTS, word.trim_start_matches('-')) {
            return Proof::Real;
        }
    }
    Proof::Thin
}
