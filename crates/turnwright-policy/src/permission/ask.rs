//! A question and its answer: what can be chosen, and what is remembered of it.

use super::decision::{Decision, Finding, Verdict, Why};
use super::describe::{self, Words, shortened};
use super::lasting::{self, Lasting};
use super::policy::decide;
use super::{Gate, Grants, Law, Mode, Pass, Rule, judge};
use turnwright_types::client::{Answer, Choice, ChoiceKind};
use turnwright_types::effect::Effect;

/// Characters of a button.
const LONGEST_BUTTON: usize = 80;

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    effects: Vec<Effect>,
    decision: Decision,
    /// What a yes for longer would cover. Found when the question is made: what was offered is what
    /// is granted.
    lasting: Option<Lasting>,
}

/// A yes.
#[derive(Debug)]
pub struct Settled {
    /// It may run.
    pub pass: Pass,
    /// What the user wants to hold for the project from now on.
    pub for_project: Vec<Rule>,
}

impl Asked {
    pub(super) fn new(
        law: &Law,
        mode: Mode,
        grants: &Grants,
        effects: Vec<Effect>,
        decision: Decision,
    ) -> Asked {
        let lasting = lasting::find(law, mode, grants, &effects, &decision);
        Asked { effects, decision, lasting }
    }

    /// What it is about: all that a yes would allow.
    pub fn effects(&self) -> &[Effect] {
        &self.effects
    }

    /// What was thought of them.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// What has made it a question.
    pub fn reasons(&self) -> impl Iterator<Item = &Finding> {
        self.decision.findings.iter().filter(|it| it.verdict == Verdict::Ask)
    }

    /// The effects that the question is about; the others are free, and "never" must not mean them.
    fn questioned(&self) -> Vec<Effect> {
        let is_asked = |place: usize| self.reasons().any(|it| it.effect == place);
        let all = self.effects.iter().enumerate();
        all.filter(|(place, _)| is_asked(*place)).map(|(_, it)| it.clone()).collect()
    }

    /// What can be answered: the plain yes first, because some clients take the first option for
    /// the default. A yes for longer names what it covers, and is not offered where it could not
    /// say that in words.
    pub fn choices(&self) -> Vec<Choice> {
        let choice = |kind, name: String| Choice { kind, name };
        let button = |before: &str, names: &[String], after: &str| {
            let room =
                LONGEST_BUTTON.saturating_sub(before.chars().count() + after.chars().count());
            format!("{before}{}{after}", shortened(&names.join(" and "), room))
        };
        let mut choices = vec![choice(ChoiceKind::AllowOnce, "Allow once".to_owned())];
        if let Some(Lasting { names, for_project, .. }) = &self.lasting {
            let session = button("Allow ", names, " in this session");
            choices.push(choice(ChoiceKind::AllowSession, session));
            if *for_project {
                let project = button("Always allow ", names, " in this project");
                choices.push(choice(ChoiceKind::AllowProject, project));
            }
        }
        choices.push(choice(ChoiceKind::RejectOnce, "Reject".to_owned()));
        let never = format!("Reject {} in this session", self.exactly());
        choices.push(choice(ChoiceKind::RejectSession, never));
        choices
    }

    /// What "never" is about.
    fn exactly(&self) -> &'static str {
        match self.questioned().as_slice() {
            [Effect::Exec(_), ..] => "this exact command",
            [Effect::Write(_)] => "changes to this file",
            [Effect::Delete(_)] => "removing this",
            [Effect::Input { .. }, ..] => "input to this command",
            [Effect::Fetch { .. }, ..] => "requests to this host",
            [Effect::Remote(_), ..] => "calls of this tool",
            [_, _, ..] => "exactly this",
            _ => "reading this",
        }
    }

    /// Why it is asked, effect by effect, and what will hold the call if it runs. Markdown; empty
    /// where what is shown anyway says it all.
    pub fn description(&self, law: &Law, mode: Mode) -> String {
        let (effects, decision) = (&self.effects, &self.decision);
        // Where a button has no room for all that it grants, it stands here.
        let names = self.lasting.as_ref().map(|it| it.names.as_slice());
        let is_cut = self.choices().iter().any(|it| it.name.contains('…'));
        Words { law, mode, effects, decision, names: names.filter(|_| is_cut) }.text()
    }

    /// The title with what the call wants beyond the sandbox in front.
    pub fn title(&self, law: &Law, title: String) -> String {
        let reach = self.effects.iter().find_map(|it| match it {
            Effect::Exec(command) => describe::reach(command, &law.ground),
            _ => None,
        });
        match reach {
            Some(reach) => format!("[{reach}] {title}"),
            None => title,
        }
    }

    /// Judges once more: the answer to one question may have settled the next.
    pub fn again(self, law: &Law, mode: Mode, grants: &Grants) -> Gate {
        judge(law, mode, grants, self.effects)
    }

    /// Turns the answer into a pass or into a text for the model, and remembers it if the user
    /// wants that.
    ///
    /// # Errors
    /// When the answer is anything but a clear yes.
    pub fn settle(
        self,
        answer: Answer,
        law: &Law,
        mode: Mode,
        grants: &mut Grants,
    ) -> Result<Settled, String> {
        const NO: &str = "The user rejected this call. Do not repeat it or work around it: ask, \
                          or choose another way.";
        // Mode and rules may have become stricter while the question was open.
        let now = decide(law, mode, grants, &self.effects);
        if now.verdict() == Verdict::Deny {
            return Err(refusal(&now, mode));
        }
        let unclear = |what: &str| {
            format!("There was no clear permission for this call ({what}); it was not executed.")
        };
        let mut for_project = Vec::new();
        match answer {
            Answer::Chosen(ChoiceKind::AllowOnce) => {}
            Answer::Chosen(kind @ (ChoiceKind::AllowSession | ChoiceKind::AllowProject)) => {
                let is_project = kind == ChoiceKind::AllowProject;
                match &self.lasting {
                    Some(it) if is_project && it.for_project => for_project.extend(it.rules()),
                    Some(it) if !is_project => it.grant(grants),
                    _ => return Err(unclear("that answer was not offered")),
                }
            }
            Answer::Chosen(ChoiceKind::RejectOnce) => return Err(NO.to_owned()),
            Answer::Chosen(ChoiceKind::RejectSession) => {
                grants.reject(&self.questioned());
                return Err(NO.to_owned());
            }
            Answer::Cancelled => {
                let withdrawn =
                    "The question about this call was withdrawn; it was not executed.".to_owned();
                return Err(withdrawn);
            }
            Answer::Unclear(what) => return Err(unclear(&what)),
        }
        let pass = Pass::new(law, mode, &self.decision, self.effects);
        Ok(Settled { pass, for_project })
    }
}

/// What the model is told of a call that must not run.
pub(super) fn refusal(decision: &Decision, mode: Mode) -> String {
    let why = decision.strictest().map(|it| &it.why);
    match why {
        Some(Why::Rejected) => {
            "The user has rejected this for the whole session. Do not try it again.".to_owned()
        }
        Some(Why::Rule(rule)) => {
            let why = rule.why.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
            format!(
                "A rule denies this: {}{why}. It was not executed. Do not work around it.",
                rule.pattern
            )
        }
        Some(Why::Catastrophe(what)) => {
            format!("This is never run: it {what}. It was not executed.")
        }
        Some(Why::TooLong) => {
            "The command has more than 64 KiB, too many to be judged. Nothing was \
                               run. Write a script with write_file and run that."
                .to_owned()
        }
        Some(Why::Doubt(doubt)) if mode == Mode::Plan => format!(
            "Plan mode: only commands that are known to read only are run, one by one or in a \
             plain pipe; of this one that is not known ({doubt}). It was not executed."
        ),
        _ => "Plan mode: nothing is changed and only commands that read are run. Say what you \
              would do; the user can switch the mode."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::{Command, Place, Reach, Target};
    use crate::permission::{Pattern, Scope, Tier};

    fn read(path: &str, place: Place) -> Effect {
        Effect::Read(Target { path: path.into(), place })
    }

    fn ask(law: &Law, grants: &Grants, effects: Vec<Effect>) -> Asked {
        match judge(law, Mode::Ask, grants, effects) {
            Gate::Ask(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn never_means_what_was_asked_about_and_not_what_came_with_it() {
        let inside = read("/ws/a", Place::Inside);
        let outside = read("/etc/passwd", Place::Outside);
        let (law, mut grants) = (Law::default(), Grants::default());
        let asked = ask(&law, &grants, vec![inside.clone(), outside.clone()]);
        let never = Answer::Chosen(ChoiceKind::RejectSession);
        asked.settle(never, &law, Mode::Ask, &mut grants).unwrap_err();
        assert!(matches!(judge(&law, Mode::Ask, &grants, vec![inside]), Gate::Open(_)));
        assert!(matches!(judge(&law, Mode::Ask, &grants, vec![outside]), Gate::Closed(_)));
    }

    #[test]
    fn a_question_is_judged_by_what_holds_when_it_is_answered() {
        let (law, mut grants) = (Law::default(), Grants::default());
        let yes = Answer::Chosen(ChoiceKind::AllowOnce);
        let write = Effect::Write(Target { path: "/ws/a".into(), place: Place::Inside });
        let asked = ask(&law, &grants, vec![write]);
        assert!(asked.settle(yes, &law, Mode::Plan, &mut grants).is_err());
        let outside = || vec![read("/etc/a", Place::Outside)];
        let (first, second) = (ask(&law, &grants, outside()), ask(&law, &grants, outside()));
        let always = Answer::Chosen(ChoiceKind::AllowSession);
        first.settle(always, &law, Mode::Ask, &mut grants).unwrap();
        assert!(matches!(second.again(&law, Mode::Ask, &grants), Gate::Open(_)));
    }

    fn law() -> Law {
        let ground = crate::permission::Ground { roots: vec!["/ws".into()], home: None };
        Law { ground, ..Law::default() }
    }

    fn inside(path: &str) -> Target {
        Target { path: path.into(), place: Place::Inside }
    }

    fn outside(path: &str) -> Target {
        Target { path: path.into(), place: Place::Outside }
    }

    fn exec(line: &str, reach: Reach) -> Effect {
        Effect::Exec(Box::new(Command { reach, ..Command::new(line, "/ws") }))
    }

    fn remote(server: &str, tool: &str, change: Option<&str>) -> Effect {
        Effect::Remote(Box::new(turnwright_types::effect::RemoteCall {
            server: server.to_owned(),
            tool: tool.to_owned(),
            identity: "id".to_owned(),
            content: change.unwrap_or("content").to_owned(),
            claims_to_read: true,
            change: change.map(str::to_owned),
        }))
    }

    #[test]
    fn a_no_to_a_tool_holds_whatever_it_says_of_itself_later() {
        let (law, mut grants) = (Law::default(), Grants::default());
        let asked = ask(&law, &grants, vec![remote("notes", "read", None)]);
        let never = Answer::Chosen(ChoiceKind::RejectSession);
        asked.settle(never, &law, Mode::Ask, &mut grants).unwrap_err();
        let changed = vec![remote("notes", "read", Some("other"))];
        assert!(matches!(judge(&law, Mode::Ask, &grants, changed), Gate::Closed(_)));
        let other = vec![remote("notes", "write", None)];
        assert!(matches!(judge(&law, Mode::Ask, &grants, other), Gate::Ask(_)));
    }

    #[test]
    fn a_yes_to_a_tool_is_for_what_it_was_then() {
        let (law, mut grants) = (Law::default(), Grants::default());
        for tool in ["read", "*"] {
            let call = || vec![remote("notes", tool, None)];
            let always = Answer::Chosen(ChoiceKind::AllowSession);
            ask(&law, &grants, call()).settle(always, &law, Mode::Ask, &mut grants).unwrap();
            assert!(matches!(judge(&law, Mode::Ask, &grants, call()), Gate::Open(_)));
            let changed = vec![remote("notes", tool, Some("other"))];
            assert!(matches!(judge(&law, Mode::Ask, &grants, changed), Gate::Ask(_)));
        }
        let other = vec![remote("notes", "write", None)];
        assert!(matches!(judge(&law, Mode::Ask, &grants, other), Gate::Ask(_)));
    }

    fn choices(law: &Law, effects: Vec<Effect>) -> String {
        let asked = ask(law, &Grants::default(), effects);
        let names: Vec<_> = asked.choices().into_iter().map(|it| it.name).collect();
        assert_eq!(names.first().map(String::as_str), Some("Allow once"));
        assert!(names.iter().all(|it| it.chars().count() <= LONGEST_BUTTON), "{names:?}");
        names[1..].join(" | ")
    }

    #[test]
    fn each_answer_says_what_it_covers_and_none_covers_more_than_was_asked() {
        let table = [
            (
                vec![Effect::Write(inside("/ws/src/[a].rs"))],
                "Allow edit(/src/\\[a\\].rs) in this session | Always allow edit(/src/\\[a\\].rs) \
                 in this project | Reject | Reject changes to this file in this session",
            ),
            (
                vec![Effect::Write(outside("/etc/hosts"))],
                "Allow edit(//etc/hosts) in this session | Reject | Reject changes to this file \
                 in this session",
            ),
            (
                vec![Effect::Read(inside("/ws/a")), Effect::Read(outside("/etc/hosts"))],
                "Allow read(//etc/hosts) in this session | Reject | Reject reading this in this \
                 session",
            ),
            (
                vec![Effect::Read(inside("/ws/.env"))],
                "Allow read(/.env) in this session | Reject | Reject reading this in this session",
            ),
            (
                vec![Effect::Delete(inside("/ws/a")), Effect::Write(inside("/ws/b"))],
                "Allow removing /a and edit(/b) in this session | Reject | Reject exactly this in \
                 this session",
            ),
            (
                vec![Effect::Fetch { host: "docs.rs".to_owned() }],
                "Allow fetch(domain:docs.rs) in this session | Always allow fetch(domain:docs.rs) \
                 in this project | Reject | Reject requests to this host in this session",
            ),
            (
                vec![remote("notes", "read", None)],
                "Allow mcp(notes/read) in this session | Always allow mcp(notes/read) in this \
                 project | Reject | Reject calls of this tool in this session",
            ),
            // A name that no rule can mean is granted exactly, and for no longer than the session.
            (
                vec![remote("notes", "*", None)],
                "Allow * of notes in this session | Reject | Reject calls of this tool in this \
                 session",
            ),
            // What has changed is said yes to once before anybody says always.
            (
                vec![remote("notes", "read", Some("other"))],
                "Reject | Reject calls of this tool in this session",
            ),
            // What nobody can see in a button is not granted by one.
            (
                vec![Effect::Write(inside("/ws/a\u{202e}b"))],
                "Reject | Reject changes to this file in this session",
            ),
            (vec![exec("make", Reach::Full)], "Reject | Reject this exact command in this session"),
            (
                vec![exec("make \"$X\"", Reach::Usual)],
                "Reject | Reject this exact command in this session",
            ),
        ];
        for (effects, expected) in table {
            assert_eq!(choices(&law(), effects.clone()), expected, "{effects:?}");
        }
    }

    #[test]
    fn what_asks_each_time_offers_no_always() {
        let pattern = Pattern::parse("edit(/a)", Tier::Ask).unwrap();
        let rule = Rule { tier: Tier::Ask, pattern, scope: Scope::User, why: None };
        let law = Law { rules: vec![rule], ..law() };
        let write = |path| Effect::Write(inside(path));
        assert!(!choices(&law, vec![write("/ws/a")]).contains("Allow"));
        assert!(!choices(&law, vec![write("/ws/b"), write("/ws/a")]).contains("Allow"));
        assert!(choices(&law, vec![write("/ws/b")]).contains("Always allow edit(/b)"));
    }

    #[test]
    fn a_long_pattern_is_cut_in_the_button_and_whole_in_the_description() {
        let path = format!("/ws/{}a.rs", "deep/".repeat(20));
        let asked = ask(&law(), &Grants::default(), vec![Effect::Write(inside(&path))]);
        let names: Vec<_> = asked.choices().into_iter().map(|it| it.name).collect();
        assert_eq!(names[1].chars().count(), LONGEST_BUTTON);
        assert!(names[1].ends_with("… in this session"), "{}", names[1]);
        let text = asked.description(&law(), Mode::Ask);
        assert!(text.contains(&format!("`edit({})`", &path[3..])), "{text}");
    }

    #[test]
    fn for_the_project_means_the_rules_that_were_named_and_an_answer_that_was_not_offered_is_a_no()
    {
        let (law, mut grants) = (law(), Grants::default());
        let write = vec![Effect::Write(inside("/ws/a"))];
        let project = Answer::Chosen(ChoiceKind::AllowProject);
        let asked = ask(&law, &grants, write.clone());
        let settled = asked.settle(project.clone(), &law, Mode::Ask, &mut grants).unwrap();
        let rules: Vec<_> = settled.for_project.iter().map(|it| it.pattern.to_string()).collect();
        assert_eq!(rules, ["edit(/a)"]);
        assert_eq!(settled.pass.effects(), write);
        let tomorrow = Law { rules: settled.for_project, ..law.clone() };
        let again = judge(&tomorrow, Mode::Ask, &Grants::default(), write);
        assert!(matches!(again, Gate::Open(_)), "{again:?}");
        for answer in [project, Answer::Chosen(ChoiceKind::AllowSession)] {
            let asked = ask(&law, &grants, vec![exec("make \"$X\"", Reach::Usual)]);
            asked.settle(answer, &law, Mode::Ask, &mut grants).unwrap_err();
        }
    }

    #[test]
    fn a_title_begins_with_what_goes_beyond_the_sandbox() {
        let title = |reach| {
            let asked = ask(&law(), &Grants::default(), vec![exec("make", reach)]);
            asked.title(&law(), "make".to_owned())
        };
        assert_eq!(title(Reach::Usual), "make");
        assert_eq!(title(Reach::Network), "[with network] make");
        assert_eq!(title(Reach::Full), "[without the sandbox] make");
        assert_eq!(title(Reach::Write(outside("/x"))), "[may write /x] make");
    }
}
