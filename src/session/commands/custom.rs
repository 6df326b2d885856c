//! Commands that files bring: custom commands and skills, which the user runs as `/name`, and the built-in
//! prompts. Each stands for a text that the model gets with the user's words. The text is data: nothing in
//! it is executed, and it may come from a project that the user does not trust, because only what the user
//! types runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use super::{CommandCall, PromptWork, SessionActor, split};
use crate::tools::{SharedValue, ToolEnv};
use crate::turn::{self, COMMAND_HEAD};
use tokio::task::spawn_blocking;
use turnwright_types::effect::{escape_hidden_line, fenced};
use turnwright_types::message::UserMessage;
use turnwright_types::text;
use turnwright_types::update::SlashCommand;
use turnwright_workspace::custom_commands::{CustomCommand, is_name_char};
use turnwright_workspace::skills::Skill;

/// The commands of a session that files bring. A prompt that names an unknown one looks for new files.
/// Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::session) struct CustomCommands {
    known: SharedValue<(Vec<CustomCommand>, Vec<Skill>)>,
    /// True after a scan until somebody asks for its result.
    is_new: Arc<AtomicBool>,
}

/// The text that a slash command stands for.
#[derive(Clone, Debug)]
pub(in crate::session) enum CommandText {
    BuiltIn(&'static str),
    File(CustomCommand),
    Skills(Vec<Skill>),
}

impl CustomCommands {
    /// Searches the files. If that takes too long, what was known before stays.
    pub(in crate::session) async fn rescan(&self, env: &Arc<ToolEnv>) {
        let env = Arc::clone(env);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let scanning = spawn_blocking(move || turn::custom_commands(&env, &token));
        let scanned = tokio::time::timeout(turn::PROJECT_READ_TIMEOUT, scanning).await;
        if let Ok(Ok(found)) = scanned {
            self.known.set(found);
            self.is_new.store(true, Ordering::Relaxed);
        }
        // A search that is still going on stops at the next file.
        stop.cancel();
    }

    /// Returns true if the files were searched since the last call.
    pub(in crate::session) fn take_news(&self) -> bool {
        self.is_new.swap(false, Ordering::Relaxed)
    }

    pub(in crate::session) fn find(&self, name: &str) -> Option<CommandText> {
        let known = self.known.get();
        let (commands, skills) = known.as_ref();
        if let Some(command) = named(commands, name, |command| &command.name) {
            return Some(CommandText::File(command.clone()));
        }
        let skill = named(skills, name, |skill| &skill.name).cloned();
        skill.map(|skill| CommandText::Skills(vec![skill]))
    }

    /// The user's own command in place of one of our prompts. No other built-in command is replaced.
    pub(in crate::session) fn in_place_of(&self, name: &str) -> Option<CommandText> {
        let is_ours = PROMPTS.iter().any(|ours| ours.eq_ignore_ascii_case(name));
        let found = if is_ours { self.find(name) } else { None };
        found
            .filter(|found| matches!(found, CommandText::File(command) if !command.is_of_project()))
    }

    /// The skills that a prompt invokes, if there are any.
    pub(in crate::session) fn invoked(&self, prompt: &UserMessage) -> Option<CommandText> {
        let known = self.known.get();
        let invoked = known.1.iter().filter(|skill| prompt.skills().any(|name| name == skill.name));
        let skills: Vec<_> = invoked.cloned().collect();
        (!skills.is_empty()).then_some(CommandText::Skills(skills))
    }

    /// The commands for the client's menu. A name that is `taken` keeps its meaning.
    pub(in crate::session) fn for_menu(&self, taken: &[SlashCommand]) -> Vec<SlashCommand> {
        let known = self.known.get();
        let commands = known.0.iter().map(|command| SlashCommand {
            name: command.name.clone(),
            description: if command.is_of_project() {
                format!("{} (project)", command.description)
            } else {
                command.description.clone()
            },
            hint: command.argument_hint.clone().or_else(|| Some("arguments".to_owned())),
            skill: None,
        });
        let skills = known.1.iter().map(|skill| SlashCommand {
            name: skill.name.clone(),
            description: format!(
                "{} (skill)",
                text::clip(&skill.description, MAX_DESCRIPTION_CHARS)
            ),
            hint: skill.argument_hint.clone().or_else(|| Some("arguments".to_owned())),
            skill: Some(skill.file()),
        });
        let mut menu: Vec<SlashCommand> = Vec::new();
        for command in commands.chain(skills) {
            if taken.iter().chain(&menu).all(|other| other.name != command.name) {
                menu.push(command);
            }
        }
        menu
    }
}

/// Finds the item with this name. If none has exactly this name, upper and lower case are ignored, and a dot may be
/// typed where the file's name has one.
fn named<'a, T>(all: &'a [T], name: &str, name_of: fn(&T) -> &str) -> Option<&'a T> {
    let lower = name.to_lowercase().replace('.', "-");
    let exact = all.iter().find(|item| name_of(item) == name);
    exact.or_else(|| all.iter().find(|item| name_of(item).to_lowercase() == lower))
}

/// The built-in commands that are mere prompts.
const PROMPTS: [&str; 2] = ["init", "review"];

/// The most characters of a skill's description in the menu. It is written for models.
const MAX_DESCRIPTION_CHARS: usize = 200;

/// The name and the arguments of a prompt that may be a custom command.
pub(in crate::session) fn parse(typed: &str) -> Option<(&str, &str)> {
    let (name, rest) = split(typed)?;
    let is_word = !name.is_empty() && name.chars().all(|c| is_name_char(c) || ":.".contains(c));
    is_word.then_some((name, rest.trim()))
}

impl CommandText {
    /// The text for the model. Blocks.
    pub(in crate::session) fn load(&self, name: &str, args: &str, env: &ToolEnv) -> Option<String> {
        Some(match self {
            CommandText::BuiltIn(text) => {
                let args = if args.is_empty() {
                    String::new()
                } else {
                    format!("\nThe user adds: {args}\n")
                };
                format!(
                    "{COMMAND_HEAD}built-in command `/{name}`, which asks for this:\n{text}{args}"
                )
            }
            CommandText::File(command) => {
                let path = escape_hidden_line(&command.path.to_string_lossy());
                let whose = if command.is_of_project() { "project" } else { "user" };
                let text = fenced(&command.load(args)?);
                format!(
                    "{COMMAND_HEAD}command `/{name}`. It asks for what its text says, from the \
                     {whose}'s {path}:\n{text}\n"
                )
            }
            CommandText::Skills(skills) => {
                skills.iter().map(|skill| skill_text(skill, args, env)).collect()
            }
        })
    }
}

/// The text of a skill that the user runs.
fn skill_text(skill: &Skill, args: &str, env: &ToolEnv) -> String {
    let name = &skill.name;
    let Some(text) = skill.load(args) else {
        return format!("{COMMAND_HEAD}skill `{name}`, which cannot be read: say so.\n");
    };
    env.skills.mark_loaded(name, &skill.load("").unwrap_or_default());
    // The skill's text refers to the files in its folder.
    env.files.roots().allow_read(skill.folder.clone());
    format!("{COMMAND_HEAD}skill `{name}`, so do what it says:\n{text}\n")
}

pub(super) fn init(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start_task(session, call, include_str!("init_prompt.md"))
}

pub(super) fn review(session: &mut SessionActor, call: CommandCall) -> PromptWork {
    start_task(session, call, include_str!("review_prompt.md"))
}

/// Gives the model one of our own tasks.
fn start_task(session: &mut SessionActor, call: CommandCall, task: &'static str) -> PromptWork {
    let CommandCall { prompt, typed, cancel, .. } = call;
    session.custom_command(Some(CommandText::BuiltIn(task)), prompt, &typed, cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_word_may_be_a_command() {
        let table = [
            ("/deploy", Some(("deploy", ""))),
            (" /db:seed  a b \n", Some(("db:seed", "a b"))),
            ("/x\ny", Some(("x", "y"))),
            ("/speckit.plan x", Some(("speckit.plan", "x"))),
            ("/usr/bin/env", None),
            ("/ x", None),
            ("/", None),
            ("deploy", None),
            ("/部署 生产", Some(("部署", "生产"))),
            ("／deploy　x", Some(("deploy", "x"))),
            ("/é", Some(("é", ""))),
            ("/路径/文件", None),
            ("、然后", Some(("然后", ""))),
        ];
        for (typed, expected) in table {
            assert_eq!(parse(typed), expected, "{typed:?}");
        }
    }
}
