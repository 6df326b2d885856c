//! The user's rules for one project, in a file of the user's that no project can reach: granted in
//! an editor or written with `turnwright policy`. Blocks: not for the runtime's thread.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::rule::{Pattern, Rule, Scope, Tier};
use super::store::{self, Lock};
use turnwright_types::moment;

/// What this program writes. A newer file is left as it is.
const VERSION: u64 = 1;
/// Rules of one project.
pub const MOST_RULES: usize = 500;
/// Bytes of the file.
const LARGEST: u64 = 1024 * 1024;
/// Characters of a rule or of what it came from.
const LONGEST: usize = 1_000;
/// The file, in the project's folder below the state folder.
const FILE: &str = "permissions.json";

/// Where the rules of one project are kept.
#[derive(Clone, Debug)]
pub struct Book {
    folder: PathBuf,
    /// The project's real path.
    project: PathBuf,
}

/// One rule with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// By which it is revoked.
    pub id: String,
    /// Its text, as [`Pattern`] is written.
    pub rule: String,
    /// What it says.
    pub tier: Kept,
    /// When it was made, as RFC 3339 has it.
    pub at: String,
    /// What it was made for: a command or a path.
    pub origin: String,
}

/// A tier as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Without a question.
    Allow,
    /// Only after a question.
    Ask,
    /// Never.
    Deny,
}

/// The whole file.
#[derive(Debug, Serialize, Deserialize)]
struct Whole {
    version: u64,
    /// Two projects never share a file, however alike their names are.
    project: PathBuf,
    rules: Vec<Entry>,
}

/// What a book says now.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Its rules, the oldest first.
    pub entries: Vec<Entry>,
    /// Why some or all of it does not hold, for the user.
    pub trouble: Option<String>,
}

/// Why a book was not changed.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// The disk.
    #[error("{path} cannot be written: {error}")]
    Disk {
        /// The file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// Too many rules.
    #[error("there are {MOST_RULES} rules for this project already; revoke some first")]
    Full,
    /// A newer program's file.
    #[error("{0}")]
    Foreign(String),
}

impl From<Tier> for Kept {
    fn from(tier: Tier) -> Kept {
        match tier {
            Tier::Allow => Kept::Allow,
            Tier::Ask => Kept::Ask,
            Tier::Deny => Kept::Deny,
        }
    }
}

impl From<Kept> for Tier {
    fn from(kept: Kept) -> Tier {
        match kept {
            Kept::Allow => Tier::Allow,
            Kept::Ask => Tier::Ask,
            Kept::Deny => Tier::Deny,
        }
    }
}

/// How a file could be read.
enum Read {
    Good(Vec<Entry>),
    /// It makes no sense: it can be put aside.
    Broken(String),
    /// It is not ours to change.
    Foreign(String),
}

impl Book {
    /// The book of a project, whose path is real.
    pub fn of(state: &Path, project: &Path) -> Book {
        Book { folder: store::folder_of(state, project), project: project.to_path_buf() }
    }

    /// Its file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// What it says now. What cannot be read holds no rules, and is no failure.
    pub fn read(&self) -> Page {
        match self.look() {
            Read::Good(entries) => {
                let trouble = unreadable(&entries);
                Page { entries, trouble }
            }
            Read::Broken(trouble) | Read::Foreign(trouble) => {
                Page { entries: Vec::new(), trouble: Some(trouble) }
            }
        }
    }

    /// Adds rules. One that is there already stays as it is.
    ///
    /// # Errors
    /// When the file cannot be written, or is full.
    pub fn add(&self, rules: &[(Tier, Pattern)], origin: &str) -> Result<Vec<Entry>, BookError> {
        self.change(|entries| {
            let mut added = Vec::new();
            for (tier, pattern) in rules {
                let (tier, rule) = (Kept::from(*tier), pattern.to_string());
                if let Some(known) = entries.iter().find(|it| it.tier == tier && it.rule == rule) {
                    added.push(known.clone());
                    continue;
                }
                if entries.len() >= MOST_RULES || rule.chars().count() > LONGEST {
                    return Err(BookError::Full);
                }
                let at = moment::rfc3339(SystemTime::now());
                let origin = origin.chars().take(LONGEST).collect();
                let entry = Entry { id: new_id(entries), rule, tier, at, origin };
                entries.push(entry.clone());
                added.push(entry);
            }
            Ok(added)
        })
    }

    /// Takes rules out; returns those that there were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn revoke(&self, ids: &[String]) -> Result<Vec<Entry>, BookError> {
        if self.read().entries.is_empty() {
            return Ok(Vec::new());
        }
        self.change(|entries| {
            let (gone, left) = entries.drain(..).partition(|it: &Entry| ids.contains(&it.id));
            *entries = left;
            Ok(gone)
        })
    }

    /// Reads, changes and writes, with every other process kept out.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Entry>) -> Result<T, BookError>,
    ) -> Result<T, BookError> {
        let path = self.path();
        let failed = |error| BookError::Disk { path: path.display().to_string(), error };
        store::make_folder(&self.folder).map_err(failed)?;
        let _lock = Lock::take(&self.folder.join("permissions.lock")).map_err(failed)?;
        let mut entries = match self.look() {
            Read::Good(entries) => entries,
            Read::Foreign(why) => return Err(BookError::Foreign(why)),
            Read::Broken(why) => {
                tracing::warn!("{why}");
                std::fs::rename(&path, path.with_extension("json.broken")).map_err(failed)?;
                Vec::new()
            }
        };
        let before = entries.clone();
        let result = change(&mut entries)?;
        if entries != before {
            let project = self.project.clone();
            let whole = Whole { version: VERSION, project, rules: entries };
            let text = serde_json::to_string_pretty(&whole).map_err(io::Error::from);
            let text = text.map_err(failed)?;
            if text.len() as u64 > LARGEST {
                return Err(BookError::Full);
            }
            store::write(&path, &text).map_err(failed)?;
        }
        Ok(result)
    }

    fn look(&self) -> Read {
        let path = self.path();
        let name = path.display();
        let text = match store::read(&path, LARGEST) {
            Ok(Some(text)) => text,
            Ok(None) => return Read::Good(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Read::Broken(format!("{name} is no text; its rules do not hold."));
            }
            Err(error) => {
                return Read::Foreign(format!(
                    "{name} cannot be read ({error}); its rules do not hold."
                ));
            }
        };
        let version = serde_json::from_str::<serde_json::Value>(&text);
        let version = version.ok().and_then(|it| it.get("version")?.as_u64());
        if version.is_some_and(|it| it > VERSION) {
            return Read::Foreign(format!(
                "{name} was written by a newer turnwright; its rules do not hold here."
            ));
        }
        match serde_json::from_str::<Whole>(&text) {
            Ok(whole) if whole.project != self.project => {
                Read::Foreign(format!("{name} is about another project; its rules do not hold."))
            }
            Ok(whole) => Read::Good(whole.rules.into_iter().take(MOST_RULES).collect()),
            Err(error) => Read::Broken(format!(
                "{name} makes no sense ({error}); its rules do not hold, and the next one that is \
                 kept replaces it."
            )),
        }
    }
}

impl Page {
    /// Its rules. Where one cannot be understood, nobody knows what it was to forbid, so nothing is
    /// allowed by the others.
    pub fn rules(&self) -> Vec<Rule> {
        let parsed = self.entries.iter().filter_map(|it| {
            let pattern = Pattern::parse(&it.rule, it.tier.into()).ok()?;
            Some(Rule { tier: it.tier.into(), pattern, scope: Scope::Local, why: None })
        });
        let is_whole = unreadable(&self.entries).is_none();
        parsed.filter(|it| is_whole || it.tier != Tier::Allow).collect()
    }
}

fn unreadable(entries: &[Entry]) -> Option<String> {
    let parse = |it: &Entry| Pattern::parse(&it.rule, it.tier.into());
    let bad = entries.iter().find_map(|it| Some((it, parse(it).err()?)));
    bad.map(|(entry, why)| {
        format!(
            "The rule {} ({}) cannot be understood: {why}. Until it is revoked, nothing is \
             allowed by the rules that are kept for this project.",
            entry.id,
            turnwright_types::effect::visible_line(&entry.rule)
        )
    })
}

/// Short enough to be typed, and no other rule's.
fn new_id(entries: &[Entry]) -> String {
    loop {
        let id: String = uuid::Uuid::new_v4().simple().to_string().chars().take(6).collect();
        if entries.iter().all(|it| it.id != id) {
            return id;
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    use std::fs;

    fn exec(words: &str) -> (Tier, Pattern) {
        (Tier::Allow, Pattern::parse(&format!("exec({words})"), Tier::Allow).unwrap())
    }

    fn book(state: &Path) -> Book {
        Book::of(state, Path::new("/ws"))
    }

    #[test]
    fn what_is_added_is_there_with_its_time_and_origin_until_it_is_revoked() {
        let state = tempfile::tempdir().unwrap();
        let book = book(state.path());
        assert!(book.read().entries.is_empty());
        book.add(&[exec("cargo test"), exec("tee")], "cargo test | tee log").unwrap();
        book.add(&[exec("cargo test")], "cargo test").unwrap();
        let page = book.read();
        let rules: Vec<_> = page.entries.iter().map(|it| it.rule.as_str()).collect();
        assert_eq!(rules, ["exec(cargo test)", "exec(tee)"]);
        assert_eq!(page.entries[0].origin, "cargo test | tee log");
        assert!(page.entries[0].at.ends_with('Z'));
        assert_eq!(page.rules()[0].pattern, exec("cargo test").1);
        let gone = book.revoke(&[page.entries[0].id.clone(), "zzz".to_owned()]).unwrap();
        assert_eq!(gone, page.entries[..1]);
        assert_eq!(book.read().entries, page.entries[1..]);
        assert!(Book::of(state.path(), Path::new("/other/ws")).read().entries.is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn only_the_user_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().unwrap();
        let book = book(state.path());
        book.add(&[exec("make")], "make").unwrap();
        let mode = |it: &Path| fs::metadata(it).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&book.path()), mode(&book.folder)), (0o600, 0o700));
    }

    #[test]
    fn of_many_that_write_at_once_nobody_loses_a_rule() {
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let book = book(state.path());
                scope.spawn(move || {
                    for number in 0..10 {
                        book.add(&[exec(&format!("t{thread} n{number}"))], "x").unwrap();
                    }
                });
            }
        });
        assert_eq!(book(state.path()).read().entries.len(), 40);
    }

    #[test]
    fn a_broken_file_is_put_aside_and_a_foreign_one_is_left_alone() {
        let foreign = r#"{ "version": 1, "project": "/else", "rules": [] }"#;
        let cases = [
            ("{ \"version\": 1", true),
            ("[]", true),
            ("{ \"version\": 2, \"x\": 1 }", false),
            (foreign, false),
        ];
        for (text, is_put_aside) in cases {
            let state = tempfile::tempdir().unwrap();
            let book = book(state.path());
            store::make_folder(&book.folder).unwrap();
            fs::write(book.path(), text).unwrap();
            let page = book.read();
            assert!(page.entries.is_empty() && page.trouble.is_some(), "{text}");
            assert_eq!(book.add(&[exec("make")], "make").is_ok(), is_put_aside, "{text}");
            let aside = book.path().with_extension("json.broken");
            let kept = if is_put_aside { aside } else { book.path() };
            assert_eq!(fs::read_to_string(kept).unwrap(), text);
        }
    }

    #[test]
    fn a_rule_that_nobody_understands_leaves_only_what_forbids() {
        let entry = |id: &str, rule: &str, tier| Entry {
            id: id.to_owned(),
            rule: rule.to_owned(),
            tier,
            at: String::new(),
            origin: String::new(),
        };
        let all = vec![
            entry("a", "exec(ls)", Kept::Allow),
            entry("b", "exec(rm)", Kept::Deny),
            entry("c", "hologram(x)", Kept::Deny),
        ];
        let page = Page { entries: all, trouble: None };
        let tiers: Vec<_> = page.rules().iter().map(|it| it.tier).collect();
        assert_eq!(tiers, [Tier::Deny]);
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_what_is_full_too() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join("projects"), "in the way").unwrap();
        assert!(matches!(book(state.path()).add(&[exec("a")], ""), Err(BookError::Disk { .. })));
        let state = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..=MOST_RULES).map(|it| exec(&format!("p{it}"))).collect();
        let book = book(state.path());
        book.add(&many[1..], "").unwrap();
        assert!(matches!(book.add(&many, ""), Err(BookError::Full)));
        assert_eq!(book.read().entries.len(), MOST_RULES);
    }
}
