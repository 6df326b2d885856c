//! The decision. A pure function of rules, mode, answers and effects; its tests are the
//! specification. Tiers, the strictest first: hard ban, deny rules, ask rules, what always asks,
//! answers of this session, allow rules, the mode. Order inside a tier never matters.

use super::Grants;
use super::decision::{Decision, Finding, Verdict, Why};
use super::law::Law;
use super::mode::Mode;
use super::rule::{Rule, Tier};
use turnwright_types::effect::{Command, Effect, Place, Reach, RemoteCall, Target, is_secret};
use crate::shell::{self, Nature, Script, Simple};

/// Judges a call.
pub fn decide(law: &Law, mode: Mode, grants: &Grants, effects: &[Effect]) -> Decision {
    let mut judge = Judge { law, mode, grants, findings: Vec::new(), effect: 0 };
    for (place, effect) in effects.iter().enumerate() {
        judge.effect = place;
        judge.effect(effect);
    }
    Decision { findings: judge.findings }
}

struct Judge<'a> {
    law: &'a Law,
    mode: Mode,
    grants: &'a Grants,
    findings: Vec<Finding>,
    /// The place of the one that is looked at.
    effect: usize,
}

type Found = (Verdict, Why);

impl Judge<'_> {
    fn find(&mut self, simple: Option<usize>, (verdict, why): Found) {
        self.findings.push(Finding { effect: self.effect, simple, verdict, why });
    }

    fn effect(&mut self, effect: &Effect) {
        if self.grants.is_rejected(effect) {
            return self.find(None, (Verdict::Deny, Why::Rejected));
        }
        let found = match effect {
            Effect::Session => (Verdict::Allow, Why::Session),
            Effect::Read(target) => self.read(target, Some(effect)),
            Effect::Write(target) | Effect::Delete(target) => self.change(target, effect),
            Effect::Exec(command) => return self.command(command, effect),
            Effect::Input { is_open, .. } => {
                let usual = match self.usual_command() {
                    // What it may do there nothing keeps in.
                    (Verdict::Allow, _) if *is_open && self.mode != Mode::Full => {
                        (Verdict::Ask, Why::Escalation)
                    }
                    usual => usual,
                };
                let bans = |it: &Rule| it.tier != Tier::Allow && it.pattern.is_every_command();
                self.tiers(bans, Some(effect), None, usual)
            }
            Effect::Signal { .. } if self.mode == Mode::Plan => (Verdict::Deny, Why::Mode),
            Effect::Signal { .. } => (Verdict::Allow, Why::Session),
            Effect::Fetch { host } => {
                let verdict = if self.mode == Mode::Full { Verdict::Allow } else { Verdict::Ask };
                let matches = |it: &Rule| it.matches_host(host);
                self.tiers(matches, Some(effect), None, (verdict, Why::Mode))
            }
            Effect::Remote(call) => self.remote(call, effect),
        };
        self.find(None, found);
    }

    /// What the tiers say about something. `always` asks whatever was granted or allowed; `usual` is
    /// the mode's word.
    fn tiers(
        &self,
        matches: impl Fn(&Rule) -> bool,
        exactly: Option<&Effect>,
        always: Option<Why>,
        usual: Found,
    ) -> Found {
        let matching = self.law.rules.iter().filter(|it| matches(it));
        let rule = matching.min_by_key(|it| it.tier);
        match rule {
            Some(rule) if rule.tier == Tier::Deny => (Verdict::Deny, Why::Rule(rule.clone())),
            _ if usual.0 == Verdict::Deny => usual,
            Some(rule) if rule.tier == Tier::Ask => (Verdict::Ask, Why::Rule(rule.clone())),
            _ if always.is_some() => (Verdict::Ask, always.unwrap_or(Why::Mode)),
            _ if usual.0 == Verdict::Allow => usual,
            rule => {
                let granted = self.grants.rules().iter().find(|it| matches(it));
                if let Some(granted) = granted {
                    (Verdict::Allow, Why::Granted(granted.pattern.to_string()))
                } else if exactly.is_some_and(|it| self.grants.holds(it)) {
                    (Verdict::Allow, Why::Granted("exactly this".to_owned()))
                } else if let Some(rule) = rule {
                    (Verdict::Allow, Why::Rule(rule.clone()))
                } else {
                    usual
                }
            }
        }
    }

    /// What it does only the server knows, so no mode but the last lets it pass. That it only reads,
    /// as it says itself, is reason enough to ask in plan mode, and for nothing else.
    fn remote(&self, call: &RemoteCall, effect: &Effect) -> Found {
        let verdict = match self.mode {
            Mode::Plan if !call.claims_to_read => Verdict::Deny,
            Mode::Full => Verdict::Allow,
            Mode::Plan | Mode::Ask | Mode::AutoEdit | Mode::Auto => Verdict::Ask,
        };
        // Who is asked about nothing is told of it instead.
        let is_changed = call.change.is_some() && self.mode != Mode::Full;
        let always = is_changed.then_some(Why::Changed);
        let matches = |it: &Rule| it.matches_remote(&call.server, &call.tool);
        self.tiers(matches, Some(effect), always, (verdict, Why::Mode))
    }

    fn read(&self, target: &Target, exactly: Option<&Effect>) -> Found {
        let usual = if self.mode == Mode::Full && !is_secret(&target.path) {
            (Verdict::Allow, Why::Mode)
        } else if is_secret(&target.path) {
            (Verdict::Ask, Why::Secret)
        } else if target.place == Place::Outside {
            (Verdict::Ask, Why::Outside)
        } else {
            (Verdict::Allow, Why::OnlyReads)
        };
        let ground = &self.law.ground;
        // Who lets their home be read has not thought of the keys in it.
        let is_meant = |it: &Rule| {
            it.tier != Tier::Allow
                || usual.1 != Why::Secret
                || it.names_secret(&target.path, ground)
        };
        let matches = |it: &Rule| it.matches_path(&target.path, false, ground) && is_meant(it);
        self.tiers(matches, exactly, None, usual.clone())
    }

    fn change(&self, target: &Target, effect: &Effect) -> Found {
        let is_inside = target.place == Place::Inside;
        let is_deletion = matches!(effect, Effect::Delete(_));
        let usual = match self.mode {
            Mode::Plan => (Verdict::Deny, Why::Mode),
            Mode::Full => (Verdict::Allow, Why::Mode),
            _ if !is_inside => (Verdict::Ask, Why::Outside),
            Mode::Auto => (Verdict::Allow, Why::Mode),
            // What is removed is gone.
            Mode::AutoEdit if !is_deletion => (Verdict::Allow, Why::Mode),
            Mode::AutoEdit | Mode::Ask => (Verdict::Ask, Why::Mode),
        };
        let always = self.law.protected.why(&target.path).map(Why::Protected);
        let matches = |it: &Rule| it.matches_path(&target.path, true, &self.law.ground);
        self.tiers(matches, Some(effect), always, usual)
    }

    /// What the mode says about a command that nothing else is known about.
    fn usual_command(&self) -> Found {
        match self.mode {
            Mode::Plan => (Verdict::Deny, Why::Mode),
            Mode::Ask | Mode::AutoEdit => (Verdict::Ask, Why::Mode),
            Mode::Auto if !self.law.can_confine || (self.law.is_exposed)() => {
                (Verdict::Ask, Why::NoSandbox)
            }
            Mode::Auto | Mode::Full => (Verdict::Allow, Why::Mode),
        }
    }

    fn command(&mut self, command: &Command, effect: &Effect) {
        if command.line.len() > shell::LONGEST {
            // A ban could stand anywhere in it, and looking for that would hold up everything else.
            return self.find(None, (Verdict::Deny, Why::TooLong));
        }
        let script = shell::read(&command.line, self.law.dialect);
        let holds = self.grants.holds(effect);
        if command.reach != Reach::Usual && self.mode != Mode::Full {
            let verdict = if self.mode == Mode::Plan { Verdict::Deny } else { Verdict::Ask };
            self.find(None, (verdict, Why::Escalation));
            if let Reach::Write(target) = &command.reach
                && let Some(why) = self.law.protected.why(&target.path)
            {
                self.find(None, (verdict, Why::Protected(why)));
            }
        }
        // A ban on every command holds for what is not understood, too.
        let bans = self.law.rules.iter().filter(|it| it.pattern.is_every_command());
        if let Some(ban) = bans.filter(|it| it.tier != Tier::Allow).min_by_key(|it| it.tier) {
            let verdict = if ban.tier == Tier::Deny { Verdict::Deny } else { Verdict::Ask };
            let why = Why::Rule(ban.clone());
            self.find(None, (verdict, why));
        }
        if let Some(doubt) = doubt(&script) {
            let (verdict, why) = match self.usual_command() {
                (Verdict::Ask, _) if holds => (Verdict::Allow, Why::Granted("exactly this".into())),
                (Verdict::Ask, Why::Mode) => (Verdict::Ask, Why::Doubt(doubt)),
                (Verdict::Deny, _) => (Verdict::Deny, Why::Doubt(doubt)),
                usual => usual,
            };
            self.find(None, (verdict, why));
        }
        for (place, simple) in script.commands.iter().enumerate() {
            let nature = shell::nature(simple);
            let found = self.simple(simple, &nature, command, holds);
            // What is found behind a doubt can only make it worse.
            if script.doubt.is_none() || found.0 != Verdict::Allow {
                self.find(Some(place), found);
            }
        }
        for target in &command.reads {
            let found = match self.read(target, None) {
                (Verdict::Ask, _) if holds => continue,
                // Commands of this mode may read what the sandbox lets them.
                (Verdict::Ask, Why::Outside) if self.mode == Mode::Auto => continue,
                // Nothing stands in the way of what the command was thought to be.
                (Verdict::Allow, _) => continue,
                found => found,
            };
            self.find(None, found);
        }
    }

    fn simple(&self, simple: &Simple, nature: &Nature, command: &Command, holds: bool) -> Found {
        if let Some(what) = nature.catastrophe {
            return (Verdict::Deny, Why::Catastrophe(what));
        }
        let usual = self.usual_command();
        let trap = command.doubt.as_ref().filter(|_| nature.is_git || nature.is_rust);
        let always = trap.filter(|_| self.mode != Mode::Full && !holds).cloned().map(Why::Doubt);
        let usual = match nature.danger {
            _ if nature.only_reads => (Verdict::Allow, Why::OnlyReads),
            Some(danger) if self.mode == Mode::Auto => (Verdict::Ask, Why::Danger(danger)),
            _ => usual,
        };
        let usual = match usual {
            (Verdict::Ask, _) if holds => (Verdict::Allow, Why::Granted("exactly this".into())),
            usual => usual,
        };
        self.tiers(|it| it.matches_command(simple), None, always, usual)
    }
}

/// Why a line cannot be taken for the list of its commands.
fn doubt(script: &Script) -> Option<String> {
    match &script.doubt {
        Some(doubt) => Some(doubt.clone()),
        None if script.commands.is_empty() => Some("it holds no command".to_owned()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Protected;

    fn effect(text: &str) -> Effect {
        let (verb, object) = text.split_once(' ').unwrap_or((text, ""));
        let place = if object.starts_with("/ws/") { Place::Inside } else { Place::Outside };
        let target = Target { path: object.into(), place };
        match verb {
            "read" => Effect::Read(target),
            "write" => Effect::Write(target),
            "delete" => Effect::Delete(target),
            "exec" => Effect::Exec(Box::new(Command::new(object, "/ws"))),
            "fetch" => Effect::Fetch { host: object.to_owned() },
            "input" => Effect::Input { job: object.to_owned(), is_open: object == "open" },
            "signal" => Effect::Signal { job: object.to_owned() },
            // `server/tool`, and signs: `?` for one that says it only reads, `!` for a changed one.
            "call" => {
                let (server, tool) = object.trim_end_matches(['?', '!']).split_once('/').unwrap();
                Effect::Remote(Box::new(RemoteCall {
                    server: server.to_owned(),
                    tool: tool.to_owned(),
                    identity: String::new(),
                    content: String::new(),
                    claims_to_read: object.contains('?'),
                    change: object.contains('!').then(|| "new words".to_owned()),
                }))
            }
            _ => Effect::Session,
        }
    }

    fn effects(text: &str) -> Vec<Effect> {
        text.split("; ").filter(|it| !it.is_empty()).map(effect).collect()
    }

    #[track_caller]
    fn check(mode: Mode, allowed: &str, rejected: &str, tried: &str, expected: &str) {
        let mut grants = Grants::default();
        for effect in effects(allowed) {
            grants.allow_exactly(effect);
        }
        grants.reject(&effects(rejected));
        let protected = Protected { roots: vec!["/ws".into()], more: Vec::new() };
        let law = Law { can_confine: true, protected, ..Law::default() };
        let got = decide(&law, mode, &grants, &effects(tried)).verdict();
        let got = format!("{got:?}").to_lowercase();
        assert_eq!(got, expected, "{mode:?}, allowed {allowed}, rejected {rejected}: {tried}");
    }

    #[test]
    fn each_mode_does_what_its_name_says() {
        let table = [
            // what, then plan, ask, auto-edit, auto, full
            ("read /ws/a", "allow allow allow allow allow"),
            ("read /etc/a", "ask ask ask ask allow"),
            ("read /ws/.env", "ask ask ask ask ask"),
            ("write /ws/a", "deny ask allow allow allow"),
            ("write /etc/a", "deny ask ask ask allow"),
            ("delete /ws/a", "deny ask ask allow allow"),
            ("exec make all", "deny ask ask allow allow"),
            ("input p1", "deny ask ask allow allow"),
            ("input open", "deny ask ask ask allow"),
            ("signal p1", "deny allow allow allow allow"),
            // Whoever may do everything else is asked about these, and a yes is for once.
            ("write /ws/.git/hooks/pre-commit", "deny ask ask ask ask"),
            ("write /ws/.vscode/tasks.json", "deny ask ask ask ask"),
            ("write /home/u/.bashrc", "deny ask ask ask ask"),
            ("delete /ws/.git", "deny ask ask ask ask"),
            ("delete /ws", "deny ask ask ask ask"),
            ("exec make all > x; write /ws/.envrc", "deny ask ask ask ask"),
            ("fetch docs.rs", "ask ask ask ask allow"),
            ("call notes/add", "deny ask ask ask allow"),
            ("call notes/add!", "deny ask ask ask allow"),
            // What a server says of its tool is no reason to believe it.
            ("call notes/get?", "ask ask ask ask allow"),
            ("call notes/get?!", "ask ask ask ask allow"),
            ("read /ws/a; call notes/add", "deny ask ask ask allow"),
            ("session", "allow allow allow allow allow"),
        ];
        let modes = [Mode::Plan, Mode::Ask, Mode::AutoEdit, Mode::Auto, Mode::Full];
        for (tried, expected) in table {
            for (mode, expected) in modes.into_iter().zip(expected.split(' ')) {
                check(mode, "", "", tried, expected);
            }
        }
    }

    #[test]
    fn a_remembered_yes_spares_exactly_that_question() {
        check(Mode::Ask, "exec make", "", "exec make", "allow");
        check(Mode::Ask, "exec make", "", "exec make all", "ask");
        check(Mode::Ask, "write /ws/a", "", "write /ws/a", "allow");
        check(Mode::Ask, "write /ws/a", "", "write /ws/b", "ask");
        check(Mode::Ask, "read /etc/a", "", "write /etc/a", "ask");
    }

    #[test]
    fn no_remembered_yes_spares_the_question_about_a_protected_place() {
        for mode in [Mode::Ask, Mode::AutoEdit, Mode::Auto, Mode::Full] {
            check(mode, "write /ws/.git/config", "", "write /ws/.git/config", "ask");
        }
    }

    #[test]
    fn a_remembered_yes_does_not_lift_plan_mode_and_a_no_beats_it() {
        check(Mode::Plan, "exec make", "", "exec make", "deny");
        check(Mode::Ask, "exec make", "exec make", "exec make", "deny");
    }

    #[test]
    fn the_strictest_effect_decides() {
        check(Mode::Ask, "", "", "read /ws/a; exec make", "ask");
        check(Mode::Plan, "", "", "read /etc/a; write /ws/a", "deny");
    }

    #[test]
    fn the_strictest_rule_counts_in_every_mode_and_no_permission_lifts_plan_mode() {
        use crate::permission::{Ground, Scope};
        let table = [
            // rules, mode, what is tried, what comes of it
            ("allow edit(/a)", Mode::Ask, "write /ws/a", "allow"),
            ("allow edit(/a)", Mode::Plan, "write /ws/a", "deny"),
            ("allow edit; ask edit(a)", Mode::Full, "write /ws/a", "ask"),
            ("allow edit; ask edit(a); deny edit(/A)", Mode::Full, "write /ws/a", "deny"),
            ("allow read(//etc)", Mode::Ask, "read /etc/a", "allow"),
            ("allow read(//etc)", Mode::Ask, "write /etc/a", "ask"),
            ("allow read(//home/me)", Mode::Ask, "read /home/me/a", "allow"),
            ("allow read(//home/me)", Mode::Ask, "read /home/me/.ssh/id_rsa", "ask"),
            ("allow read(//home/me/**)", Mode::Ask, "read /home/me/.ssh/config", "ask"),
            ("allow read(//home/me/.ssh)", Mode::Ask, "read /home/me/.ssh/id_rsa", "allow"),
            ("allow read(//home/*/.ssh/*)", Mode::Ask, "read /home/me/.ssh/id_rsa", "allow"),
            ("allow read(//home/me/.ssh/config)", Mode::Ask, "read /home/me/.ssh/config", "allow"),
            ("allow read(//home/me/.ssh/config)", Mode::Ask, "read /home/me/.ssh/id_rsa", "ask"),
            ("allow read", Mode::Ask, "read /ws/.env", "ask"),
            ("allow read(/)", Mode::Full, "read /ws/.env", "ask"),
            ("allow read(*)", Mode::Ask, "read /ws/.env", "ask"),
            ("allow read(certs)", Mode::Ask, "read /ws/certs/a.pem", "ask"),
            ("allow read(.env)", Mode::Ask, "read /ws/app/.env", "allow"),
            ("deny read(x)", Mode::Full, "write /ws/x", "deny"),
            ("ask exec", Mode::Full, "exec anything", "ask"),
            ("deny exec", Mode::Full, "exec anything", "deny"),
            ("deny exec", Mode::Full, "input p1", "deny"),
            ("allow exec", Mode::Ask, "exec what $is not understood", "ask"),
            ("allow exec", Mode::Ask, "input p1", "ask"),
            ("allow fetch(domain:docs.rs)", Mode::Ask, "fetch docs.rs", "allow"),
            ("allow fetch; deny fetch(domain:docs.rs)", Mode::Full, "fetch docs.rs", "deny"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/get", "allow"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/get!", "ask"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/GET", "ask"),
            ("allow mcp(notes/get)", Mode::Ask, "call notes/add", "ask"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get", "deny"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get?", "allow"),
            ("allow mcp(notes/get)", Mode::Plan, "call notes/get?!", "ask"),
            ("allow mcp(notes)", Mode::Auto, "call notes/add", "allow"),
            ("allow mcp", Mode::AutoEdit, "call any/thing", "allow"),
            ("allow mcp(notes/g*)", Mode::Ask, "call notes/get", "allow"),
            ("allow mcp; ask mcp(notes)", Mode::Full, "call notes/add", "ask"),
            ("allow mcp; deny mcp(*/ADD)", Mode::Full, "call notes/add", "deny"),
            ("allow mcp; deny mcp(notes)", Mode::Full, "call Notes/add!", "deny"),
            ("allow exec; allow fetch; allow edit", Mode::Ask, "call notes/add", "ask"),
        ];
        for (rules, mode, tried, expected) in table {
            let rule = |it: &str| {
                let (tier, text) = it.split_once(' ').unwrap();
                let tiers = [("deny", Tier::Deny), ("ask", Tier::Ask), ("allow", Tier::Allow)];
                let (_, tier) = tiers.into_iter().find(|it| it.0 == tier).unwrap();
                Rule::parse(text, tier, Scope::User).unwrap()
            };
            let law = Law {
                rules: rules.split("; ").map(rule).collect(),
                ground: Ground { roots: vec!["/ws".into()], home: None },
                can_confine: true,
                ..Law::default()
            };
            let got = decide(&law, mode, &Grants::default(), &effects(tried)).verdict();
            assert_eq!(format!("{got:?}").to_lowercase(), expected, "{rules}, {mode:?}: {tried}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_to_be_judged_does_not_run_in_any_mode() {
        let line = format!("true {}", "a ".repeat(shell::LONGEST / 2));
        for mode in Mode::ALL {
            check(mode, &format!("exec {line}"), "", &format!("exec {line}"), "deny");
        }
    }

    #[test]
    fn an_escalation_to_a_protected_place_is_asked_about_with_that_word() {
        let protected = Protected { roots: vec!["/ws".into()], more: Vec::new() };
        let law = Law { can_confine: true, protected, ..Law::default() };
        for (path, expected) in [("/ws/.git/hooks", true), ("/ws", true), ("/ws/a", false)] {
            let mut command = Command::new("make", "/ws");
            command.reach = Reach::Write(Target { path: path.into(), place: Place::Inside });
            let effects = [Effect::Exec(Box::new(command))];
            let decision = decide(&law, Mode::Auto, &Grants::default(), &effects);
            assert_eq!(decision.verdict(), Verdict::Ask, "{path}");
            let is_protected = |it: &Finding| matches!(it.why, Why::Protected(_));
            assert_eq!(decision.findings.iter().any(is_protected), expected, "{path}");
        }
    }

    #[test]
    fn a_read_that_is_fine_is_no_reason_and_does_not_make_a_reader_a_writer() {
        let law = Law { can_confine: true, ..Law::default() };
        let mut command = Command::new("cat a", "/ws");
        command.reads.push(Target { path: "/ws/a".into(), place: Place::Inside });
        let effects = [Effect::Exec(Box::new(command))];
        let decision = decide(&law, Mode::Ask, &Grants::default(), &effects);
        assert_eq!(decision.findings.len(), 1, "{decision:?}");
        assert!(decision.only_reads());
    }

    #[test]
    fn without_a_sandbox_that_holds_no_command_runs_because_of_it() {
        let exposed = Law { can_confine: true, is_exposed: || true, ..Law::default() };
        for law in [Law::default(), exposed] {
            let decision = decide(&law, Mode::Auto, &Grants::default(), &effects("exec make"));
            assert_eq!(decision.verdict(), Verdict::Ask);
        }
    }
}
