//! What a way through an allowed folder passes by: places below it that rules close, and about
//! which nobody was asked.

use std::path::{Path, PathBuf};

use super::glob::Glob;
use super::law::Law;
use super::rule::{Ground, Pattern, Rule, Tier};
use turnwright_types::effect::Effect;

/// Closed places. Knows nothing of disks.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    rules: Vec<Rule>,
    ground: Ground,
}

impl Closed {
    /// What stays closed when these effects are allowed: what must not be read, and what is asked
    /// about unless the question was about it.
    pub(super) fn of(law: &Law, effects: &[Effect]) -> Closed {
        let read = |it: &Effect| match it {
            Effect::Read(target) => Some(target.path.clone()),
            _ => None,
        };
        let read: Vec<_> = effects.iter().filter_map(read).collect();
        if read.is_empty() && !effects.iter().any(|it| matches!(it, Effect::Exec(_))) {
            return Closed::default();
        }
        let was_asked =
            |rule: &Rule| read.iter().any(|it| rule.matches_path(it, false, &law.ground));
        let closes = |it: &&Rule| match it.tier {
            _ if !matches!(it.pattern, Pattern::Read(_) | Pattern::Edit(_)) => false,
            Tier::Deny => true,
            Tier::Ask => !was_asked(it),
            Tier::Allow => false,
        };
        let rules = law.rules.iter().filter(closes).cloned().collect();
        Closed { rules, ground: law.ground.clone() }
    }

    /// What the rules deny whatever is asked for, to a program that runs beside all calls.
    pub fn by(law: &Law) -> Closed {
        let denied = law.rules.iter().filter(|it| it.tier == Tier::Deny);
        Closed { rules: denied.cloned().collect(), ground: law.ground.clone() }
    }

    /// What must not be read, as far as its names are known: a command can be kept from it.
    pub fn unreadable(&self) -> Vec<PathBuf> {
        self.denied(|it| if let Pattern::Read(glob) = it { Some(glob) } else { None })
    }

    /// The same for what must not be changed.
    pub fn unchangeable(&self) -> Vec<PathBuf> {
        self.denied(|it| if let Pattern::Edit(glob) = it { Some(glob) } else { None })
    }

    fn denied(&self, glob: impl Fn(&Pattern) -> Option<&Glob>) -> Vec<PathBuf> {
        let denied = self.rules.iter().filter(|it| it.tier == Tier::Deny);
        let globs = denied.filter_map(|it| glob(&it.pattern));
        globs.flat_map(|it| it.places(&self.ground)).collect()
    }

    /// Whether this real path is.
    pub fn holds(&self, path: &Path) -> bool {
        self.rules.iter().any(|it| it.matches_path(path, false, &self.ground))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwright_types::effect::{Place, Target};
    use crate::permission::Scope;

    #[test]
    fn an_allowed_folder_opens_neither_what_is_denied_nor_what_was_not_asked_about() {
        let ground = Ground { roots: vec!["/ws".into()], home: None };
        let table = [
            // rules, what is read, what lies below it, whether that is closed
            ("deny read(/secret)", "/ws", "/ws/secret/key", true),
            ("deny read(*.key)", "/ws", "/ws/a/b.key", true),
            ("deny read(*.key)", "/ws", "/ws/a/b", false),
            ("deny edit(/secret)", "/ws", "/ws/secret/key", false),
            ("allow read(/secret)", "/ws", "/ws/secret/key", false),
            ("ask read(/notes)", "/ws", "/ws/notes/a", true),
            ("ask read(/notes)", "/ws/notes", "/ws/notes/a", false),
            ("ask read", "/ws", "/ws/notes/a", false),
        ];
        for (rule, read, below, expected) in table {
            let (tier, text) = rule.split_once(' ').unwrap();
            let tier = match tier {
                "deny" => Tier::Deny,
                "ask" => Tier::Ask,
                _ => Tier::Allow,
            };
            let rules = vec![Rule::parse(text, tier, Scope::User).unwrap()];
            let law = Law { rules, ground: ground.clone(), ..Law::default() };
            let target = Target { path: read.into(), place: Place::Inside };
            let closed = Closed::of(&law, &[Effect::Read(target)]);
            assert_eq!(closed.holds(Path::new(below)), expected, "{rule}: {read}: {below}");
        }
    }

    #[test]
    fn places_are_known_of_bans_without_a_pattern() {
        let ground = Ground { roots: vec!["/ws".into()], home: Some("/home/u".into()) };
        let table = [
            ("read(/secret)", "/ws/secret"),
            ("read(/secret/**)", "/ws/secret"),
            ("read(.env)", "/ws/.env"),
            ("read(~/notes)", "/home/u/notes"),
            ("read(//srv/keys/)", "/srv/keys"),
            ("read(*.key)", ""),
            ("read(/a/*/b)", ""),
            ("read", ""),
        ];
        for (text, expected) in table {
            let rules = vec![Rule::parse(text, Tier::Deny, Scope::User).unwrap()];
            let law = Law { rules, ground: ground.clone(), ..Law::default() };
            let run = Effect::Exec(Box::new(turnwright_types::effect::Command::new("make", "/ws")));
            let places = Closed::of(&law, &[run]).unreadable();
            let places: Vec<_> = places.iter().map(|it| it.to_string_lossy()).collect();
            assert_eq!(places.join(" "), expected, "{text}");
        }
    }
}
