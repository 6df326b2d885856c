//! Custom commands: Markdown files that the user runs as `/name`. A command is text for the model and
//! nothing else: nothing in it is executed, and it grants no permissions.

use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::files::read_head;
use crate::real_path;
use crate::skills::{ScannedFolder, front_matter, hyphenated, substitute};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::look_alike::{composed, is_mark};
use turnwright_types::text;

/// How many folders deep commands are searched. The folders are part of the name: `db/seed.md` is
/// `/db:seed`.
const MAX_DEPTH: usize = 3;
/// The most commands.
const MAX_COMMANDS: usize = 200;
/// The most entries of a folder that are examined.
const MAX_ENTRIES: usize = 1_000;
/// The most bytes of a part of a name.
const MAX_NAME_BYTES: usize = 64;
/// How many bytes are read for the front matter.
const FRONT_MATTER_BYTES: usize = 8 * 1024;
/// The most bytes of a command's text.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The most characters of a description or hint.
const MAX_LINE_CHARS: usize = 200;

/// A command as described by its front matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomCommand {
    /// Without the slash.
    pub name: String,
    /// Describes the command in one line.
    pub description: String,
    pub argument_hint: Option<String>,
    pub path: PathBuf,
    within: Option<PathBuf>,
}

impl CustomCommand {
    /// Returns true if the file is the project's, and not the user's own.
    pub fn is_of_project(&self) -> bool {
        self.within.is_some()
    }

    /// The text with the arguments filled in. Blocks.
    pub fn load(&self, args: &str) -> Option<String> {
        let seen = read_head(&self.path, self.within.as_deref(), MAX_TEXT_BYTES)?;
        let (_, body) = front_matter::split(&seen.text);
        let mut text = substitute(body.trim(), args);
        if !seen.is_complete {
            text.push_str("\n\n[cut after 64 KiB]");
        }
        Some(text)
    }
}

/// Finds the commands in these folders, ordered by name. If two have the same name the first counts, and a project's
/// takes the place of none of the user's whose name differs only in case. Blocks.
pub fn scan(places: &[ScannedFolder], stop: &CancellationToken) -> Vec<CustomCommand> {
    let mut found = Vec::new();
    for place in places {
        let Ok(real) = real_path(&place.folder) else { continue };
        if place.within.as_deref().is_none_or(|folder| real.starts_with(folder)) {
            visit(&real, place.within.as_deref(), "", stop, &mut found);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn visit(
    folder: &Path,
    within: Option<&Path>,
    prefix: &str,
    stop: &CancellationToken,
    found: &mut Vec<CustomCommand>,
) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).take(MAX_ENTRIES).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        if found.len() >= MAX_COMMANDS || stop.is_cancelled() {
            return;
        }
        let name = entry.file_name();
        let path = entry.path();
        let (Some(name), Ok(kind)) = (name.to_str(), entry.file_type()) else { continue };
        if prefix.matches(':').count() + 1 < MAX_DEPTH
            && let Some(name) = name_part(name)
            && let Some(below) = folder_at(&path, kind, within, prefix.is_empty())
        {
            visit(&below, within, &format!("{prefix}{name}:"), stop, found);
        }
        let stem = name.strip_suffix(".md").or_else(|| name.strip_suffix(".MD"));
        let Some(name) = stem.filter(|stem| *stem != "README").and_then(name_part) else {
            continue;
        };
        let name = format!("{prefix}{name}");
        let is_taken = found.iter().any(|known| {
            let is_of_user = within.is_some() && !known.is_of_project();
            known.name == name || is_of_user && known.name.to_lowercase() == name.to_lowercase()
        });
        if !kind.is_dir() && !is_taken {
            found.extend(read_command(name, path, within));
        }
    }
}

/// The folder that an entry is. If `follows_link`, a link may lead to it, but neither out of `within` nor up.
fn folder_at(
    path: &Path,
    kind: FileType,
    within: Option<&Path>,
    follows_link: bool,
) -> Option<PathBuf> {
    if !kind.is_symlink() {
        return kind.is_dir().then(|| path.to_path_buf());
    }
    let real = real_path(path).ok().filter(|real| follows_link && !path.starts_with(real))?;
    let is_inside = within.is_none_or(|folder| real.starts_with(folder));
    (is_inside && real.is_dir()).then_some(real)
}

fn read_command(name: String, path: PathBuf, within: Option<&Path>) -> Option<CustomCommand> {
    let seen = read_head(&path, within, FRONT_MATTER_BYTES)?;
    let (head, body) = front_matter::split(&seen.text);
    let description = head.description.as_deref().or_else(|| first_line(body))?;
    Some(CustomCommand {
        name,
        description: in_one_line(description),
        argument_hint: head.argument_hint.as_deref().map(in_one_line),
        path,
        within: within.map(Path::to_path_buf),
    })
}

fn in_one_line(text: &str) -> String {
    text::cut(escape_hidden_line(text.trim()), MAX_LINE_CHARS)
}

/// The first line that is not blank, without the marks of a heading.
fn first_line(body: &str) -> Option<&str> {
    body.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty())
}

/// The part of a command's name that stands for a file or folder, in characters that can be typed: `my tool`
/// is `my-tool`.
fn name_part(name: &str) -> Option<String> {
    let name = composed(name);
    let part = hyphenated(&name, is_name_char);
    let is_short = !part.is_empty() && part.len() <= MAX_NAME_BYTES;
    (is_short && !name.starts_with('.')).then_some(part)
}

/// True for the characters of a command's name, in any script.
pub fn is_name_char(char: char) -> bool {
    char.is_alphanumeric() || is_mark(char) || "-_".contains(char)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn put(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn commands_are_named_by_their_files_and_the_first_of_a_name_counts() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        let own = base.join("own");
        let ws = base.join("ws");
        let of_ws = |name: &str| ws.join("commands").join(name);
        put(&own.join("deploy.md"), "Deploy mine.");
        put(&of_ws("deploy.md"), "Deploy theirs.");
        put(&own.join("review.md"), "Review mine.");
        put(&of_ws("Review.md"), "Review theirs.");
        put(&of_ws("reView.md"), "Review theirs.");
        put(&of_ws("db/seed.md"), "---\ndescription: Seeds\nargument-hint: [name]\n---\nSeed $1.");
        put(&of_ws("a/b/c/deep.md"), "Too deep.");
        put(&of_ws("my name.MD"), "x");
        put(&of_ws("部署/U\u{308}ber.md"), "Über.");
        put(&of_ws(".hidden.md"), "x");
        put(&of_ws("!.md"), "x");
        put(&of_ws("db/README.md"), "Our commands.");
        put(&of_ws("notes.txt"), "x");
        put(&of_ws("empty.md"), "\n");
        put(&of_ws("title.md"), "\n# A title\u{202e}\nMore.");
        put(&base.join("secret.md"), "outside");
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            symlink(base.join("secret.md"), of_ws("link.md")).unwrap();
            symlink(base.join("own"), of_ws("folder")).unwrap();
            put(&base.join("team/ship.md"), "Ship.");
            symlink(base.join("team"), own.join("team")).unwrap();
            symlink(&own, own.join("loop")).unwrap();
        }
        let places = [
            ScannedFolder { folder: own, within: None },
            ScannedFolder { folder: base.join("missing"), within: None },
            ScannedFolder { folder: ws.join("commands"), within: Some(ws.clone()) },
        ];
        let stop = CancellationToken::new();
        let found = scan(&places, &stop);
        let line = |command: &CustomCommand| {
            let hint = command.argument_hint.as_deref().unwrap_or("-");
            format!("{} {} {hint} {}", command.name, command.description, command.is_of_project())
        };
        assert_eq!(
            found.iter().map(line).collect::<Vec<_>>(),
            [
                "db:seed Seeds [name] true",
                "deploy Deploy mine. - false",
                "my-name x - true",
                "review Review mine. - false",
                #[cfg(unix)]
                "team:ship Ship. - false",
                "title A title\\u{202e} - true",
                "部署:Über Über. - true",
            ]
        );
        assert_eq!(found[0].load("users").unwrap(), "Seed users.");
        fs::remove_file(of_ws("db/seed.md")).unwrap();
        assert_eq!(found[0].load(""), None);
        stop.cancel();
        assert!(scan(&places, &stop).is_empty());
    }

    #[test]
    fn a_long_command_is_cut_and_nothing_in_it_is_executed() {
        let base = tempfile::tempdir().unwrap();
        put(&base.path().join("x.md"), &format!("!`date` @/etc/passwd {}", "x".repeat(70_000)));
        let places = [ScannedFolder { folder: base.path().to_path_buf(), within: None }];
        let found = scan(&places, &CancellationToken::new());
        let text = found[0].load("").unwrap();
        assert!(
            text.starts_with("!`date` @/etc/passwd xx") && text.ends_with("[cut after 64 KiB]")
        );
        assert!(found[0].description.chars().count() <= MAX_LINE_CHARS);
    }
}
