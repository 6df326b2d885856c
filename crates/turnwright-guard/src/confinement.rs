//! The confinement of one command: its permission and the place where the commands of a conversation run, with the
//! session's sandbox settings → a sandbox profile, environment variables, and a snapshot of the protected paths.

pub(crate) mod linked_files;
pub(crate) mod package_managers;
mod proxied;
pub(crate) mod sandbox_profile;
pub(crate) mod silent_reads;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::command::escalation::refusal_of_missing_path;
use crate::command_network::CommandNetwork;
use crate::protected_snapshot::ProtectedSnapshot;
use crate::restricted_files::DeniedFiles;
use crate::signing::SigningService;
use crate::watch::kept_history::KeptHistory;
use crate::watch::{AllowedChanges, ConfinementGuard};
use crate::{command, repository, restricted_files};
use linked_files::{ChangedLayers, SharedPlaces};
pub use package_managers::makes_environments;
use package_managers::{EnvironmentUse, environment_use};
use sandbox_profile::{SSH_AGENT_VARIABLE, SessionAccess, only_connects, ssh_agents};
use tokio::task::spawn_blocking;
use turnwright_policy::permission::{Confinement, DeniedPaths, Pass, ProtectedPaths};
use turnwright_proxy::{CommandProxy, HostList, RefusedHosts};
use turnwright_sandbox::{Network, PrivateTmp, SandboxProfile, SessionNetwork};
use turnwright_types::client::Client;
use turnwright_types::effect::{Effect, ExtraAccess, PathScope, ShellCommand};
use turnwright_types::error_text::io_error_text;
use turnwright_types::private_file;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::secret;
use turnwright_workspace::checkpoint::{ChangeTracker, GitSettings, ObeyedFiles};
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{Roots, ShownOnce};
use turnwright_workspace::fixed_places::OpenedPlaces;
use turnwright_workspace::nofollow;
use turnwright_workspace::temp_folder::temp_place;
use turnwright_workspace::{RealPaths, real_path};

/// The sandbox settings of a session, from its configuration and the machine.
#[derive(Clone, Debug, Default)]
pub struct ConfinementSettings {
    /// The network access of commands, unless more was allowed.
    pub network: Network,
    /// The hosts that commands may reach although they have no network.
    pub hosts: HostList,
    /// Folders that commands may write besides those of the session.
    pub writable: Vec<PathBuf>,
    /// Caches of which commands get a private copy, if they exist.
    pub caches: Vec<PathBuf>,
    /// The folder of the files that this project's commands write into caches.
    pub private_caches: PathBuf,
    /// Where package runners keep the programs that they download. Created when one is about to
    /// download.
    pub download_caches: Vec<PathBuf>,
    /// How many bytes of memory a command may hold.
    pub memory: Option<u64>,
    /// Paths that commands may not read.
    pub hidden: Vec<PathBuf>,
    /// If set, the only paths that commands may read.
    pub readable: Option<Vec<PathBuf>>,
    /// Our own files, which commands may never write, wherever the session's folders are.
    pub read_only: Vec<PathBuf>,
    /// Paths in the session's folders that commands may not write.
    pub protected: ProtectedPaths,
}

/// The files in subfolders that programs of the user obey.
pub(crate) const OBEYED: ObeyedFiles = ObeyedFiles {
    is_obeyed: ProtectedPaths::is_obeyed_in_subfolder,
    may_hold: ProtectedPaths::may_hold_obeyed,
};

/// The surroundings on which the bounds of a conversation's commands depend. Cloning is cheap.
#[derive(Clone)]
pub struct CommandSite {
    /// The folders of the session.
    pub roots: Arc<Roots>,
    /// The environment variables of commands.
    pub environment: Arc<Environment>,
    /// The sandbox settings.
    pub settings: Arc<ConfinementSettings>,
    /// Watches the protected paths while commands run.
    pub guard: Arc<ConfinementGuard>,
    /// The private network of the commands.
    pub network: Arc<CommandNetwork>,
    /// Records the changes of files.
    pub tracker: Arc<ChangeTracker>,
    /// The places that commands and servers in the sandbox could write since this process was started.
    pub opened_places: Arc<OpenedPlaces>,
    /// The agent's own folder, which has the sockets of the signing service.
    pub state_folder: PathBuf,
    /// The folder of the conversation's long outputs, which commands may read.
    pub outputs: PathBuf,
    pub client: Arc<dyn Client>,
}

impl CommandSite {
    /// Tracks the effects of commands on the session's folders from now on.
    pub fn watch_files(&self) {
        let home = self.environment.get("HOME").map(PathBuf::from);
        let named = self.environment.get("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = named.or_else(|| Some(home.as_ref()?.join(".config")));
        let git = GitSettings { home, config, attribute_files: repository::attribute_files };
        let ConfinementSettings { writable, private_caches, protected, .. } = &*self.settings;
        let places = writable.iter().chain([private_caches]).chain(protected.roots());
        let temporary = real_path(temp_place()).into_iter();
        let writable = temporary.chain(places.cloned()).collect();
        self.tracker.watch(&self.roots, OBEYED, git, writable);
    }

    /// The folder that keeps a copy of what commands wrote into protected places.
    pub(crate) fn quarantine_folder(&self) -> PathBuf {
        self.outputs.join("protected")
    }
}

/// The shared memory. In a mount namespace it is not the machine's.
const SHARED_MEMORY: &str = "/dev/shm";

/// Makes git start no program of the repository's choice when it runs without a question. It starts git in the
/// submodules of the index, whose settings were judged without these, and in no repository that only history names. It
/// reads the index from its beginning to its end, as the judgement did, and not what a sparse one leaves out.
const SAFE_GIT_VARIABLES: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    (
        "GIT_CONFIG_PARAMETERS",
        "'safe.bareRepository=explicit' 'core.fsmonitor=false' 'core.hooksPath=/dev/null' \
         'core.pager=cat' 'log.showSignature=false' 'diff.submodule=short' 'status.submoduleSummary=false' \
         'index.threads=1' 'sparse.expectFilesOutsideOfPatterns=true'",
    ),
];

/// The confinement of a command. The default is none.
#[derive(Debug, Default)]
pub struct CommandConfinement {
    pub profile: Option<SandboxProfile>,
    pub environment: Environment,
    pub extra_variables: Vec<(&'static str, String)>,
    /// Taken only if the command may write.
    pub(crate) snapshot: Option<Arc<ProtectedSnapshot>>,
    pub(crate) changes: AllowedChanges,
    /// Describes what the sandbox lets the command do. Reported if the command seems to fail because of it.
    pub(crate) limits: Option<String>,
    /// Layers that take the command's changes to folders whose files other projects share.
    pub(crate) layers: ChangedLayers,
    /// The history that it must not lose.
    pub(crate) history: KeptHistory,
    /// The ports that programs of this machine may reach while it runs.
    pub publishes: Vec<u16>,
    /// The service that signs for the command while it runs, or why there is none; `None` if it may not sign.
    pub(crate) signing: Option<io::Result<SigningService>>,
    /// The private network that it shares with the session's other commands.
    pub network: Option<Arc<SessionNetwork>>,
    /// The proxy that is to be served while it runs.
    pub proxy: Option<CommandProxy>,
    /// The hosts that the proxy refuses.
    pub refused_hosts: Option<RefusedHosts>,
    /// Lets only this command see places in the machine's `/tmp`.
    pub(crate) shown: Option<ShownOnce>,
}

/// Builds the confinement of the command that `pass` permits.
///
/// # Errors
/// Why the command cannot run, for the model.
pub async fn confine(pass: &Pass, site: CommandSite) -> Result<CommandConfinement, ToolRefusal> {
    let Some(Effect::Exec(command)) = pass.effects().first() else {
        return Err("Nothing was run: there is no permission for it.".into());
    };
    let mut extra_variables: Vec<(&'static str, String)> = Vec::new();
    let is_silent = pass.runs_only_readers();
    // The judgement of a line that only reads counts on these variables, whoever allows it.
    if is_silent || command::only_reads(&command.script) {
        extra_variables
            .extend(SAFE_GIT_VARIABLES.iter().map(|(name, value)| (*name, (*value).to_owned())));
    }
    let Confinement::Sandboxed { workspace_writable, network, extra_writable, further } =
        pass.confinement().clone()
    else {
        let environment =
            spawn_blocking(move || base_environment(&site, is_silent, &RealPaths::default()));
        let environment = environment.await.map_err(|_| "No thread could be started.")?;
        return Ok(CommandConfinement {
            environment,
            extra_variables,
            ..CommandConfinement::default()
        });
    };
    let written = pass.effects().iter().filter_map(Effect::written);
    let redirects: Vec<_> = written.map(|target| target.path.clone()).collect();
    let asks_for_hosts = pass.effects().iter().any(|effect| matches!(effect, Effect::Fetch { .. }));
    if workspace_writable {
        site.guard.note_caches(&site.settings.private_caches);
    }
    let denied_paths = pass.denied_paths().clone();
    let command = command.clone();
    let built = spawn_blocking(move || {
        // The probe blocks when it runs for the first time, so it runs here and not on the
        // runtime's thread.
        turnwright_sandbox::namespace_support();
        let builder = ConfinementBuilder {
            site: &site,
            command: &command,
            is_silent,
            may_write: workspace_writable,
            network,
            write: extra_writable,
            further,
            asks_for_hosts,
            denied_paths,
            real_paths: RealPaths::default(),
        };
        builder.build(extra_variables, &redirects)
    });
    built.await.unwrap_or_else(|_| Err("The sandbox could not be set up.".into()))
}

/// The variables of a command. If nobody is asked about it, no program is looked up in the session's own
/// folders, whose content anybody may have written. Blocks: not for the runtime's thread.
fn base_environment(site: &CommandSite, is_silent: bool, real_paths: &RealPaths) -> Environment {
    if !is_silent {
        return site.environment.as_ref().clone();
    }
    site.environment.for_silent_command(|folder| {
        let real = real_paths.get(folder);
        real.is_some_and(|real| !site.roots.folders().any(|root| real.starts_with(root)))
    })
}

/// A command and the access that it was allowed.
struct ConfinementBuilder<'a> {
    site: &'a CommandSite,
    command: &'a ShellCommand,
    is_silent: bool,
    may_write: bool,
    network: bool,
    write: Vec<PathBuf>,
    /// Further access that the call asked for.
    further: ExtraAccess,
    /// True if it was allowed hosts.
    asks_for_hosts: bool,
    denied_paths: DeniedPaths,
    real_paths: RealPaths,
}

impl ConfinementSettings {
    /// Returns true if commands get private layers over caches. The first call tries it out: not for
    /// the runtime's thread.
    pub(crate) fn can_layer_caches(&self) -> bool {
        turnwright_sandbox::can_layer_caches(&self.private_caches)
    }
}

impl ConfinementBuilder<'_> {
    fn build(
        self,
        mut extra_variables: Vec<(&'static str, String)>,
        redirects: &[PathBuf],
    ) -> Result<CommandConfinement, ToolRefusal> {
        secret::learn_shared(&self.site.state_folder);
        self.check_extra_access()?;
        let write = self.places_to_write(&mut extra_variables);
        self.prepare_redirect_targets(redirects, &write)?;
        // The user has approved git, not the programs that a repository's settings make it start.
        let is_certain = self.command.uncertainty.is_none();
        let uses_ssh = self.network && is_certain && only_connects(&self.command.script);
        let environment = base_environment(self.site, self.may_be_unasked(), &self.real_paths);
        let shared = if self.may_write { self.shared_places()? } else { SharedPlaces::default() };
        let shared_note = self.shared_note(&shared);
        let (layers, unchanged) = self.layers(shared);
        if self.may_write && self.site.settings.can_layer_caches() {
            self.create_missing_caches();
        }
        let (tmp, shown) = self.private_tmp(&environment)?.unzip();
        let mut profile = self.profile(write, uses_ssh, &environment, (&layers, unchanged), tmp)?;
        // No program or setting there is the user's own from now on.
        self.site.opened_places.add(profile.writable.iter().cloned());
        let signing = self.add_signing(&mut profile, &mut extra_variables)?;
        let proxy = self.proxy(&environment, &mut profile, &mut extra_variables);
        let proxy_note = if proxy.is_some() { "; other hosts through $HTTPS_PROXY" } else { "" };
        if self.may_write {
            extra_variables.extend(package_managers::offline_variables(&profile, &environment));
        }
        let snapshot = self.may_write.then(|| {
            self.site.begin_ignored_search();
            self.site.take_snapshot(self.site.tracker.repositories())
        });
        let removed_variables: &[&str] = if uses_ssh { &[] } else { &[SSH_AGENT_VARIABLE] };
        let signing_note = if matches!(signing, Some(Ok(_))) { "; signing" } else { "" };
        let limits = Some(self.limits(&profile) + proxy_note + signing_note + &shared_note);
        let changes = self.allowed_changes(&profile, snapshot.is_some());
        let history = if self.may_write {
            self.site.keep_history(&self.command.script.commands)
        } else {
            KeptHistory::default()
        };
        Ok(CommandConfinement {
            profile: Some(profile),
            environment: environment.without(removed_variables),
            extra_variables,
            snapshot,
            changes,
            limits,
            layers,
            history,
            publishes: self.further.publishes,
            signing,
            network: self.site.network.get(self.site.settings.memory),
            proxy,
            refused_hosts: None,
            shown,
        })
    }

    fn allowed_changes(&self, profile: &SandboxProfile, has_snapshot: bool) -> AllowedChanges {
        // Only the check of a snapshot uses them.
        let read_only_inodes =
            if has_snapshot { linked_files::read_only_inodes(profile) } else { Vec::new() };
        AllowedChanges {
            paths: self.allowed_protected_paths(),
            installs_in: self.changed_environments(),
            makes_environments: environment_use(self.command) != EnvironmentUse::None,
            read_only_inodes,
        }
    }

    /// The places where the command may write. Adds the variables that point programs there.
    fn places_to_write(&self, extra_variables: &mut Vec<(&'static str, String)>) -> Vec<PathBuf> {
        let confinement = &self.site.settings;
        let mut write = self.write.clone();
        if self.may_write {
            write.extend(self.writable_folders());
            if let Some(temp) = self.site.guard.temp_folder() {
                let name = temp.to_string_lossy().into_owned();
                extra_variables.extend(["TMPDIR", "TMP", "TEMP"].map(|key| (key, name.clone())));
                write.push(temp);
            }
        }
        write.extend(self.writable_tmp(&write));
        if self.may_write && !confinement.can_layer_caches() {
            // The cache of commands on systems without layers.
            let folder = confinement.private_caches.join("redirected");
            let environment = &self.site.environment;
            extra_variables.extend(package_managers::redirected_caches(&folder, environment));
            write.extend(private_file::create_folder(&folder).and_then(|()| real_path(&folder)));
        }
        if environment_use(self.command) == EnvironmentUse::CreatesNamed {
            // `-m` takes no module from the folder.
            extra_variables.push(("PYTHONSAFEPATH", "1".to_owned()));
        }
        write
    }

    /// Creates the targets of redirects that are in none of the writable folders. Those in the session's folders get a
    /// file of their own if other places have it, too.
    fn prepare_redirect_targets(
        &self,
        redirects: &[PathBuf],
        writable: &[PathBuf],
    ) -> Result<(), ToolRefusal> {
        let has_own_memory = turnwright_sandbox::namespace_support().mounts;
        for path in redirects {
            let is_in_own_memory = has_own_memory && path.starts_with(SHARED_MEMORY);
            let mut above = writable.iter().filter(|folder| *folder != path);
            if !is_in_own_memory && !above.any(|folder| path.starts_with(folder)) {
                // Of several, some may be in a folder to which a `cd` does not lead.
                if let Err(error) = create_redirect_target(path)
                    && redirects.len() == 1
                {
                    return Err(cannot_be_written(path, &error).into());
                }
            }
            if self.site.roots.folders().any(|root| path.starts_with(root)) {
                linked_files::separate(path).map_err(|error| cannot_be_written(path, &error))?;
            }
        }
        Ok(())
    }

    /// Refuses to open a path for writing that does not exist, or does not any more.
    fn check_extra_access(&self) -> Result<(), ToolRefusal> {
        let mut writes = self.command.extra_access.writes.iter();
        let missing = writes.find(|target| fs::symlink_metadata(&target.path).is_err());
        missing.map_or(Ok(()), |missing| {
            Err(refusal_of_missing_path(&missing.path.to_string_lossy(), &missing.path))
        })
    }

    fn session_access(&self) -> SessionAccess<'_> {
        SessionAccess {
            confinement: &self.site.settings,
            roots: &self.site.roots,
            denied_paths: &self.denied_paths,
            real_paths: &self.real_paths,
        }
    }

    /// The folders that every command of the session may write.
    fn writable_folders(&self) -> Vec<PathBuf> {
        let roots = self.site.roots.folders();
        let git_folders = roots.filter_map(repository::git_folder);
        self.session_access().writable_folders().into_iter().chain(git_folders).collect()
    }

    fn profile(
        &self,
        writable: Vec<PathBuf>,
        uses_ssh: bool,
        environment: &Environment,
        (layers, unchanged): (&ChangedLayers, Vec<PathBuf>),
        private_tmp: Option<PrivateTmp>,
    ) -> Result<SandboxProfile, ToolRefusal> {
        let mut allowed = self.allowed_protected_paths();
        allowed.extend(self.changed_environments());
        // git itself legitimately writes its config, for example to set a branch's upstream. The
        // snapshot is checked after the command has ended.
        let configs = repository::tracking_configs(self.command);
        let environments = if writable.is_empty() { Vec::new() } else { self.environments() };
        let mut deleted = linked_files::deleted_first(self.command).unwrap_or_default();
        deleted.retain(|folder| environments.contains(folder));
        let may_write_protected = |path: &Path| {
            configs.contains(path)
                || deleted.iter().any(|folder| path.starts_with(folder))
                || allowed.iter().any(|place| place.starts_with(path) || path.starts_with(place))
        };
        let programs = environments
            .iter()
            .flat_map(|folder| ProtectedPaths::environment_programs(folder))
            .filter(|program| !may_write_protected(program) && program.is_dir());
        // The files that a command without write access may read are restricted below.
        let denied = if self.may_write { self.denied_files()? } else { DeniedFiles::default() };
        let program = SandboxProfile {
            writable,
            network: self.network(),
            debug: self.further.debug,
            machine_addresses: self.machine_addresses(environment),
            sockets: if uses_ssh { ssh_agents(environment) } else { Vec::new() },
            hidden: denied.unreadable,
            read_only: denied.unwritable.into_iter().chain(unchanged).chain(programs).collect(),
            unhidden: vec![self.site.outputs.clone()],
            layers: layers.layers(),
            private_tmp,
            ..SandboxProfile::default()
        };
        let mut profile =
            self.session_access().profile(program, self.may_write, &may_write_protected, &|path| {
                uses_ssh && path.ends_with(".ssh")
            });
        if self.network {
            self.remove_program_layers(&mut profile);
        }
        profile.hidden.extend(self.other_names_of_secrets());
        let reads_unasked = self.is_silent || self.reads_beside_edits();
        if reads_unasked {
            self.restrict_reads(&mut profile, environment);
        }
        if !self.may_write || reads_unasked {
            profile.hidden.extend(self.hidden_paths(environment)?);
        }
        Ok(profile)
    }

    /// Restricts reading to the places that a command may read unasked, and the paths that it names or may write. With a
    /// list in the settings, naming a path outside does not open it.
    fn restrict_reads(&self, profile: &mut SandboxProfile, environment: &Environment) {
        let is_open = profile.readable.is_none();
        let mut reads = self.command.reads.clone();
        reads.retain(|target| is_open || target.scope != PathScope::Outside);
        let named = reads.into_iter().map(|target| target.path);
        let opened = &self.site.opened_places;
        let writable = self.writable_folders();
        opened.add(writable.iter().cloned());
        let places = silent_reads::readable(
            &self.site.roots,
            environment,
            &self.command.script,
            &self.real_paths,
            &opened.fixed_places(),
            &writable,
        );
        let list = profile.readable.get_or_insert_default();
        // It lies in the session's `/tmp`, where a search would otherwise fail.
        let temp = self.site.guard.known_temp_folder();
        list.extend(places.into_iter().chain(named).chain(temp));
        list.extend(profile.writable.iter().cloned());
    }

    /// Returns true if nobody may have been asked about a line that edits files, and it may show the content of others.
    fn reads_beside_edits(&self) -> bool {
        self.command.edits.is_some()
            && restricted_files::reads_unnamed_beside_edits(&self.command.script)
    }

    /// The files in the session's folders that rules with wildcards deny.
    fn denied_files(&self) -> Result<DeniedFiles, ToolRefusal> {
        let folders: Vec<_> = self.site.roots.folders().map(Path::to_path_buf).collect();
        let found = restricted_files::denied_below(&folders, &self.denied_paths);
        if found.is_complete {
            return Ok(found);
        }
        Err("Nothing was run: the project has too many files to find all that rules with wildcards \
             deny. Use the file tools, or call again with \"escalate\": \"full\", so that the user is asked."
            .into())
    }

    /// The secrets that a command that only reads might come across. The user was not asked about
    /// files that it does not name.
    fn hidden_paths(&self, environment: &Environment) -> Result<Vec<PathBuf>, ToolRefusal> {
        let reads = &self.command.reads;
        if !restricted_files::reads_unnamed_files(&self.command.script, reads) {
            return Ok(Vec::new());
        }
        let named: Vec<_> = reads.iter().map(|target| target.path.clone()).collect();
        let folders = silent_reads::project_folders(&self.site.roots, environment);
        let (paths, is_complete) = self.site.guard.with_known_folders(|known| {
            restricted_files::hidden_below(&folders, &self.denied_paths, &named, known)
        });
        if is_complete {
            return Ok(paths);
        }
        Err("Nothing was run: the project has too many files to hide those with secrets from a \
             command that runs without a question. Use the file tools, or call again with \
             \"escalate\", so that the user is asked."
            .into())
    }

    /// The protected paths that the user has explicitly allowed, and the folders that an installer of conda changes. A
    /// folder that contains the whole project does not count as naming them.
    fn allowed_protected_paths(&self) -> Vec<PathBuf> {
        let protected = &self.site.settings.protected;
        let environments = self.environments();
        let asked = &self.command.extra_access.writes;
        let mut allowed = self.write.clone();
        allowed.retain(|path| {
            let holds_project = protected.roots().iter().any(|root| root.starts_with(path));
            // Nobody was warned about a path in an environment that is not known by its name, unless the call asks for
            // exactly this path.
            let is_asked_for = asked.iter().any(|target| target.path == *path);
            let is_in_environment = environments.iter().any(|folder| path.starts_with(folder));
            let is_named = self.site.guard.is_named_by_git(path);
            (protected.reason(path).is_some() || is_asked_for && (is_in_environment || is_named))
                && !holds_project
        });
        if environment_use(self.command) == EnvironmentUse::InstallsConda {
            for root in protected.roots() {
                allowed.extend([".conda", ".pixi/envs"].map(|name| root.join(name)));
            }
        }
        allowed
    }
}

fn cannot_be_written(path: &Path, error: &io::Error) -> String {
    let path = turnwright_types::effect::escape_hidden_line(&path.to_string_lossy());
    format!("{path} cannot be written: {}. Nothing was run.", io_error_text(error))
}

/// Creates the target of a redirect, so that the sandbox can allow writing this one file and not
/// its folder. An existing file is left as it is.
fn create_redirect_target(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(());
    }
    let (_held, path) = nofollow::hold_entry(path, nofollow::open_folder)?;
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map(drop),
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_to_be_written_is_made_without_following_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink("nothing", base.join("dangling")).unwrap();
        create_redirect_target(&base.join("real/a")).unwrap();
        assert!(base.join("real/a").exists());
        assert!(create_redirect_target(&base.join("link/b")).is_err());
        create_redirect_target(&base.join("dangling")).unwrap();
        assert!(!base.join("nothing").exists() && !base.join("real/b").exists());
    }
}
