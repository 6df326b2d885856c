//! Asking the user for approval: the choices that are offered, and what follows from the answer. A call that must not
//! run has a text with instructions for the model, and a short statement for the user.

use super::decide::decide;
use super::describe::{self, display_path, markdown_code, title_of_access};
use super::lasting_grant::LastingGrant;
use super::{Decision, Grants, JudgedCall, Mode, Pass, PolicyRules, Reason, Verdict};
use turnwright_types::client::{ChoiceKind, PermissionAnswer, PermissionChoice};
use turnwright_types::effect::Effect;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::{redact, text};

/// The maximum length of the text on a button in characters.
const MAX_BUTTON_CHARS: usize = 80;

/// Explains an answer for the session about a command that runs without the sandbox.
const RUNS_CHANGED_FILES: &str = "an answer for the session also covers what the agent has changed by then in the files that it runs";

/// A call that needs the user's approval.
#[derive(Debug)]
pub struct ApprovalRequest {
    effects: Vec<Effect>,
    decision: Decision,
    /// The lasting approvals that are offered, with the answers that give them. They are determined once, so that
    /// exactly what was offered is granted.
    lasting: Vec<(ChoiceKind, LastingGrant)>,
}

impl ApprovalRequest {
    pub(super) fn new(
        policy: &PolicyRules,
        mode: Mode,
        grants: &Grants,
        effects: Vec<Effect>,
        decision: Decision,
    ) -> ApprovalRequest {
        let call = JudgedCall { policy, mode, effects: &effects, decision: &decision };
        let lasting = call.lasting_grants(grants);
        ApprovalRequest { effects, decision, lasting }
    }

    /// A request about a call that is allowed, because somebody besides the rules wants the user to be asked. Only this
    /// call is answered.
    pub fn on_demand(pass: Pass) -> ApprovalRequest {
        let Pass { effects, decision, .. } = pass;
        ApprovalRequest { effects, decision, lasting: Vec::new() }
    }

    /// The effects of the call, all of which an approval would allow.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// The decision about them.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The effects that need approval. Rejecting the call for the session must not reject the
    /// others, which are allowed anyway.
    fn asked_effects(&self) -> Vec<Effect> {
        let all = self.effects.iter().enumerate();
        let asked = all.filter(|(index, _)| {
            self.decision.findings_to_ask().any(|finding| finding.effect_index == *index)
        });
        asked.map(|(_, effect)| effect.clone()).collect()
    }

    /// The choices to offer. "Allow once" comes first, because some clients use the first option as the default, and an
    /// answer for all commands comes after the narrower one, because some show the kind and not the name. A lasting
    /// approval names what it covers, and is not offered where it cannot. That of the project is given by
    /// `/permissions keep`.
    pub fn choices(&self) -> Vec<PermissionChoice> {
        let choice = |kind, name: String| PermissionChoice { kind, name };
        let mut choices = vec![choice(ChoiceKind::AllowOnce, "Allow once".to_owned())];
        let space = MAX_BUTTON_CHARS - "Allow  in this session".len();
        for (kind, lasting) in &self.lasting {
            let what = text::clip_within(lasting.describe(button_label), space);
            choices.push(choice(*kind, format!("Allow {what} in this session")));
        }
        choices.push(choice(ChoiceKind::RejectOnce, "Reject".to_owned()));
        if self.decision.verdict() != Verdict::Ask {
            return choices;
        }
        let never = format!("Reject {} in this session", self.rejection_subject());
        choices.push(choice(ChoiceKind::RejectSession, never));
        choices
    }

    /// True if the mode `auto` would not ask: what the call can do is bounded by the project's folders
    /// and the sandbox, and no rule wants the user to be asked. `max_mode` is the least strict mode that
    /// the machine's administrator allows; if `auto` is not allowed, somebody has to be asked.
    pub fn auto_mode_allows(&self, policy: &PolicyRules, max_mode: Mode, grants: &Grants) -> bool {
        let mode = Mode::Auto.min(max_mode);
        decide(policy, mode, grants, &self.effects).verdict() == Verdict::Allow
    }

    /// The subject of "Reject … in this session".
    fn rejection_subject(&self) -> &'static str {
        match self.asked_effects().as_slice() {
            [Effect::Exec(_), ..] => "this exact command",
            [Effect::Write(_)] => "changes to this file",
            [Effect::Delete(_)] => "deleting this",
            [Effect::Input { .. }, ..] => "input to this command",
            [Effect::Fetch { .. }] => "requests to this host",
            [Effect::Fetch { .. }, ..] => "requests to these hosts",
            [Effect::Search { .. }, ..] => "searches with this service",
            [Effect::Remote(_), ..] => "calls of this tool",
            [_, _, ..] => "exactly this",
            _ => "reading this",
        }
    }

    /// Why approval is needed, effect by effect, and how the call would be confined, as Markdown.
    /// Empty if the call's title and content say it all.
    pub fn description(&self, policy: &PolicyRules, mode: Mode) -> String {
        let mut answer_notes = Vec::new();
        // Answers that do not fit on their buttons are listed here.
        if self.choices().iter().any(|choice| choice.name.replace("…`", "").contains('…')) {
            let answers: Vec<_> =
                self.lasting.iter().map(|(_, lasting)| lasting.describe(markdown_code)).collect();
            answer_notes.push(format!("“Always” means {}", answers.join(", or ")));
        }
        let mut commands = self.effects.iter().filter_map(Effect::command);
        let is_unsandboxed = commands.any(|command| command.extra_access.unsandboxed);
        let mut kinds = self.lasting.iter().map(|offered| offered.0);
        if is_unsandboxed && kinds.any(|kind| kind == ChoiceKind::AllowSession) {
            answer_notes.push(RUNS_CHANGED_FILES.to_owned());
        }
        let call = JudgedCall { policy, mode, effects: &self.effects, decision: &self.decision };
        call.question(&answer_notes)
    }

    /// The title of the call, preceded by the access beyond the sandbox that it gets.
    pub fn title(&self, policy: &PolicyRules, title: String) -> String {
        let command = self.effects.iter().find_map(Effect::command);
        let mut access = command.map(|command| command.extra_access.clone()).unwrap_or_default();
        access.network |= self.decision.has(&Reason::Network);
        access.sign |= self.decision.has(&Reason::Signing);
        match title_of_access(&access, &policy.bases) {
            Some(access) => format!("[{access}] {title}"),
            None => title,
        }
    }

    /// The rules that a lasting approval would add, as they are written in the settings; `None` if a
    /// lasting approval is not offered.
    pub fn lasting_rules(&self) -> Option<String> {
        self.lasting.iter().find_map(|(_, lasting)| lasting.rule_names())
    }

    /// Applies the user's answer. An answer for the session is added to `grants`.
    ///
    /// # Errors
    /// When the answer is anything but a clear yes.
    pub fn resolve(
        self,
        answer: PermissionAnswer,
        policy: &PolicyRules,
        mode: Mode,
        grants: &mut Grants,
    ) -> Result<Pass, ToolRefusal> {
        tracing::trace!(target: "turnwright::judge", effects = self.effects.len());
        // The mode and the rules may have become stricter while the user was asked.
        let now = decide(policy, mode, grants, &self.effects);
        if now.verdict() == Verdict::Deny {
            let call = JudgedCall { policy, mode, effects: &self.effects, decision: &now };
            return Err(refusal(call));
        }
        match answer {
            PermissionAnswer::Chosen(ChoiceKind::AllowOnce) => {}
            PermissionAnswer::Chosen(
                kind @ (ChoiceKind::AllowSession
                | ChoiceKind::AllowSessionForAll
                | ChoiceKind::AllowAllCommands),
            ) => match self.lasting.iter().find(|offered| offered.0 == kind) {
                Some((_, lasting)) => {
                    lasting.grant(grants);
                    self.note_project_rules(lasting, policy, grants);
                }
                None => return Err(unclear("that answer was not offered")),
            },
            PermissionAnswer::Chosen(ChoiceKind::RejectOnce) => return Err(ToolRefusal::rejected()),
            PermissionAnswer::Chosen(ChoiceKind::RejectSession) => {
                grants.reject(&self.asked_effects());
                return Err(ToolRefusal::rejected());
            }
            PermissionAnswer::Cancelled => return Err(withdrawn()),
            PermissionAnswer::Unclear(what) => return Err(unclear(&what)),
        }
        Ok(Pass::new(policy, mode, self.decision, self.effects))
    }

    /// Notes what the user may keep for the project of what was allowed for the session.
    fn note_project_rules(
        &self,
        lasting: &LastingGrant,
        policy: &PolicyRules,
        grants: &mut Grants,
    ) {
        let described =
            self.effects.first().map(|effect| describe::describe_effect(effect, &policy.bases));
        let mut origin = described.unwrap_or_default();
        redact::redact_in_place(&mut origin);
        if lasting.for_project {
            grants.note_project_rules(lasting.rules(), &lasting.exact, &origin);
        }
    }
}

fn plain_path(pattern: &str) -> String {
    let plain = pattern.replace('\\', "");
    plain.strip_prefix('/').map_or(plain.clone(), str::to_owned)
}

/// A rule in words: a command as it is typed, a path as it is seen from the project.
fn button_label(rule: &str) -> String {
    let inside = |tool: &str| rule.strip_prefix(tool)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(words) = inside("exec") {
        return match words.strip_prefix('=') {
            Some(exact) => format!("exactly `{exact}`"),
            None => format!("`{words} …`"),
        };
    }
    if let Some(pattern) = inside("edit") {
        return format!("changes to `{}`", plain_path(pattern));
    }
    if let Some(pattern) = inside("read") {
        return format!("reading `{}`", plain_path(pattern));
    }
    if let Some(host) = inside("fetch").and_then(|rest| rest.strip_prefix("domain:")) {
        return format!("requests to {host}");
    }
    if let Some(service) = inside("search") {
        return format!("searches with {service}");
    }
    match inside("mcp").and_then(|rest| rest.split_once('/')) {
        Some((server, tool)) => format!("`{tool}` of {server}"),
        None => rule.to_owned(),
    }
}

/// Why a denied call must not run.
pub(super) fn refusal(
    JudgedCall { policy, mode, effects, decision }: JudgedCall<'_>,
) -> ToolRefusal {
    let finding = decision.strictest();
    match finding.map(|finding| &finding.reason) {
        Some(Reason::Rejected) => ToolRefusal::new(
            "The user has rejected this for the whole session. Do not try it again.",
            "Rejected for this session",
        ),
        Some(Reason::Rule(rule)) => {
            let why = rule.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            let pattern = &rule.pattern;
            let index = finding.map_or(0, |finding| finding.effect_index);
            let file = match effects.get(index) {
                // The path that the call itself names needs no mention.
                Some(Effect::Read(target) | Effect::Write(target) | Effect::Delete(target))
                    if index > 0 =>
                {
                    Some(&target.path)
                }
                _ => finding.and_then(|finding| finding.path.as_ref()),
            };
            let denied = file
                .map(|file| format!(" for {}", display_path(file, &policy.bases)))
                .unwrap_or_default();
            ToolRefusal::new(
                format!(
                    "A rule denies this: {pattern}{denied}{why}. It was not executed. Do not work around it."
                ),
                format!("Denied by the rule {pattern}{denied}{why}"),
            )
        }
        Some(Reason::Catastrophic(what)) => ToolRefusal::new(
            format!("This is never run: it {what}. It was not executed."),
            format!("Never run: it {what}"),
        ),
        Some(Reason::TooLong) => ToolRefusal::new(
            "The command has more than 64 KiB, or too many parts to be judged. Nothing was run. Write a \
             script with write_file and run that.",
            "The command has more than 64 KiB, or too many parts to be judged",
        ),
        Some(Reason::Ambiguous(why)) if mode == Mode::Plan => ToolRefusal::new(
            format!(
                "Plan mode: only commands that are known to only read are run, one by one or in a \
                 plain pipe. This one is not ({why}). It was not executed."
            ),
            format!("Not run in plan mode: it may do more than read ({why})"),
        ),
        _ => ToolRefusal::new(
            "Plan mode: nothing is changed and only commands that read are run. Say what you would \
             do; the user can switch the mode.",
            "Not run in plan mode",
        ),
    }
}

/// The question was taken back before it was answered.
fn withdrawn() -> ToolRefusal {
    ToolRefusal::cancelled("The question about this call was withdrawn; it was not executed.")
}

/// The answer was neither yes nor no.
fn unclear(what: &str) -> ToolRefusal {
    ToolRefusal::new(
        format!("There was no clear permission for this call ({what}); it was not executed."),
        format!("No clear permission ({what})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::{Judgement, Pattern, Rule, RuleAction, Scope, judge};
    use turnwright_types::effect::{ExtraAccess, PathScope, ResolvedPath, ShellCommand};
    use turnwright_types::shell_script::ShellDialect;

    fn read(path: &str, place: PathScope) -> Effect {
        Effect::Read(ResolvedPath { path: path.into(), scope: place })
    }

    fn ask(policy: &PolicyRules, grants: &Grants, effects: Vec<Effect>) -> ApprovalRequest {
        match judge(policy, Mode::Ask, grants, effects) {
            Judgement::NeedsApproval(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rejecting_for_the_session_rejects_only_what_was_asked_about() {
        let inside = read("/ws/a", PathScope::Workspace);
        let outside = read("/etc/passwd", PathScope::Outside);
        let policy = PolicyRules::default();
        let mut grants = Grants::default();
        let asked = ask(&policy, &grants, vec![inside.clone(), outside.clone()]);
        let never = PermissionAnswer::Chosen(ChoiceKind::RejectSession);
        asked.resolve(never, &policy, Mode::Ask, &mut grants).unwrap_err();
        assert!(matches!(judge(&policy, Mode::Ask, &grants, vec![inside]), Judgement::Allowed(_)));
        assert!(matches!(judge(&policy, Mode::Ask, &grants, vec![outside]), Judgement::Denied(_)));
    }

    #[test]
    fn a_question_is_judged_by_what_holds_when_it_is_answered() {
        let policy = PolicyRules::default();
        let mut grants = Grants::default();
        let yes = PermissionAnswer::Chosen(ChoiceKind::AllowOnce);
        let write =
            Effect::Write(ResolvedPath { path: "/ws/a".into(), scope: PathScope::Workspace });
        let asked = ask(&policy, &grants, vec![write]);
        assert!(asked.resolve(yes, &policy, Mode::Plan, &mut grants).is_err());
        let outside = || vec![read("/etc/a", PathScope::Outside)];
        let first = ask(&policy, &grants, outside());
        let second = ask(&policy, &grants, outside());
        let always = PermissionAnswer::Chosen(ChoiceKind::AllowSession);
        first.resolve(always, &policy, Mode::Ask, &mut grants).unwrap();
        assert!(matches!(
            judge(&policy, Mode::Ask, &grants, second.effects),
            Judgement::Allowed(_)
        ));
    }

    fn policy() -> PolicyRules {
        let bases = crate::permission::PathBases { roots: vec!["/ws".into()], home: None };
        PolicyRules { bases, ..PolicyRules::default() }
    }

    fn inside(path: &str) -> ResolvedPath {
        ResolvedPath { path: path.into(), scope: PathScope::Workspace }
    }

    fn outside(path: &str) -> ResolvedPath {
        ResolvedPath { path: path.into(), scope: PathScope::Outside }
    }

    fn exec(line: &str, reach: ExtraAccess) -> Effect {
        Effect::Exec(Box::new(ShellCommand {
            extra_access: reach,
            ..crate::shell::command(line, "/ws", ShellDialect::Bash)
        }))
    }

    fn remote(server: &str, tool: &str, change: Option<&str>) -> Effect {
        Effect::Remote(Box::new(turnwright_types::effect::RemoteCall {
            server: server.to_owned(),
            tool: tool.to_owned(),
            server_digest: "id".to_owned(),
            tool_digest: change.unwrap_or("content").to_owned(),
            claims_read_only: true,
            change_since_approval: change.map(str::to_owned),
        }))
    }

    #[test]
    fn in_auto_a_yes_to_a_command_that_fails_without_the_network_gives_it_the_network() {
        let mut policy = PolicyRules { can_confine: true, ..policy() };
        let yes = || PermissionAnswer::Chosen(ChoiceKind::AllowOnce);
        for line in
            ["git push", "npm install && npm test", "git push --force", "x=$(date); curl a.b"]
        {
            let effects = || vec![exec(line, ExtraAccess::default())];
            let grants = Grants::default();
            let asked = match judge(&policy, Mode::Auto, &grants, effects()) {
                Judgement::NeedsApproval(asked) => asked,
                other => panic!("{line}: {other:?}"),
            };
            assert_eq!(asked.title(&policy, line.to_owned()), format!("[with network] {line}"));
            let offered = asked.choices();
            let is_lasting = offered.iter().any(|choice| choice.kind == ChoiceKind::AllowSession);
            assert_eq!(is_lasting, !line.contains("--force"), "{offered:?}");
            let pass = asked.resolve(yes(), &policy, Mode::Auto, &mut Grants::default()).unwrap();
            let escalated = vec![exec(line, ExtraAccess::network())];
            let escalated = match judge(&policy, Mode::Auto, &grants, escalated) {
                Judgement::NeedsApproval(asked) => asked,
                other => panic!("{line}: {other:?}"),
            };
            let same = escalated.resolve(yes(), &policy, Mode::Auto, &mut Grants::default());
            assert_eq!(pass.confinement(), same.unwrap().confinement(), "{line}");
        }
        let verdict = |policy: &PolicyRules, mode, line| {
            let effects = [exec(line, ExtraAccess::default())];
            decide(policy, mode, &Grants::default(), &effects).verdict()
        };
        for line in ["cargo build", "npm ci --offline", "pip install ./x --no-index", "npx tsc"] {
            assert_eq!(verdict(&policy, Mode::Auto, line), Verdict::Allow, "{line}");
        }
        // The user's own rule decides.
        let rule = |text, action| Rule::parse(text, action, Scope::User).unwrap();
        policy.rules = vec![
            rule("exec(git fetch)", RuleAction::Allow),
            rule("exec(git push)", RuleAction::Deny),
            rule("exec(git pull)", RuleAction::Ask),
        ];
        for (line, expected) in [
            ("git fetch", Verdict::Allow),
            ("git fetch && curl a.b", Verdict::Ask),
            ("git push", Verdict::Deny),
            ("git pull", Verdict::Ask),
        ] {
            assert_eq!(verdict(&policy, Mode::Auto, line), expected, "{line}");
        }
        assert_eq!(verdict(&policy, Mode::Full, "curl a.b"), Verdict::Allow);
        let online = PolicyRules { has_network: true, rules: Vec::new(), ..policy };
        assert_eq!(verdict(&online, Mode::Auto, "git push"), Verdict::Allow);
    }

    #[test]
    fn where_hosts_are_asked_about_auto_asks_for_the_network_only_if_a_proxy_is_not_enough() {
        let policy = PolicyRules { can_confine: true, asks_about_hosts: || true, ..policy() };
        for (line, has_ssh_remote, expected) in [
            ("npm install && npm test", false, Verdict::Allow),
            ("x=$(date); curl a.b", false, Verdict::Allow),
            ("git fetch", false, Verdict::Allow),
            ("git fetch", true, Verdict::Ask),
            ("git push", false, Verdict::Ask),
            ("npm install && ssh host ls", false, Verdict::Ask),
            ("docker pull x", false, Verdict::Ask),
        ] {
            let command = crate::shell::command(line, "/ws", ShellDialect::Bash);
            let effects = [Effect::Exec(Box::new(ShellCommand { has_ssh_remote, ..command }))];
            let decision = decide(&policy, Mode::Auto, &Grants::default(), &effects);
            assert_eq!(decision.verdict(), expected, "{line}");
            assert_eq!(decision.has(&Reason::Network), expected == Verdict::Ask, "{line}");
        }
    }

    #[test]
    fn a_rejected_tool_stays_rejected_when_its_description_changes() {
        let policy = PolicyRules::default();
        let mut grants = Grants::default();
        let asked = ask(&policy, &grants, vec![remote("notes", "read", None)]);
        let never = PermissionAnswer::Chosen(ChoiceKind::RejectSession);
        asked.resolve(never, &policy, Mode::Ask, &mut grants).unwrap_err();
        let changed = vec![remote("notes", "read", Some("other"))];
        assert!(matches!(judge(&policy, Mode::Ask, &grants, changed), Judgement::Denied(_)));
        let other = vec![remote("notes", "write", None)];
        assert!(matches!(judge(&policy, Mode::Ask, &grants, other), Judgement::NeedsApproval(_)));
    }

    #[test]
    fn a_tool_that_changed_needs_a_new_approval() {
        let policy = PolicyRules::default();
        let mut grants = Grants::default();
        for tool in ["read", "*"] {
            let call = || vec![remote("notes", tool, None)];
            let always = PermissionAnswer::Chosen(ChoiceKind::AllowSession);
            ask(&policy, &grants, call()).resolve(always, &policy, Mode::Ask, &mut grants).unwrap();
            assert!(matches!(judge(&policy, Mode::Ask, &grants, call()), Judgement::Allowed(_)));
            let changed = vec![remote("notes", tool, Some("other"))];
            assert!(matches!(
                judge(&policy, Mode::Ask, &grants, changed),
                Judgement::NeedsApproval(_)
            ));
        }
        let other = vec![remote("notes", "write", None)];
        assert!(matches!(judge(&policy, Mode::Ask, &grants, other), Judgement::NeedsApproval(_)));
    }

    fn choices(policy: &PolicyRules, effects: Vec<Effect>) -> String {
        let asked = ask(policy, &Grants::default(), effects);
        let names: Vec<_> = asked.choices().into_iter().map(|choice| choice.name).collect();
        assert_eq!(names.first().map(String::as_str), Some("Allow once"));
        assert!(names.iter().all(|name| name.chars().count() <= MAX_BUTTON_CHARS), "{names:?}");
        names[1..].join(" | ")
    }

    #[test]
    fn each_answer_says_what_it_covers_and_none_covers_more_than_was_asked() {
        let table = [
            (
                vec![Effect::Write(inside("/ws/src/[a].rs"))],
                "Allow changes to `src/[a].rs` in this session | Reject | Reject \
                 changes to this file in this session",
            ),
            (
                vec![Effect::Write(outside("/etc/hosts"))],
                "Allow changes to `/etc/hosts` in this session | Reject | Reject changes to this file \
                 in this session",
            ),
            (
                vec![Effect::Read(inside("/ws/a")), Effect::Read(outside("/etc/hosts"))],
                "Allow reading `/etc/hosts` in this session | Reject | Reject reading this in this \
                 session",
            ),
            (
                vec![Effect::Read(inside("/ws/.env"))],
                "Allow reading `.env` in this session | Reject | Reject reading this in this session",
            ),
            (
                vec![Effect::Delete(inside("/ws/a")), Effect::Write(inside("/ws/b"))],
                "Allow deleting /a and changes to `b` in this session | Reject | Reject exactly this in \
                 this session",
            ),
            (
                vec![Effect::Fetch { host: "docs.rs".to_owned() }],
                "Allow requests to docs.rs in this session | Reject | Reject requests to this host \
                 in this session",
            ),
            (
                vec![remote("notes", "read", None)],
                "Allow `read` of notes in this session | Reject | Reject calls of this tool in this \
                 session",
            ),
            // A name that no rule can express is granted exactly, and only for the session.
            (
                vec![remote("notes", "*", None)],
                "Allow * of notes in this session | Reject | Reject calls of this tool in this \
                 session",
            ),
            // A changed tool must be approved once before it can be approved for longer.
            (
                vec![remote("notes", "read", Some("other"))],
                "Reject | Reject calls of this tool in this session",
            ),
            // A button cannot grant what it cannot show.
            (
                vec![Effect::Write(inside("/ws/a\u{202e}b"))],
                "Reject | Reject changes to this file in this session",
            ),
            (
                vec![exec("make", ExtraAccess::unsandboxed())],
                "Allow exactly this command without the sandbox in this session | Reject | Reject this exact command in this session",
            ),
            (
                vec![exec("make \"$X\"", ExtraAccess::default())],
                "Reject | Reject this exact command in this session",
            ),
        ];
        for (effects, expected) in table {
            assert_eq!(choices(&policy(), effects.clone()), expected, "{effects:?}");
        }
    }

    #[test]
    fn only_what_settings_can_say_is_named_as_a_rule() {
        let policy = PolicyRules { can_confine: true, ..policy() };
        let none = ExtraAccess::default;
        for (effects, expected) in [
            (vec![Effect::Write(inside("/ws/a"))], Some("edit(/a)")),
            (vec![Effect::Read(outside("/etc/hosts"))], Some("read(//etc/hosts)")),
            (vec![exec("npm test", none())], Some("exec(npm test)")),
            (
                vec![exec("npm test", none()), Effect::Write(inside("/ws/a"))],
                Some("exec(npm test) and edit(/a)"),
            ),
            (vec![exec("make \"$X\"", none())], None),
            (vec![exec("make \"$X\"", none()), Effect::Write(inside("/ws/a"))], None),
            (vec![Effect::Delete(inside("/ws/a"))], None),
            (vec![remote("notes", "*", None)], None),
            (vec![exec("make", ExtraAccess::network())], None),
        ] {
            let asked = ask(&policy, &Grants::default(), effects.clone());
            assert_eq!(asked.lasting_rules().as_deref(), expected, "{effects:?}");
        }
    }

    #[test]
    fn what_asks_each_time_offers_no_always() {
        let pattern = Pattern::parse("edit(/a)", RuleAction::Ask).unwrap();
        let rule = Rule { action: RuleAction::Ask, pattern, scope: Scope::User, why: None };
        let policy = PolicyRules { rules: vec![rule], ..policy() };
        let write = |path| Effect::Write(inside(path));
        assert!(!choices(&policy, vec![write("/ws/a")]).contains("Allow"));
        assert!(!choices(&policy, vec![write("/ws/b"), write("/ws/a")]).contains("Allow"));
        assert!(
            choices(&policy, vec![write("/ws/b")]).contains("Allow changes to `b` in this session")
        );
    }

    #[test]
    fn a_long_pattern_is_cut_in_the_button_and_whole_in_the_description() {
        let path = format!("/ws/{}a.rs", "deep/".repeat(20));
        let asked = ask(&policy(), &Grants::default(), vec![Effect::Write(inside(&path))]);
        let names: Vec<_> = asked.choices().into_iter().map(|choice| choice.name).collect();
        assert_eq!(names[1].chars().count(), MAX_BUTTON_CHARS);
        assert!(names[1].ends_with("… in this session"), "{}", names[1]);
        let text = asked.description(&policy(), Mode::Ask);
        assert!(text.contains(&format!("`edit({})`", &path[3..])), "{text}");
    }

    #[test]
    fn what_was_allowed_for_the_session_can_be_kept_as_the_rules_that_were_named() {
        let policy = policy();
        let mut grants = Grants::default();
        let write = vec![Effect::Write(inside("/ws/a"))];
        let always = PermissionAnswer::Chosen(ChoiceKind::AllowSession);
        let asked = ask(&policy, &grants, write.clone());
        let pass = asked.resolve(always.clone(), &policy, Mode::Ask, &mut grants).unwrap();
        assert_eq!(pass.effects(), write);
        let rules: Vec<_> = grants.project_rules().iter().map(|entry| entry.0.clone()).collect();
        assert!(matches!(&rules[..], [one] if one.pattern.to_string() == "edit(/a)"), "{rules:?}");
        let tomorrow = PolicyRules { rules, ..policy.clone() };
        let again = judge(&tomorrow, Mode::Ask, &Grants::default(), write);
        assert!(matches!(again, Judgement::Allowed(_)), "{again:?}");
        let asked = ask(&policy, &grants, vec![Effect::Write(outside("/etc/hosts"))]);
        asked.resolve(always.clone(), &policy, Mode::Ask, &mut grants).unwrap();
        assert_eq!(grants.project_rules().len(), 1, "only for the session");
        let asked = ask(&policy, &grants, vec![exec("make \"$X\"", ExtraAccess::default())]);
        asked.resolve(always, &policy, Mode::Ask, &mut grants).unwrap_err();
    }

    #[test]
    fn a_title_begins_with_the_access_beyond_the_sandbox() {
        let title = |reach| {
            let asked = ask(&policy(), &Grants::default(), vec![exec("make", reach)]);
            asked.title(&policy(), "make".to_owned())
        };
        assert_eq!(title(ExtraAccess::default()), "make");
        assert_eq!(title(ExtraAccess::network()), "[with network] make");
        assert_eq!(title(ExtraAccess::unsandboxed()), "[without the sandbox] make");
        let writing = ExtraAccess { writes: vec![outside("/x")], ..ExtraAccess::default() };
        assert_eq!(title(writing), "[may write /x] make");
    }

    #[test]
    fn bounded_is_what_auto_mode_does_without_a_question() {
        let sandboxed = PolicyRules { can_confine: true, ..policy() };
        let ask_rule = {
            let pattern = Pattern::parse("exec(make)", RuleAction::Ask).unwrap();
            let rule = Rule { action: RuleAction::Ask, pattern, scope: Scope::User, why: None };
            PolicyRules { rules: vec![rule], ..sandboxed.clone() }
        };
        let none = ExtraAccess::default();
        let table = [
            (&sandboxed, Mode::Full, vec![Effect::Write(inside("/ws/a"))], true),
            (&sandboxed, Mode::Full, vec![Effect::Delete(inside("/ws/a"))], true),
            (&sandboxed, Mode::Full, vec![exec("make", none.clone())], true),
            (&sandboxed, Mode::Full, vec![exec("make $x", none.clone())], true),
            // Where there is no sandbox, where a rule wants a question, and where the administrator
            // does not allow the mode, nothing bounds a command.
            (&policy(), Mode::Full, vec![exec("make", none.clone())], false),
            (&ask_rule, Mode::Full, vec![exec("make", none.clone())], false),
            (&sandboxed, Mode::Ask, vec![exec("make", none.clone())], false),
            // Beyond the sandbox or the project, dangerous, or not known.
            (&sandboxed, Mode::Full, vec![exec("make", ExtraAccess::network())], false),
            (&sandboxed, Mode::Full, vec![exec("make", ExtraAccess::unsandboxed())], false),
            (&sandboxed, Mode::Full, vec![exec("git reset --hard", none)], false),
            (&sandboxed, Mode::Full, vec![Effect::Write(outside("/etc/a"))], false),
            (&sandboxed, Mode::Full, vec![Effect::Read(outside("/etc/a"))], false),
            (&sandboxed, Mode::Full, vec![Effect::Read(inside("/ws/.env"))], false),
            (&sandboxed, Mode::Full, vec![Effect::Fetch { host: "a.example".to_owned() }], false),
            (&sandboxed, Mode::Full, vec![remote("notes", "read", None)], false),
            (
                &sandboxed,
                Mode::Full,
                vec![Effect::Write(inside("/ws/a")), Effect::Write(outside("/etc/a"))],
                false,
            ),
        ];
        for (policy, max_mode, effects, expected) in table {
            let grants = Grants::default();
            let asked = ask(policy, &grants, effects.clone());
            assert_eq!(asked.auto_mode_allows(policy, max_mode, &grants), expected, "{effects:?}");
        }
    }
}
