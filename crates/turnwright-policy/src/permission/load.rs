//! The rules of one file: each is understood and tried on its own examples. A file with a mistake
//! in it gives no permissions; its bans stay, and one that is not understood bans too much rather
//! than too little. Looks at no file itself.

use std::path::{Path, PathBuf};

use super::parse::{TOOLS, every};
use super::rule::{Ground, Pattern, Rule, Scope, Tier};
use turnwright_types::effect::visible_line;
use turnwright_types::dialect::Dialect;
use crate::shell::{Script, read};

/// Rules of one file.
const MOST_RULES: usize = 300;
/// Sentences about one file.
const MOST_PROBLEMS: usize = 10;
/// Characters of a rule in a sentence.
const LONGEST_SHOWN: usize = 80;

/// A rule as a file has it.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// What it says; `None` if that is not understood.
    pub tier: Option<Tier>,
    /// About what.
    pub when: &'a str,
    /// Commands, paths or hosts that it has to match.
    pub matches: &'a [String],
    /// Those that it must not match.
    pub not: &'a [String],
    /// What its author says about it.
    pub why: Option<&'a str>,
}

/// Where the rules are to hold.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// What paths are relative to.
    pub ground: &'a Ground,
    /// The shell.
    pub dialect: Dialect,
    /// Where a path leads when its links are followed.
    pub real: &'a dyn Fn(&Path) -> PathBuf,
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Site").field("ground", &self.ground).finish_non_exhaustive()
    }
}

/// What a file has given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The rules that hold.
    pub rules: Vec<Rule>,
    /// A sentence about each thing that is wrong.
    pub problems: Vec<String>,
    /// A sentence about each rule that has no effect.
    pub notes: Vec<String>,
}

/// Understands the rules of one file.
pub fn load(drafts: &[Draft<'_>], scope: Scope, site: Site<'_>) -> Loaded {
    load_with(drafts, scope, site, &|line| read(line, site.dialect))
}

/// Rules for a file that cannot be read: nobody knows what they would have said.
pub fn unreadable(tier: Tier, scope: Scope, why: &str) -> Vec<Rule> {
    let rule = |(tier, tool)| Rule { tier, pattern: every(tool), scope, why: Some(why.to_owned()) };
    everything(tier).map(rule).collect()
}

/// All that a ban which is not understood may have meant. Reading is at most asked about: with no
/// way to read, nothing could be mended.
fn everything(tier: Tier) -> impl Iterator<Item = (Tier, &'static str)> {
    [(tier, "exec"), (tier, "edit"), (tier, "fetch"), (tier.max(Tier::Ask), "read")].into_iter()
}

fn load_with(
    drafts: &[Draft<'_>],
    scope: Scope,
    site: Site<'_>,
    reader: &dyn Fn(&str) -> Script,
) -> Loaded {
    let mut loaded = Loaded::default();
    for (place, draft) in drafts.iter().enumerate() {
        let parsed = match draft.tier {
            _ if place >= MOST_RULES => Err(format!("a file holds at most {MOST_RULES} rules")),
            None => Err("`effect` is none of allow, ask, deny".to_owned()),
            Some(tier) => Rule::parse(draft.when, tier, scope),
        };
        match parsed {
            Ok(rule) => loaded.add(rule, draft, site, reader),
            Err(what) => loaded.add_instead(draft, scope, &what, place < MOST_RULES),
        }
    }
    if !loaded.problems.is_empty() {
        let all = loaded.rules.len();
        loaded.rules.retain(|it| it.tier != Tier::Allow);
        let dropped = all - loaded.rules.len();
        if let Some(left) = loaded.problems.len().checked_sub(MOST_PROBLEMS).filter(|it| *it > 0) {
            loaded.problems.truncate(MOST_PROBLEMS);
            loaded.problems.push(format!("{left} more of its rules are wrong"));
        }
        if dropped > 0 {
            let rules = if dropped == 1 { "its one other" } else { "its" };
            loaded.problems.push(format!(
                "because of that, {rules} allow rule{} not in force; what it denies and asks is",
                if dropped == 1 { " is" } else { "s are" }
            ));
        }
    }
    loaded
}

impl Loaded {
    fn add(
        &mut self,
        mut rule: Rule,
        draft: &Draft<'_>,
        site: Site<'_>,
        reader: &dyn Fn(&str) -> Script,
    ) {
        rule.why = draft.why.map(short);
        if let (Pattern::Read(glob) | Pattern::Edit(glob), Tier::Deny | Tier::Ask) =
            (&mut rule.pattern, rule.tier)
        {
            glob.follow(site.ground, site.real);
        }
        if !rule.pattern.has_effect() {
            self.notes.push(format!("`{}` has no effect yet", short(draft.when)));
        }
        let tried = |samples: &[String], expected: bool, verb: &str| {
            let wrong = samples.iter().find(|it| holds(&rule, it, site, reader) != expected);
            wrong.map(|it| format!("`{}` {verb} `{}`", short(draft.when), short(it)))
        };
        self.problems.extend(tried(draft.matches, true, "does not match its example"));
        self.problems.extend(tried(draft.not, false, "matches what it should not,"));
        self.rules.push(rule);
    }

    /// Takes note of a rule that is not understood. One that may have been a ban bans all that it
    /// can have been about.
    fn add_instead(&mut self, draft: &Draft<'_>, scope: Scope, what: &str, is_told: bool) {
        let tier = draft.tier.unwrap_or(Tier::Deny);
        let tool = draft.when.trim().split('(').next().unwrap_or_default();
        let known = TOOLS.iter().find(|it| **it == tool && is_told);
        let mut problem = format!("`{}` is no rule: {what}", short(draft.when));
        if tier != Tier::Allow {
            let why = Some("a rule that stands in for one that is not understood".to_owned());
            let instead: Vec<_> = match known {
                Some(tool) => vec![(tier, *tool)],
                None => everything(tier).collect(),
            };
            let verb = if tier == Tier::Deny { "is denied" } else { "is asked about" };
            let meant = known.map_or("what changes, runs or asks something", |it| *it);
            problem.push_str(&format!(
                "; until it is mended, everything of this sort {verb}: {meant}"
            ));
            let rules = instead.into_iter().map(|(tier, tool)| Rule {
                tier,
                pattern: every(tool),
                scope,
                why: why.clone(),
            });
            let new: Vec<_> = rules.filter(|it| !self.rules.contains(it)).collect();
            self.rules.extend(new);
        }
        self.problems.push(problem);
    }
}

/// Whether a rule decides about an example.
fn holds(rule: &Rule, sample: &str, site: Site<'_>, reader: &dyn Fn(&str) -> Script) -> bool {
    match &rule.pattern {
        Pattern::Exec { .. } => holds_for_line(rule, &reader(sample)),
        Pattern::Read(_) | Pattern::Edit(_) => {
            let home = sample.strip_prefix("~/").zip(site.ground.home.as_ref());
            let path = match (home, site.ground.roots.first()) {
                (Some((rest, home)), _) => home.join(rest),
                (None, Some(root)) => root.join(sample),
                (None, None) => PathBuf::from(sample),
            };
            rule.matches_path(&path, matches!(rule.pattern, Pattern::Edit(_)), site.ground)
        }
        Pattern::Fetch(_) => rule.matches_host(&sample.to_lowercase()),
        Pattern::Mcp { .. } => {
            sample.split_once('/').is_some_and(|(server, tool)| rule.matches_remote(server, tool))
        }
        Pattern::Skill(_) | Pattern::Agent(_) => false,
    }
}

/// A permission is for the whole of a line, a ban for anything in it.
fn holds_for_line(rule: &Rule, script: &Script) -> bool {
    let mut commands = script.commands.iter();
    if rule.tier != Tier::Allow {
        return rule.pattern.is_every_command() || commands.any(|it| rule.matches_command(it));
    }
    let is_understood = script.doubt.is_none() && !script.commands.is_empty();
    let writes = script.commands.iter().flat_map(|it| &it.redirects).any(|it| it.is_write);
    is_understood && !writes && commands.all(|it| rule.matches_command(it))
}

/// Somebody else's words in a sentence of ours.
fn short(text: &str) -> String {
    let text = visible_line(text);
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{Redirect, Simple, Word};

    /// A line of words, `&&` between commands; `>` before a word is a redirect, `$` a doubt.
    fn reader(line: &str) -> Script {
        let simple = |text: &str| {
            let mut simple = Simple::default();
            for word in text.split_whitespace() {
                match word.strip_prefix('>') {
                    Some(path) => {
                        simple.redirects.push(Redirect { path: path.into(), is_write: true });
                    }
                    None => simple.words.push(Word { text: word.to_owned(), is_glob: false }),
                }
            }
            simple
        };
        let doubt = line.contains('$').then(|| "a doubt".to_owned());
        Script { commands: line.split("&&").map(simple).collect(), doubt }
    }

    fn try_out(drafts: &[Draft<'_>]) -> (Vec<String>, Vec<String>) {
        let ground = Ground { roots: vec!["/ws".into()], home: Some("/home/me".into()) };
        let site =
            Site { ground: &ground, dialect: Dialect::Posix, real: &|path| path.to_path_buf() };
        let loaded = load_with(drafts, Scope::User, site, &reader);
        let text = |it: &Rule| format!("{:?} {}", it.tier, it.pattern).to_lowercase();
        (loaded.rules.iter().map(text).collect(), loaded.problems)
    }

    fn draft(tier: Tier, when: &str) -> Draft<'_> {
        Draft { tier: Some(tier), when, matches: &[], not: &[], why: None }
    }

    #[test]
    fn one_mistake_takes_all_permissions_of_the_file_and_no_ban() {
        let (good, ban, question) = (
            draft(Tier::Allow, "exec(cargo test)"),
            draft(Tier::Deny, "read(.env)"),
            draft(Tier::Ask, "exec(git push)"),
        );
        let (rules, problems) = try_out(&[good, ban, question]);
        assert_eq!(rules, ["allow exec(cargo test)", "deny read(.env)", "ask exec(git push)"]);
        assert_eq!(problems, Vec::<String>::new());
        let table: &[(Draft<'_>, &[&str])] = &[
            (draft(Tier::Allow, "exec(npm:*)"), &[]),
            (draft(Tier::Deny, "exec(rm"), &["deny exec"]),
            (draft(Tier::Deny, "read([)"), &["deny read"]),
            (draft(Tier::Ask, "fetch(x)"), &["ask fetch"]),
            (draft(Tier::Deny, "bash(rm)"), &["deny exec", "deny edit", "deny fetch", "ask read"]),
            (draft(Tier::Ask, "bash(rm)"), &["ask exec", "ask edit", "ask fetch", "ask read"]),
            (Draft { tier: None, ..good }, &["deny exec"]),
        ];
        for (wrong, instead) in table {
            let (rules, problems) = try_out(&[good, ban, *wrong, question]);
            let expected = [&["deny read(.env)"], *instead, &["ask exec(git push)"]].concat();
            assert_eq!(rules, expected, "{wrong:?}");
            assert_eq!(problems.len(), 2, "{problems:?}");
        }
    }

    #[test]
    fn a_rule_is_tried_on_its_own_examples() {
        let table = [
            // rule, what it has to match, what it must not match, whether that is so
            (
                "allow exec(cargo test)",
                "cargo test -p core",
                "cargo test && rm x|cargo test >/etc/x|cargo testx|cargo test $x",
                true,
            ),
            ("allow exec(cargo test)", "cargo test && rm x", "", false),
            ("allow exec(cargo)", "", "cargo build", false),
            ("deny exec(git push)", "git push|git -C x push|ls && git push", "git status", true),
            ("deny exec(git push)", "git status", "", false),
            ("allow edit(/src/**)", "src/a.rs|/ws/src/b", "Cargo.toml|~/src/x|/etc/src/x", true),
            ("allow edit(/src/**)", "src", "", false),
            ("deny read(~/.ssh)", "~/.ssh/id", "id", true),
            ("allow fetch(domain:*.rs)", "docs.rs|Docs.RS", "rs", true),
            ("allow fetch(domain:docs.rs)", "a.docs.rs", "", false),
        ];
        let list = |it: &str| -> Vec<String> {
            it.split('|').filter(|it| !it.is_empty()).map(str::to_owned).collect()
        };
        for (rule, matches, not, is_fine) in table {
            let (effect, when) = rule.split_once(' ').unwrap();
            let tier = if effect == "allow" { Tier::Allow } else { Tier::Deny };
            let (matches, not) = (list(matches), list(not));
            let draft = Draft { matches: &matches, not: &not, ..draft(tier, when) };
            let (rules, problems) = try_out(&[draft]);
            assert_eq!(problems.is_empty(), is_fine, "{rule}: {problems:?}");
            assert_eq!(rules.is_empty(), !is_fine && tier == Tier::Allow, "{rule}");
        }
    }

    #[test]
    fn a_file_full_of_rules_is_bounded_and_bans_what_it_could_not_say() {
        let texts: Vec<_> = (0..=MOST_RULES).map(|it| format!("exec(a{it})")).collect();
        let drafts: Vec<_> = texts.iter().map(|it| draft(Tier::Deny, it)).collect();
        let (rules, problems) = try_out(&drafts);
        assert_eq!(rules.len(), MOST_RULES + 4);
        assert_eq!(problems.len(), 1);
        let wrong: Vec<_> = (0..100).map(|_| draft(Tier::Deny, "\u{1b}[2Knonsense")).collect();
        let (rules, problems) = try_out(&wrong);
        assert_eq!((rules.len(), problems.len()), (4, MOST_PROBLEMS + 1));
        assert!(!problems.concat().contains('\u{1b}'), "{problems:?}");
    }
}
