//! What holds in a session: the rules and bounds of all files, one layer over the other. Whoever
//! manages the machine and the user are believed; a project may only narrow what they leave, until
//! the user trusts exactly what it says.

use std::fs;
use std::path::{Path, PathBuf};

use super::project_servers;
use crate::config::{
    Config, Managed, NetworkSetting, PermissionTexts, Project, RuleText, SandboxSettings,
};
use turnwright_types::effect::visible_line;
use turnwright_workspace::files::Roots;
use crate::mcp::ServerSpec;
use turnwright_policy::permission::{
    Book, Draft, Ground, Law, Mode, Protected, Rule, Scope, Site, Tier, load, unreadable,
};
use turnwright_sandbox::Network;
use crate::tools::{Walls, git_folders};
use crate::trust::{self, Trust};

/// The file in which a project says what it wants of us.
pub const PROJECT_FILE: &str = ".turnwright/config.toml";

/// Things that are named of those that a file wants.
const MOST_NAMED: usize = 10;
/// Sentences about one session.
const MOST_PROBLEMS: usize = 20;
/// Characters of one.
const LONGEST_PROBLEM: usize = 400;

/// What holds.
#[derive(Debug)]
pub struct Standing {
    /// The rules.
    pub law: Law,
    /// The mode to begin in.
    pub mode: Mode,
    /// The mode that is not gone beyond.
    pub most: Mode,
    /// What commands are kept to.
    pub sandbox: SandboxSettings,
    /// A sentence about each thing in the files that is wrong or has no effect.
    pub problems: Vec<String>,
    /// The project's files, as far as there are some that are understood.
    pub files: Vec<ProjectFile>,
    /// The MCP servers of the project, if they are trusted.
    pub servers: Vec<ServerSpec>,
}

/// A project's file.
#[derive(Debug)]
pub struct ProjectFile {
    /// Its name.
    pub what: &'static str,
    /// What stands in it.
    pub text: String,
    /// Whether the user trusts it.
    pub is_trusted: bool,
    /// What it asks for and gets only then.
    pub wants: Vec<String>,
    /// The same in full, line by line, where the text could hide it.
    pub plainly: Vec<String>,
}

impl Standing {
    /// What the user has to know, if there is anything.
    pub fn notice(&self) -> Option<String> {
        let mut sentences = self.problems.clone();
        for file in self.files.iter().filter(|it| it.is_withheld()) {
            let (named, more) = file.wants.split_at(file.wants.len().min(MOST_NAMED));
            let more = match more.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            sentences.push(format!(
                "{} of this project has settings that are not in force, because nobody has said \
                 that it is trusted: {}{more}. `/trust` shows them.",
                file.what,
                named.join(", ")
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join("\n"))
    }
}

impl ProjectFile {
    /// Whether something of it waits for the user's trust.
    pub fn is_withheld(&self) -> bool {
        !self.is_trusted && !self.wants.is_empty()
    }
}

/// Looks up what holds in a session with these folders. Reads a few small files.
pub fn stand(config: &Config, trust: &Trust, roots: &Roots) -> Standing {
    let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
    let home = config.home().map(|it| fs::canonicalize(&it).unwrap_or(it));
    let ground = Ground { roots: folders.clone(), home };
    let dialect = turnwright_workspace::exec::dialect();
    let real = |path: &Path| {
        if has_link(path, &ground) { roots.resolve(path).path } else { path.to_path_buf() }
    };
    let mut layers = Layers {
        site: Site { ground: &ground, dialect, real: &real },
        rules: Vec::new(),
        problems: Vec::new(),
    };
    let most = layers.managed(config);
    layers.user(config);
    layers.kept(config, roots.real_cwd());
    let own = own_mode(config);
    let found = layers.project_file(roots.real_cwd());
    let project = found.as_ref().map(|(text, project)| {
        let is_trusted = trust.is_trusted(roots.real_cwd(), PROJECT_FILE, text.as_bytes());
        (text, project, is_trusted)
    });
    let (mut mode, mut wants) = (own, Vec::new());
    if let Some((_, project, is_trusted)) = project {
        wants.extend(layers.project(project, is_trusted));
        let may_loosen = is_trusted && !config.has_mode_of_the_process();
        match project.mode.as_deref().map(|it| (it, Mode::parse(it))) {
            Some((_, Some(wanted))) if wanted <= own || may_loosen => mode = wanted,
            Some((_, Some(wanted))) if !is_trusted => {
                wants.push(format!("mode = \"{}\"", wanted.id()));
            }
            Some((word, None)) => layers.note_mode(PROJECT_FILE, "mode", word),
            _ => {}
        }
    }
    let own_bounds = project.map(|(_, it, is_trusted)| (it, roots.real_cwd(), is_trusted));
    let (bounds, wider) = config.sandbox(own_bounds);
    wants.extend(wider);
    let project = project.map(|(text, _, is_trusted)| ProjectFile {
        what: PROJECT_FILE,
        text: text.clone(),
        is_trusted,
        wants,
        plainly: Vec::new(),
    });
    let found = project_servers::find(config, trust, roots.real_cwd());
    layers.problems.extend(found.problems);
    let Layers { rules, problems, .. } = layers;
    let of_git: Vec<_> = folders.iter().flat_map(|it| git_folders(it)).collect();
    let added = bounds.protect.clone();
    let holds_ours = roots.private().any(|ours| folders.iter().any(|it| ours.starts_with(it)));
    let is_exposed: fn() -> bool =
        if holds_ours { || turnwright_sandbox::can_confine() && !turnwright_sandbox::rooms().mounts } else { || false };
    let law = Law {
        rules,
        protected: Protected { roots: folders.into_iter().chain(of_git).collect(), more: added },
        dialect,
        can_confine: turnwright_sandbox::can_confine(),
        is_exposed,
        ground,
    };
    Standing {
        law,
        mode: mode.min(most),
        most,
        sandbox: bounds,
        problems: bounded(problems),
        files: project.into_iter().chain(found.file).collect(),
        servers: found.servers,
    }
}

/// Whether a link may stand in a path, below a folder that is real. A project's file may hold hundreds
/// of paths, most of which lead nowhere: for these this is one look at the disk.
fn has_link(path: &Path, ground: &Ground) -> bool {
    let bases = ground.roots.iter().chain(&ground.home).filter(|it| path.starts_with(it));
    let known = bases.map(|it| it.components().count()).max().unwrap_or_default();
    let mut at: PathBuf = path.components().take(known).collect();
    for part in path.components().skip(known) {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(found) if !found.is_symlink() => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return false,
            _ => return true,
        }
    }
    false
}

/// What the commands of a session are kept to.
pub(super) fn walls(config: &Config, settings: SandboxSettings, law: &Law) -> Walls {
    let mut hide = settings.hide;
    if let Some(home) = config.home() {
        hide.extend(turnwright_sandbox::secrets_below(&home));
    }
    // The login is no business of a command, and neither is what was allowed and trusted.
    hide.push(config.paths.config.clone());
    // Nor is what was said in other sessions, which the model has to ask for.
    hide.extend(turnwright_store::files(&config.paths.state));
    Walls {
        network: match settings.network {
            NetworkSetting::Off => Network::Off,
            NetworkSetting::Loopback => Network::Loopback,
            NetworkSetting::On => Network::On,
        },
        write: settings.write,
        caches: settings.caches,
        fetched: settings.fetched,
        hide,
        keep: vec![config.paths.config.clone(), config.paths.state.clone()],
        read: settings.reads_little.then(Vec::new),
        protected: law.protected.clone(),
    }
}

/// What is wrong with the rules that hold in a folder.
pub fn rule_problems(config: &Config, folder: &Path) -> Vec<String> {
    let roots = Roots::new(folder);
    roots
        .map(|it| stand(config, &Trust::new(&config.paths.state), &it).problems)
        .unwrap_or_default()
}

/// The mode that the user wants sessions to begin in.
fn own_mode(config: &Config) -> Mode {
    let Some(set) = config.mode() else { return Mode::default() };
    Mode::parse(&set).unwrap_or_else(|| {
        // Never more than was asked for: the usual mode asks before it does anything.
        let known = Mode::ALL.map(Mode::id).join(", ");
        tracing::warn!(unknown = set, "the mode that is set is none of {known}; ask is used");
        Mode::default()
    })
}

/// What was gathered so far.
struct Layers<'a> {
    site: Site<'a>,
    rules: Vec<Rule>,
    problems: Vec<String>,
}

impl Layers<'_> {
    /// Returns the mode that nobody goes beyond.
    fn managed(&mut self, config: &Config) -> Mode {
        let place = config.paths.managed.display().to_string();
        match config.managed() {
            Ok(Managed { permissions, max_mode, warnings }) => {
                self.note(&place, warnings);
                self.load(&drafts(&permissions), Scope::Managed, &place);
                match max_mode {
                    None => Mode::Full,
                    Some(word) => Mode::parse(&word).unwrap_or_else(|| {
                        self.note_mode(&place, "max_mode", &word);
                        Mode::Ask
                    }),
                }
            }
            Err(error) => {
                self.problems.push(format!(
                    "{error}. Until then what changes, runs or asks something is denied"
                ));
                let why = "the managed settings cannot be read";
                self.rules.extend(unreadable(Tier::Deny, Scope::Managed, why));
                Mode::Ask
            }
        }
    }

    fn user(&mut self, config: &Config) {
        match config.permissions() {
            Ok(texts) => {
                self.load(&drafts(&texts), Scope::User, &config.file().display().to_string());
            }
            Err(error) => {
                self.problems.push(format!("{error}. Until then everything is asked about"));
                let why = "the user's settings cannot be read";
                self.rules.extend(unreadable(Tier::Ask, Scope::User, why));
            }
        }
    }

    /// What the user has made of answers in this project.
    fn kept(&mut self, config: &Config, folder: &Path) {
        let page = Book::of(&config.paths.state, folder).read();
        self.problems.extend(page.trouble.iter().map(ToString::to_string));
        self.rules.extend(page.rules());
    }

    /// The text of the project's file and what it means.
    fn project_file(&mut self, folder: &Path) -> Option<(String, Project)> {
        let text = match trust::read(folder, PROJECT_FILE) {
            Ok(text) => text?,
            Err(why) => {
                self.problems.push(format!("{PROJECT_FILE} {why}, and has no effect"));
                return None;
            }
        };
        match Project::parse(&text, Path::new(PROJECT_FILE)) {
            Ok(project) => Some((text, project)),
            Err(error) => {
                self.problems.push(format!("{error}. It has no effect"));
                None
            }
        }
    }

    /// Takes the rules of the project. Returns what is left out of them.
    fn project(&mut self, project: &Project, is_trusted: bool) -> Option<String> {
        self.note(PROJECT_FILE, project.warnings.clone());
        let mut drafts = drafts(&project.permissions);
        if !is_trusted {
            drafts.retain(|it| it.tier != Some(Tier::Allow));
        }
        self.load(&drafts, Scope::Project, PROJECT_FILE);
        let count = project.permissions.allowing();
        let rules = if count == 1 { "rule" } else { "rules" };
        (count > 0).then(|| format!("{count} allow {rules}"))
    }

    fn load(&mut self, drafts: &[Draft<'_>], scope: Scope, place: &str) {
        let loaded = load(drafts, scope, self.site);
        self.rules.extend(loaded.rules);
        self.note(place, loaded.problems);
        self.note(place, loaded.notes);
    }

    fn note(&mut self, place: &str, notes: Vec<String>) {
        let begins = |it: &str| it.starts_with(place);
        let sentence = |it: String| if begins(&it) { it } else { format!("{place}: {it}") };
        self.problems.extend(notes.into_iter().map(sentence));
    }

    fn note_mode(&mut self, place: &str, key: &str, word: &str) {
        let known = Mode::ALL.map(Mode::id).join(", ");
        let word = visible_line(word);
        self.problems.push(format!("{place}: `{key}` is `{word}`, which is none of {known}"));
    }
}

fn drafts(texts: &PermissionTexts) -> Vec<Draft<'_>> {
    let lists = [(Tier::Allow, &texts.allow), (Tier::Ask, &texts.ask), (Tier::Deny, &texts.deny)];
    let plain = lists.into_iter().flat_map(|(tier, list)| list.iter().map(move |it| (tier, it)));
    let plain = plain.map(|(tier, when)| Draft {
        tier: Some(tier),
        when,
        matches: &[],
        not: &[],
        why: None,
    });
    plain.chain(texts.rule.iter().map(draft)).collect()
}

fn draft(RuleText { effect, when, matches, not, why }: &RuleText) -> Draft<'_> {
    let tier = match effect.as_str() {
        "allow" => Some(Tier::Allow),
        "ask" => Some(Tier::Ask),
        "deny" => Some(Tier::Deny),
        _ => None,
    };
    Draft { tier, when, matches, not, why: why.as_deref() }
}

fn bounded(mut problems: Vec<String>) -> Vec<String> {
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    problems.truncate(MOST_PROBLEMS);
    for problem in &mut problems {
        if let Some((end, _)) = problem.char_indices().nth(LONGEST_PROBLEM) {
            problem.truncate(end);
            problem.push('…');
        }
    }
    if more > 0 {
        problems.push(format!("…and {more} more"));
    }
    problems
}
