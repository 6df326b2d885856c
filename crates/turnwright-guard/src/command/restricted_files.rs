//! The files that a call moves, deletes or copies and that rules deny or ask about. A folder is
//! judged by its whole content, because a rule for a path does not cover files that were moved elsewhere.

use std::path::{Path, PathBuf};

use crate::hidden_paths::{MAX_VISITED, walk};
use turnwright_policy::permission::{DeniedPaths, Glob, PathBases, PolicyRules, RuleAction};
use turnwright_policy::shell::{self, FileUse, Script, Word};
use turnwright_types::effect::{Effect, ResolvedPath, is_secret_path};
use turnwright_workspace::files::Roots;

/// At most this many files are named in a question. The first ones say which rules apply.
const MAX_NAMED: usize = 32;

/// Why a call whose files cannot be judged one by one does not run.
pub const TOO_MANY_FILES: &str = "It concerns so many files that those which rules deny or ask about cannot be \
                                         found among them. Nothing was done. Name parts of it.";

/// The effects of a call on files that rules restrict.
#[derive(Clone, Debug, Default)]
pub struct RestrictedFiles {
    pub effects: Vec<Effect>,
    /// True if there are more files than can be looked at.
    pub is_incomplete: bool,
}

impl RestrictedFiles {
    /// Looks below the paths that these effects of a file tool move or delete. Blocks.
    pub fn of_effects(effects: &[Effect], roots: &Roots, policy: &PolicyRules) -> RestrictedFiles {
        let [Effect::Delete(from), rest @ ..] = effects else { return RestrictedFiles::default() };
        let to = rest.iter().find_map(|effect| match effect {
            Effect::Write(target) => Some(target.path.as_path()),
            _ => None,
        });
        let mut search = Search::new(roots, policy);
        search.add_below(&from.path, to, true, None);
        search.found
    }

    /// Looks at and below the paths that the words of a command name. Blocks.
    pub(super) fn of_command(
        script: &Script,
        workdir: &Path,
        roots: &Roots,
        policy: &PolicyRules,
    ) -> RestrictedFiles {
        let mut search = Search::new(roots, policy);
        if search.rules.is_empty() {
            return search.found;
        }
        for command in &script.commands {
            let Some(used) = shell::file_use(command) else { continue };
            // Where the folder is not known, the line's own is the best guess.
            let folder = workdir.join(command.folder.as_deref().unwrap_or(Path::new("")));
            search.add_use(&used, &folder.join(shell::classify(command).git_folder));
        }
        search.found
    }

    /// The files that the call changes, and the files that it only reads.
    pub(super) fn split(&self) -> (Vec<ResolvedPath>, Vec<ResolvedPath>) {
        let mut changes = Vec::new();
        let mut reads = Vec::new();
        for effect in &self.effects {
            match effect {
                Effect::Read(target) => reads.push(target.clone()),
                Effect::Write(target) | Effect::Delete(target) => changes.push(target.clone()),
                _ => {}
            }
        }
        (changes, reads)
    }
}

struct Search<'a> {
    rules: DeniedPaths,
    roots: &'a Roots,
    found: RestrictedFiles,
    /// True if one of the files is denied, which decides about the call.
    is_denied: bool,
}

impl Search<'_> {
    fn new<'a>(roots: &'a Roots, policy: &PolicyRules) -> Search<'a> {
        let rules = DeniedPaths::all_restricted(policy);
        Search { rules, roots, found: RestrictedFiles::default(), is_denied: false }
    }

    fn add_use(&mut self, used: &FileUse, folder: &Path) {
        let destination = used.destination.as_ref().map(|word| self.place(word, folder, true).0);
        for source in &used.sources {
            let (from, pattern) = self.place(source, folder, used.is_change);
            let inside = destination.as_ref().and_then(|to| match from.file_name() {
                Some(name) if pattern.is_none() && to.is_dir() => Some(to.join(name)),
                _ => None,
            });
            // Of `a/.`, and for some programs of `a/`, the content is copied.
            let is_merged = used.is_exact || source.text.ends_with(['.', '/']);
            let merged = destination.clone().filter(|_| is_merged && inside.is_some());
            for to in std::iter::once(inside.or(destination.clone())).chain(merged.map(Some)) {
                if pattern.is_none() {
                    self.add(&from, to.as_deref(), used.is_change);
                }
                if used.is_deep || pattern.is_some() {
                    self.add_below(&from, to.as_deref(), used.is_change, pattern.as_ref());
                }
            }
        }
    }

    /// The target of a word, and for a pattern the folder where it begins, with the pattern there. A change of
    /// a link does not follow it.
    fn place(&self, word: &Word, folder: &Path, is_change: bool) -> (PathBuf, Option<Glob>) {
        let named = folder.join(&word.text);
        if self.roots.leads_elsewhere(&named) {
            return (named, None);
        }
        if !word.is_glob {
            let target = if is_change {
                self.roots.resolve_entry(&named)
            } else {
                self.roots.resolve(&named)
            };
            return (target.path, None);
        }
        let literal =
            named.ancestors().find(|above| !above.to_string_lossy().contains(['*', '?', '[']));
        let start = literal.unwrap_or(folder);
        let rest = named.strip_prefix(start).unwrap_or(&named).to_string_lossy().into_owned();
        let start = self.roots.resolve(start).path;
        let name = start.to_string_lossy();
        let is_plain = !name.contains(['*', '?', '[', ']', '{', '}', '\\'])
            && !rest.contains(['{', '}', '\\']);
        let matcher = Glob::parse(&format!("/{name}/{rest}"), false).ok().filter(|_| is_plain);
        // A pattern that is not understood may match everything in its folder.
        (start, Some(matcher.unwrap_or_else(Glob::everything)))
    }

    /// Adds the content of a folder, as far as the pattern matches it.
    fn add_below(
        &mut self,
        from: &Path,
        to: Option<&Path>,
        is_change: bool,
        pattern: Option<&Glob>,
    ) {
        let is_folder = from.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_folder || self.rules.is_empty() && to.is_none() {
            return;
        }
        let bases = PathBases::default();
        let is_complete = walk(&[from.to_path_buf()], MAX_VISITED, |path, _| {
            let to = to.map(|to| to.join(path.strip_prefix(from).unwrap_or(path)));
            pattern.is_some_and(|pattern| !pattern.matches(path, &bases))
                || !self.add(path, to.as_deref(), is_change)
        });
        self.found.is_incomplete |= !is_complete && !self.rules.is_empty();
    }

    /// Adds a path if a rule restricts it. Returns true if nothing below it needs to be looked at: nothing is
    /// stricter than a denial.
    fn add(&mut self, path: &Path, to: Option<&Path>, is_change: bool) -> bool {
        let action = self.rules.restriction(path, is_change);
        if let Some(action) = action {
            self.note(path, action, if is_change { Effect::Delete } else { Effect::Read });
        }
        if let Some((to, action)) = to.and_then(|to| Some((to, self.rules.restriction(to, true)?)))
        {
            self.note(to, action, Effect::Write);
        }
        // A file that is secret only by its name must not lose that name unseen.
        if is_change && to.is_some_and(|to| is_secret_path(path) && !is_secret_path(to)) {
            self.note(path, RuleAction::Ask, Effect::Read);
        }
        action == Some(RuleAction::Deny)
    }

    fn note(&mut self, path: &Path, action: RuleAction, effect: fn(ResolvedPath) -> Effect) {
        let is_first_denial = action == RuleAction::Deny && !self.is_denied;
        self.is_denied |= is_first_denial;
        if self.found.effects.len() < MAX_NAMED || is_first_denial {
            self.found.effects.push(effect(self.roots.resolve_entry(path)));
        }
    }
}
