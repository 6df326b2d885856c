//! `/trust` shows the settings of a project that need trust, and applies exactly those when the user
//! types their code. It is never a question, because some editors answer questions on
//! their own.

use std::sync::Arc;

use super::{CommandCall, PromptWork, SessionActor, answer_from_files};
use crate::session::SessionHost;
use crate::tools::SharedValue;
use crate::turn::Conversation;
use turnwright_config::effective_policy::{
    EffectivePolicy, HELPER_FILES, HOOK_FILES, LANGUAGE_FILE, LANGUAGE_TRUST, PROJECT_FILE,
    ProjectFile, SERVERS_FILE, is_about_project_files, language_trust, resolve_policy,
};
use turnwright_config::trust::Fingerprint;
use turnwright_hooks::HookSet;
use turnwright_types::effect::{escape_hidden, fenced};
use turnwright_types::error_text::io_error_text;
use turnwright_types::look_alike::narrow;

/// The largest file that can be trusted, in bytes. Nobody would read more.
const MAX_SHOWN_BYTES: usize = 32 * 1024;

/// The content hashes of the files that the user was last shown. The code that the user types is only the beginning of
/// a hash, so comparing codes would not be enough.
pub(in crate::session) type ShownPrints = SharedValue<Vec<Fingerprint>>;

/// Shows or trusts files. After a cancel the work continues in the background.
pub(super) fn run(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    let command = TrustCommand {
        host: Arc::clone(&session.host),
        conversation: session.conversation.clone(),
        shown: session.shown_prints.clone(),
    };
    answer_from_files(session, call, move |arguments| match arguments {
        "" => command.show(),
        "forget" => command.forget(),
        code => command.trust(&narrow(code)),
    })
}

struct TrustCommand {
    host: Arc<SessionHost>,
    conversation: Conversation,
    shown: ShownPrints,
}

impl TrustCommand {
    fn resolve(&self) -> EffectivePolicy {
        let settings = self.host.config().snapshot();
        let roots = self.conversation.env.files.roots();
        let mut policy = resolve_policy(&settings, &self.host.trust, roots);
        policy.project_files.extend(language_trust(&settings, &self.host.trust, roots.real_cwd()));
        policy
    }

    fn show(&self) -> String {
        let policy = self.resolve();
        self.shown.set(policy.project_files.iter().map(print_of).collect());
        let files: Vec<_> = policy.project_files.iter().map(file_text).collect();
        let mut text = files.join("\n\n");
        if files.is_empty() {
            text = format!(
                "Nothing to trust in {PROJECT_FILE}, {SERVERS_FILE} or {} of this project.",
                HELPER_FILES.join(" or ")
            );
        }
        add_problems(&mut text, &policy);
        text
    }

    fn trust(&self, code: &str) -> String {
        let again = "Nothing was trusted. Run `/trust` to review the files.";
        let shown = self.shown.set(Vec::new());
        let files: Vec<_> = self.resolve().project_files.into_iter().filter(can_be_shown).collect();
        if files.is_empty() || shown.is_empty() {
            return again.to_owned();
        }
        let is_shown = |file: &ProjectFile| shown.contains(&print_of(file));
        let mut shown_files = files.iter().filter(|file| is_shown(file));
        let Some(file) =
            shown_files.find(|file| code.eq_ignore_ascii_case(print_of(file).short_code()))
        else {
            let changed = files.iter().find(|file| !is_shown(file));
            return match changed {
                Some(file) => format!("{} has changed since it was shown. {again}", file.name),
                None => format!("That is not the code. {again}"),
            };
        };
        let trust = &self.host.trust;
        let roots = self.conversation.env.files.roots();
        if let Err(error) = trust.trust(roots.real_cwd(), file.name, file.text.as_bytes()) {
            return format!(
                "The decision could not be saved: {}. Nothing was trusted.",
                io_error_text(&error)
            );
        }
        let trusted = print_of(file);
        let others = shown.iter().filter(|print| **print != trusted);
        self.shown.set(others.cloned().collect());
        let policy = self.resolve();
        let effect = match file.name {
            SERVERS_FILE | LANGUAGE_FILE => "Its servers are started in new sessions.",
            LANGUAGE_TRUST => "They are started by the next edit.",
            name if HELPER_FILES.contains(&name) => "Its helpers can be used in new sessions.",
            name if HOOK_FILES.contains(&name) => "Its hooks run from now on.",
            _ => {
                "Its rules and checks apply from now on; its mode and sandbox settings apply to new \
                 sessions."
            }
        };
        let mut text = format!(
            "{} is trusted as it is now. {effect} Run `/trust forget` to revoke this.",
            file.name
        );
        add_problems(&mut text, &policy);
        self.apply(policy);
        text
    }

    /// Applies what does not wait for the next session.
    fn apply(&self, policy: EffectivePolicy) {
        self.conversation.checks.set(policy.checks);
        self.conversation.env.shared.hooks.set.set(HookSet::new(policy.hooks));
        self.conversation.rules().set(policy.rules);
    }

    fn forget(&self) -> String {
        self.shown.set(Vec::new());
        let folder = self.conversation.env.files.roots().real_cwd();
        let text = match self.host.trust.forget(folder) {
            Ok(0) => "Nothing of this project was trusted.".to_owned(),
            Ok(_) => "Nothing of this project is trusted any more, and its rules allow nothing. \
                      From the next session on its mode and sandbox settings are ignored, and its \
                      MCP servers are not started and its helpers cannot be used. Its hooks do not run."
                .to_owned(),
            Err(error) => format!("That could not be removed: {}.", io_error_text(&error)),
        };
        self.apply(self.resolve());
        text
    }
}

fn can_be_shown(project: &ProjectFile) -> bool {
    project.text.len() <= MAX_SHOWN_BYTES
}

fn print_of(file: &ProjectFile) -> Fingerprint {
    Fingerprint::of(file.text.as_bytes())
}

/// The text about one file.
fn file_text(file: &ProjectFile) -> String {
    let what = file.name;
    if what == LANGUAGE_TRUST {
        return language_text(file);
    }
    if file.is_trusted {
        return format!(
            "{what} of this project is trusted as it is now. Run `/trust forget` to revoke this."
        );
    }
    if !file.needs_trust() {
        return format!(
            "{what} of this project asks for nothing that needs your trust. Its settings only \
             make things stricter, and they apply."
        );
    }
    if !can_be_shown(file) {
        return format!(
            "{what} is larger than {MAX_SHOWN_BYTES} bytes. That is too long to review, so it cannot be \
             trusted."
        );
    }
    let requests = match file.full_requests.as_slice() {
        [] => format!("Ignored until trusted: {}.", file.requests.join(", ")),
        lines => format!("Not started until trusted:\n\n{}", fenced(&lines.join("\n"))),
    };
    format!(
        "{what} of this project says:\n\n{}\n\n{requests}\n\nIf you trust exactly this, run \
         `/trust {}`. If the file changes, it is no longer trusted.",
        fenced(&escape_hidden(&file.text)),
        print_of(file).short_code(),
    )
}

/// The text about the language servers that are installed.
fn language_text(file: &ProjectFile) -> String {
    let servers = file.requests.join(", ");
    if file.is_trusted {
        return format!(
            "Language servers may work on this project ({servers}). Run `/trust forget` to revoke this."
        );
    }
    format!(
        "Installed here: {servers}. They are not used until you trust the project with this:\n\n{}\n\nFor that, run \
         `/trust {}`.",
        fenced(&file.text),
        print_of(file).short_code()
    )
}

fn add_problems(text: &mut String, policy: &EffectivePolicy) {
    let problems = policy.problems.iter().filter(|problem| is_about_project_files(problem));
    text.extend(problems.map(|problem| format!("\n\n{problem}.")));
}
