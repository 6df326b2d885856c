//! `turnwright hooks`: lists the hooks of this folder, and runs those of an event to show what they decide.

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CliError, CliResult, exit_code, write_stdout};
use crate::tools::{hook_sandbox, hook_site};
use turnwright_config::Config;
use turnwright_config::effective_policy::{
    EffectivePolicy, HOOK_FILES, command_confinement, resolve_policy,
};
use turnwright_config::trust::TrustStore;
use turnwright_guard::run_guarded;
use turnwright_hooks::{
    HookDecision, HookEvent, HookSet, HookSite, HookVerdict, HookedTool, Occasion, ToolUse,
    run_handlers,
};
use turnwright_terminal::block_on;
use turnwright_terminal::doctor::DoctorReport;
use turnwright_terminal::sessions::project_roots;
use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::files::Roots;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The folder in the state folder for files that hooks must not leave in a project.
const QUARANTINE: &str = "hooks-test";
/// Stands for the session and the call.
const TEST: &str = "test";
/// The exit code if hooks refuse.
const REFUSED: u8 = 1;
/// The exit code if nothing could be tried.
const FAILED: u8 = 2;

#[derive(Debug, Subcommand)]
pub(super) enum HooksCommand {
    /// List the hooks of this folder
    List,
    /// Run the hooks of an event, and show what they decide
    #[command(
        after_help = "Exit status: 0 if they refuse nothing, 1 if they do, 2 if none fits or \
                            they could not be run."
    )]
    Test {
        /// For example PreToolUse, PostToolUse, UserPromptSubmit, SessionStart or Stop
        event: String,
        /// Tool, such as Bash or Edit, or what else a matcher of the event looks at
        #[arg(long, value_name = "NAME", default_value = "")]
        tool: String,
        /// Input of the tool, or the event's own fields for an event without one
        #[arg(long, value_name = "JSON", default_value = "{}")]
        input: String,
    },
}

/// The hooks of the current folder.
struct FolderHooks {
    roots: Roots,
    policy: EffectivePolicy,
}

impl FolderHooks {
    fn find(config: &Config) -> CliResult<FolderHooks> {
        let roots = project_roots(Path::new("."))?;
        let trust = TrustStore::new(&config.paths.state);
        let policy = resolve_policy(&config.snapshot(), &trust, &roots);
        Ok(FolderHooks { roots, policy })
    }

    fn lines(&self) -> Vec<String> {
        let handlers = self.policy.hooks.iter();
        handlers.map(|handler| format!("{} ({})", handler.line, handler.file)).collect()
    }

    /// The names of the files whose hooks do not run.
    fn untrusted(&self) -> Vec<&'static str> {
        let files = self.policy.project_files.iter().filter(|file| file.needs_trust());
        files.map(|file| file.name).filter(|name| HOOK_FILES.contains(name)).collect()
    }
}

/// Adds the hooks of the current folder to the report.
pub(super) fn report_to_doctor(report: &mut DoctorReport, config: &Config) {
    if let Ok(found) = FolderHooks::find(config) {
        report.hooks(&found.lines(), &found.untrusted());
    }
}

pub(super) fn run(action: HooksCommand, config: &Config) -> ExitCode {
    let result = FolderHooks::find(config).and_then(|found| match action {
        HooksCommand::List => list(&found),
        HooksCommand::Test { event, tool, input } => {
            try_out(found, config, &occasion(&event, &tool, &input)?)
        }
    });
    exit_code("hooks", result, FAILED)
}

fn list(found: &FolderHooks) -> CliResult<ExitCode> {
    let mut lines = found.lines();
    lines.extend(found.untrusted().iter().map(|name| {
        format!("! {name}: not trusted, so its hooks do not run. Run `turnwright trust`")
    }));
    lines.extend(found.policy.problems.iter().map(|problem| format!("! {problem}")));
    if lines.is_empty() {
        lines.push("No hooks run here.".to_owned());
    }
    write_lines(&lines)?;
    Ok(ExitCode::SUCCESS)
}

fn write_lines(lines: &[String]) -> CliResult<()> {
    let visible: Vec<_> = lines.iter().map(|line| escape_hidden_line(line)).collect();
    Ok(write_stdout(&format!("{}\n", visible.join("\n")))?)
}

/// The occasion that is tried.
fn occasion(event: &str, tool: &str, input: &str) -> CliResult<Occasion> {
    let Some(event) = HookEvent::parse(event) else {
        let names = HookEvent::ALL.map(HookEvent::name).join(", ");
        return Err(CliError::Other(format!("there is no event {event}; there are {names}")));
    };
    let input: Value = serde_json::from_str(input)
        .map_err(|error| CliError::Other(format!("--input is no JSON: {error}")))?;
    if !event.is_about_tool() {
        return Ok(Occasion::new(event, tool, input));
    }
    let call = HookedTool {
        name: tool,
        is_remote: false,
        arguments: &input,
        changed: Vec::new(),
        read: Vec::new(),
    };
    let ToolUse { names, input } = call.uses().into_iter().next().ok_or("there is no tool")?;
    let fields = json!({ "tool_name": names.first(), "tool_input": input, "tool_use_id": TEST });
    Ok(Occasion { event, subjects: names, fields })
}

fn try_out(found: FolderHooks, config: &Config, occasion: &Occasion) -> CliResult<ExitCode> {
    let FolderHooks { roots, policy } = found;
    let confinement = command_confinement(config, &policy, roots.real_cwd());
    let handlers = HookSet::new(policy.hooks).choose(occasion);
    if handlers.is_empty() {
        write_stdout("No hook fits.\n")?;
        return Ok(ExitCode::from(FAILED));
    }
    let settings = config.snapshot();
    let environment = settings.command_environment();
    let mut site = hook_site(&roots, &environment, &settings.values.hooks, TEST);
    let cancel = CancellationToken::new();
    let run = |site: &HookSite| block_on(run_handlers(&handlers, occasion, site, &cancel));
    let verdict = if handlers.iter().any(|handler| handler.needs_sandbox(site.confines_all)) {
        let temp = PrivateTempFolder::create()?;
        let home = config.home();
        let temp_path = Some(temp.path());
        site.sandbox =
            hook_sandbox(&confinement, &roots, &policy.rules, home.as_deref(), temp_path);
        let quarantine = config.paths.state.join(QUARANTINE);
        let (ran, changes) =
            run_guarded(&confinement, &environment, &quarantine, "a hook", || run(&site));
        let mut verdict = ran?;
        verdict.problems.extend(changes);
        verdict
    } else {
        run(&site)?
    };
    let names: Vec<_> = handlers.iter().map(|handler| handler.name.clone()).collect();
    write_lines(&described(&names, &verdict))?;
    let is_refused = verdict.decision == Some(HookDecision::Deny) || verdict.block.is_some();
    Ok(if is_refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

fn described(names: &[String], verdict: &HookVerdict) -> Vec<String> {
    let decision = match (verdict.decision, &verdict.block) {
        (Some(HookDecision::Allow), _) => format!("allow, {}", verdict.reason),
        (Some(HookDecision::Ask), _) => format!("ask, {}", verdict.reason),
        (Some(HookDecision::Deny), _) => format!("deny, {}", verdict.reason),
        (None, Some(why)) => format!("block, {why}"),
        (None, None) => "none".to_owned(),
    };
    let mut lines = vec![format!("Ran: {}", names.join(", ")), format!("Decision: {decision}")];
    let input = verdict.updated_input.as_ref();
    lines.extend(input.map(|(input, by)| format!("Changed input, by `{by}`: {input}")));
    let context = Some(&verdict.context).filter(|context| !context.is_empty());
    lines.extend(context.map(|context| format!("To the model: {context}")));
    lines.extend(verdict.stop.as_ref().map(|why| format!("Ends the turn, {why}")));
    lines.extend(verdict.messages.iter().map(|message| format!("To the user: {message}")));
    lines.extend(verdict.problems.iter().map(|problem| format!("! {problem}")));
    lines
}
