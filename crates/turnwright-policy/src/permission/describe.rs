//! What is said to people about a decision: effects and reasons in words, a few lines of Markdown
//! for a question. Nothing that a command or a path holds can pass for words of ours. Pure.

use std::path::Path;

use super::decision::{Decision, Finding, Verdict, Why};
use super::rule::Ground;
use super::{Confinement, Law, Mode};
use turnwright_types::effect::{Command, Effect, Place, Reach, visible_line};
use crate::shell::{self, Simple};

/// Simple commands that are listed. The whole line stands above.
const MOST_COMMANDS: usize = 6;
/// Places that are listed in one line.
const MOST_PLACES: usize = 12;
/// Characters of one command or path.
const LONGEST: usize = 200;

/// An effect in a few words, as far as it can be shown in one line.
pub fn in_words(effect: &Effect, ground: &Ground) -> String {
    match effect {
        Effect::Read(target) => format!("read {}", path(&target.path, ground)),
        Effect::Write(target) => format!("change {}", path(&target.path, ground)),
        Effect::Delete(target) => format!("remove {}", path(&target.path, ground)),
        Effect::Exec(command) => {
            let reach = reach(command, ground).map(|it| format!("[{it}] ")).unwrap_or_default();
            format!("{reach}run {}", visible_line(&command.line))
        }
        Effect::Input { job, .. } => format!("give input to {job}"),
        Effect::Signal { job } => format!("signal {job}"),
        Effect::Fetch { host } => format!("ask {}", visible_line(host)),
        Effect::Remote(call) => visible_line(&format!("call {} of {}", call.tool, call.server)),
        Effect::Session => "change nothing outside the session".to_owned(),
    }
}

/// What has decided, in words that follow the thing itself.
pub fn reason(finding: &Finding, mode: Mode) -> String {
    match &finding.why {
        Why::Session => "touches nothing outside the session".to_owned(),
        Why::Catastrophe(what) => format!("never run: it {what}"),
        Why::Rejected => "rejected in this session".to_owned(),
        Why::Rule(rule) => {
            let done = match finding.verdict {
                Verdict::Allow => "allowed by",
                Verdict::Ask => "to be asked about by",
                Verdict::Deny => "denied by",
            };
            let why = rule.why.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            visible_line(&format!("{done} {}{why}", rule.pattern))
        }
        Why::Granted(pattern) => visible_line(&format!("allowed in this session: {pattern}")),
        Why::OnlyReads => "only reads".to_owned(),
        Why::Mode => match finding.verdict {
            Verdict::Allow => format!("allowed in the mode {}", mode.id()),
            Verdict::Ask => "no rule allows it".to_owned(),
            Verdict::Deny => format!("not in the mode {}", mode.id()),
        },
        Why::TooLong => "too long to be judged".to_owned(),
        Why::Doubt(doubt) => visible_line(doubt),
        Why::Danger(danger) => format!("⚠ for good: {danger}"),
        Why::Escalation => "wants more than the sandbox leaves it".to_owned(),
        Why::Protected(what) => format!("protected: {what}"),
        Why::Secret => "likely to hold keys or passwords".to_owned(),
        Why::Outside => "outside the project".to_owned(),
        Why::Changed => "it has changed since it was allowed".to_owned(),
        Why::NoSandbox => "there is no sandbox here".to_owned(),
    }
}

/// The word for a verdict.
pub fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

/// What is thought of one part of a call, in words for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The simple command, or the effect.
    pub what: String,
    /// What is to be done.
    pub verdict: Verdict,
    /// What has decided.
    pub why: String,
    /// The rule, if one has.
    pub rule: Option<String>,
}

/// All that was thought of a call, part by part.
pub fn explain(law: &Law, mode: Mode, effects: &[Effect], decision: &Decision) -> Vec<Explained> {
    let row = |finding: &Finding| {
        let effect = effects.get(finding.effect)?;
        let script = match effect {
            Effect::Exec(it) => shell::read(&it.line, law.dialect),
            _ => shell::Script::default(),
        };
        let simple = finding.simple.and_then(|it| script.commands.get(it));
        let what = simple.map_or_else(|| in_words(effect, &law.ground), line);
        Some(Explained {
            what: shortened(&visible_line(&what), LONGEST),
            verdict: finding.verdict,
            why: reason(finding, mode),
            rule: match &finding.why {
                Why::Rule(rule) => Some(rule.pattern.to_string()),
                _ => None,
            },
        })
    };
    decision.findings.iter().filter_map(row).collect()
}

/// What a command wants beyond the sandbox, for its title.
pub(super) fn reach(command: &Command, ground: &Ground) -> Option<String> {
    match &command.reach {
        Reach::Usual => None,
        Reach::Network => Some("with network".to_owned()),
        Reach::Write(target) => Some(format!("may write {}", path(&target.path, ground))),
        Reach::Full => Some("without the sandbox".to_owned()),
    }
}

/// A question's own words. Empty where what is shown anyway says it all.
pub(super) struct Words<'a> {
    pub(super) law: &'a Law,
    pub(super) mode: Mode,
    pub(super) effects: &'a [Effect],
    pub(super) decision: &'a Decision,
    /// The patterns of a lasting yes, where the buttons could not show them in full.
    pub(super) names: Option<&'a [String]>,
}

impl Words<'_> {
    pub(super) fn text(&self) -> String {
        let (mut lines, mut written) = (Vec::new(), Vec::new());
        for (place, effect) in self.effects.iter().enumerate() {
            match effect {
                Effect::Exec(command) => self.command(place, command, &mut lines),
                _ => self.effect(place, effect, &mut lines, &mut written),
            }
        }
        if !written.is_empty() {
            lines.push(format!("it writes {}", listed(&written)));
        }
        self.outside(&mut lines);
        if let Some(names) = self.names {
            let names: Vec<_> = names.iter().map(|it| code(it)).collect();
            lines.push(format!("“Always” means {}", names.join(" and ")));
        }
        // Two spaces would be lost by clients that trim; a list keeps its lines everywhere.
        lines.iter().map(|it| format!("- {it}")).collect::<Vec<_>>().join("\n")
    }

    fn of(&self, effect: usize) -> impl Iterator<Item = &Finding> {
        self.decision.findings.iter().filter(move |it| it.effect == effect)
    }

    /// Each simple command with its verdict, then what is about the whole line.
    fn command(&self, place: usize, command: &Command, lines: &mut Vec<String>) {
        let script = shell::read(&command.line, self.law.dialect);
        // Pieces of a line that is not understood say little, unless they are worse than the rest.
        let is_told =
            |it: &&Finding| script.doubt.is_none() || !matches!(it.why, Why::Mode | Why::NoSandbox);
        let simple = self.of(place).filter(|it| it.simple.is_some()).filter(is_told);
        let mut simple: Vec<_> = simple.collect();
        let more = simple.len().saturating_sub(MOST_COMMANDS);
        if more > 0 {
            // What needs a yes is what has to be seen.
            simple.sort_by_key(|it| it.verdict == Verdict::Allow);
            simple.truncate(MOST_COMMANDS);
        }
        for finding in simple {
            let found = finding.simple.and_then(|it| script.commands.get(it));
            let Some(found) = found else { continue };
            let wrappers = found.wrappers.join(" ");
            let behind = match wrappers.as_str() {
                "" => String::new(),
                wrappers => format!(" (behind {})", code(wrappers)),
            };
            let why = plain(&reason(finding, self.mode));
            lines.push(format!("{} {}{behind} – {why}", sign(finding), code(&line(found))));
        }
        if more > 0 {
            lines.push(format!("… and {more} more commands"));
        }
        for finding in self.of(place).filter(|it| it.simple.is_none()) {
            match &finding.why {
                Why::Doubt(doubt) => lines.push(format!(
                    "? its words do not tell all that it does: {}",
                    plain(&visible_line(doubt))
                )),
                Why::Escalation => lines.push(format!("⚠ {}", self.escalation(command))),
                Why::Secret => {
                    let secret = |it: &&turnwright_types::effect::Target| turnwright_types::effect::is_secret(&it.path);
                    let places = command.reads.iter().filter(secret);
                    let places: Vec<_> =
                        places.map(|it| code(&path(&it.path, &self.law.ground))).collect();
                    let why = plain(&reason(finding, self.mode));
                    lines.push(format!("⚠ reads {}: {why}", places.join(", ")));
                }
                // Told below.
                Why::Outside if finding.verdict == Verdict::Ask => {}
                _ if finding.verdict == Verdict::Allow => {}
                _ => {
                    lines.push(format!("{} {}", sign(finding), plain(&reason(finding, self.mode))));
                }
            }
        }
        lines.dedup();
        lines.push(self.kept_to());
    }

    fn escalation(&self, command: &Command) -> String {
        match &command.reach {
            Reach::Network => "it wants the network".to_owned(),
            Reach::Write(target) => {
                format!("it wants to write {}", code(&path(&target.path, &self.law.ground)))
            }
            Reach::Full | Reach::Usual => "it wants to run without the sandbox".to_owned(),
        }
    }

    /// What holds a command, whatever its words say.
    fn kept_to(&self) -> String {
        match Confinement::of(self.law, self.mode, self.decision, self.effects) {
            Confinement::Open if !self.law.can_confine => {
                "no sandbox here: it can change all that you can, and use the network".to_owned()
            }
            Confinement::Open => {
                "no sandbox: it can change all that you can, and use the network".to_owned()
            }
            Confinement::Shut { may_write, network, write } => {
                let mut places: Vec<_> =
                    may_write.then(|| "the project".to_owned()).into_iter().collect();
                let is_in =
                    |it: &Path| self.law.ground.roots.iter().any(|root| it.starts_with(root));
                let beyond = write.iter().filter(|it| !may_write || !is_in(it));
                places.extend(beyond.map(|it| code(&path(it, &self.law.ground))));
                let places = match places.as_slice() {
                    [] => "nothing".to_owned(),
                    _ => listed(&places),
                };
                let network = if network { "with network" } else { "no network" };
                format!("in the sandbox: may change {places}; {network}")
            }
        }
    }

    /// What is not a command and not plain from its card.
    fn effect(
        &self,
        place: usize,
        effect: &Effect,
        lines: &mut Vec<String>,
        written: &mut Vec<String>,
    ) {
        let is_redirect = matches!(effect, Effect::Write(_))
            && self.effects.iter().any(|it| matches!(it, Effect::Exec(_)));
        for finding in self.of(place) {
            let what = code(&object(effect, &self.law.ground));
            match &finding.why {
                Why::Protected(why) => {
                    lines.push(format!("⚠ {what} is protected: {}", plain(why)));
                }
                Why::Secret if finding.verdict == Verdict::Ask => {
                    lines.push(format!("⚠ {what} is likely to hold keys or passwords"));
                }
                Why::Rule(_) if finding.verdict == Verdict::Ask => {
                    lines.push(format!("? {what} – {}", plain(&reason(finding, self.mode))));
                }
                Why::Changed if finding.verdict == Verdict::Ask => {
                    lines.push(format!("⚠ {}", plain(&reason(finding, self.mode))));
                }
                _ if is_redirect => written.push(format!("{} {what}", sign(finding))),
                _ => {}
            }
        }
    }

    fn outside(&self, lines: &mut Vec<String>) {
        let mut places = Vec::new();
        for effect in self.effects {
            match effect {
                Effect::Read(it) | Effect::Write(it) | Effect::Delete(it) => places.push(it),
                Effect::Exec(command) => {
                    places.extend(&command.reads);
                    if let Reach::Write(target) = &command.reach {
                        places.push(target);
                    }
                }
                Effect::Input { .. }
                | Effect::Signal { .. }
                | Effect::Fetch { .. }
                | Effect::Remote(_)
                | Effect::Session => {}
            }
        }
        let outside = places.into_iter().filter(|it| it.place != Place::Inside);
        let mut outside: Vec<_> = outside.map(|it| code(&it.path.to_string_lossy())).collect();
        outside.dedup();
        if !outside.is_empty() {
            lines.push(format!("Outside the project: {}", listed(&outside)));
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
fn line(simple: &Simple) -> String {
    let is_plain = |it: char| it.is_alphanumeric() || "-_./=:,@%+*?[]".contains(it);
    let word = |it: &str| {
        if !it.is_empty() && it.chars().all(is_plain) {
            it.to_owned()
        } else {
            format!("'{}'", it.replace('\'', "'\\''"))
        }
    };
    let open = if simple.is_open { " …" } else { "" };
    format!("{}{open}", simple.argv().map(word).collect::<Vec<_>>().join(" "))
}

/// What an effect is about.
fn object(effect: &Effect, ground: &Ground) -> String {
    match effect {
        Effect::Read(it) | Effect::Write(it) | Effect::Delete(it) => path(&it.path, ground),
        Effect::Exec(command) => command.line.clone(),
        Effect::Input { job, .. } | Effect::Signal { job } => job.clone(),
        Effect::Fetch { host } => host.clone(),
        Effect::Remote(call) => format!("{}/{}", call.server, call.tool),
        Effect::Session => "the session".to_owned(),
    }
}

/// A path relative to the project, or else absolute.
fn path(path: &Path, ground: &Ground) -> String {
    let inside = ground.roots.first().and_then(|it| path.strip_prefix(it).ok());
    let short = inside.filter(|it| !it.as_os_str().is_empty()).unwrap_or(path);
    visible_line(&short.to_string_lossy())
}

fn listed(items: &[String]) -> String {
    let more = items.len().saturating_sub(MOST_PLACES);
    let shown = items.iter().take(MOST_PLACES).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Text of others in a span of code that it cannot leave.
pub fn code(text: &str) -> String {
    let text = shortened(&visible_line(text), LONGEST);
    let longest = text.split(|it| it != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let gap = if longest > 0 || text.is_empty() { " " } else { "" };
    format!("{fence}{gap}{text}{gap}{fence}")
}

/// Text of others among words of ours: nothing in it is a sign of Markdown.
pub fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        if "\\`*_[]<>#|~!&".contains(char) {
            safe.push('\\');
        }
        safe.push(char);
    }
    safe
}

/// At most so many characters of it.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::Target;
    use expect_test::expect;

    #[test]
    fn text_of_others_stays_in_its_span() {
        assert_eq!(code("a b"), "`a b`");
        assert_eq!(code("a`b"), "`` a`b ``");
        assert_eq!(code("`` x\n- ✓ y"), "``` `` x\\n- ✓ y ```");
        assert_eq!(plain("a *b* <c> `d`"), "a \\*b\\* \\<c\\> \\`d\\`");
        assert_eq!(shortened("abcdef", 4), "abc…");
    }

    fn described(law: &Law, effects: &[Effect], findings: Vec<Finding>) -> String {
        let decision = Decision { findings };
        let words = Words { law, mode: Mode::Ask, effects, decision: &decision, names: None };
        words.text()
    }

    fn found(effect: usize, simple: Option<usize>, verdict: Verdict, why: Why) -> Finding {
        Finding { effect, simple, verdict, why }
    }

    fn law() -> Law {
        let ground = Ground { roots: vec!["/ws".into()], home: None };
        Law { ground, can_confine: true, ..Law::default() }
    }

    fn inside(path: &str) -> Target {
        Target { path: path.into(), place: Place::Inside }
    }

    #[test]
    fn a_plain_edit_needs_no_words_and_a_protected_or_secret_or_foreign_place_does() {
        let plain = [Effect::Write(inside("/ws/a"))];
        let usual = || vec![found(0, None, Verdict::Ask, Why::Mode)];
        assert_eq!(described(&law(), &plain, usual()), "");
        let hook = [Effect::Write(inside("/ws/.git/hooks/pre-commit"))];
        let why = Why::Protected("git runs it");
        expect![[r"- ⚠ `.git/hooks/pre-commit` is protected: git runs it"]].assert_eq(&described(
            &law(),
            &hook,
            vec![found(0, None, Verdict::Ask, why)],
        ));
        let secret =
            [Effect::Read(Target { path: "/home/u/.env`x`".into(), place: Place::Outside })];
        let why = vec![found(0, None, Verdict::Ask, Why::Secret)];
        expect![[r"
            - ⚠ `` /home/u/.env`x` `` is likely to hold keys or passwords
            - Outside the project: `` /home/u/.env`x` ``"]]
        .assert_eq(&described(&law(), &secret, why));
    }

    #[test]
    fn a_command_that_is_not_understood_says_so_and_what_holds_it() {
        let command =
            |reach| [Effect::Exec(Box::new(Command { reach, ..Command::new("x \"$Y\"", "/ws") }))];
        let doubt = || {
            let why = Why::Doubt("it holds `$`\n- ✓ `ls` – only reads".to_owned());
            found(0, None, Verdict::Ask, why)
        };
        expect![[r"
            - ? its words do not tell all that it does: it holds \`$\`\\n- ✓ \`ls\` – only reads
            - in the sandbox: may change the project; no network"]]
        .assert_eq(&described(&law(), &command(Reach::Usual), vec![doubt()]));
        let escalated = || vec![found(0, None, Verdict::Ask, Why::Escalation)];
        expect![[r"
            - ⚠ it wants the network
            - in the sandbox: may change the project; with network"]]
        .assert_eq(&described(&law(), &command(Reach::Network), escalated()));
        let there = Target { path: "/x".into(), place: Place::Outside };
        expect![[r"
            - ⚠ it wants to write `/x`
            - in the sandbox: may change the project, `/x`; no network
            - Outside the project: `/x`"]]
        .assert_eq(&described(&law(), &command(Reach::Write(there)), escalated()));
        expect![[r"
            - ⚠ it wants to run without the sandbox
            - no sandbox: it can change all that you can, and use the network"]]
        .assert_eq(&described(&law(), &command(Reach::Full), escalated()));
        let open = Law { can_confine: false, ..law() };
        expect![[r"- no sandbox here: it can change all that you can, and use the network"]]
            .assert_eq(&described(&open, &command(Reach::Usual), Vec::new()));
    }
}
