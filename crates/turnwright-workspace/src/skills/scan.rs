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
use turnwright_types::text;

/// The names of a skill's file, the usual one first.
const FILE_NAMES: [&str; 3] = ["SKILL.md", "skill.md", "Skill.md"];
/// The most characters of a name that is made of another text.
const MAX_NAME_CHARS: usize = 64;
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

/// A folder whose skill cannot be used.
#[derive(Debug)]
pub struct SkippedSkill {
    pub folder: PathBuf,
    pub reason: &'static str,
}

/// Finds all skills below these folders, ordered by name. If two have the same name the first
/// counts. Blocks.
pub fn scan(places: &[ScannedFolder], stop: &CancellationToken) -> Vec<Skill> {
    scan_all(places, stop).0
}

/// Like [`scan`], and also returns what was skipped.
pub fn scan_all(
    places: &[ScannedFolder],
    stop: &CancellationToken,
) -> (Vec<Skill>, Vec<SkippedSkill>) {
    let found = Vec::new();
    let skipped = Vec::new();
    let mut scan = SkillScan { found, skipped, visited: HashSet::new(), stop };
    for place in places {
        scan.visit_linked(&place.folder, place.within.as_deref(), 0);
    }
    scan.found.sort_by(|a, b| a.name.cmp(&b.name));
    (scan.found, scan.skipped)
}

struct SkillScan<'a> {
    found: Vec<Skill>,
    skipped: Vec<SkippedSkill>,
    /// The searched folders, with links resolved.
    visited: HashSet<PathBuf>,
    stop: &'a CancellationToken,
}

impl SkillScan<'_> {
    /// Visits a folder to which a link may lead.
    fn visit_linked(&mut self, folder: &Path, within: Option<&Path>, depth: usize) {
        match real_path(folder) {
            Ok(real) if within.is_none_or(|folder| real.starts_with(folder)) => {
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
        let mut folders = Vec::new();
        for entry in entries.filter_map(Result::ok).take(MAX_ENTRIES) {
            let name = entry.file_name();
            // A link may lead to a folder.
            let Some(kind) =
                entry.file_type().ok().filter(|kind| kind.is_dir() || kind.is_symlink())
            else {
                continue;
            };
            if name != ".git" && name != "node_modules" {
                folders.push((name, kind.is_symlink()));
            }
        }
        folders.sort();
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
        let Some(file_name) =
            FILE_NAMES.into_iter().find(|name| folder.join(name).symlink_metadata().is_ok())
        else {
            return false;
        };
        let read = match read_head(&folder.join(file_name), within, FRONT_MATTER_BYTES) {
            Some(head) => read_skill(&head.text, file_name, folder, within),
            None => Err("its file cannot be read, or leads out of the project"),
        };
        let reason = match read {
            Ok(skill) if self.found.iter().all(|known| known.name != skill.name) => {
                self.found.push(skill);
                return true;
            }
            Ok(_) => "another skill has its name",
            Err(reason) => reason,
        };
        self.skipped.push(SkippedSkill { folder: folder.to_path_buf(), reason });
        true
    }
}

fn read_skill(
    text: &str,
    file_name: &'static str,
    folder: &Path,
    within: Option<&Path>,
) -> Result<Skill, &'static str> {
    let (head, body) = front_matter::split(text);
    let own_name = slug(&folder.file_name().unwrap_or_default().to_string_lossy());
    let given = head.name.unwrap_or_default();
    let names = [Some(given.clone()).filter(|name| is_slug(name)), own_name, slug(&given)];
    let name = names
        .into_iter()
        .flatten()
        .next()
        .ok_or("neither its name nor that of its folder has letters of a-z or digits")?;
    let full = head
        .description
        .or_else(|| first_paragraph(body))
        .ok_or("it has neither a description nor a text")?;
    let description = text::cut(escape_hidden_line(&full), MAX_DESCRIPTION_CHARS);
    Ok(Skill {
        file_name,
        name,
        description,
        argument_hint: head.argument_hint,
        is_user_only: head.is_user_only,
        folder: folder.to_path_buf(),
        within: within.map(Path::to_path_buf),
    })
}

/// A text as a name that can be typed: `My Tool` is `my-tool`.
fn slug(text: &str) -> Option<String> {
    let text = text::cut(text.to_ascii_lowercase(), MAX_NAME_CHARS);
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    Some(parts.collect::<Vec<_>>().join("-")).filter(|name| !name.is_empty())
}

/// The first paragraph that is no heading, in one line.
fn first_paragraph(body: &str) -> Option<String> {
    let lines: Vec<_> = body
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .collect();
    Some(lines.join(" ")).filter(|text| !text.is_empty())
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
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        let ws = base.join("ws");
        let user = base.join("user");
        put(&ws.join("skills/deploy"), &skill("deploy", "of the project"));
        put(&ws.join("skills/a/b/deep"), "---\ndescription: named by its folder\n---\n");
        put(&ws.join("skills/1/2/3/4/5/6/deeper"), &skill("deeper", "too deep"));
        put(&ws.join("skills/mute"), "---\nname: mute\n---\n");
        put(&ws.join("skills/my-tool"), &skill("My Tool", "x"));
        put(&ws.join("skills/Python_Testing"), &skill("Python Testing", "x"));
        put(&ws.join("skills/\u{e9}"), &skill("Another One", "x"));
        put(&ws.join("skills/\u{e8}"), &skill("\u{e9}\u{e8}", "x"));
        put(&ws.join("skills/told"), "# Title\n\nTold by\nits text.\n\nMore.\n");
        fs::create_dir_all(ws.join("skills/small")).unwrap();
        fs::write(ws.join("skills/small/skill.md"), skill("small", "x")).unwrap();
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
        let (found, skipped) = scan_all(&places, &CancellationToken::new());
        let lines: Vec<_> =
            found.iter().map(|skill| format!("{}: {}", skill.name, skill.description)).collect();
        assert_eq!(
            lines,
            [
                "another-one: x",
                "deep: named by its folder",
                "deploy: of the project",
                "my-tool: x",
                "own: x",
                "python-testing: x",
                #[cfg(unix)]
                "secret: outside of the project",
                "small: x",
                "told: Told by its text.",
            ]
        );
        let skipped: Vec<_> = skipped
            .iter()
            .map(|entry| {
                format!("{}: {}", entry.folder.file_name().unwrap().display(), entry.reason)
            })
            .collect();
        assert_eq!(
            skipped,
            [
                #[cfg(unix)]
                "linked: its file cannot be read, or leads out of the project",
                "mute: it has neither a description nor a text",
                "\u{e8}: neither its name nor that of its folder has letters of a-z or digits",
                "deploy: another skill has its name",
            ]
        );
        let small = found.iter().find(|skill| skill.name == "small").unwrap();
        assert!(small.load("").unwrap().contains("Do it."));
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(scan(&places, &stop).is_empty());
    }
}
