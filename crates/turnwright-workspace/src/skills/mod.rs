//! Skills (agentskills.io): folders with a SKILL.md that describes how to do something. Finds skills below some
//! folders, lists them and loads their text, with the user's arguments in it. A project may contain any number of
//! folders, and link cycles, so the scan is bounded. A skill is text and grants no permissions.

pub(crate) mod front_matter;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pulldown_cmark::{Event, Parser, Tag};
use tokio_util::sync::CancellationToken;

use crate::files::{display, read_head};
use crate::real_path;
use turnwright_types::effect::{escape_hidden_line, is_hidden_char};
use turnwright_types::hash::std_hash;
use turnwright_types::look_alike::{composed, is_mark, without_smuggled_text};
use turnwright_types::text;

/// The most bytes of the catalogue.
const MAX_CATALOGUE_BYTES: usize = 8 * 1024;
/// The most bytes of a skill's text.
const MAX_TEXT_BYTES: usize = 64 * 1024;
/// The most files of a skill that are listed.
const MAX_LISTED_FILES: usize = 30;
/// Stands for the skill's folder in its text.
const SKILL_FOLDER: &str = "${CLAUDE_SKILL_DIR}";
/// The most times that it is replaced in one text, because a path can be long.
const MAX_FOLDER_NAMES: usize = 30;
/// How deep in a skill's folder files are listed.
const MAX_FILE_DEPTH: usize = 3;

/// A skill as described by its front matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// Describes the purpose of the skill in one line.
    pub description: String,
    pub argument_hint: Option<String>,
    /// True if only the user can invoke the skill.
    pub is_user_only: bool,
    /// The folder with links resolved.
    pub folder: PathBuf,
    file_name: &'static str,
    /// The folder that its files must not be outside of, if it is a project's.
    pub within: Option<PathBuf>,
}

/// The skills of a session, and which of them the model has loaded.
// Held only to copy a pointer or access a small set.
#[derive(Debug, Default)]
pub struct SkillSet(Mutex<SkillSetState>);

#[derive(Debug, Default)]
struct SkillSetState {
    /// `None` before the first scan.
    skills: Option<Arc<Vec<Skill>>>,
    /// The names of the skills that the model has loaded, with the hashes of their texts then.
    loaded: BTreeMap<String, u64>,
}

impl SkillSet {
    /// Replaces the skills at the beginning of a conversation. Its first prompt may have loaded one.
    pub fn replace(&self, skills: Vec<Skill>) {
        self.0.lock().skills = Some(Arc::new(skills));
    }

    /// The skills, ordered by name; `None` before the first scan.
    pub fn skills(&self) -> Option<Arc<Vec<Skill>>> {
        self.0.lock().skills.clone()
    }

    /// The names of the skills that the model may load.
    pub fn names(&self) -> Vec<String> {
        let skills = self.skills().unwrap_or_default();
        skills.iter().filter(|skill| !skill.is_user_only).map(|skill| skill.name.clone()).collect()
    }

    /// Records that the model has loaded a skill with this text, without arguments. Returns false if it had the same
    /// text before.
    pub fn mark_loaded(&self, name: &str, text: &str) -> bool {
        let hash = std_hash(text);
        self.0.lock().loaded.insert(name.to_owned(), hash) != Some(hash)
    }

    /// Records that the loaded skills are no longer in the conversation.
    pub fn forget_loaded(&self) {
        self.0.lock().loaded.clear();
    }
}

impl Skill {
    /// The file that defines it.
    pub fn file(&self) -> PathBuf {
        self.folder.join(self.file_name)
    }

    /// Loads the text for the model, with the arguments substituted and the files of the skill
    /// listed. Blocks.
    pub fn load(&self, args: &str) -> Option<String> {
        let seen = read_head(&self.file(), self.within.as_deref(), MAX_TEXT_BYTES)?;
        let (_, body) = front_matter::split(&seen.text);
        let dir = escape_hidden_line(&self.folder.to_string_lossy());
        let filled = substitute(body.trim(), args);
        let mut text = filled.replacen(SKILL_FOLDER, &dir, MAX_FOLDER_NAMES);
        if !seen.is_complete {
            text.push_str("\n\n[cut after 64 KiB; use read_file on its file for the rest]");
        }
        let files = self.files();
        if !files.is_empty() {
            text.push_str(&format!(
                "\n\nFiles of this skill, below {dir} (not the working folder):"
            ));
            for file in files.iter().take(MAX_LISTED_FILES) {
                text.push_str(&format!("\n- {}", escape_hidden_line(&display(file))));
            }
            if files.len() > MAX_LISTED_FILES {
                text.push_str("\n- … and more");
            }
        }
        // The text must not close the element that contains it.
        let text = text.replace("</skill_content", "< /skill_content");
        let dir = dir.replace('"', "&quot;");
        Some(format!("{}\"{dir}\">\n{text}\n</skill_content>", self.head()))
    }

    /// The beginning of the loaded text.
    pub fn head(&self) -> String {
        format!("<skill_content name=\"{}\" dir=", self.name)
    }

    /// The other files of the skill, at most one more than are listed.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        list_files(&self.folder, Path::new(""), MAX_FILE_DEPTH, &mut files);
        files.retain(|path| path != Path::new(self.file_name));
        files
    }
}

fn list_files(base: &Path, below: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(base.join(below)) else { return };
    let mut entries: Vec<_> = entries.filter_map(Result::ok).take(1_000).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        if files.len() > MAX_LISTED_FILES {
            return;
        }
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if kind.is_file() && !is_hidden {
            files.push(path);
        } else if kind.is_dir() && !is_hidden && depth > 1 {
            list_files(base, &path, depth - 1, files);
        }
    }
}

/// Returns the text after the front matter if that gives a skill this name and description, and lets a model invoke it.
/// Of the description, white space and the marks of quoting are not compared, because there are several ways to quote
/// and wrap it.
pub fn described_body<'a>(text: &'a str, name: &str, description: &str) -> Option<&'a str> {
    let (head, body) = front_matter::split(text);
    let words = head.description.unwrap_or_default();
    let is_same = head.name.as_deref() == Some(name) && compared(&words).eq(compared(description));
    (is_same && !head.is_user_only).then_some(body)
}

/// The characters of a description that are compared.
fn compared(description: &str) -> impl Iterator<Item = char> {
    description.chars().filter(|char| !char.is_whitespace() && !"\"'\\".contains(*char))
}

/// A line for each skill that the model may load; `None` if there are none. The more skills there
/// are, the shorter are the descriptions.
pub fn catalogue(skills: &[Skill]) -> Option<String> {
    let offered: Vec<_> = skills.iter().filter(|skill| !skill.is_user_only).collect();
    let names: usize = offered.iter().map(|skill| skill.name.len() + "- : …\n".len()).sum();
    let each = MAX_CATALOGUE_BYTES.saturating_sub(names) / offered.len().max(1);
    let mut text = String::new();
    for Skill { name, description, .. } in offered {
        text.push_str(&format!("- {name}: {}\n", text::clip_bytes(description, each, "…")));
    }
    (!text.is_empty()).then_some(text)
}

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
/// Why a folder was skipped when there were so many.
const TOO_MANY: &str =
    "there are 100 skills already, so neither it nor anything after it is searched";
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
    scan_all(places, stop).0
}

/// Like [`scan`], and also returns the folders whose skills cannot be used, and why.
pub fn scan_all(
    places: &[ScannedFolder],
    stop: &CancellationToken,
) -> (Vec<Skill>, Vec<(PathBuf, &'static str)>) {
    let mut scan =
        SkillScan { found: Vec::new(), skipped: Vec::new(), visited: HashSet::new(), stop };
    for place in places {
        scan.visit(&place.folder, place.within.as_deref(), 0);
    }
    scan.found.sort_by(|a, b| a.name.cmp(&b.name));
    (scan.found, scan.skipped)
}

struct SkillScan<'a> {
    found: Vec<Skill>,
    skipped: Vec<(PathBuf, &'static str)>,
    /// The searched folders, with links resolved.
    visited: HashSet<PathBuf>,
    stop: &'a CancellationToken,
}

impl SkillScan<'_> {
    /// Visits a folder to which a link may lead.
    fn visit(&mut self, folder: &Path, within: Option<&Path>, depth: usize) {
        let real = real_path(folder).ok();
        let allowed = real.filter(|real| within.is_none_or(|folder| real.starts_with(folder)));
        let Some(folder) = allowed.as_deref() else { return };
        let is_full = self.found.len() >= MAX_SKILLS;
        if is_full && self.skipped.last().is_none_or(|(_, reason)| *reason != TOO_MANY) {
            self.skipped.push((folder.to_path_buf(), TOO_MANY));
        }
        let is_over = is_full || self.visited.len() >= MAX_FOLDERS;
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
            let may_be = entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink());
            if may_be && name != ".git" && name != "node_modules" {
                folders.push(name);
            }
        }
        folders.sort();
        for name in folders {
            self.visit(&folder.join(name), within, depth + 1);
        }
    }

    /// Adds the skill of this folder; `false` if it has none.
    fn add(&mut self, folder: &Path, within: Option<&Path>) -> bool {
        let mut names = FILE_NAMES.into_iter();
        let found = names.find(|name| folder.join(name).symlink_metadata().is_ok());
        let Some(file_name) = found else { return false };
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
        self.skipped.push((folder.to_path_buf(), reason));
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
    let given_name = slug(&given);
    let typed = given_name.clone().filter(|name| *name == composed(&given));
    let usable = typed.or(own_name).or(given_name);
    let name = usable.ok_or("neither its name nor that of its folder has letters or digits")?;
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

/// A text as a name that can be typed, in any script: `My Tool` is `my-tool`. `None` if no character is left.
pub fn slug(text: &str) -> Option<String> {
    let text = text::cut(composed(text).to_lowercase(), MAX_NAME_CHARS);
    let name = hyphenated(&text, |char| {
        (char.is_alphanumeric() || is_mark(char)) && !is_hidden_char(char)
    });
    Some(name).filter(|name| !name.is_empty())
}

/// Joins the words of a text with hyphens. `is_part` returns true for the characters of words.
pub(crate) fn hyphenated(text: &str, is_part: impl Fn(char) -> bool) -> String {
    let words = text.split(|char| !is_part(char)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
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

/// After this many bytes nothing more is substituted, because a text may use its arguments a
/// thousand times.
const MAX_BYTES: usize = 128 * 1024;

/// Substitutes the arguments. If the text does not use them, they are appended. A `\` before a `$` keeps it.
/// In code and comments, `$1` belongs to them, and no shell has a variable `$ARGUMENTS`. A text with `$0` counts from
/// there, as `$ARGUMENTS[0]` always does.
pub(crate) fn substitute(text: &str, args: &str) -> String {
    let text = &*without_smuggled_text(text);
    let args = args.trim();
    let words = split_words(args);
    let first = if names_zero(text) { b'0' } else { b'1' };
    let mut code = code_and_comments(text).into_iter().peekable();
    let mut filled = String::with_capacity(text.len() + args.len());
    let mut at = 0;
    let mut is_used = args.is_empty();
    while filled.len() < MAX_BYTES
        && let Some(next) = text[at..].find(['$', '\\'])
    {
        filled.push_str(&text[at..at + next]);
        at += next;
        while code.next_if(|range| range.end <= at).is_some() {}
        let is_code = code.peek().is_some_and(|range| range.contains(&at));
        let rest = &text[at..];
        let is_escape =
            !is_code && rest.starts_with('\\') && placeholder(&rest[1..], first).is_some();
        let is_named = rest.starts_with(ALL_ARGUMENTS);
        match placeholder(rest, first) {
            Some((index, length)) if is_named || !is_code && !args.is_empty() => {
                let word = index.map(|index| words.get(index).copied().unwrap_or_default());
                filled.push_str(word.unwrap_or(args));
                at += length;
                is_used = true;
            }
            _ => {
                filled.push_str(if is_escape { "$" } else { &rest[..1] });
                at += if is_escape { 2 } else { 1 };
            }
        }
    }
    filled.push_str(&text[at..]);
    if !is_used {
        filled.push_str(&format!("\n\nArguments: {args}"));
    }
    filled
}

/// Where code and comments are in Markdown, in order, and where it ends.
pub(crate) fn code_and_comments(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (event, mut range) in Parser::new(text).into_offset_iter() {
        match event {
            Event::Code(_) | Event::Start(Tag::CodeBlock(_)) => found.push(range),
            Event::InlineHtml(_) | Event::Start(Tag::HtmlBlock) => {
                while let Some(at) = text[range.clone()].find("<!--") {
                    range.start += at;
                    let length = text[range.clone()].find("-->").map(|at| at + "-->".len());
                    let end = length.map_or(range.end, |length| range.start + length);
                    found.push(range.start..end);
                    range.start = end;
                }
            }
            _ => {}
        }
    }
    found.push(text.len()..text.len());
    found
}

/// Stands for all arguments, and with an index behind it for one of them.
const ALL_ARGUMENTS: &str = "$ARGUMENTS";

/// Returns true if a text names its first argument `$0`, and not only in code.
fn names_zero(text: &str) -> bool {
    let mut code = code_and_comments(text).into_iter().peekable();
    text.match_indices("$0").any(|(at, _)| {
        while code.next_if(|range| range.end <= at).is_some() {}
        let is_code = code.peek().is_some_and(|range| range.contains(&at));
        !is_code && !text[..at].ends_with('\\') && placeholder(&text[at..], b'0').is_some()
    })
}

/// The placeholder at the beginning of a text, with its length: the index of a word, or `None` for all. The number of
/// the first word is `first`. An amount such as `$1.2M` is none.
fn placeholder(text: &str, first: u8) -> Option<(Option<usize>, usize)> {
    if let Some(behind) = text.strip_prefix(ALL_ARGUMENTS) {
        let digits = behind.strip_prefix('[').and_then(|rest| Some(rest.split_once(']')?.0));
        let index = digits.and_then(|digits| digits.parse().ok());
        let length = index.and(digits).map_or(0, |digits| digits.len() + "[]".len());
        return Some((index, ALL_ARGUMENTS.len() + length));
    }
    let mut following = text.strip_prefix('$')?.bytes();
    let digit = following.next().filter(|byte| (first..=b'9').contains(byte))?;
    let goes_on = match following.next() {
        Some(b'.' | b',') => following.next().is_some_and(|byte| byte.is_ascii_digit()),
        next => next.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
    };
    (!goes_on).then_some((Some(usize::from(digit - first)), 2))
}

/// The words of a text. Quotes group words.
fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after) = split_word(rest);
        words.push(word);
        rest = after;
    }
    words
}

/// Splits off the first word or quoted text. An unterminated quote is an ordinary character.
pub fn split_word(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote)
            && let Some((word, after)) = inner.split_once(quote)
            && (after.is_empty() || after.starts_with(char::is_whitespace))
        {
            return (word, after.trim_start());
        }
    }
    let (word, after) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, after.trim_start())
}

/// Private functions of this module for the fuzz targets. The program does not use them.
pub mod fuzzing {
    use super::front_matter;

    /// The name, description and argument hint of a SKILL.md, and its body.
    pub fn split(text: &str) -> ([Option<String>; 3], &str) {
        let (head, body) = front_matter::split(text);
        ([head.name, head.description, head.argument_hint], body)
    }

    pub fn substitute(text: &str, args: &str) -> String {
        super::substitute(text, args)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;

    fn skill(name: &str, description: &str) -> Skill {
        Skill {
            name: name.to_owned(),
            description: description.to_owned(),
            argument_hint: None,
            is_user_only: false,
            file_name: "SKILL.md",
            folder: PathBuf::from("/skills"),
            within: None,
        }
    }

    #[test]
    fn the_folder_is_named_a_bounded_number_of_times() {
        let base = tempfile::tempdir().unwrap();
        fs::write(base.path().join("SKILL.md"), SKILL_FOLDER.repeat(1_000)).unwrap();
        let hostile = Skill { folder: base.path().to_path_buf(), ..skill("a", "b") };
        let text = hostile.load("").unwrap();
        assert_eq!(text.matches(SKILL_FOLDER).count(), 1_000 - MAX_FOLDER_NAMES);
    }

    #[test]
    fn the_catalogue_names_all_skills_and_keeps_its_limit() {
        assert_eq!(catalogue(&[]), None);
        let hidden = Skill { is_user_only: true, ..skill("hidden", "x") };
        assert_eq!(catalogue(std::slice::from_ref(&hidden)), None);
        let two = [skill("a", "One."), hidden, skill("b", "Two.")];
        assert_eq!(catalogue(&two).unwrap(), "- a: One.\n- b: Two.\n");
        let many: Vec<_> =
            (0..100).map(|number| skill(&format!("skill-{number}"), &"é".repeat(512))).collect();
        let text = catalogue(&many).unwrap();
        assert!(
            text.len() <= MAX_CATALOGUE_BYTES && text.len() > MAX_CATALOGUE_BYTES / 2,
            "{}",
            text.len()
        );
        assert_eq!(text.lines().count(), 100);
    }

    #[test]
    fn a_text_is_of_a_skill_only_if_its_front_matter_says_so() {
        let table = [
            ("---\nname: a\ndescription: Does it.\n---\nDo.", Some("Do.")),
            (
                "---\nname: \"a\"\ndescription: >\n  Does\n  it.\nallowed-tools: \"*\"\n---\nDo.",
                Some("Do."),
            ),
            ("---\nname: b\ndescription: Does it.\n---\nDo.", None),
            ("---\nname: a\ndescription: Does all.\n---\nDo.", None),
            ("---\nname: a\ndescription: Does it?\n---\nDo.", None),
            ("---\nname: a\ndescription: 'Does  it.'\n---\nDo.", Some("Do.")),
            ("---\nname: a\ndescription: Does it.\ndisable-model-invocation: true\n---\nDo.", None),
            ("---\nname: a\n---\nDo.", None),
            ("Do.", None),
        ];
        for (text, expected) in table {
            assert_eq!(described_body(text, "a", "Does it."), expected, "{text}");
        }
    }

    #[test]
    fn a_skill_is_loaded_once_until_its_text_changes_or_it_is_forgotten() {
        let skills = SkillSet::default();
        let load = |text: &str| skills.mark_loaded("a", text);
        assert!(skills.skills().is_none());
        skills.replace(vec![skill("a", "x")]);
        assert!(load("One.") && !load("One."));
        skills.replace(vec![skill("a", "x")]);
        assert!(!load("One."), "the first prompt may have loaded it");
        assert!(load("Two.") && !load("Two."));
        skills.forget_loaded();
        assert!(load("Two."));
    }

    fn put(folder: &Path, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("SKILL.md"), text).unwrap();
    }

    fn skill_text(name: &str, description: &str) -> String {
        format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
    }

    #[test]
    fn skills_are_found_once_whatever_the_folders_look_like() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        let ws = base.join("ws");
        let user = base.join("user");
        put(&ws.join("skills/deploy"), &skill_text("deploy", "of the project"));
        put(&ws.join("skills/a/b/deep"), "---\ndescription: named by its folder\n---\n");
        put(&ws.join("skills/1/2/3/4/5/6/deeper"), &skill_text("deeper", "too deep"));
        put(&ws.join("skills/mute"), "---\nname: mute\n---\n");
        put(&ws.join("skills/my-tool"), &skill_text("My Tool", "x"));
        put(&ws.join("skills/Python_Testing"), &skill_text("Python Testing", "x"));
        put(&ws.join("skills/\u{e9}"), &skill_text("Another One", "x"));
        put(&ws.join("skills/writer"), &skill_text("写作者", "x"));
        put(&ws.join("skills/e\u{300}-代码"), &skill_text("R\u{e9}dacteur Fran\u{e7}ais", "x"));
        put(&ws.join("skills/\u{3001}"), &skill_text("Yet Another", "x"));
        put(&ws.join("skills/\u{2026}"), &skill_text("\u{1f680}", "x"));
        put(&ws.join("skills/told"), "# Title\n\nTold by\nits text.\n\nMore.\n");
        fs::create_dir_all(ws.join("skills/small")).unwrap();
        fs::write(ws.join("skills/small/skill.md"), skill_text("small", "x")).unwrap();
        put(&user.join("deploy"), &skill_text("deploy", "of the user"));
        put(
            &user.join("own"),
            "---\nname: own\ndescription: x\n---\nRun ${CLAUDE_SKILL_DIR}/a.py $1.\n",
        );
        put(&base.join("secret"), &skill_text("secret", "outside of the project"));
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
                "deep: named by its folder",
                "deploy: of the project",
                "my-tool: x",
                "own: x",
                "python-testing: x",
                #[cfg(unix)]
                "secret: outside of the project",
                "small: x",
                "told: Told by its text.",
                "yet-another: x",
                "\u{e8}-代码: x",
                "\u{e9}: x",
                "写作者: x",
            ]
        );
        let skipped: Vec<_> = skipped
            .iter()
            .map(|(folder, reason)| format!("{}: {reason}", folder.file_name().unwrap().display()))
            .collect();
        assert_eq!(
            skipped,
            [
                #[cfg(unix)]
                "linked: its file cannot be read, or leads out of the project",
                "mute: it has neither a description nor a text",
                "\u{2026}: neither its name nor that of its folder has letters or digits",
                "deploy: another skill has its name",
            ]
        );
        let small = found.iter().find(|skill| skill.name == "small").unwrap();
        assert!(small.load("").unwrap().contains("Do it."));
        let own = found.iter().find(|skill| skill.name == "own").unwrap();
        let line = format!("Run {}/a.py b.", own.folder.display());
        assert!(own.load("b").unwrap().contains(&line), "{line}");
        let stop = CancellationToken::new();
        stop.cancel();
        assert!(scan(&places, &stop).is_empty());
    }

    #[test]
    fn skills_beyond_the_limit_are_said_to_be_skipped_once() {
        let temp = tempfile::tempdir().unwrap();
        let base = real_path(temp.path()).unwrap();
        for number in 0..MAX_SKILLS + 2 {
            let name = format!("skill-{number:03}");
            put(&base.join(&name), &skill_text(&name, "x"));
        }
        let places = [ScannedFolder { folder: base.clone(), within: None }];
        let (found, skipped) = scan_all(&places, &CancellationToken::new());
        assert_eq!(found.len(), MAX_SKILLS);
        assert_eq!(skipped, [(base.join("skill-100"), TOO_MANY)]);
    }

    #[test]
    fn arguments_are_put_where_the_text_wants_them() {
        let table = [
            ("Release $ARGUMENTS now", "v1 fast", "Release v1 fast now"),
            ("Release $1, $2 and $3.", "v1 fast", "Release v1, fast and ."),
            ("Release it", "v1", "Release it\n\nArguments: v1"),
            ("Release $ARGUMENTS", "", "Release "),
            ("awk '{print $1}'", "", "awk '{print $1}'"),
            ("$1 costs $10 or $", "x", "x costs $10 or $"),
            ("$ARGUMENTS", "$1 $ARGUMENTS", "$1 $ARGUMENTS"),
            ("é$1é", "ä", "éäé"),
            ("It costs $1.2M, $1,000 or $2M; $1.md", "x", "It costs $1.2M, $1,000 or $2M; x.md"),
            (r"Not \$1 but $1", "x", "Not $1 but x"),
            (r"\$ARGUMENTS, \$1 and \n", "", r"$ARGUMENTS, $1 and \n"),
            (r"\$ARGUMENTS", "x", "$ARGUMENTS\n\nArguments: x"),
            ("Run `awk '{print $1}'` on $1", "x", "Run `awk '{print $1}'` on x"),
            ("``a ` $1`` $1", "x", "``a ` $1`` x"),
            ("<!-- Takes $1. -->\nRun $1", "x", "<!-- Takes $1. -->\nRun x"),
            ("```sh\necho $1\n```\n$1", "x", "```sh\necho $1\n```\nx"),
            ("  ~~~\n$1", "x", "  ~~~\n$1\n\nArguments: x"),
            // No program has a variable of this name.
            ("`gh issue view $ARGUMENTS`", "7", "`gh issue view 7`"),
            ("a ` b $1 `` c", "x", "a ` b x `` c"),
            ("$1 and $2", "\"hello world\" 'b c'", "hello world and b c"),
            ("$1 and $2", "it's so", "it's and so"),
            ("Migrate $0 from $1 to $2", "Bar React Vue", "Migrate Bar from React to Vue"),
            ("$ARGUMENTS[0] to `$ARGUMENTS[1]`$ARGUMENTS[9]", "a b", "a to `b`"),
            ("$ARGUMENTS[x] $ARGUMENTS[", "a", "a[x] a["),
            (r"$1, `$0`, \$0 and $0.50", "a b", r"a, `$0`, \$0 and $0.50"),
        ];
        for (text, args, expected) in table {
            assert_eq!(substitute(text, args), expected, "{text}");
        }
    }

    #[test]
    fn quotes_of_code_that_never_end_take_linear_time() {
        let text: String = (1..500).map(|count| "`".repeat(count) + " ").collect();
        assert!(substitute(&text, "x").ends_with("Arguments: x"));
    }

    #[test]
    fn repeated_arguments_are_bounded() {
        let filled = substitute(&"$ARGUMENTS".repeat(6_000), &"x".repeat(4_000));
        assert!(filled.starts_with("xxx") && filled.len() < 2 * MAX_BYTES, "{}", filled.len());
    }
}
