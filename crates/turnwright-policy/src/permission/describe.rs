//! Decisions in words: descriptions of effects and reasons, the Markdown text of a question, and access beyond the
//! sandbox for titles, questions, answers and lists. Text from commands and paths is escaped, so that it cannot pass
//! for text of this crate. Pure.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::glob::slashed;
use super::rule::PathBases;
use super::{Confinement, Finding, JudgedCall, Mode, Reason, Verdict};
use crate::shell::{self, SimpleCommand};
use turnwright_types::effect::{
    Effect, ExtraAccess, PathScope, ShellCommand, escape_hidden_line, is_secret_path,
};
use turnwright_types::text::{self, escape_markdown};

/// The maximum number of simple commands that are listed. The whole line is shown in the title.
const MAX_COMMANDS: usize = 6;
/// The maximum number of paths that are listed in one line.
const MAX_PATHS: usize = 12;
/// The maximum length of one command or path in characters.
const MAX_CHARS: usize = 200;

/// An effect in a few words, on one line.
pub fn describe_effect(effect: &Effect, bases: &PathBases) -> String {
    match effect {
        Effect::Read(target) => format!("read {}", display_path(&target.path, bases)),
        Effect::Write(target) => format!("change {}", display_path(&target.path, bases)),
        Effect::Delete(target) => format!("delete {}", display_path(&target.path, bases)),
        Effect::Exec(command) => {
            let access = title_of_access(&command.extra_access, bases)
                .map(|access| format!("[{access}] "))
                .unwrap_or_default();
            format!("{access}run {}", escape_hidden_line(&command.line))
        }
        Effect::Input { job, .. } => format!("give input to {job}"),
        Effect::Signal { job } => format!("signal {job}"),
        Effect::Fetch { host } => format!("request {}", escape_hidden_line(host)),
        Effect::Search { backend } => format!("search the web with {backend}"),
        Effect::Remote(call) => {
            escape_hidden_line(&format!("call {} of {}", call.tool, call.server))
        }
        Effect::SessionState => "change nothing outside the session".to_owned(),
    }
}

/// The reason of a finding, in words that can follow the name of the effect or command.
pub fn describe_reason(finding: &Finding, mode: Mode) -> String {
    match &finding.reason {
        Reason::SessionOnly => "affects nothing outside the session".to_owned(),
        Reason::Catastrophic(what) => format!("never run: it {what}"),
        Reason::Rejected => "rejected in this session".to_owned(),
        Reason::Rule(rule) => {
            let verb = match finding.verdict {
                Verdict::Allow => "allowed by",
                Verdict::Ask => "to be confirmed, by",
                Verdict::Deny => "denied by",
            };
            let why = rule.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            escape_hidden_line(&format!("{verb} {}{why}", rule.pattern))
        }
        Reason::Granted(pattern) | Reason::GrantedAccess(pattern) => {
            escape_hidden_line(&format!("allowed in this session: {pattern}"))
        }
        Reason::ReadOnly => "only reads".to_owned(),
        Reason::Mode => match finding.verdict {
            Verdict::Allow => format!("allowed in {} mode", mode.id()),
            Verdict::Ask => "no rule allows it".to_owned(),
            Verdict::Deny => format!("not allowed in {} mode", mode.id()),
        },
        Reason::TooLong => "too long to be judged".to_owned(),
        Reason::Ambiguous(why) => escape_hidden_line(why),
        Reason::Destructive(what) => format!("⚠ irreversible: {what}"),
        Reason::Escalation => "asks for more than the sandbox allows".to_owned(),
        Reason::Network if finding.verdict == Verdict::Allow => {
            "gets the network, as you have allowed in this session".to_owned()
        }
        Reason::Signing => "may sign, as you have allowed in this session".to_owned(),
        Reason::Network => "needs the network, which it gets if you allow it".to_owned(),
        Reason::ProtectedPath(what) => format!("protected: {what}"),
        Reason::SecretPath => "likely to hold keys or passwords".to_owned(),
        Reason::OutsideWorkspace => "outside the project".to_owned(),
        Reason::ToolChanged => "it has changed since it was allowed".to_owned(),
        Reason::NoSandbox => "there is no sandbox here".to_owned(),
    }
}

/// The name of a verdict.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

/// The verdict on one part of a call, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The simple command or the effect.
    pub subject: String,
    /// The verdict on it.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub reason: String,
    /// The rule, if one was decisive.
    pub rule: Option<String>,
}

impl JudgedCall<'_> {
    /// Explains the decision, part by part.
    pub fn explain(&self) -> Vec<Explanation> {
        self.decision.findings.iter().filter_map(|finding| self.explain_finding(finding)).collect()
    }

    fn explain_finding(&self, finding: &Finding) -> Option<Explanation> {
        let effect = self.effects.get(finding.effect_index)?;
        let simple = effect
            .command()
            .and_then(|command| command.script.commands.get(finding.command_index?));
        let subject = match (simple, effect, &finding.path) {
            (Some(simple), ..) => command_text(simple),
            (None, Effect::Exec(_), Some(path)) => display_path(path, &self.policy.bases),
            _ => describe_effect(effect, &self.policy.bases),
        };
        Some(Explanation {
            subject: text::clip_within(escape_hidden_line(&subject), MAX_CHARS),
            verdict: finding.verdict,
            reason: describe_reason(finding, self.mode),
            rule: match &finding.reason {
                Reason::Rule(rule) => Some(rule.pattern.to_string()),
                _ => None,
            },
        })
    }

    /// Says how the command of the call would be confined, as Markdown.
    pub fn describe_confinement(&self) -> String {
        let policy = self.policy;
        match Confinement::for_call(*self) {
            Confinement::Unconfined => {
                let here = if policy.can_confine { "" } else { " here" };
                format!(
                    "no sandbox{here}: it can change everything that you can, and use the network"
                )
            }
            Confinement::Sandboxed { workspace_writable, network, extra_writable, further } => {
                let mut places: Vec<_> =
                    workspace_writable.then(|| "the project".to_owned()).into_iter().collect();
                let roots = &policy.bases.roots;
                let beyond = extra_writable.iter().filter(|path| {
                    !workspace_writable || !roots.iter().any(|root| path.starts_with(root))
                });
                places.extend(beyond.map(|path| markdown_code(&display_path(path, &policy.bases))));
                let places = match places.as_slice() {
                    [] => "nothing".to_owned(),
                    _ => text::join_first(&places, MAX_PATHS),
                };
                let mut commands = self.effects.iter().filter_map(Effect::command);
                let network = match commands.find(|one| shell::fails_offline(&one.script)) {
                    _ if network || policy.has_network => WITH_NETWORK,
                    Some(command) if policy.has_proxy(command) => {
                        "you are asked about each host that it wants to reach"
                    }
                    Some(_) => "no network, without which it fails",
                    None => "no network",
                };
                let further = access_nouns(&further, &PathBases::default());
                let all: Vec<_> = [network.to_owned()].into_iter().chain(further).collect();
                format!("in the sandbox: may change {places}; {}", all.join("; "))
            }
        }
    }

    /// The text of a question, with notes about the answers that are offered. It is empty if the call's title and content
    /// say it all.
    pub(super) fn question(&self, answer_notes: &[String]) -> String {
        let mut lines = Vec::new();
        let mut written = Vec::new();
        for (index, effect) in self.effects.iter().enumerate() {
            match effect {
                Effect::Exec(command) => self.add_command(index, command, &mut lines),
                _ => self.add_effect(index, effect, &mut lines, &mut written),
            }
        }
        if !written.is_empty() {
            lines.push(format!("writes {}", text::join_first(&written, MAX_PATHS)));
        }
        self.add_outside_paths(&mut lines);
        lines.extend_from_slice(answer_notes);
        // A list keeps its lines in every client; line breaks made of two trailing spaces get lost
        // where lines are trimmed.
        lines.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
    }

    fn findings_of(&self, effect_index: usize) -> impl Iterator<Item = &Finding> {
        self.decision.findings.iter().filter(move |finding| finding.effect_index == effect_index)
    }

    /// Adds each simple command with its verdict, then the findings about the whole line.
    fn add_command(&self, index: usize, command: &ShellCommand, lines: &mut Vec<String>) {
        // The stakes come first, unless a reason says the same.
        for stake in shell::stakes(&command.script) {
            let is_said = self.findings_of(index).any(
                |finding| matches!(finding.reason, Reason::Destructive(what) if what == stake),
            );
            if !is_said {
                lines.push(format!("⚠ it {stake}"));
            }
        }
        self.add_simple_commands(index, command, lines);
        for finding in self.findings_of(index).filter(|finding| finding.command_index.is_none()) {
            lines.extend(self.line_finding(finding, command));
        }
        lines.dedup();
        lines.push(self.describe_confinement());
    }

    fn add_simple_commands(&self, index: usize, command: &ShellCommand, lines: &mut Vec<String>) {
        let script = &command.script;
        // In a line that is not understood, parts with the mode's default verdict say nothing.
        let mut simple: Vec<_> = self
            .findings_of(index)
            .filter(|finding| finding.command_index.is_some())
            .filter(|finding| {
                script.ambiguity.is_none()
                    || !matches!(finding.reason, Reason::Mode | Reason::NoSandbox)
            })
            .collect();
        let more = simple.len().saturating_sub(MAX_COMMANDS);
        if more > 0 {
            // Show the commands that need approval.
            simple.sort_by_key(|finding| finding.verdict == Verdict::Allow);
            simple.truncate(MAX_COMMANDS);
        }
        for finding in simple {
            let command = finding.command_index.and_then(|index| script.commands.get(index));
            let Some(command) = command else { continue };
            let wrappers = command.wrappers.join(" ");
            let suffix = match wrappers.as_str() {
                "" => String::new(),
                wrappers => format!(" (run by {})", markdown_code(wrappers)),
            };
            let why = escape_markdown(&describe_reason(finding, self.mode));
            lines.push(format!(
                "{} {}{suffix} – {why}",
                sign(finding),
                markdown_code(&command_text(command))
            ));
        }
        if more > 0 {
            lines.push(format!("… and {more} more commands"));
        }
    }

    /// The line about a finding that concerns the whole command line, if it says anything new.
    fn line_finding(&self, finding: &Finding, command: &ShellCommand) -> Option<String> {
        let why = || escape_markdown(&describe_reason(finding, self.mode));
        Some(match &finding.reason {
            Reason::Ambiguous(why) => {
                let why = escape_markdown(&escape_hidden_line(why));
                format!("? cannot be fully analysed: {why}")
            }
            Reason::Escalation => {
                let access = &command.extra_access;
                format!("⚠ asks {}", request_for_access(access, &self.policy.bases))
            }
            Reason::Network if finding.verdict == Verdict::Ask => format!("⚠ {}", why()),
            Reason::SecretPath => {
                let secrets = command.reads.iter().filter(|read| is_secret_path(&read.path));
                let places: Vec<_> = secrets
                    .map(|read| markdown_code(&display_path(&read.path, &self.policy.bases)))
                    .collect();
                format!("⚠ reads {}: {}", text::join_first(&places, MAX_PATHS), why())
            }
            // Listed at the end.
            Reason::OutsideWorkspace if finding.verdict == Verdict::Ask => return None,
            _ if finding.verdict == Verdict::Allow => return None,
            _ => {
                let subject = finding.path.as_ref().map_or_else(String::new, |path| {
                    format!("{} – ", markdown_code(&display_path(path, &self.policy.bases)))
                });
                format!("{} {subject}{}", sign(finding), why())
            }
        })
    }

    /// Adds the facts about an effect, other than a command, that are missing in the call's title.
    fn add_effect(
        &self,
        index: usize,
        effect: &Effect,
        lines: &mut Vec<String>,
        written: &mut Vec<String>,
    ) {
        let runs_command = self.effects.iter().any(|effect| matches!(effect, Effect::Exec(_)));
        let is_redirect = runs_command && matches!(effect, Effect::Write(_));
        let is_host = runs_command && matches!(effect, Effect::Fetch { .. });
        for finding in self.findings_of(index) {
            let what = markdown_code(&effect_object(effect, &self.policy.bases));
            let reason = escape_markdown(&describe_reason(finding, self.mode));
            let is_asked = finding.verdict == Verdict::Ask;
            match &finding.reason {
                Reason::ProtectedPath(why) => {
                    lines.push(format!("⚠ {what} is protected: {}", escape_markdown(why)));
                }
                Reason::SecretPath if is_asked => {
                    lines.push(format!("⚠ {what} is likely to hold keys or passwords"));
                }
                Reason::Rule(_) if is_asked => lines.push(format!("? {what} – {reason}")),
                Reason::ToolChanged if is_asked => lines.push(format!("⚠ {reason}")),
                _ if is_redirect => written.push(format!("{} {what}", sign(finding))),
                _ if is_host => lines.push(format!("{} reaches {what}", sign(finding))),
                _ => {}
            }
        }
    }

    fn add_outside_paths(&self, lines: &mut Vec<String>) {
        let mut places = Vec::new();
        for effect in self.effects {
            match effect {
                Effect::Read(target) | Effect::Write(target) | Effect::Delete(target) => {
                    places.push(target);
                }
                Effect::Exec(command) => {
                    places.extend(&command.reads);
                    places.extend(&command.extra_access.writes);
                }
                Effect::Input { .. }
                | Effect::Signal { .. }
                | Effect::Fetch { .. }
                | Effect::Search { .. }
                | Effect::Remote(_)
                | Effect::SessionState => {}
            }
        }
        let mut outside: Vec<_> = places
            .into_iter()
            .filter(|place| place.scope != PathScope::Workspace)
            .map(|place| markdown_code(&place.name_for_commands().to_string_lossy()))
            .collect();
        outside.dedup();
        if !outside.is_empty() {
            lines.push(format!("Outside the project: {}", text::join_first(&outside, MAX_PATHS)));
        }
    }
}

fn sign(finding: &Finding) -> &'static str {
    match finding.verdict {
        Verdict::Allow => "✓",
        Verdict::Ask => "?",
        Verdict::Deny => "✗",
    }
}

/// A simple command as it could be typed.
fn command_text(simple: &SimpleCommand) -> String {
    let more = if simple.has_unknown_args { " …" } else { "" };
    format!("{}{more}", simple.argv().map(quoted_word).collect::<Vec<_>>().join(" "))
}

fn quoted_word(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.chars().all(|char| char.is_alphanumeric() || "-_./=:,@%+*?[]".contains(char));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// The path, host or other object of an effect.
fn effect_object(effect: &Effect, bases: &PathBases) -> String {
    match effect {
        Effect::Read(target) | Effect::Write(target) | Effect::Delete(target) => {
            display_path(&target.path, bases)
        }
        Effect::Exec(command) => command.line.clone(),
        Effect::Input { job, .. } | Effect::Signal { job } => job.clone(),
        Effect::Fetch { host } => host.clone(),
        Effect::Search { backend } => backend.clone(),
        Effect::Remote(call) => format!("{}/{}", call.server, call.tool),
        Effect::SessionState => "the session".to_owned(),
    }
}

/// A path relative to the project, or else absolute.
pub(super) fn display_path(path: &Path, bases: &PathBases) -> String {
    let inside = bases.roots.first().and_then(|root| path.strip_prefix(root).ok());
    match inside.filter(|rest| !rest.as_os_str().is_empty()) {
        Some(inside) => escape_hidden_line(&slashed(inside)),
        None => escape_hidden_line(&path.to_string_lossy()),
    }
}

/// Text as a Markdown code span that it cannot end.
pub fn markdown_code(text: &str) -> String {
    let text = text::clip_within(escape_hidden_line(text), MAX_CHARS);
    let longest = text::longest_backtick_run(&text);
    let fence = "`".repeat(longest + 1);
    let gap = if longest > 0 || text.is_empty() { " " } else { "" };
    format!("{fence}{gap}{text}{gap}{fence}")
}

/// Part of a title: the command gets the network.
const WITH_NETWORK: &str = "with network";
/// Part of a title: the command gets no sandbox.
const WITHOUT_SANDBOX: &str = "without the sandbox";

/// Puts each kind of access beyond the sandbox into words: those for the network, for debugging and for signing, and
/// with what it names each of the others. Writing at a path that is called a socket means connecting to it.
fn words_of_access(
    access: &ExtraAccess,
    bases: &PathBases,
    [network, debug, sign]: [&str; 3],
    write: impl Fn(String) -> String,
    connect: impl Fn(String) -> String,
    publish: impl Fn(&u16) -> String,
) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(access.network.then(|| network.to_owned()));
    parts.extend(access.writes.iter().map(|target| {
        let shown = display_path(&target.path, bases);
        let is_socket = target.path.extension().is_some_and(|extension| extension == "sock");
        if is_socket { connect(shown) } else { write(shown) }
    }));
    parts.extend(access.debug.then(|| debug.to_owned()));
    parts.extend(access.sign.then(|| sign.to_owned()));
    parts.extend(address_names(access).into_iter().map(&connect));
    parts.extend(access.publishes.iter().map(publish));
    parts
}

/// The access for the title of a call; `None` if there is none.
pub(super) fn title_of_access(access: &ExtraAccess, bases: &PathBases) -> Option<String> {
    let words = words_of_access(
        access,
        bases,
        [WITH_NETWORK, "may debug", "may sign"],
        |path| format!("may write {path}"),
        |address| format!("may reach {address}"),
        |port| format!("lets your programs reach its port {port}"),
    );
    let unsandboxed = access.unsandboxed.then(|| WITHOUT_SANDBOX.to_owned());
    let parts: Vec<_> = unsandboxed.into_iter().chain(words).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The question about the access, after "asks".
fn request_for_access(access: &ExtraAccess, bases: &PathBases) -> String {
    let sign = "to sign commits and tags with your key (hooks of the repository and other programs that it \
                starts can sign, too)";
    let words = words_of_access(
        access,
        bases,
        ["for network access", "to trace and debug its own processes", sign],
        |path| format!("to write {}", markdown_code(&path)),
        |address| format!("to connect to {}", markdown_code(&address)),
        |port| format!("to open its port {port} to your own programs (`localhost:{port}`)"),
    );
    let unsandboxed = access.unsandboxed.then(|| "to run without the sandbox".to_owned());
    listed(&unsandboxed.into_iter().chain(words).collect::<Vec<_>>())
}

/// Describes access after the name of a command: "with network and write access to `/x`".
pub(super) fn access_of_command(access: &ExtraAccess, bases: &PathBases) -> String {
    if access.unsandboxed {
        return WITHOUT_SANDBOX.to_owned();
    }
    format!("with {}", listed(&access_nouns(access, bases)))
}

/// Describes access as nouns: "network", "write access to `/x`".
pub(super) fn access_nouns(access: &ExtraAccess, bases: &PathBases) -> Vec<String> {
    words_of_access(
        access,
        bases,
        ["network", "debugging", "your signing key"],
        |path| format!("write access to {}", markdown_code(&path)),
        |address| format!("connections to {}", markdown_code(&address)),
        |port| format!("port {port} open to your programs"),
    )
}

/// The addresses to connect to. `localhost` stands for both of its addresses.
fn address_names(access: &ExtraAccess) -> Vec<String> {
    let mut names = Vec::new();
    for address in &access.connects {
        let both = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
            SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        ];
        let is_localhost =
            both.contains(address) && both.iter().all(|one| access.connects.contains(one));
        let name = if is_localhost {
            format!("localhost:{}", address.port())
        } else {
            address.to_string()
        };
        turnwright_types::lists::add_new(&mut names, name);
    }
    names
}

/// Joins parts of a sentence: "a, b and c".
pub(super) fn listed(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::permission::{Decision, PolicyRules};
    use crate::shell;
    use turnwright_types::effect::ResolvedPath;
    use turnwright_types::shell_script::ShellDialect;

    #[test]
    fn foreign_text_stays_in_its_span() {
        assert_eq!(markdown_code("a b"), "`a b`");
        assert_eq!(markdown_code("a`b"), "`` a`b ``");
        assert_eq!(markdown_code("`` x\n- ✓ y"), "``` `` x\\n- ✓ y ```");
        assert_eq!(escape_markdown("a *b* <c> `d`"), "a \\*b\\* \\<c\\> \\`d\\`");
        assert_eq!(escape_markdown("_a_b_ c__d"), "\\_a_b\\_ c\\_\\_d");
    }

    fn described(policy: &PolicyRules, effects: &[Effect], findings: Vec<Finding>) -> String {
        let decision = Decision { findings };
        JudgedCall { policy, mode: Mode::Ask, effects, decision: &decision }.question(&[])
    }

    fn finding(
        effect_index: usize,
        command_index: Option<usize>,
        verdict: Verdict,
        reason: Reason,
    ) -> Finding {
        Finding { effect_index, command_index, path: None, verdict, reason }
    }

    fn policy() -> PolicyRules {
        let bases = PathBases { roots: vec!["/ws".into()], home: None };
        PolicyRules { bases, can_confine: true, ..PolicyRules::default() }
    }

    fn inside(path: &str) -> ResolvedPath {
        ResolvedPath { path: path.into(), scope: PathScope::Workspace }
    }

    #[test]
    fn a_question_says_that_a_command_gets_the_network_or_fails_without_it() {
        let push = [Effect::Exec(Box::new(shell::command("git push", "/ws", ShellDialect::Bash)))];
        let asked = |reason| vec![finding(0, None, Verdict::Ask, reason)];
        expect![[r"
            - ⚠ needs the network, which it gets if you allow it
            - in the sandbox: may change the project; with network"]]
        .assert_eq(&described(&policy(), &push, asked(Reason::Network)));
        expect![[r"
            - in the sandbox: may change the project; no network, without which it fails"]]
        .assert_eq(&described(&policy(), &push, asked(Reason::OutsideWorkspace)));
    }

    #[test]
    fn a_plain_edit_needs_no_text_but_a_protected_secret_or_outside_path_does() {
        let plain = [Effect::Write(inside("/ws/a"))];
        let usual = || vec![finding(0, None, Verdict::Ask, Reason::Mode)];
        assert_eq!(described(&policy(), &plain, usual()), "");
        let hook = [Effect::Write(inside("/ws/.git/hooks/pre-commit"))];
        let why = Reason::ProtectedPath("git runs it");
        expect![[r"- ⚠ `.git/hooks/pre-commit` is protected: git runs it"]].assert_eq(&described(
            &policy(),
            &hook,
            vec![finding(0, None, Verdict::Ask, why)],
        ));
        let secret = [Effect::Read(ResolvedPath {
            path: "/home/u/.env`x`".into(),
            scope: PathScope::Outside,
        })];
        let why = vec![finding(0, None, Verdict::Ask, Reason::SecretPath)];
        expect![[r"
            - ⚠ `` /home/u/.env`x` `` is likely to hold keys or passwords
            - Outside the project: `` /home/u/.env`x` ``"]]
        .assert_eq(&described(&policy(), &secret, why));
    }

    #[test]
    fn a_command_that_is_not_understood_says_so_and_how_it_is_confined() {
        let command = |reach| {
            [Effect::Exec(Box::new(ShellCommand {
                extra_access: reach,
                ..shell::command("x \"$Y\"", "/ws", ShellDialect::Bash)
            }))]
        };
        let ambiguous = || {
            let why = Reason::Ambiguous("it contains `$`\n- ✓ `ls` – only reads".to_owned());
            finding(0, None, Verdict::Ask, why)
        };
        expect![[r"
            - ? cannot be fully analysed: it contains \`$\`\\n- ✓ \`ls\` – only reads
            - in the sandbox: may change the project; no network"]]
        .assert_eq(&described(&policy(), &command(ExtraAccess::default()), vec![ambiguous()]));
        let escalated = || vec![finding(0, None, Verdict::Ask, Reason::Escalation)];
        expect![[r"
            - ⚠ asks for network access
            - in the sandbox: may change the project; with network"]]
        .assert_eq(&described(&policy(), &command(ExtraAccess::network()), escalated()));
        let there = ResolvedPath { path: "/x".into(), scope: PathScope::Outside };
        let engine = ResolvedPath { path: "/run/docker.sock".into(), scope: PathScope::Outside };
        let connecting = ExtraAccess { writes: vec![engine], ..ExtraAccess::default() };
        expect![[r"
            - ⚠ asks to connect to `/run/docker.sock`
            - in the sandbox: may change the project, `/run/docker.sock`; no network
            - Outside the project: `/run/docker.sock`"]]
        .assert_eq(&described(&policy(), &command(connecting), escalated()));
        let writing = ExtraAccess { writes: vec![there], ..ExtraAccess::default() };
        expect![[r"
            - ⚠ asks to write `/x`
            - in the sandbox: may change the project, `/x`; no network
            - Outside the project: `/x`"]]
        .assert_eq(&described(&policy(), &command(writing), escalated()));
        expect![[r"
            - ⚠ asks to run without the sandbox
            - no sandbox: it can change everything that you can, and use the network"]]
        .assert_eq(&described(&policy(), &command(ExtraAccess::unsandboxed()), escalated()));
        let open = PolicyRules { can_confine: false, ..policy() };
        expect![[r"- no sandbox here: it can change everything that you can, and use the network"]]
            .assert_eq(&described(&open, &command(ExtraAccess::default()), Vec::new()));
    }
}
