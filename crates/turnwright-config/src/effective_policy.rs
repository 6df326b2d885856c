//! Merges managed, user and project settings into the policy of one session. A project can only
//! tighten it until the user trusts exactly the content of its file.

mod helper_files;
mod hook_files;
mod language_servers;
mod project_servers;

use std::fs;
use std::path::Path;

use crate::file::{CheckTable, MAX_CHECKS, usable_checks};
use crate::layers::{ManagedSettings, ProjectSettings};
use crate::trust::{self, TrustStore};
use crate::{
    Config, NetworkSetting, PermissionSection, RuleEntry, SandboxSettings, SettingsSnapshot,
};
use turnwright_guard::{
    ConfinementSettings, HostList, behind_links, named_programs, obeyed_by_git, read_by_direnv,
};
use turnwright_hooks::Handler;
use turnwright_lsp::LanguageServer;
use turnwright_mcp::ServerSpec;
use turnwright_policy::permission::{
    Mode, PathBases, PolicyRules, ProjectRuleStore, ProtectedPaths, Rule, RuleAction, RuleContext,
    RuleSpec, Scope, fallback_rules, load_rules, project_folder,
};
use turnwright_sandbox::Network;
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::shell_script::Check;
use turnwright_types::text;
use turnwright_workspace::exec::default_memory_limit;
use turnwright_workspace::files::Roots;
use turnwright_workspace::helper_types::HelperType;
use turnwright_workspace::real_path;

pub use helper_files::HELPER_FILES;
pub use hook_files::{HOOK_FILES, hook_offer, settings_above};
pub use language_servers::{
    LANGUAGE_FILE, LANGUAGE_TRUST, language_trust, trusts_language_servers,
};
pub use project_servers::SERVERS_FILE;

use helper_files::HelperFiles;
use hook_files::{find_hooks, with_scripts};

/// The project's settings file.
pub const PROJECT_FILE: &str = ".turnwright/config.toml";

/// The most settings of a file that a notice names.
const MAX_NAMED: usize = 10;
/// The most problems that are reported for one session.
const MAX_PROBLEMS: usize = 20;
/// The most characters of one problem.
const MAX_PROBLEM_CHARS: usize = 400;

/// The policy of one session.
#[derive(Debug)]
pub struct EffectivePolicy {
    /// The permission rules.
    pub rules: PolicyRules,
    /// The mode that the session starts in.
    pub mode: Mode,
    /// The highest mode that the session may be set to.
    pub max_mode: Mode,
    /// The sandbox settings of commands.
    pub sandbox: SandboxSettings,
    /// One sentence for each problem in the settings.
    pub problems: Vec<String>,
    /// The project's files that exist and are valid.
    pub project_files: Vec<ProjectFile>,
    /// The project's MCP servers if they are trusted, otherwise none.
    pub servers: Vec<ServerSpec>,
    /// The project's language servers if they are trusted, otherwise none.
    pub language_servers: Vec<LanguageServer>,
    /// The user's checks, and the project's if they are trusted.
    pub checks: Vec<Check>,
    /// The types of helpers that the user and the trusted files of the project define.
    pub helper_types: Vec<HelperType>,
    /// The hooks of the user, and the project's if they are trusted.
    pub hooks: Vec<Handler>,
}

/// A settings file of the project, or all files of a kind.
#[derive(Debug)]
pub struct ProjectFile {
    /// Its path below the project folder, or their pattern.
    pub name: &'static str,
    /// Its content.
    pub text: String,
    pub is_trusted: bool,
    /// Short descriptions of the settings that apply only if the user trusts the file.
    pub requests: Vec<String>,
    /// The same in full, a line each, where the file's text could disguise them.
    pub full_requests: Vec<String>,
}

impl EffectivePolicy {
    /// The notice about problems and untrusted settings, if there are any.
    pub fn notice(&self) -> Option<String> {
        let mut sentences = self.problems.clone();
        for file in self.project_files.iter().filter(|file| file.needs_trust()) {
            let named = text::join_first(&file.requests, MAX_NAMED);
            sentences.push(format!(
                "Untrusted settings of {} ignored: {named}. Run `/trust` to review them.",
                file.name
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join("\n"))
    }
}

impl ProjectFile {
    fn new(
        name: &'static str,
        text: String,
        is_trusted: bool,
        requests: Vec<String>,
    ) -> ProjectFile {
        ProjectFile { name, text, is_trusted, requests, full_requests: Vec::new() }
    }

    /// Returns true if the file has settings that wait for the user's trust.
    pub fn needs_trust(&self) -> bool {
        !self.is_trusted && !self.requests.is_empty()
    }
}

/// Resolves the policy for a session with these folders. Reads a few small files of the project.
pub fn resolve_policy(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    roots: &Roots,
) -> EffectivePolicy {
    resolve_policy_with(settings, trust, roots, roots.real_cwd())
}

/// Like [`resolve_policy`], with the project's own files from another folder than the session's.
pub fn resolve_policy_with(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    roots: &Roots,
    folder: &Path,
) -> EffectivePolicy {
    let bases = path_bases(settings.config, roots);
    let dialect = turnwright_workspace::exec::dialect();
    let real = |path: &Path| {
        if has_link(path, &bases) { roots.resolve(path).path } else { path.to_path_buf() }
    };
    let site = RuleContext { bases: &bases, dialect, resolve_links: &real };
    let mut layers = PolicyLayers { site, rules: Vec::new(), problems: settings.wrong_values() };
    let max_mode = layers.add_managed(settings.config);
    layers.add_user(settings);
    let cwd = roots.real_cwd();
    layers.add_saved(settings.config, cwd);
    let mut mode = settings.mode();
    let mut checks = usable_checks(&settings.values.checks);
    let mut sandbox = settings.sandbox_settings();
    let mut project_files = Vec::new();
    if let Some((text, project)) = layers.project_file(folder, roots) {
        let is_trusted = trust.is_trusted(folder, PROJECT_FILE, text.as_bytes());
        let mut requests = layers.add_project(&project, is_trusted, settings, &mut mode);
        requests.extend(add_checks(&mut checks, &project.checks, is_trusted));
        let home = settings.config.home();
        requests.extend(sandbox.add_project(&project.sandbox, cwd, home.as_deref(), is_trusted));
        project_files.push(ProjectFile::new(PROJECT_FILE, text, is_trusted, requests));
    }
    let (files, servers, language_servers) = find_servers(settings, trust, folder, &mut layers);
    project_files.extend(files);
    let helpers = HelperFiles::find(&settings.config.paths.config, trust, folder);
    layers.problems.extend(helpers.problems);
    project_files.extend(helpers.files);
    let hooks = find_hooks(settings, trust, folder, &mut layers.problems, &mut project_files);
    let PolicyLayers { rules, problems, .. } = layers;
    EffectivePolicy {
        rules: PolicyRules {
            rules,
            protected: protected_paths(&bases, &with_scripts(&hooks, &sandbox.protect)),
            dialect,
            can_confine: turnwright_sandbox::can_confine(),
            max_mode,
            has_network: sandbox.network == NetworkSetting::On,
            asks_about_hosts: sandbox.asks_about_hosts(),
            protected_exposed: is_protected_exposed,
            bases,
        },
        mode: mode.min(max_mode),
        max_mode,
        sandbox,
        problems: bounded(problems),
        project_files,
        servers,
        language_servers,
        checks,
        helper_types: helpers.types,
        hooks,
    }
}

/// Reads the project's settings; `None` if there are none. A link to another place on this machine is followed, so
/// that the rules behind it apply, too.
///
/// # Errors
/// Why the file is not read, as a phrase that follows its name.
pub(crate) fn read_project_settings(
    folder: &Path,
    roots: &Roots,
) -> Result<Option<String>, String> {
    trust::read_project_file(folder, PROJECT_FILE).or_else(|why| {
        // On Windows, following a link may already log in to another machine.
        if cfg!(windows) {
            return Err(why);
        }
        match real_path(folder.join(PROJECT_FILE)) {
            Ok(place) if !roots.leads_elsewhere(&place) => trust::read_real_file(&place),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => Err(why),
        }
    })
}

/// Finds the MCP servers and the language servers of a project, with the files that name them.
fn find_servers(
    settings: &SettingsSnapshot<'_>,
    trust: &TrustStore,
    folder: &Path,
    layers: &mut PolicyLayers<'_>,
) -> (Vec<ProjectFile>, Vec<ServerSpec>, Vec<LanguageServer>) {
    let problems = &mut layers.problems;
    let (file, servers) = project_servers::find(settings, trust, folder, problems);
    let (language_file, language_servers) =
        language_servers::find(settings, trust, folder, problems);
    (file.into_iter().chain(language_file).collect(), servers, language_servers)
}

/// Returns true if a problem is about files that can be trusted.
pub fn is_about_project_files(problem: &str) -> bool {
    let folders = HELPER_FILES.map(|name| name.trim_end_matches("*.md"));
    let files = [PROJECT_FILE, SERVERS_FILE, LANGUAGE_FILE];
    files.iter().chain(&folders).chain(&HOOK_FILES).any(|name| problem.contains(name))
}

fn path_bases(config: &Config, roots: &Roots) -> PathBases {
    let home = config.home().map(|home| real_path(&home).unwrap_or(home));
    PathBases { roots: roots.folders().map(Path::to_path_buf).collect(), home }
}

/// Adds the checks of a project. If it is not trusted, they are returned as requests instead.
fn add_checks(checks: &mut Vec<Check>, project: &CheckTable, is_trusted: bool) -> Vec<String> {
    let mut new = usable_checks(project);
    new.retain(|check| checks.iter().all(|known| known.name != check.name));
    if is_trusted {
        checks.extend(new);
        checks.truncate(MAX_CHECKS);
        return Vec::new();
    }
    let requests = new
        .iter()
        .map(|check| format!("checks.{} = \"{}\"", check.name, escape_hidden_line(&check.command)));
    requests.collect()
}

/// The files and folders in these folders that other programs obey, and those that the settings add.
fn protected_paths(bases: &PathBases, added: &[String]) -> ProtectedPaths {
    let folders = &bases.roots;
    let names = [".gitconfig", ".config/git/config"];
    let at_home = bases.home.iter().flat_map(|home| names.map(|name| home.join(name)));
    let user_files: Vec<_> = at_home.collect();
    let (git, obeyed_paths): (Vec<_>, Vec<_>) =
        folders.iter().map(|folder| obeyed_by_git(folder, &user_files)).unzip();
    let read = folders.iter().flat_map(|folder| [read_by_direnv(folder), named_programs(folder)]);
    let obeyed = obeyed_paths.into_iter().flatten().chain(read.flatten());
    let roots: Vec<_> = folders.iter().cloned().chain(git.into_iter().flatten()).collect();
    let mut paths: Vec<_> = added.iter().cloned().chain(obeyed).collect();
    let protected = ProtectedPaths::new(roots.clone(), paths.clone());
    let behind = behind_links(&protected);
    if behind.is_empty() {
        return protected;
    }
    paths.extend(behind);
    ProtectedPaths::new(roots, paths)
}

/// Returns true if sandboxed commands can write protected files in the folders that they may write.
fn is_protected_exposed() -> bool {
    turnwright_sandbox::can_confine() && !turnwright_sandbox::namespace_support().mounts
}

/// Returns true if a path may contain a symlink below a folder whose path is real. A project's file may
/// have hundreds of paths, most of which do not exist; each of those takes one lookup.
fn has_link(path: &Path, bases: &PathBases) -> bool {
    let bases = bases.roots.iter().chain(&bases.home);
    let below = bases.filter_map(|base| Some((base.as_path(), path.strip_prefix(base).ok()?)));
    let nearest = below.min_by_key(|(_, below)| below.as_os_str().len());
    let (base, below) = nearest.unwrap_or((Path::new(""), path));
    let mut at = base.to_path_buf();
    for part in below.components() {
        at.push(part);
        match fs::symlink_metadata(&at) {
            Ok(found) if !found.is_symlink() => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return false,
            _ => return true,
        }
    }
    false
}

/// The confinement of a session's commands.
pub fn command_confinement(
    config: &Config,
    policy: &EffectivePolicy,
    project: &Path,
) -> ConfinementSettings {
    let settings = policy.sandbox.clone();
    let mut hide = settings.hide;
    hide.extend(config.private_places());
    let mut caches = settings.caches;
    // Commands write those that the project keeps itself anyhow. All are below a home folder.
    if !config.home().is_some_and(|home| home.starts_with(project)) {
        caches.retain(|cache| !cache.starts_with(project));
    }
    ConfinementSettings {
        network: match settings.network {
            NetworkSetting::Off => Network::Off,
            NetworkSetting::Loopback => Network::Loopback,
            NetworkSetting::On => Network::On,
        },
        hosts: HostList::parse(&settings.hosts),
        writable: settings.write,
        caches,
        private_caches: project_folder(&config.paths.state, project).join("caches"),
        download_caches: settings.package_runner_caches,
        memory: settings.memory_mb.map(|megabytes| megabytes << 20).or_else(default_memory_limit),
        hidden: hide,
        read_only: vec![config.paths.config.clone(), config.paths.state.clone()],
        readable: settings.strict_reads.then(Vec::new),
        protected: policy.rules.protected.clone(),
    }
}

/// Lists the problems of these rules of the user's file.
pub fn user_rule_problems(config: &Config, rules: &PermissionSection) -> Vec<String> {
    let here = std::path::absolute(".").into_iter();
    let bases = PathBases { roots: here.collect(), home: config.home() };
    let dialect = turnwright_workspace::exec::dialect();
    let context = RuleContext { bases: &bases, dialect, resolve_links: &Path::to_path_buf };
    let loaded = load_rules(&drafts(rules), Scope::User, context);
    loaded.problems.into_iter().chain(loaded.notes).collect()
}

/// The rules and problems that were collected so far.
struct PolicyLayers<'a> {
    site: RuleContext<'a>,
    rules: Vec<Rule>,
    problems: Vec<String>,
}

impl PolicyLayers<'_> {
    /// Adds the managed rules. Returns the highest mode that they allow.
    fn add_managed(&mut self, config: &Config) -> Mode {
        let place = config.paths.managed.display().to_string();
        match config.managed_settings() {
            Ok(ManagedSettings { permissions, max_mode, warnings }) => {
                self.note(&place, warnings);
                self.load(&drafts(&permissions), Scope::Managed, &place);
                match max_mode {
                    None => Mode::Full,
                    Some(word) => Mode::parse_lenient(&word).unwrap_or_else(|| {
                        self.note_mode(&place, "max_mode", &word);
                        Mode::Ask
                    }),
                }
            }
            Err(error) => {
                self.problems.push(format!(
                    "{error}. Until this is fixed, everything that changes, runs or sends something is denied"
                ));
                let why = "the managed settings cannot be read";
                self.rules.extend(fallback_rules(RuleAction::Deny, Scope::Managed, why));
                Mode::Ask
            }
        }
    }

    fn add_user(&mut self, settings: &SettingsSnapshot<'_>) {
        // A snapshot takes a link that leads nowhere for no file, because the start has no time to look for one.
        match settings.file().and_then(|file| settings.config.file.text().map(|_| file)) {
            Ok(file) => {
                self.load(&drafts(&file.permissions), Scope::User, &settings.config.file_path());
            }
            Err(error) => {
                self.ask_about_everything(&error.to_string(), Scope::User, "the user's settings");
            }
        }
    }

    /// Adds rules that ask about everything in place of those in a file that cannot be read. `problem` says why.
    fn ask_about_everything(&mut self, problem: &str, scope: Scope, file: &str) {
        let effect = "Until this is fixed, you are asked about everything";
        self.problems.push(format!("{problem}. {effect}"));
        let why = format!("{file} cannot be read");
        self.rules.extend(fallback_rules(RuleAction::Ask, scope, &why));
    }

    /// Adds the rules that the user has saved for this project.
    fn add_saved(&mut self, config: &Config, folder: &Path) {
        let page = ProjectRuleStore::new(&config.paths.state, folder).load();
        self.problems.extend(page.problem.iter().map(ToString::to_string));
        for mut rule in page.rules() {
            rule.follow_links(self.site.bases, self.site.resolve_links);
            self.rules.push(rule);
        }
    }

    /// The text of the project's file and its parsed content; `None` if there is none, or if it cannot be read. An
    /// unreadable file may deny something, so everything is asked about then.
    fn project_file(&mut self, folder: &Path, roots: &Roots) -> Option<(String, ProjectSettings)> {
        let problem = match read_project_settings(folder, roots) {
            Ok(None) => return None,
            Ok(Some(text)) => match ProjectSettings::parse(&text, Path::new(PROJECT_FILE)) {
                Ok(project) => return Some((text, project)),
                Err(error) => error.to_string(),
            },
            Err(why) => format!("{PROJECT_FILE} {why}"),
        };
        self.ask_about_everything(&problem, Scope::Project, "the project's settings");
        None
    }

    /// Adds the project's rules, and changes the user's mode to the project's, if it may. Returns what the project
    /// asks for and gets only if it is trusted.
    fn add_project(
        &mut self,
        project: &ProjectSettings,
        is_trusted: bool,
        settings: &SettingsSnapshot<'_>,
        mode: &mut Mode,
    ) -> Vec<String> {
        let mut requests = Vec::from_iter(self.add_project_rules(project, is_trusted));
        let wanted = self.project_mode(project).unwrap_or(*mode);
        if wanted <= *mode || is_trusted && !settings.config.has_process_mode() {
            *mode = wanted;
        } else if !is_trusted {
            requests.push(format!("mode = \"{}\"", wanted.id()));
        }
        requests
    }

    /// Adds the project's rules. Returns a description of its allow rules, which apply only if it
    /// is trusted.
    fn add_project_rules(&mut self, project: &ProjectSettings, is_trusted: bool) -> Option<String> {
        self.note(PROJECT_FILE, project.warnings.clone());
        let mut drafts = drafts(&project.permissions);
        if !is_trusted {
            drafts.retain(|rule| rule.action != Some(RuleAction::Allow));
        }
        self.load(&drafts, Scope::Project, PROJECT_FILE);
        let count = project.permissions.allow_rule_count();
        (count > 0).then(|| text::counted(count, "allow rule"))
    }

    fn load(&mut self, drafts: &[RuleSpec<'_>], scope: Scope, place: &str) {
        let loaded = load_rules(drafts, scope, self.site);
        self.rules.extend(loaded.rules);
        self.note(place, loaded.problems);
        self.note(place, loaded.notes);
    }

    fn note(&mut self, place: &str, notes: Vec<String>) {
        for note in notes {
            let sentence = if note.starts_with(place) { note } else { format!("{place}: {note}") };
            self.problems.push(sentence);
        }
    }

    /// The mode that the project's file asks for.
    fn project_mode(&mut self, project: &ProjectSettings) -> Option<Mode> {
        let word = project.mode.as_deref()?;
        let mode = Mode::parse_lenient(word);
        if mode.is_none() {
            self.note_mode(PROJECT_FILE, "mode", word);
        }
        mode
    }

    fn note_mode(&mut self, place: &str, key: &str, word: &str) {
        let known = Mode::ALL.map(Mode::id).join(", ");
        let word = escape_hidden_line(word);
        self.problems.push(format!("{place}: `{key}` is `{word}`; it must be one of {known}"));
    }
}

fn drafts(texts: &PermissionSection) -> Vec<RuleSpec<'_>> {
    let lists = [
        (RuleAction::Allow, &texts.allow),
        (RuleAction::Ask, &texts.ask),
        (RuleAction::Deny, &texts.deny),
    ];
    let plain = lists.into_iter().flat_map(|(tier, list)| {
        list.iter().map(move |when| RuleSpec {
            action: Some(tier),
            when,
            matches: &[],
            not: &[],
            why: None,
        })
    });
    plain.chain(texts.rule.iter().map(draft)).collect()
}

fn draft(RuleEntry { effect, when, matches, not, why }: &RuleEntry) -> RuleSpec<'_> {
    let actions = [RuleAction::Allow, RuleAction::Ask, RuleAction::Deny];
    let action = actions.into_iter().find(|action| action.as_str() == effect);
    RuleSpec { action, when, matches, not, why: why.as_deref() }
}

fn bounded(mut problems: Vec<String>) -> Vec<String> {
    let more = problems.len().saturating_sub(MAX_PROBLEMS);
    problems.truncate(MAX_PROBLEMS);
    for problem in &mut problems {
        *problem = text::clip(problem.as_str(), MAX_PROBLEM_CHARS);
    }
    if more > 0 {
        problems.push(format!("…and {more} more"));
    }
    problems
}
