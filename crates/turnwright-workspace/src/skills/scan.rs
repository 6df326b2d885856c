//! Finds the skills below a few folders. A project may hold any number of folders, in circles:
//! what is looked at is bounded.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::{Skill, front_matter};
use turnwright_types::effect::visible_line;
use crate::files::glance;
use turnwright_types::ids::is_slug;

/// How deep skills may lie.
const DEEPEST: usize = 6;
/// Folders that are looked at, in all.
const MOST_FOLDERS: usize = 2_000;
/// Entries of one folder that are looked at.
const MOST_ENTRIES: usize = 2_000;
/// Skills that are kept.
const MOST_SKILLS: usize = 100;
/// Bytes in which the head is looked for.
const HEAD: usize = 16 * 1024;
/// Characters of a description.
const LONGEST_DESCRIPTION: usize = 1024;

/// A folder in which skills may lie.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder.
    pub folder: PathBuf,
    /// A real path that nothing found there may lie outside of; `None` for the user's own.
    pub within: Option<PathBuf>,
}

/// All skills of these places, in the order of their names. The first of a name counts. Not for
/// the runtime's thread.
pub fn scan(places: &[Place], stop: &CancellationToken) -> Vec<Skill> {
    let mut scan = Scan { found: Vec::new(), visited: HashSet::new(), stop };
    for place in places {
        scan.folder(&place.folder, place.within.as_deref(), 0);
    }
    scan.found.sort_by(|a, b| a.name.cmp(&b.name));
    scan.found
}

struct Scan<'a> {
    found: Vec<Skill>,
    /// The folders that were looked at, by their real paths.
    visited: HashSet<PathBuf>,
    stop: &'a CancellationToken,
}

impl Scan<'_> {
    fn folder(&mut self, folder: &Path, within: Option<&Path>, depth: usize) {
        let is_over = self.visited.len() >= MOST_FOLDERS || self.found.len() >= MOST_SKILLS;
        if depth > DEEPEST || is_over || self.stop.is_cancelled() {
            return;
        }
        let Ok(real) = fs::canonicalize(folder) else { return };
        if within.is_some_and(|it| !real.starts_with(it)) || !self.visited.insert(real.clone()) {
            return;
        }
        if depth > 0 && real.join("SKILL.md").exists() {
            return self.skill(&real, within);
        }
        let Ok(entries) = fs::read_dir(&real) else { return };
        // A link has to be followed to know what it is.
        let is_folder = |it: &fs::DirEntry| {
            it.file_type().is_ok_and(|it| it.is_dir() || it.is_symlink())
                && it.file_name() != ".git"
                && it.file_name() != "node_modules"
        };
        let entries = entries.filter_map(Result::ok).take(MOST_ENTRIES).filter(is_folder);
        let mut folders: Vec<_> = entries.map(|it| it.path()).collect();
        folders.sort();
        for folder in folders {
            self.folder(&folder, within, depth + 1);
        }
    }

    fn skill(&mut self, folder: &Path, within: Option<&Path>) {
        match read(folder, within) {
            Ok(skill) if self.found.iter().any(|it| it.name == skill.name) => {}
            Ok(skill) => self.found.push(skill),
            Err(why) => tracing::warn!(folder = %folder.display(), "a skill was left out: {why}"),
        }
    }
}

fn read(folder: &Path, within: Option<&Path>) -> Result<Skill, &'static str> {
    let seen = glance(&folder.join("SKILL.md"), within, HEAD).ok_or("SKILL.md cannot be read")?;
    let (head, _) = front_matter::split(&seen.text);
    let own_name = || folder.file_name().map(|it| it.to_string_lossy().into_owned());
    let name = head.name.or_else(own_name).unwrap_or_default();
    if !is_slug(&name) {
        return Err("its name is none: it takes a-z, 0-9 and hyphens, at most 64");
    }
    let description = head.description.ok_or("it has no description")?;
    let description = visible_line(&description).chars().take(LONGEST_DESCRIPTION).collect();
    Ok(Skill {
        name,
        description,
        argument_hint: head.argument_hint,
        only_user: head.only_user,
        folder: folder.to_path_buf(),
        within: within.map(Path::to_path_buf),
    })
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(folder: &Path, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }

    fn skill(name: &str, description: &str) -> String {
        format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
    }

    #[test]
    fn skills_are_found_once_whatever_the_folders_look_like() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let (ws, user) = (base.join("ws"), base.join("user"));
        put(&ws.join("skills/deploy"), &skill("deploy", "of the project"));
        put(&ws.join("skills/a/b/deep"), "---\ndescription: named by its folder\n---\n");
        put(&ws.join("skills/1/2/3/4/5/6/deeper"), &skill("deeper", "too deep"));
        put(&ws.join("skills/mute"), "---\nname: mute\n---\n");
        put(&ws.join("skills/bad"), &skill("Bad Name", "x"));
        put(&user.join("deploy"), &skill("deploy", "of the user"));
        put(&user.join("own"), &skill("own", "x"));
        put(&base.join("secret"), &skill("secret", "outside of the project"));
        symlink("..", ws.join("skills/a/loop")).unwrap();
        symlink(base.join("secret"), ws.join("skills/out")).unwrap();
        fs::create_dir_all(ws.join("skills/linked")).unwrap();
        symlink(base.join("secret/SKILL.md"), ws.join("skills/linked/SKILL.md")).unwrap();
        symlink(base.join("secret"), user.join("link")).unwrap();

        let places = [
            Place { folder: ws.join("skills"), within: Some(ws.clone()) },
            Place { folder: ws.join("missing"), within: Some(ws) },
            Place { folder: user, within: None },
        ];
        let found = scan(&places, &CancellationToken::new());
        let lines: Vec<_> =
            found.iter().map(|it| format!("{}: {}", it.name, it.description)).collect();
        assert_eq!(
            lines,
            [
                "deep: named by its folder",
                "deploy: of the project",
                "own: x",
                "secret: outside of the project"
            ]
        );
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(scan(&places, &stop).is_empty());
    }
}
