//! Finds the skills below some folders. A project may contain any number of folders, and link
//! cycles, so the scan is bounded.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::{Skill, front_matter};
use crate::files::read_head;
use crate::real_path;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::ids::is_slug;
use turnwright_types::sorting::sort_by;

/// How deep the folders are searched.
const MAX_DEPTH: usize = 6;
/// The most folders that are searched in total.
const MAX_FOLDERS: usize = 2_000;
/// The most entries of a folder that are examined.
const MAX_ENTRIES: usize = 2_000;
/// The most skills.
const MAX_SKILLS: usize = 100;
/// How many bytes are read for the front matter.
const FRONT_MATTER_BYTES: usize = 16 * 1024;
/// The most characters of a description.
const MAX_DESCRIPTION_CHARS: usize = 1024;

/// A folder that is searched for skills or custom commands.
#[derive(Clone, Debug)]
pub struct ScannedFolder {
    pub folder: PathBuf,
    /// A path without links that the files must be below; `None` for the user's own folders.
    pub within: Option<PathBuf>,
}

/// Finds all skills below these folders, ordered by name. If two have the same name the first
/// counts. Blocks.
pub fn scan(places: &[ScannedFolder], stop: &CancellationToken) -> Vec<Skill> {
    let mut scan = SkillScan { found: Vec::new(), visited: HashSet::new(), stop };
    for place in places {
        scan.visit_linked(&place.folder, place.within.as_deref(), 0);
    }
    sort_by(&mut scan.found, |a, b| a.name.cmp(&b.name));
    scan.found
}

struct SkillScan<'a> {
    found: Vec<Skill>,
    /// The searched folders, with links resolved.
    visited: HashSet<PathBuf>,
    stop: &'a CancellationToken,
}

impl SkillScan<'_> {
    /// Visits a folder to which a link may lead.
    fn visit_linked(&mut self, folder: &Path, within: Option<&Path>, depth: usize) {
        match real_path(folder) {
            Ok(real) if within.is_none_or(|it| real.starts_with(it)) => {
                self.visit(&real, within, depth);
            }
            _ => {}
        }
    }

    /// Visits a folder by its path without links.
    fn visit(&mut self, folder: &Path, within: Option<&Path>, depth: usize) {
        let is_over = self.visited.len() >= MAX_FOLDERS || self.found.len() >= MAX_SKILLS;
        if depth > MAX_DEPTH || is_over || self.stop.is_cancelled() {
            return;
        }
        if !self.visited.insert(folder.to_path_buf()) || depth > 0 && self.add(folder, within) {
            return;
        }
        let Ok(entries) = fs::read_dir(folder) else { return };
        // A link may lead to a folder.
        let is_linked = |it: &fs::DirEntry| {
            let kind = it.file_type().ok().filter(|it| it.is_dir() || it.is_symlink())?;
            let is_other = it.file_name() == ".git" || it.file_name() == "node_modules";
            (!is_other).then_some(kind.is_symlink())
        };
        let entries = entries.filter_map(Result::ok).take(MAX_ENTRIES);
        let mut folders: Vec<_> =
            entries.filter_map(|it| Some((it.file_name(), is_linked(&it)?))).collect();
        sort_by(&mut folders, Ord::cmp);
        for (name, is_linked) in folders {
            let below = folder.join(name);
            if is_linked {
                self.visit_linked(&below, within, depth + 1);
            } else {
                self.visit(&below, within, depth + 1);
            }
        }
    }

    /// Adds the skill of this folder; `false` if it has none.
    fn add(&mut self, folder: &Path, within: Option<&Path>) -> bool {
        let file = folder.join("SKILL.md");
        let read = match read_head(&file, within, FRONT_MATTER_BYTES) {
            Some(head) => read_skill(&head.text, folder, within),
            None if file.exists() => Err("SKILL.md cannot be read"),
            None => return false,
        };
        match read {
            Ok(skill) if self.found.iter().any(|it| it.name == skill.name) => {}
            Ok(skill) => self.found.push(skill),
            Err(why) => {
                tracing::warn!(folder = %folder.display(), "skipped an invalid skill: {why}");
            }
        }
        true
    }
}

fn read_skill(text: &str, folder: &Path, within: Option<&Path>) -> Result<Skill, &'static str> {
    let (head, _) = front_matter::split(text);
    let own_name = || folder.file_name().map(|it| it.to_string_lossy().into_owned());
    let name = head.name.or_else(own_name).unwrap_or_default();
    if !is_slug(&name) {
        return Err("invalid name: use a-z, 0-9 and hyphens, at most 64");
    }
    let description = head.description.ok_or("its description is missing")?;
    let description =
        escape_hidden_line(&description).chars().take(MAX_DESCRIPTION_CHARS).collect();
    Ok(Skill {
        name,
        description,
        argument_hint: head.argument_hint,
        is_user_only: head.is_user_only,
        folder: folder.to_path_buf(),
        within: within.map(Path::to_path_buf),
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
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
        let base = real_path(base.path()).unwrap();
        let (ws, user) = (base.join("ws"), base.join("user"));
        put(&ws.join("skills/deploy"), &skill("deploy", "of the project"));
        put(&ws.join("skills/a/b/deep"), "---\ndescription: named by its folder\n---\n");
        put(&ws.join("skills/1/2/3/4/5/6/deeper"), &skill("deeper", "too deep"));
        put(&ws.join("skills/mute"), "---\nname: mute\n---\n");
        put(&ws.join("skills/bad"), &skill("Bad Name", "x"));
        put(&user.join("deploy"), &skill("deploy", "of the user"));
        put(&user.join("own"), &skill("own", "x"));
        put(&base.join("secret"), &skill("secret", "outside of the project"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink("..", ws.join("skills/a/loop")).unwrap();
            symlink(base.join("secret"), ws.join("skills/out")).unwrap();
            fs::create_dir_all(ws.join("skills/linked")).unwrap();
            symlink(base.join("secret/SKILL.md"), ws.join("skills/linked/SKILL.md")).unwrap();
            symlink(base.join("secret"), user.join("link")).unwrap();
        }

        let places = [
            ScannedFolder { folder: ws.join("skills"), within: Some(ws.clone()) },
            ScannedFolder { folder: ws.join("missing"), within: Some(ws) },
            ScannedFolder { folder: user, within: None },
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
                #[cfg(unix)]
                "secret: outside of the project"
            ]
        );
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(scan(&places, &stop).is_empty());
    }
}
