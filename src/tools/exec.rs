//! `exec`: runs a shell command.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arguments::{COMMAND, ShownArgument};
use super::host_questions::HostQuestions;
use super::{
    CallPlan, CallSite, PathArgument, Previewed, Tool, ToolAnswer, ToolCtx, ToolEnv, ToolOutcome,
    live_output,
};
use turnwright_guard::command::{self, Escalation, TOO_MANY_FILES};
use turnwright_guard::{command_network, confine};
use turnwright_policy::permission::Pass;
use turnwright_policy::shell::{self, Script};
use turnwright_sandbox::SessionNetwork;
use turnwright_types::effect::{
    CallContent, CallView, Effect, Location, PathScope, ResolvedPath, ToolKind, escape_hidden,
    escape_hidden_line, fenced, fenced_command,
};
use turnwright_types::look_alike::without_entities;
use turnwright_types::patience::sleep_until;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::shell_script::{SimpleCommand, bare_command};
use turnwright_types::text::{self, format_bytes};
use turnwright_types::update::COMMAND_TOOL;
use turnwright_workspace::exec::{CommandSpec, EndReason, Job, JobEnd, OutputExcerpt, dialect};
use turnwright_workspace::files::Roots;

/// The default timeout, in seconds.
const DEFAULT_TIMEOUT_SECS: u64 = 120;
/// The longest timeout, in seconds.
const MAX_TIMEOUT_SECS: u64 = 1_800;
/// How long a background command is watched before the call returns: many fail at once.
const BACKGROUND_WATCH: Duration = Duration::from_secs(1);
/// How long it must print nothing after its first output, so that the call returns earlier.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// The programs that a shell finds in a line of which a model has written `&` and other characters as in HTML.
const ENTITY_NAMES: [&str; 5] = ["amp", "lt", "gt", "quot", "apos"];
/// Why a line that means the device of Windows is not run.
const NUL_IS_A_FILE: &str = "Nothing was run: here `nul` would be a file. To discard output, redirect it to \
                             /dev/null.";

/// The answer to a call that asks for hosts where none can be opened.
const NO_HOSTS: &str = "Nothing was run: here the network can be opened only as a whole, or by the user's settings. Call \
                        again with \"escalate\": \"network\"; the user is asked.";

/// Commands that change nothing but the shell that runs them, and what the model is told of a line that ends with one.
const SHELL_CHANGES: [&str; 5] = ["cd", "pushd", "export", "source", "."];
const FORGOTTEN: &str =
    "[The next command has a shell of its own, in the working folder: use workdir, or one line.]";

/// Programs that look for processes and see none of jobs, and words of a command that failed for the same reason.
const PROCESS_SEEKERS: [&str; 6] = ["fuser", "killall", "lsof", "pgrep", "pkill", "ps"];
const MISSED_JOB: [&str; 3] = ["ddress already in use", "is in use", "No such process"];

/// For lines that the bash of macOS cannot read: it pairs the quotes in the text.
const PAIRED_QUOTES: &str = "[Quotes in the text of $(cat <<…) can break the line: use git commit -F - <<'EOF', or a file.]";
/// For what only the user can change. The agent has raised the limit of open files as far as it may.
const FEW_FILES: &str = "[Commands get the agent's limit of open files (ulimit -n). If it is low, the user has to raise it where the \
                         agent is started: LimitNOFILE of systemd, --ulimit nofile of docker.]";
const OTHER_OWNER: &str = "[Commands get no settings of git from GIT_CONFIG_COUNT and such: if the user trusts the owner of the folder, \
                           they can run git config --global --add safe.directory outside of the sandbox.]";

/// Words of a line and of the output with which it failed, and what the model is told then.
const ADVICE: [(&str, &str, &str); 4] = [
    ("$(cat <<", "looking for matching", PAIRED_QUOTES),
    ("", "oo many open files", FEW_FILES),
    ("", "detected dubious ownership", OTHER_OWNER),
    ("timeout ", "timeout: command not found", "[Give this tool a timeout instead, in seconds.]"),
];

/// The bytes that are shown of output of which a tenth of the characters cannot be read: it costs more than text.
const MAX_UNREADABLE: usize = 1_000;
/// Stands for the output of a command that has printed nothing.
const NO_OUTPUT: &str = "No output";

/// Run a bash command in a sandbox without network, terminal or input. After the timeout it
/// continues as a job for exec_output.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Exec {
    command: String,
    /// Seconds (default 120, at most 1800)
    timeout: Option<u64>,
    #[schemars(skip)]
    timeout_ms: Option<u64>,
    workdir: Option<String>,
    /// For servers and watchers: do not wait
    background: Option<bool>,
    /// Access beyond the sandbox: some of network, https://HOST, path to write, localhost:PORT,
    /// publish:PORT, debug, sign, full
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    escalate: Escalation,
    /// A few words for the user
    #[expect(dead_code, reason = "shown by clients from the raw input")]
    description: Option<String>,
    /// True if it concerns more files than can be judged one by one; set by [`Tool::plan`].
    #[serde(skip)]
    has_too_many_files: bool,
    /// The command line, parsed by each plan, when its folder is known.
    #[serde(skip)]
    script: OnceLock<Arc<Script>>,
}

impl Exec {
    fn script(&self) -> &Arc<Script> {
        self.script.get_or_init(|| Arc::new(shell::parse(&self.command, dialect())))
    }

    /// Parses the line for the folder in which it runs. A folder that it goes to may be gone since the last plan.
    fn parse(&mut self, folder: &ResolvedPath, roots: &Roots) {
        // A hook may have replaced the command after the arguments were repaired.
        self.command = bare_command(&self.command);
        let mut script = command::parse_line(&self.command, folder, roots);
        let is_coded = self.script.get().is_none()
            && script.commands.iter().any(|one| ENTITY_NAMES.contains(&one.program()));
        if let Some(line) = without_entities(&self.command).filter(|_| is_coded) {
            script = command::parse_line(&line, folder, roots);
            self.command = line;
        }
        self.script = OnceLock::from(Arc::new(script));
    }

    fn workdir(&self) -> &str {
        self.workdir.as_deref().filter(|folder| !folder.trim().is_empty()).unwrap_or(".")
    }

    fn limit(&self) -> Duration {
        let limit = seconds(self.timeout, self.timeout_ms, MAX_TIMEOUT_SECS);
        Duration::from_secs(limit.unwrap_or(DEFAULT_TIMEOUT_SECS).clamp(1, MAX_TIMEOUT_SECS))
    }
}

/// Returns true if a call with these arguments sleeps before or between its actions.
pub(super) fn sleeps(arguments: &Value) -> bool {
    let Ok(args) = serde_json::from_value::<Exec>(arguments.clone()) else { return false };
    args.script().commands.iter().any(|one| matches!(one.program(), "sleep" | "Start-Sleep"))
}

/// A time in seconds, given as such or in milliseconds. A number of seconds above `most` that is a multiple of 1000 was
/// meant in milliseconds.
pub(super) fn seconds(seconds: Option<u64>, millis: Option<u64>, most: u64) -> Option<u64> {
    match seconds {
        Some(number) if number > most && number.is_multiple_of(1_000) => Some(number / 1_000),
        _ => seconds.or(millis.map(|millis| millis.div_ceil(1_000))),
    }
}

/// True if a command's output goes to a file with the name that discards it on Windows.
fn writes_to_nul(command: &SimpleCommand) -> bool {
    let mut written = command.redirects.iter().filter(|redirect| redirect.is_write);
    written.any(|redirect| {
        redirect.path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("nul"))
    })
}

impl Tool for Exec {
    const NAME: &'static str = COMMAND_TOOL;
    const KIND: ToolKind = ToolKind::Execute;
    const PENDING_TITLE: &'static str = "Run a command";
    const SHOWN_ARGUMENTS: &'static [ShownArgument] = &[COMMAND];
    type Preview = ();

    fn path_arguments(&mut self) -> Vec<PathArgument<'_>> {
        let paths = self.workdir.iter_mut().chain(&mut self.escalate.paths);
        paths.map(PathArgument::of_existing).collect()
    }

    fn plan(&mut self, site: &mut CallSite<'_>) -> CallPlan {
        let env = site.env;
        let roots = site.roots();
        let rules = env.shared.rules.get();
        rules.look_at_sandbox();
        self.escalate.expand_home(env.shared.process.folders.home.as_deref());
        let workdir = site.resolve(PathBuf::from(self.workdir()));
        self.parse(&workdir, roots);
        self.escalate.leave_out_hosts(&env.shared.confinement.hosts);
        let named_folder = Path::new(self.workdir());
        let wanted = self.escalate.paths.iter().map(|path| named_folder.join(path));
        let writes: Vec<_> = wanted.map(|path| site.resolve(path)).collect();
        let files = command::named_files(self.script(), named_folder, |path| site.resolve(path));
        let refusal =
            self.escalate.refusal_of_paths(&writes, &env.shared.confinement, roots, &rules);
        let is_impossible = !self.escalate.hosts.is_empty() && !(rules.asks_about_hosts)();
        let of_helper = env.helper.as_ref().and_then(|helper| helper.refuse(self.script()));
        let refusal = refusal.or(of_helper).or_else(|| is_impossible.then(|| NO_HOSTS.into()));
        self.escalate.refusal = self.escalate.refusal.take().or(refusal);
        let script = self.script();
        let environment = &env.shared.command_environment;
        let (command, has_too_many_files) =
            command::inspect(&self.command, script, &workdir.path, environment, roots, &rules);
        self.has_too_many_files = has_too_many_files;
        let effects = command::effects(command, &workdir, &self.escalate, writes, files);
        CallPlan { view: view(self, &workdir, roots), effects }
    }

    async fn preview(&self, targets: &[ResolvedPath], ctx: &ToolCtx) -> Previewed<()> {
        if self.command.trim().is_empty() {
            return Err("exec needs a `command`. Nothing was run.".into());
        }
        if self.command.contains('\0') {
            return Err("The command contains a NUL character. Nothing was run.".into());
        }
        if cfg!(unix) && self.script().commands.iter().any(writes_to_nul) {
            return Err(NUL_IS_A_FILE.into());
        }
        if self.has_too_many_files {
            return Err(TOO_MANY_FILES.into());
        }
        if let Some(refusal) = &self.escalate.refusal {
            return Err(refusal.clone());
        }
        if let Some(editor) = interactive_editor(self) {
            return Err(format!(
                "{editor} waits for keyboard input, which is not possible here. Nothing was run. Use the \
                 file tools, or {editor} with commands (-es -c …)."
            ).into());
        }
        // It needs a permission to learn that a folder outside the project is missing.
        if let Some(place) = targets.first()
            && place.scope == PathScope::Workspace
            && self.workdir() != "."
            && let Err(error) = ctx.env.files.ensure_folder(place).await
        {
            return Err(format!("`workdir` {} {error}. Nothing was run.", self.workdir()).into());
        }
        let command = fenced_command(&escape_hidden(&self.command));
        let folder = targets.first().map(|target| {
            let path = ctx.env.files.roots().client_path(target);
            format!("in {}", escape_hidden_line(&path.to_string_lossy()))
        });
        Ok(((), [command].into_iter().chain(folder).map(CallContent::Text).collect()))
    }

    async fn run(self, (): (), pass: &Pass, ctx: &ToolCtx) -> ToolAnswer {
        let Some(Effect::Exec(command)) = pass.effects().first() else {
            return Err("Nothing was run: there is no permission for it.".into());
        };
        let mut confinement = confine(pass, ctx.env.command_site().clone()).await?;
        let in_background = self.background.unwrap_or(false);
        let spec = CommandSpec {
            command: command.line.clone(),
            workdir: ctx.env.files.roots().start_folder(&command.workdir),
            environment: std::mem::take(&mut confinement.environment),
            accepts_input: in_background,
            extra_variables: std::mem::take(&mut confinement.extra_variables),
            sandbox: confinement.profile.clone(),
            network: confinement.network.take(),
        };
        let proxy = confinement.proxy.take();
        let mut questions = proxy.as_ref().map(|_| HostQuestions::new(pass, ctx));
        let hosts = questions.as_ref().map(|questions| Arc::clone(&questions.hosts));
        confinement.refused_hosts = hosts.as_ref().map(|hosts| hosts.refused());
        // A recording has no questions of running commands.
        if ctx.env.is_alone || !(ctx.env.shared.rules.get().asks_about_hosts)() {
            questions = None;
        }
        let (job, mut live) = begin(&spec, ctx).await?;
        let env = &ctx.env;
        if let (Some(proxy), Some(hosts)) = (proxy, hosts) {
            env.shared.guard.run_while_running(Arc::clone(&job), proxy.serve(hosts));
        }
        let ports = std::mem::take(&mut confinement.publishes);
        env.command_site().watch(&job, pass, confinement);
        // Stops the command if the call that waits for it is dropped.
        let stop_on_drop = job.stop_on_drop();
        let published = publish(ports, spec.network.as_ref(), &job, env).await;
        let limit = if in_background { BACKGROUND_WATCH } else { self.limit() };
        wait_and_ask((&job, in_background), limit, &mut questions, &mut live, ctx).await;
        // Nobody is asked for a command that goes on.
        drop(questions);
        let end =
            if ctx.cancel.is_cancelled() { Some(job.wait_for_end().await) } else { job.end() };
        let Some(end) = end else {
            stop_on_drop.disarm();
            ctx.env.shared.guard.note_background(job.id());
            let waited = (!in_background).then_some(limit);
            let mut outcome = running_outcome(&job, waited, published);
            live.finish(&job, None, &mut outcome);
            return Ok(outcome);
        };
        let mut outcome = finished_outcome(&job, &end, ctx.cancel.is_cancelled());
        let last = self.script().commands.last().map(SimpleCommand::program);
        if outcome.ok && last.is_some_and(|last| SHELL_CHANGES.contains(&last)) {
            outcome.add_line(FORGOTTEN);
        }
        add_findings(&mut outcome, &job, &ctx.env).await;
        live.finish(&job, Some(&end), &mut outcome);
        ctx.env.jobs.remove(&job);
        add_advice(&self, &mut outcome, &ctx.env);
        Ok(outcome)
    }
}

fn view(args: &Exec, workdir: &ResolvedPath, roots: &Roots) -> CallView {
    let title = match args.command.trim() {
        "" => Exec::PENDING_TITLE.to_owned(),
        _ => escape_hidden(&args.command),
    };
    let is_elsewhere = roots.display_path(workdir) != ".";
    let place = is_elsewhere.then(|| Location { path: roots.client_path(workdir), line: None });
    CallView { title, kind: Exec::KIND, locations: place.into_iter().collect() }
}

/// Adds what the guard has found out about a command that has ended: its changes in protected places, and the limit of
/// the sandbox that it has met.
pub(super) async fn add_findings(outcome: &mut ToolOutcome, job: &Job, env: &ToolEnv) {
    let output = outcome.raw.get("output").and_then(Value::as_str).unwrap_or_default();
    let (report, limit) = env.shared.guard.findings(job, output, outcome.ok).await;
    if let Some(report) = report {
        outcome.ok = false;
        outcome.append_note(report);
    }
    if let Some(limit) = limit {
        outcome.add_line(&limit.for_model);
        outcome.content.push(CallContent::Text(limit.for_user));
    }
}

/// Says how jobs are stopped, if a command has missed one or may have killed its own shell instead, what helps
/// against a failure that is known, and which files the editor has changed and not saved, which it has not seen.
fn add_advice(args: &Exec, outcome: &mut ToolOutcome, env: &ToolEnv) {
    for (line, output, advice) in ADVICE {
        if !outcome.ok && args.command.contains(line) && outcome.text.contains(output) {
            outcome.add_line(advice);
        }
    }
    let seeks = args.script().commands.iter().any(|one| PROCESS_SEEKERS.contains(&one.program()));
    let has_failed = !outcome.ok && MISSED_JOB.iter().any(|words| outcome.text.contains(words));
    let has_jobs = !env.jobs.running().ids().is_empty();
    if has_jobs && (seeks || has_failed) || seeks && outcome.text.starts_with("[killed by ") {
        outcome.add_line(&format!(
            "[exec_output with signal stops a job; pkill -f also finds the line's own shell. {}]",
            env.jobs.describe()
        ));
    }
    let unsaved = env.files.unsaved_note(None, "commands do");
    if !unsaved.is_empty() {
        outcome.text = format!("{}\n{unsaved}", outcome.text.trim_end());
    }
}

/// Waits for a command as long as its call may, for one in the background until it has nothing to say, and shows its
/// output. Asks about the hosts that it wants to reach meanwhile, which takes none of its time.
async fn wait_and_ask(
    (job, in_background): (&Arc<Job>, bool),
    limit: Duration,
    questions: &mut Option<HostQuestions>,
    live: &mut live_output::LiveOutput<'_>,
    ctx: &ToolCtx,
) {
    let mut due = Instant::now() + limit;
    loop {
        let question = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return job.stop_for_user(),
            () = job.wait_until_quiet(QUIET_PERIOD), if in_background => return,
            _ = job.wait_for_end(), if !in_background => return,
            () = sleep_until(due) => return,
            question = HostQuestions::next(questions) => question,
            () = live.follow(job) => return,
        };
        let Some(all) = questions else { continue };
        let hosts = all.hosts.undecided(&question);
        if hosts.is_empty() {
            continue;
        }
        let began = Instant::now();
        tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => {}
            _ = job.wait_for_end() => {}
            () = all.ask(job.command(), hosts, ctx) => {}
        }
        // Also if the question was withdrawn.
        live.show_again(CallView::new(escape_hidden(job.command()), Exec::KIND));
        due += began.elapsed();
    }
}

/// Opens ports of a command to the programs of this machine. Returns the notes about them.
async fn publish(
    ports: Vec<u16>,
    network: Option<&Arc<SessionNetwork>>,
    job: &Arc<Job>,
    env: &ToolEnv,
) -> Vec<String> {
    let mut notes = Vec::new();
    for port in ports {
        // Without a private network, the server listens where the user's programs are.
        let Some(network) = network else { continue };
        let (listeners, note) = command_network::open_port(port).await;
        notes.push(note);
        let passing = command_network::publish(listeners, Arc::clone(network), port);
        env.shared.guard.run_while_running(Arc::clone(job), passing);
    }
    notes
}

/// Starts a command, unless too many are running.
async fn begin<'a>(
    spec: &CommandSpec,
    ctx: &'a ToolCtx,
) -> Result<(Arc<Job>, live_output::LiveOutput<'a>), ToolRefusal> {
    let mut slot = ctx.env.jobs.admit(&spec.command)?;
    slot.is_background = spec.accepts_input;
    let (started, live) = ctx.until_cancelled(live_output::start(spec, ctx)).await??;
    // The memory of a command that may run without the sandbox is the user's own affair.
    let memory = spec.sandbox.as_ref().and(ctx.env.shared.confinement.memory);
    let job = slot.run(started, spec.temp_folder(), memory);
    live.connect(&job);
    Ok((job, live))
}

/// The editor that a line would start interactively and that would wait forever. Other editors exit at once without a
/// terminal. With options or input it may be a batch run. An ambiguous line may only name it, as a pattern of `case` or
/// as a function, unless it begins with it.
fn interactive_editor(args: &Exec) -> Option<&str> {
    let script = args.script();
    let first = args.command.split_whitespace().next();
    let plain = script.commands.iter().filter(|one| {
        (script.ambiguity.is_none() || first == Some(one.program()))
            && !one.argv().any(|word| word.starts_with(['-', '+']))
    });
    let mut names = plain.map(|one| one.program().trim_start_matches("/usr/bin/"));
    let waits = names.find(|name| ["vi", "vim", "nvim", "view", "vimdiff"].contains(name));
    waits.filter(|_| !args.command.contains(['<', '|']))
}

/// The outcome of a command that is still running. `limit` is how long the call waited; `None` for
/// a background command. `notes` come before the note about how to continue.
fn running_outcome(job: &Job, limit: Option<Duration>, mut notes: Vec<String>) -> ToolOutcome {
    let id = job.id();
    let (shown, how, note) = match limit.map(|limit| limit.as_secs()) {
        Some(seconds) => (
            "Still running",
            format!("still running as {id} after {seconds} s"),
            format!(
                "Still running after {seconds} s as {id} (partial output above), for at most \
                 30 min; longer only with background=true. Use exec_output id={id}, or \
                 signal=\"term\"."
            ),
        ),
        None => (
            "Running in the background",
            format!("running in the background as {id}"),
            format!("Use exec_output id={id} for its output, input and signals."),
        ),
    };
    notes.push(note);
    let mut outcome = command_outcome(job, (true, None), &how, &format!("[{how}]"), notes);
    outcome.content.push(CallContent::Text(format!("{shown} as {id}")));
    outcome
}

/// The outcome of a command that has ended.
pub(super) fn finished_outcome(job: &Job, end: &JobEnd, cancelled: bool) -> ToolOutcome {
    job.mark_end_reported();
    let ok = !cancelled && matches!(&end.reason, EndReason::Exited(exit) if exit.is_success());
    let how = match &end.reason {
        _ if cancelled => "cancelled by the user".to_owned(),
        EndReason::TimedOut => {
            let minutes = end.duration.as_secs() / 60;
            format!("stopped after {minutes} min, the longest without background=true")
        }
        EndReason::TempFolderFull(bytes) => format!(
            "stopped: $TMPDIR holds {}, more than it may, so that the disk is not filled; delete \
             what is not needed there",
            format_bytes(*bytes)
        ),
        EndReason::MemoryFull(bytes) => format!(
            "stopped: it held {} of memory, more than it may (`memory_mb` of the sandbox)",
            format_bytes(*bytes)
        ),
        EndReason::Lost(why) => format!("lost: {why}"),
        reason => reason.to_string(),
    };
    let code = if let EndReason::Exited(exit) = &end.reason { exit.code() } else { None };
    let leaves_processes =
        end.had_leftovers && matches!(end.reason, EndReason::Exited(_)) && !cancelled;
    let left = "[left running in the background and stopped; use background=true without &]";
    let notes = leaves_processes.then(|| left.to_owned()).into_iter().collect();
    let head = format!("[{how} · {:.1} s]", end.duration.as_secs_f32());
    let mut outcome = command_outcome(job, (ok, code), &how, &head, notes);
    if leaves_processes {
        let stopped = "What it left running in the background was stopped";
        outcome.content.push(CallContent::Text(stopped.to_owned()));
    }
    if !ok {
        let state = if cancelled { "Cancelled".to_owned() } else { format!("Failed: {how}") };
        outcome.content.push(CallContent::Text(state));
    }
    outcome
}

/// Builds the outcome of a command with the output that no call has returned yet. `how` is its state in a few words,
/// `head` the first line of the text for the model, and `notes` are lines below the output.
pub(super) fn command_outcome(
    job: &Job,
    (ok, code): (bool, Option<i32>),
    how: &str,
    head: &str,
    notes: Vec<String>,
) -> ToolOutcome {
    let OutputExcerpt { text: mut output, omission } = job.take_output();
    let unreadable = output.matches(char::REPLACEMENT_CHARACTER).count();
    if output.len() > MAX_UNREADABLE && unreadable * 10 > output.chars().count() {
        output.truncate(text::floor(&output, MAX_UNREADABLE));
        output
            .push_str("\n[The rest is left out: it is no text. Use read_file, strings or xxd.]\n");
    }
    let took = u64::try_from(job.age().as_millis()).unwrap_or(u64::MAX);
    let mut text = format!("{head}\n{output}");
    if !omission.is_empty() {
        // Models look at the end.
        text::add_line(&mut text, &omission.replacen("omitted", "omitted above", 1));
    }
    for note in notes {
        text::add_line(&mut text, &note);
    }
    let is_silent = output.is_empty();
    let shown = if is_silent { NO_OUTPUT.to_owned() } else { fenced(&output) };
    let mut raw = json!({
        "exitCode": code,
        "ended": how,
        "durationMs": took,
        "bytes": job.bytes(),
        "truncated": !omission.is_empty(),
        "job": job.id(),
        "output": Value::String(output),
    });
    if is_silent {
        // A client that finds no text in these fields shows all of them.
        raw["message"] = NO_OUTPUT.into();
    }
    let content = vec![CallContent::Text(shown)];
    ToolOutcome { ok, text, view: None, content, raw, images: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::shell_script::ShellDialect;

    #[test]
    fn an_editor_is_refused_only_when_it_can_do_nothing_but_wait() {
        let waits = |command: &str| {
            let mut args: Exec = serde_json::from_value(json!({ "command": command })).unwrap();
            args.script = OnceLock::from(Arc::new(shell::parse(command, ShellDialect::Bash)));
            interactive_editor(&args).is_some()
        };
        for command in [
            "vim",
            "vi a.txt",
            "/usr/bin/vim a b",
            "cd src && vim a",
            "git pull; vi b",
            "vim $FILE",
            "bash -c 'vim a'",
        ] {
            assert!(waits(command), "{command}");
        }
        for command in [
            "",
            "vim -es -c q a",
            "vim +q",
            "vim a < keys",
            "vim a <<EOF\n:q\nEOF",
            "printf ':q!\\n' | vim a",
            "echo vim",
            "vimtutor",
            "grep vim file",
            "command -v vim",
            "git config core.editor vim",
            "echo 'vim a' && printf 'vim a\n' > x.sh",
            "for name in vi vim; do command -v $name; done",
            "case $EDITOR in\nvim) echo a ;;\nvi) echo b ;;\nesac",
            "view() { cat \"$1\"; }; view a",
            "editors=(vi vim nvim); echo ${editors[0]}",
            "cd build && ./view a",
        ] {
            assert!(!waits(command), "{command}");
        }
    }

    #[test]
    fn a_timeout_is_in_seconds_unless_it_can_only_be_milliseconds() {
        for (arguments, expected) in [
            (json!({}), 120),
            (json!({ "timeout": 5 }), 5),
            (json!({ "timeout": 0 }), 1),
            (json!({ "timeout": 1800 }), 1800),
            (json!({ "timeout": 3600 }), 1800),
            (json!({ "timeout": 120_000 }), 120),
            (json!({ "timeout": 5_000 }), 5),
            (json!({ "timeout_ms": 2_500 }), 3),
            (json!({ "timeout_ms": 120_000 }), 120),
        ] {
            let mut all = json!({ "command": "true" });
            all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
            let args: Exec = serde_json::from_value(all).unwrap();
            assert_eq!(args.limit().as_secs(), expected, "{arguments}");
        }
    }
}
