//! `turnwright hooks`: lists the hooks of this folder, and runs those of an event to show what they decide.

use std::path::absolute;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CliError, exit_code, write_stdout};
use crate::tools::{confine_site, unconfined_site};
use turnwright_config::Config;
use turnwright_config::effective_policy::{
    EffectivePolicy, HOOK_FILES, ProjectFile, command_confinement, resolve_policy,
};
use turnwright_config::trust::TrustStore;
use turnwright_guard::run_guarded;
use turnwright_hooks::{
    HookDecision, HookEvent, HookSet, HookSite, HookVerdict, HookedTool, Occasion, SessionFacts,
    ToolUse,
};
use turnwright_terminal::block_on;
use turnwright_terminal::doctor::DoctorReport;
use turnwright_types::effect::escape_hidden_line;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::Roots;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// The folder in the state folder for files that hooks must not leave in a project.
const QUARANTINE: &str = "hooks-test";
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
    fn find(config: &Config) -> Result<FolderHooks, CliError> {
        let roots = Roots::new(&absolute(".")?)?;
        let trust = TrustStore::new(&config.paths.state);
        let policy = resolve_policy(&config.snapshot(), &trust, &roots);
        Ok(FolderHooks { roots, policy })
    }

    fn lines(&self) -> Vec<String> {
        let handlers = self.policy.hooks.handlers.iter();
        handlers.map(|handler| format!("{} ({})", handler.line(), handler.file)).collect()
    }

    /// The names of the files whose hooks do not run.
    fn untrusted(&self) -> Vec<&'static str> {
        let files = self.policy.project_files.iter().filter(|file| is_untrusted(file));
        files.map(|file| file.name).collect()
    }
}

fn is_untrusted(file: &ProjectFile) -> bool {
    file.needs_trust() && HOOK_FILES.contains(&file.name)
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

fn list(found: &FolderHooks) -> Result<ExitCode, CliError> {
    let mut text = String::new();
    for line in found.lines() {
        text.push_str(&format!("{}\n", escape_hidden_line(&line)));
    }
    for name in found.untrusted() {
        text.push_str(&format!(
            "! {name}: not trusted, so its hooks do not run. Run `turnwright trust`\n"
        ));
    }
    for problem in &found.policy.problems {
        text.push_str(&format!("! {}\n", escape_hidden_line(problem)));
    }
    if text.is_empty() {
        text.push_str("No hooks run here.\n");
    }
    write_stdout(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The occasion that is tried.
fn occasion(event: &str, tool: &str, input: &str) -> Result<Occasion, CliError> {
    let Some(event) = HookEvent::parse(event) else {
        let names = HookEvent::ALL.map(HookEvent::name).join(", ");
        return Err(CliError::Other(format!("there is no event {event}; there are {names}")));
    };
    let input: Value = serde_json::from_str(input)
        .map_err(|error| CliError::Other(format!("--input is no JSON: {error}")))?;
    if !event.is_about_tool() {
        return Ok(Occasion { event, subjects: vec![tool.to_owned()], fields: input });
    }
    let call = HookedTool { name: tool, is_remote: false, arguments: &input, files: Vec::new() };
    let ToolUse { names, input } = call.uses().into_iter().next().ok_or("there is no tool")?;
    let fields = json!({ "tool_name": names.first(), "tool_input": input, "tool_use_id": "test" });
    Ok(Occasion { event, subjects: names, fields })
}

fn try_out(found: FolderHooks, config: &Config, occasion: &Occasion) -> Result<ExitCode, CliError> {
    let settings = config.snapshot();
    let keys = settings.secrets();
    let secrets: Vec<_> = keys.iter().map(String::as_str).collect();
    let environment = Environment::scrubbed(config.inherited.iter().cloned(), &secrets);
    let FolderHooks { roots, policy } = found;
    let confinement = command_confinement(config, &policy, roots.real_cwd());
    let temp = PrivateTempFolder::create()?;
    let confines_all = settings.values.hooks.get("sandbox") == Some(&Value::Bool(true));
    let mut site = unconfined_site(&roots, environment, confines_all);
    let home = config.home();
    let place = (&roots, &policy.rules, home.as_deref());
    confine_site(&mut site, &confinement, place, Some(temp.path()));
    let set = HookSet::new(policy.hooks.handlers);
    let facts = SessionFacts {
        session: "test".to_owned(),
        folder: roots.cwd().to_string_lossy().into_owned(),
        mode: "default",
        helper: None,
    };
    let names = [set.names(occasion, false), set.names(occasion, true)].concat();
    if names.is_empty() {
        write_stdout("No hook fits.\n")?;
        return Ok(ExitCode::from(FAILED));
    }
    let verdict = if [false, true].iter().any(|kind| set.confines(occasion, *kind, &site)) {
        let quarantine = config.paths.state.join(QUARANTINE);
        let (verdict, changes) =
            run_guarded(&confinement, &site.environment, &quarantine, "a hook", || {
                block_on(run_all(&set, occasion, &facts, &site))
            });
        let mut verdict = verdict?;
        verdict.problems.extend(changes);
        verdict
    } else {
        block_on(run_all(&set, occasion, &facts, &site))?
    };
    write_stdout(&described(&names, &verdict))?;
    let is_refused = verdict.decision == Some(HookDecision::Deny) || verdict.block.is_some();
    Ok(if is_refused { ExitCode::from(REFUSED) } else { ExitCode::SUCCESS })
}

async fn run_all(
    set: &HookSet,
    occasion: &Occasion,
    facts: &SessionFacts,
    site: &HookSite,
) -> HookVerdict {
    let cancel = CancellationToken::new();
    let mut verdict = set.run(occasion, facts, site, &cancel, false).await;
    let background = set.run(occasion, facts, site, &cancel, true).await;
    verdict.problems.extend(background.problems);
    verdict
}

fn described(names: &[String], verdict: &HookVerdict) -> String {
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
    let visible: Vec<_> = lines.iter().map(|line| escape_hidden_line(line)).collect();
    format!("{}\n", visible.join("\n"))
}
