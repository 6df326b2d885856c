//! The context that the model gets besides the prompt. At the beginning of a session: the surroundings, instructions,
//! the index of notes, the catalogue of skills. It is added to the first prompt of a conversation, if it can be
//! read quickly: reading blocks. Later, with the result of the first call that touches a file of a folder below the
//! session's, the instructions of that folder.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::tools::{ToolEnv, Toolbox, UserFolders, note_folders};
use crate::turn::{Turn, context_parts};
use turnwright_policy::permission::DeniedPaths;
use turnwright_recording::outside::AnswerKind;
use turnwright_types::effect::{Effect, escape_hidden_line, fenced};
use turnwright_types::look_alike::without_smuggled_text;
use turnwright_types::message::{Message, PromptPart};
use turnwright_workspace::custom_commands::{self, CustomCommand};
use turnwright_workspace::files::Roots;
use turnwright_workspace::git_repository::is_repository_root;
use turnwright_workspace::memory::instructions::{self, Instructions};
use turnwright_workspace::memory::{self, NoteFolder};
use turnwright_workspace::real_path;
use turnwright_workspace::skills::{self, ScannedFolder, Skill};

/// The name of the text among recorded answers.
const PROJECT_CONTEXT: &str = "project context";
/// The fields of the recorded answer, which is the text alone if all files could be read.
const TEXT: &str = "text";
const UNREADABLE: &str = "unreadable";
const CUT: &str = "cut";
/// Why the user is told of files.
const NOT_READ: &str = "were not read: not text (save it as UTF-8), or a link out of the project.";
const WERE_CUT: &str =
    "were cut: all files together may have 32 KiB. The model is told to read the rest.";

/// The time that a prompt waits for instructions, skills and commands to be read. It takes some milliseconds; the
/// bound is for file systems that hang, and leaves room for a slow disk or a busy machine: without the
/// instructions the model does the wrong thing.
pub(crate) const PROJECT_READ_TIMEOUT: Duration = Duration::from_secs(2);

/// The folders of skills below a project and, except for the first, below the home folder.
const SKILL_FOLDERS: &[&str] = &[".turnwright/skills", ".agents/skills", ".claude/skills"];

/// The folders of custom commands below a project and, except for the first, below the home folder.
const COMMAND_FOLDERS: &[&str] = &[".turnwright/commands", ".claude/commands"];

impl Turn {
    /// Runs once for each conversation; again if it was cleared, or if the files were not read in
    /// time.
    pub(in crate::turn) async fn add_project_context(&mut self) {
        let answers = Arc::clone(&self.conversation.env.shared.process.outside);
        // A replay reads no files.
        if answers.is_played(PROJECT_CONTEXT) {
            let recorded = answers.recorded_answer(AnswerKind::View, PROJECT_CONTEXT, &Value::Null);
            if let Some(context) = recorded.filter(|_| self.prompt.first_message == 0) {
                self.use_context(&context);
            }
            return;
        }
        if self.prompt.first_message > 0 && self.conversation.env.skills.skills().is_some() {
            return;
        }
        let surroundings = self.surroundings().await;
        let env = Arc::clone(&self.conversation.env);
        let tools = Arc::clone(&self.conversation.tools);
        let stop = self.cancel.child_token();
        let stopped = stop.clone();
        let reading =
            spawn_blocking(move || read_project_context(&env, &tools, surroundings, &stopped));
        let cancellable = self.cancel.run_until_cancelled(reading);
        let read = tokio::time::timeout(PROJECT_READ_TIMEOUT, cancellable).await;
        // A read that is still going on stops at the next file.
        stop.cancel();
        match read {
            // The text and the list of skills are used together or not at all.
            Ok(Some(Ok((context, skills)))) => {
                self.allow_loaded_skills(&skills);
                self.conversation.env.skills.replace(skills);
                self.conversation.told.lock().lacks_instructions = false;
                answers.record_answer(AnswerKind::View, PROJECT_CONTEXT, &Value::Null, &|| {
                    context.clone()
                });
                self.use_context(&context);
            }
            Ok(None) => {}
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "the instructions were not read");
                self.report_missing_context("could not be read");
            }
            Err(_) => self.report_missing_context("could not be read in time"),
        }
    }

    /// Lets the model read the files of skills that an earlier process has loaded in this conversation. A file that
    /// looks like one opens nothing that the model could not load without a question.
    fn allow_loaded_skills(&self, skills: &[Skill]) {
        let is_offered = self.conversation.tools.find("skill").is_ok();
        if !is_offered || !self.has_been_told("<skill_content name=\"") {
            return;
        }
        let offered = skills.iter().filter(|skill| !skill.is_user_only);
        for skill in offered.filter(|skill| self.has_been_told(&skill.head())) {
            self.conversation.env.files.roots().allow_read(skill.folder.clone());
        }
    }

    /// The surroundings, which only the first prompt of a conversation brings. It waits a moment for them; what comes
    /// later is left out of this session.
    async fn surroundings(&self) -> Option<Arc<str>> {
        let gathered = self.conversation.env.shared.surroundings.get();
        let wanted = gathered.filter(|_| self.prompt.first_message == 0)?.clone();
        self.cancel.run_until_cancelled(wanted).await.flatten()
    }

    /// Adds a context as it is kept, and names the files of instructions that are not in it as a whole.
    fn use_context(&mut self, kept: &Value) {
        for (field, why) in [(UNREADABLE, NOT_READ), (CUT, WERE_CUT)] {
            let files = kept[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            let names = files.collect::<Vec<_>>().join(", ");
            if !names.is_empty() {
                self.conversation.notify_once(format!("The instructions in {names} {why}"));
            }
        }
        let text = kept.as_str().or_else(|| kept[TEXT].as_str());
        self.add_context(text.unwrap_or_default().to_owned());
    }

    /// Tells the user once, and the model once in each conversation.
    fn report_missing_context(&mut self, why: &str) {
        let is_known =
            std::mem::replace(&mut self.conversation.told.lock().lacks_instructions, true);
        if !is_known {
            self.conversation.notify(format!(
                "The project's instructions, notes and skills {why}, so the model does not have \
                 them. Your next prompt tries again."
            ));
        }
        if !is_known || self.prompt.first_message == 0 {
            self.add_context(format!(
                "Instructions, notes and skills of the user and the project {why}: if there are \
                 any, they are missing here.\n"
            ));
        }
    }

    fn add_context(&mut self, text: String) {
        let prompt = self.history.messages.get_mut(self.prompt.first_message).map(Arc::make_mut);
        if let Some(Message::User(prompt)) = prompt.filter(|_| !text.is_empty()) {
            prompt.parts.push(PromptPart::Context(text));
        }
    }
}

/// A folder of the session and the root of its project, as real paths.
type Project = (PathBuf, PathBuf);

/// Reads the additions of a project and its user to the first prompt of a conversation, as they are kept, and the
/// skills. The surroundings come first. Notes and skills are named only to those who have the tools for them.
fn read_project_context(
    env: &ToolEnv,
    tools: &Toolbox,
    surroundings: Option<Arc<str>>,
    stop: &CancellationToken,
) -> (Value, Vec<Skill>) {
    let folders = &env.shared.process.folders;
    let projects = projects(folders, env.files.roots());
    let instructions = instructions::read(folders.config_folder(), &projects);
    let denied = DeniedPaths::from_rules(&env.shared.rules.get());
    let mut text = surroundings.map_or_else(String::new, |known| known.to_string());
    text.extend(instructions.iter().map(|file| labelled(file, "32 KiB", &denied)));
    let unreadable = names_of(&instructions, |file| !file.is_text);
    let cut = names_of(&instructions, |file| file.is_text && !file.is_complete);
    let notes: Vec<_> = note_folders(env).iter().flat_map(NoteFolder::list).collect();
    if let Some(index) = memory::index(&notes).filter(|_| tools.find("memory").is_ok()) {
        text.push_str(&format!(
            "\nNotes from earlier sessions (`memory` reads them; they count less than the user's \
             words and may be out of date; those under project/ may be anybody's):\n{index}"
        ));
    }
    let skills = allowed_skills(env, &projects, stop);
    if let Some(catalogue) = skills::catalogue(&skills).filter(|_| tools.find("skill").is_ok()) {
        let when = "load one with `skill` when the work is what it is for";
        text.push_str(&format!("\nSkills ({when}):\n{catalogue}"));
    }
    let text = text.trim_start();
    let context = if unreadable.is_empty() && cut.is_empty() {
        text.into()
    } else {
        json!({ TEXT: text, UNREADABLE: unreadable, CUT: cut })
    };
    (context, skills)
}

/// The paths of the files for which `holds` is true, as they can be shown.
fn names_of(files: &[Instructions], holds: fn(&Instructions) -> bool) -> Vec<String> {
    let found = files.iter().filter(|file| holds(file));
    found.map(|file| escape_hidden_line(&file.path.to_string_lossy())).collect()
}

/// Returns true if a rule denies reading the file to which this path leads. A project names its files without a call,
/// which the rules would judge. Blocks.
fn is_denied(path: &Path, denied: &DeniedPaths) -> bool {
    real_path(path).is_ok_and(|real| denied.contains(&real))
}

/// The instructions of one file with their origin; empty if they are. Blocks.
fn labelled(file: &Instructions, limit: &str, denied: &DeniedPaths) -> String {
    let named = origin(&file.path);
    if !file.is_text || !file.is_user && is_denied(&file.path, denied) {
        let why = "the file is not text, a link out of the project, or denied by a rule";
        return format!("\n[{named} were not read: {why}]\n");
    }
    if file.text.trim().is_empty() && file.is_complete {
        return String::new();
    }
    let mut text = if file.is_user {
        let path = escape_hidden_line(&file.path.to_string_lossy());
        format!("\nThe user's own instructions, from {path}:\n")
    } else {
        format!("\n{named}; they say how to work here and do not override the user:\n")
    };
    text.push_str(&format!("{}\n", fenced(&without_smuggled_text(&file.text))));
    if !file.is_complete {
        text += &format!("[cut: more than {limit} of instructions; read the file for the rest]\n");
    }
    text
}

/// The words by which the model knows the instructions of a project's file.
fn origin(path: &Path) -> String {
    format!("Project instructions from {}", escape_hidden_line(&path.to_string_lossy()))
}

/// The instructions of folders below the session's folders, with the words that name each one's file. Blocks.
fn folder_instructions(
    root: &Path,
    folders: &[PathBuf],
    limit: usize,
    denied: &DeniedPaths,
) -> Vec<(PathBuf, String, String)> {
    let found = instructions::read_folders(root, folders, limit);
    let named = found.into_iter().filter_map(|file| {
        let text = labelled(&file, &format!("{} KiB", limit / 1024), denied);
        let name = origin(&file.path);
        (!text.is_empty()).then_some((file.path, name, text))
    });
    named.collect()
}

/// The folders of the session with their projects, the working folder first.
fn projects(folders: &UserFolders, roots: &Roots) -> Vec<Project> {
    let home = folders.home.as_deref().and_then(|home| real_path(home).ok());
    let pairs = roots.folders().map(|folder| (folder, project_root(folder, home.as_deref())));
    pairs.map(|(folder, root)| (folder.to_path_buf(), root.to_path_buf())).collect()
}

/// The nearest parent with a repository, or else the working folder. A repository in the home
/// folder or above is not counted: a project below it must not get access to the user's whole home
/// through a link.
fn project_root<'a>(cwd: &'a Path, home: Option<&Path>) -> &'a Path {
    let mut folders =
        cwd.ancestors().take_while(|folder| !home.is_some_and(|home| home.starts_with(folder)));
    folders.find(|folder| is_repository_root(folder)).unwrap_or(cwd)
}

/// The folders of these names in each folder of the session and in those above it, up to the root of its project.
fn project_places(
    projects: &[Project],
    names: &'static [&'static str],
) -> impl Iterator<Item = ScannedFolder> {
    projects.iter().flat_map(move |(folder, root)| {
        let places = folder.ancestors().take_while(move |place| place.starts_with(root));
        places.flat_map(move |place| {
            names.iter().map(move |name| ScannedFolder {
                folder: place.join(name),
                within: Some(root.clone()),
            })
        })
    })
}

/// The user's own folders: the one of this name beside the settings, and those that other agents share.
fn user_places(folders: &UserFolders, name: &str, shared: &[&str]) -> Vec<ScannedFolder> {
    let own = folders.config_folder().map(|folder| folder.join(name)).into_iter();
    let home = folders.home.iter();
    let all = own.chain(home.flat_map(|home| shared.iter().map(|folder| home.join(folder))));
    all.map(|folder| ScannedFolder { folder, within: None }).collect()
}

/// The nearest folder first, because the first skill of a name wins.
fn skill_folders(folders: &UserFolders, projects: &[Project]) -> Vec<ScannedFolder> {
    let user = user_places(folders, "skills", &SKILL_FOLDERS[1..]);
    project_places(projects, SKILL_FOLDERS).chain(user).collect()
}

/// The custom commands and the skills that the user can run, the user's own commands first: no project can
/// give one of them another meaning. Blocks.
pub(crate) fn custom_commands(
    env: &ToolEnv,
    stop: &CancellationToken,
) -> (Vec<CustomCommand>, Vec<Skill>) {
    let folders = &env.shared.process.folders;
    let projects = projects(folders, env.files.roots());
    let denied = DeniedPaths::from_rules(&env.shared.rules.get());
    let mut commands = custom_commands::scan(&command_folders(folders, &projects), stop);
    commands.retain(|command| !command.is_of_project() || !is_denied(&command.path, &denied));
    (commands, allowed_skills(env, &projects, stop))
}

/// The skills of the user and the projects, without those of a project that a rule denies. Blocks.
fn allowed_skills(env: &ToolEnv, projects: &[Project], stop: &CancellationToken) -> Vec<Skill> {
    let denied = DeniedPaths::from_rules(&env.shared.rules.get());
    let mut found = skills::scan(&skill_folders(&env.shared.process.folders, projects), stop);
    found.retain(|skill| skill.within.is_none() || !is_denied(&skill.file(), &denied));
    found
}

fn command_folders(folders: &UserFolders, projects: &[Project]) -> Vec<ScannedFolder> {
    let user = user_places(folders, "prompts", &COMMAND_FOLDERS[1..]);
    user.into_iter().chain(project_places(projects, COMMAND_FOLDERS)).collect()
}

/// A part of a project that the model is told, at the beginning of each session or, for a command, when
/// the user runs it.
#[derive(Debug)]
pub(crate) struct ProjectSource {
    /// `instructions`, `notes`, `skill` or `command`.
    pub kind: &'static str,
    pub name: String,
    pub path: PathBuf,
}

/// The parts of the projects of these folders that the model is told. Blocks.
pub(crate) fn project_sources(folders: &UserFolders, roots: &Roots) -> Vec<ProjectSource> {
    let projects = projects(folders, roots);
    let mut sources = Vec::new();
    let mut add = |kind, name: String, path| sources.push(ProjectSource { kind, name, path });
    for Instructions { path, .. } in instructions::read(None, &projects) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        add("instructions", name, path);
    }
    let notes = NoteFolder::of_project(roots.real_cwd());
    let count = notes.list().len();
    if count > 0 {
        add("notes", count.to_string(), notes.folder);
    }
    let never = CancellationToken::new();
    let places: Vec<_> = project_places(&projects, SKILL_FOLDERS).collect();
    for Skill { name, folder, .. } in skills::scan(&places, &never) {
        add("skill", name, folder);
    }
    let places: Vec<_> = project_places(&projects, COMMAND_FOLDERS).collect();
    for CustomCommand { name, path, .. } in custom_commands::scan(&places, &never) {
        add("command", name, path);
    }
    sources
}

/// A list of the notes, for people.
pub(crate) fn describe_notes(env: &ToolEnv) -> String {
    let mut text = String::new();
    for folder in note_folders(env) {
        let scope = folder.scope.id();
        for note in folder.list() {
            text.push_str(&format!("* `{}` ({scope}) – {}\n", note.name, note.title));
        }
        let place = folder.folder.display();
        text.push_str(&format!("\nThose of the {scope} lie in `{place}`.\n\n"));
    }
    text
}

/// A list of the current skills, for people.
pub(crate) fn describe_skills(env: &ToolEnv) -> String {
    let folders = &env.shared.process.folders;
    let places = skill_folders(folders, &projects(folders, env.files.roots()));
    let (mut found, skipped) = skills::scan_all(&places, &CancellationToken::new());
    let denied = DeniedPaths::from_rules(&env.shared.rules.get());
    found.retain(|skill| skill.within.is_none() || !is_denied(&skill.file(), &denied));
    let lines = found.iter().map(|skill| format!("* `{}` – {}\n", skill.name, skill.description));
    let mut text: String = lines.collect();
    if found.is_empty() {
        let folders = SKILL_FOLDERS.join("`, `");
        text = format!(
            "There are no skills. A skill is a folder with a `SKILL.md`, below `{folders}` of the project.\n"
        );
    }
    if !skipped.is_empty() {
        text.push_str("\nSkipped:\n\n");
    }
    for (folder, reason) in &skipped {
        let folder = env.files.roots().display_path(&env.files.roots().resolve(folder));
        text.push_str(&format!("* `{folder}` – {reason}\n"));
    }
    text
}

/// The name of the text among recorded answers.
const FOLDER_INSTRUCTIONS: &str = "folder instructions";
/// The most bytes of instructions that one round of calls adds.
const MAX_ROUND_BYTES: usize = 16 * 1024;
/// The most bytes of instructions of folders in one conversation.
const MAX_TOTAL_BYTES: usize = 64 * 1024;
/// The most folders that are looked at after one round of calls.
const MAX_FOLDERS: usize = 64;

/// Folders of packages that others have written. Their instructions are none for the work on this project.
const PACKAGE_FOLDERS: [&str; 4] = ["node_modules", "site-packages", "vendor", "Pods"];

/// The folders whose instructions the model has, or that have none.
#[derive(Debug, Default)]
pub(in crate::turn) struct ToldFolders {
    folders: HashSet<PathBuf>,
    /// The bytes of the instructions that the model got.
    bytes: usize,
}

impl ToldFolders {
    /// The real paths that a call touches and that are new. The folders of a known path are known, too.
    pub(in crate::turn) fn new_paths(&self, effects: &[Effect]) -> Vec<PathBuf> {
        let mut touched = Vec::new();
        for effect in effects {
            match effect {
                Effect::Read(target) | Effect::Write(target) | Effect::Delete(target) => {
                    touched.push(&target.path);
                }
                Effect::Exec(command) => {
                    touched.extend(command.reads.iter().map(|target| &target.path));
                    touched.push(&command.workdir);
                }
                Effect::Input { .. }
                | Effect::Signal { .. }
                | Effect::Fetch { .. }
                | Effect::Search { .. }
                | Effect::Remote(_)
                | Effect::SessionState => {}
            }
        }
        touched.retain(|path| !self.folders.contains(*path));
        touched.into_iter().cloned().collect()
    }

    /// The folders that are new, and how many bytes their instructions may have.
    fn take_new(&mut self, mut folders: Vec<PathBuf>) -> (Vec<PathBuf>, usize) {
        folders.retain(|folder| !self.folders.contains(folder));
        folders.truncate(MAX_FOLDERS);
        self.folders.extend(folders.iter().cloned());
        (folders, MAX_TOTAL_BYTES.saturating_sub(self.bytes).min(MAX_ROUND_BYTES))
    }

    /// Notes that the instructions of these folders could not be read in time.
    fn take_back(&mut self, folders: &[PathBuf]) {
        self.folders.retain(|folder| !folders.contains(folder));
    }
}

/// The folders of these paths below each folder of the session, from there down to one of packages. A path may be a
/// folder.
fn folders_below(roots: &Roots, paths: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut found = BTreeMap::<_, Vec<PathBuf>>::new();
    for path in paths {
        let above = roots.folders().filter(|folder| path.starts_with(folder));
        let Some(root) = above.max_by_key(|folder| folder.as_os_str().len()) else { continue };
        let folders = found.entry(root.to_path_buf()).or_default();
        let below: Vec<_> = path.ancestors().take_while(|folder| *folder != root).collect();
        let down = below.into_iter().rev().map(Path::to_path_buf);
        let own =
            down.take_while(|place| !PACKAGE_FOLDERS.iter().any(|name| place.ends_with(name)));
        let new: Vec<_> = own.filter(|folder| !folders.contains(folder)).collect();
        folders.extend(new);
    }
    found
}

impl Turn {
    /// The instructions of the folders that these paths lie in, as far as the model does not have them.
    pub(in crate::turn) async fn new_folder_instructions(
        &self,
        touched: Vec<PathBuf>,
    ) -> Option<String> {
        let mut text = String::new();
        let answers = &self.conversation.env.shared.process.outside;
        let named = || touched.iter().map(|path| path.to_string_lossy()).collect::<Value>();
        // A replay reads no files.
        if answers.is_played(FOLDER_INSTRUCTIONS) {
            let recorded =
                answers.recorded_answer(AnswerKind::View, FOLDER_INSTRUCTIONS, &named())?;
            return recorded.as_str().map(str::to_owned);
        }
        for (root, folders) in folders_below(self.conversation.env.files.roots(), &touched) {
            let (folders, limit) = self.conversation.told.lock().folders.take_new(folders);
            if folders.is_empty() || limit == 0 {
                continue;
            }
            let looked_at = folders.clone();
            let denied = DeniedPaths::from_rules(&self.conversation.env.shared.rules.get());
            let reading =
                spawn_blocking(move || folder_instructions(&root, &folders, limit, &denied));
            let cancellable = self.cancel.run_until_cancelled(reading);
            let read = tokio::time::timeout(PROJECT_READ_TIMEOUT, cancellable).await;
            let Ok(Some(Ok(found))) = read else {
                self.conversation.told.lock().folders.take_back(&looked_at);
                continue;
            };
            // The model has a file that it has just read, and those of a conversation that was loaded.
            let new = found.into_iter().filter(|(path, origin, _)| {
                !touched.contains(path) && !self.has_been_told(&format!("\n{origin}; "))
            });
            text.extend(new.map(|(_, _, instructions)| instructions));
        }
        self.conversation.told.lock().folders.bytes += text.len();
        let text = Some(text).filter(|text| !text.is_empty())?;
        answers.record_answer(AnswerKind::View, FOLDER_INSTRUCTIONS, &named(), &|| json!(text));
        Some(text)
    }

    /// Returns true if an earlier result, or the context of a prompt, has these words.
    fn has_been_told(&self, words: &str) -> bool {
        self.history.messages.iter().any(|message| match &**message {
            Message::Tool(result) => result.text.contains(words),
            Message::User(_) | Message::Assistant(_) => {
                context_parts(message).any(|text| text.contains(words))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_commands_for_claude_code_come_before_those_of_the_project() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        let folders =
            UserFolders { config: path("own"), state: path("state"), home: Some(path("home")) };
        let found = command_folders(&folders, &[(path("ws"), path("ws"))]);
        let names: Vec<_> = found.iter().map(|place| place.folder.clone()).collect();
        let expected = [
            "own/prompts",
            "home/.claude/commands",
            "ws/.turnwright/commands",
            "ws/.claude/commands",
        ];
        assert_eq!(names, expected.map(path));
    }

    #[test]
    fn skills_and_commands_of_all_folders_up_to_the_root_count_and_the_nearest_come_first() {
        let projects = [(PathBuf::from("/r/a/b"), PathBuf::from("/r"))];
        let found = project_places(&projects, &["x", "y"]).map(|place| place.folder);
        let expected = ["/r/a/b/x", "/r/a/b/y", "/r/a/x", "/r/a/y", "/r/x", "/r/y"];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(PathBuf::from));
        let root = [(projects[0].1.clone(), projects[0].1.clone())];
        assert_eq!(project_places(&root, &["x"]).count(), 1);
    }

    #[test]
    fn a_project_is_a_repository_below_the_home_folder_and_an_empty_git_folder_is_none() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        for folder in [
            "home/.git/HEAD",
            "home/loose/deep",
            "home/own/.git/HEAD",
            "home/own/deep/.git",
            "home/other/.jj",
            "home/other/deep",
        ] {
            std::fs::create_dir_all(base.path().join(folder)).unwrap();
        }
        for (cwd, expected) in [
            ("home/own/deep", "home/own"),
            ("home/other/deep", "home/other"),
            ("home/loose/deep", "home/loose/deep"),
            ("home", "home"),
        ] {
            let cwd = base.path().join(cwd);
            assert_eq!(project_root(&cwd, Some(&home)), base.path().join(expected));
        }
        let loose = home.join("loose");
        assert_eq!(project_root(&loose, None), home);
    }

    #[test]
    fn folders_are_listed_from_the_session_s_folder_down_and_once_and_none_of_packages() {
        let base = tempfile::tempdir().unwrap();
        let base = real_path(base.path()).unwrap();
        let ws = base.join("ws");
        let more = base.join("ws/more");
        std::fs::create_dir_all(&more).unwrap();
        let roots = Roots::new(&ws).unwrap().with_folder(&more).unwrap();
        let packages = ["ws/a/node_modules/p/i.js", "ws/v/lib/site-packages/p", "ws/vendor"];
        let paths = ["ws/a/b/x", "ws/a/y", "ws", "ws/more/c", "elsewhere/z"]
            .into_iter()
            .chain(packages)
            .map(|path| base.join(path))
            .collect::<Vec<_>>();
        let found = folders_below(&roots, &paths);
        let all = found.values().flatten();
        let shown: Vec<_> = all.map(|folder| folder.strip_prefix(&base).unwrap()).collect();
        let expected = ["ws/a", "ws/a/b", "ws/a/b/x", "ws/a/y", "ws/v", "ws/v/lib", "ws/more/c"];
        assert_eq!(shown, expected.map(Path::new));
    }

    #[test]
    fn a_folder_is_new_once_until_all_is_forgotten() {
        let mut known = ToldFolders::default();
        let folders = || vec![PathBuf::from("/a"), PathBuf::from("/a/b")];
        assert_eq!(known.take_new(vec![PathBuf::from("/a")]).0.len(), 1);
        assert_eq!(known.take_new(folders()), (vec![PathBuf::from("/a/b")], MAX_ROUND_BYTES));
        known.bytes = MAX_TOTAL_BYTES - 7;
        assert_eq!(known.take_new(folders()), (Vec::new(), 7));
        known = ToldFolders::default();
        assert_eq!(known.take_new(folders()), (folders(), MAX_ROUND_BYTES));
    }
}
