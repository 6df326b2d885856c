//! The sandbox profile of a program of the session, a command or an MCP server, and what belongs to that of a command:
//!
//! * Its private `/tmp`: the folder of its session. Of the machine's `/tmp`, it shows the paths that the command is
//!   started with and the paths that the user has allowed. A command that nobody may have been asked about sees only
//!   the paths that it was judged by, and only while it runs.
//! * Its network: the access, the addresses of this machine's proxies, which commands with network access need, and the
//!   SSH agent of the user, which only a command of `git`, `ssh` and the like gets that was allowed the network.
//! * The service that lets git sign in a command that is allowed to.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use turnwright_policy::permission::{DeniedPaths, PolicyRules};
use turnwright_policy::shell;
use turnwright_sandbox::{Network, PrivateLayer, PrivateTmp, SandboxProfile};
use turnwright_types::effect::{PathScope, ResolvedPath, build_credential_paths};
use turnwright_types::error_text::io_error_text;
use turnwright_types::refusal::ToolRefusal;
use turnwright_types::secret::secret_files;
use turnwright_workspace::exec::Environment;
use turnwright_workspace::files::{Roots, SessionTmp, ShownOnce};
use turnwright_workspace::{FolderNames, RealPaths, real_path};
use url::{Host, Url};

use super::linked_files::linked_packages;
use super::{ConfinementBuilder, ConfinementSettings, silent_reads};
use crate::repository;
use crate::restricted_files::{KnownFolders, denied_below, hidden_below};
use crate::signing::SigningService;

/// The part of a session that decides what its programs may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionAccess<'a> {
    pub(super) confinement: &'a ConfinementSettings,
    pub(super) roots: &'a Roots,
    pub(super) denied_paths: &'a DeniedPaths,
    pub(super) real_paths: &'a RealPaths,
}

impl SessionAccess<'_> {
    /// The folders that every program of the session with write access may write: the session's
    /// own and the ones of the settings. Looks files up: not for the runtime's thread.
    pub(super) fn writable_folders(&self) -> Vec<PathBuf> {
        let roots = self.roots.folders().map(Path::to_path_buf);
        roots.chain(self.existing(self.confinement.writable.iter())).collect()
    }

    /// The caches, with the places of their private layers.
    fn caches(&self) -> Vec<PrivateLayer> {
        let confinement = self.confinement;
        if confinement.caches.is_empty() || !confinement.can_layer_caches() {
            return Vec::new();
        }
        let caches = self.existing(confinement.caches.iter());
        caches.map(|cache| PrivateLayer::new(cache, &confinement.private_caches)).collect()
    }

    /// Completes the profile of a program, which has what distinguishes it from the session's other programs: further
    /// paths that it may not read or change, and folders that it may read although they lie below hidden ones. With
    /// `has_caches` it may change caches for itself. `may_write_protected` and `may_read_hidden` return true for paths
    /// that others may not change or read. Looks files up: not for the runtime's thread.
    pub(super) fn profile(
        &self,
        program: SandboxProfile,
        has_caches: bool,
        may_write_protected: &dyn Fn(&Path) -> bool,
        may_read_hidden: &dyn Fn(&Path) -> bool,
    ) -> SandboxProfile {
        let confinement = self.confinement;
        // Where nothing can be written, nothing has to be kept.
        let mut read_only = if program.writable.is_empty() && !has_caches {
            Vec::new()
        } else {
            self.read_only(may_write_protected)
        };
        read_only.extend(program.read_only);
        let usual = confinement.hidden.iter().filter(|path| !may_read_hidden(path));
        let unreadable = self.denied_paths.unreadable_paths();
        let secret_files = secret_files();
        let hidden =
            self.existing(usual.chain(&unreadable).chain(&program.hidden).chain(&secret_files));
        let readable = confinement.readable.clone().map(|mut list| {
            list.extend(self.existing(confinement.caches.iter().chain(&confinement.writable)));
            list.extend(self.roots.folders().map(Path::to_path_buf));
            list
        });
        SandboxProfile {
            read_only,
            hidden: hidden.filter(|path| !self.is_opened(path)).collect(),
            unhidden: self.existing(program.unhidden.iter()).collect(),
            readable,
            caches: if has_caches { self.caches() } else { Vec::new() },
            ..program
        }
    }

    /// Returns true for a folder that the user has opened as a session folder, or a folder above one: it stays
    /// readable.
    fn is_opened(&self, path: &Path) -> bool {
        self.roots.folders().any(|root| root.starts_with(path))
            && !self.roots.private_folders().any(|own| own == path)
    }

    /// The paths that no program with write access may write: our own files, denied and protected paths.
    fn read_only(&self, may_write_protected: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let unwritable = self.denied_paths.unwritable_paths();
        let own_files = self.existing(self.confinement.read_only.iter().chain(&unwritable));
        let protected = &self.confinement.protected;
        let mut names = FolderNames::default();
        for root in protected.roots() {
            names.list(root);
        }
        let inside =
            own_files.filter(|path| self.roots.folders().any(|root| path.starts_with(root)));
        let obeyed = protected.leaf_paths().iter().filter(|path| {
            names.may_exist(path)
                && fs::symlink_metadata(path).is_ok_and(|found| found.is_file() || found.is_dir())
                && !may_write_protected(path)
                && !self.real_paths.get(path).is_some_and(|real| may_write_protected(&real))
        });
        inside.chain(obeyed.cloned()).collect()
    }

    /// The paths that exist, with symbolic links resolved.
    fn existing<'b>(
        &self,
        paths: impl Iterator<Item = &'b PathBuf>,
    ) -> impl Iterator<Item = PathBuf> {
        let real = paths.filter_map(|path| self.real_paths.get(path));
        // A link or a variable may lead there to switch something off, and every program needs it.
        real.filter(|path| path != Path::new("/dev/null"))
    }
}

/// The sandbox profile of a server. Like a command it may write to the session's folders and
/// the caches, but a server runs beside all calls, so it never gets access to protected files,
/// nor to permission rules, pins, notes and other sessions. Unless its settings name them, it does
/// not read secrets of the project, nor settings with credentials that builds need. Blocks.
pub fn server_profile(
    confinement: &ConfinementSettings,
    roots: &Roots,
    policy: &PolicyRules,
    home: Option<&Path>,
) -> SandboxProfile {
    let denied_paths = &DeniedPaths::from_rules(policy);
    let real_paths = &RealPaths::default();
    let session = SessionAccess { confinement, roots, denied_paths, real_paths };
    let mut hidden = confinement.read_only.clone();
    hidden.extend(home.map(build_credential_paths).unwrap_or_default());
    let folders: Vec<_> = roots.folders().map(Path::to_path_buf).collect();
    hidden.extend(hidden_below(&folders, denied_paths, &[], &mut KnownFolders::default()).0);
    let mut read_only = denied_below(&folders, denied_paths).unwritable;
    read_only.extend(linked_packages(roots.folders()));
    // Sessions share a server only if their profiles are equal.
    hidden.sort();
    let program = SandboxProfile {
        writable: session.writable_folders(),
        network: confinement.network,
        hidden,
        read_only,
        ..SandboxProfile::default()
    };
    session.profile(program, true, &|_| false, &|_| false)
}

/// At most this many paths of a line are looked up.
const MAX_NAMED: usize = 32;

impl ConfinementBuilder<'_> {
    /// The folder, if the command may write there: as one that may write, or because of its redirects.
    pub(super) fn writable_tmp(&self, write: &[PathBuf]) -> Option<PathBuf> {
        let tmp = self.site.roots.session_tmp()?;
        let folder = if self.may_write { tmp.folder()? } else { tmp.known_folder()? };
        let is_used = self.may_write || write.iter().any(|path| path.starts_with(folder));
        is_used.then(|| folder.to_path_buf())
    }

    /// A command that only reads has it as soon as there is something in it. What only this command sees of the
    /// machine's `/tmp` is seen until the second value is dropped.
    pub(super) fn private_tmp(
        &self,
        environment: &Environment,
    ) -> Result<Option<(PrivateTmp, ShownOnce)>, ToolRefusal> {
        let roots = &self.site.roots;
        let Some(tmp) = roots.session_tmp() else { return Ok(None) };
        let is_needed = self.may_write || tmp.known_folder().is_some();
        let made = if is_needed { tmp.make_folder() } else { Ok(None) };
        let Some(folder) = made.map_err(|error| cannot_be_made(&error))? else { return Ok(None) };
        let reads = self.command.reads.iter().map(|target| target.path.clone());
        let edits = self.command.edits.iter().flatten().filter_map(innermost_existing);
        let judged: Vec<_> = self.write.iter().cloned().chain(reads).chain(edits).collect();
        let (once, lasting) = if self.may_be_unasked() {
            (judged, Vec::new())
        } else {
            (Vec::new(), [judged, named_in_tmp(&self.command.line, roots)].concat())
        };
        let values = environment.iter().filter(|(name, _)| !names_temp_folder(name));
        let paths = values.flat_map(|(_, value)| std::env::split_paths(value));
        let in_tmp = paths.filter(|path| path.starts_with("/tmp"));
        let named = in_tmp.filter_map(|path| self.real_paths.get(&path));
        let git_folders = roots.folders().filter_map(repository::git_folder);
        let projects = silent_reads::project_folders(roots, environment);
        let settings = &self.site.settings;
        let set =
            settings.readable.iter().flatten().chain(&settings.caches).chain(&settings.writable);
        let usual = roots
            .folders()
            .map(Path::to_path_buf)
            .chain(git_folders)
            .chain(roots.readable_folders())
            .chain(self.site.guard.known_temp_folder())
            .chain(projects)
            .chain(named)
            .chain(set.filter_map(|path| self.real_paths.get(path)));
        let shown_once = tmp.show_once(once);
        let mut shown = tmp.show(usual.chain(lasting));
        shown.extend(shown_once.places.iter().cloned());
        Ok(Some((PrivateTmp { folder: folder.to_path_buf(), shown }, shown_once)))
    }

    /// Returns true if nobody may have been asked about the command: it only reads, or only edits files.
    pub(super) fn may_be_unasked(&self) -> bool {
        self.is_silent || self.command.edits.is_some()
    }

    /// Commands never reach the machine's servers, whatever the settings say about the network.
    pub(super) fn network(&self) -> Network {
        match self.site.settings.network {
            Network::On => Network::Internet,
            _ if self.network => Network::Internet,
            other => other,
        }
    }

    /// The addresses of this machine that the command may connect to: those that it asks for, and proxies.
    pub(super) fn machine_addresses(&self, environment: &Environment) -> Vec<SocketAddr> {
        let mut addresses = self.further.connects.clone();
        if self.network().reaches_other_machines() {
            addresses.extend(proxy_addresses(environment));
        }
        addresses
    }

    /// Describes for the model and the user what the sandbox lets the command do.
    pub(super) fn limits(&self, profile: &SandboxProfile) -> String {
        let network = match profile.network {
            Network::Off => "no network",
            Network::Loopback => "no network but servers of this session on localhost",
            Network::Internet => "network, and servers of this session on localhost",
            Network::On => "network",
        };
        let roots: Vec<_> =
            self.site.roots.folders().map(|root| root.display().to_string()).collect();
        let writes = if self.may_write {
            format!("writes only in {} and $TMPDIR", roots.join(", "))
        } else if self.write.is_empty() {
            "no writes, because it was judged read-only".to_owned()
        } else {
            "writes only where its output is redirected to, because it was judged read-only"
                .to_owned()
        };
        let mut limits = format!("sandbox: {network}; {writes}");
        for address in &self.further.connects {
            limits.push_str(&format!("; connections to {address}"));
        }
        for port in &self.further.publishes {
            limits.push_str(&format!("; port {port} open to the user"));
        }
        if self.further.debug {
            limits.push_str("; debugging");
        }
        limits
    }

    /// Adds the service that signs for the command, with the user's own programs; `None` if the command may not sign.
    /// Without the service it runs all the same, unless it was asked for.
    pub(super) fn add_signing(
        &self,
        profile: &mut SandboxProfile,
        variables: &mut Vec<(&'static str, String)>,
    ) -> Result<Option<io::Result<SigningService>>, ToolRefusal> {
        if !self.further.sign {
            return Ok(None);
        }
        let site = self.site;
        let opened = &site.opened_places;
        let tmp = site.roots.session_tmp().and_then(SessionTmp::known_folder);
        opened.add(self.writable_folders());
        opened.add(tmp.map(Path::to_path_buf));
        opened.add(real_path(&site.settings.private_caches));
        let folders = site.roots.folders().map(Path::to_path_buf).collect();
        let created = SigningService::create(
            &site.environment,
            &site.state_folder,
            folders,
            Arc::clone(opened),
        );
        match &created {
            Ok(service) => {
                variables.extend(service.variables());
                show_service(service, profile);
            }
            Err(error) if self.command.extra_access.sign => {
                let why = io_error_text(error);
                return Err(format!("Nothing was run: nothing can be signed: {why}").into());
            }
            Err(_) => {}
        }
        Ok(Some(created))
    }
}

fn cannot_be_made(error: &io::Error) -> String {
    format!(
        "Nothing was run: the session's own /tmp cannot be made: {}. Tell the user, who can make room in the folder for \
         temporary files, or call again with \"escalate\": \"full\", so that the user is asked.",
        io_error_text(error)
    )
}

/// Returns true for a variable with the user's temporary folder, which is not to be seen as a whole.
fn names_temp_folder(variable: &OsStr) -> bool {
    ["TMPDIR", "TMP", "TEMP"].iter().any(|name| variable == *name)
}

/// The paths in the machine's `/tmp` that a line names, or the folders in which they would be.
fn named_in_tmp(line: &str, roots: &Roots) -> Vec<PathBuf> {
    let starts = line.match_indices("/tmp/").filter(|(at, _)| !line[..*at].ends_with(is_path_char));
    starts.take(MAX_NAMED).filter_map(|(at, _)| existing_in_tmp(&line[at..], roots)).collect()
}

/// The path in `/tmp` with which a text begins, or the innermost folder of it that exists.
fn existing_in_tmp(text: &str, roots: &Roots) -> Option<PathBuf> {
    let length = text.find(|char: char| !is_path_char(char)).unwrap_or(text.len());
    innermost_existing(&roots.resolve(&text[..length]))
}

/// A path in the machine's `/tmp`, or the innermost folder around it that exists.
fn innermost_existing(target: &ResolvedPath) -> Option<PathBuf> {
    let tmp = Path::new("/tmp");
    let mut places =
        target.path.ancestors().take_while(|place| place.starts_with(tmp) && *place != tmp);
    let is_own = matches!(target.scope, PathScope::PrivateTmp { .. });
    places.find(|place| place.exists()).filter(|_| !is_own).map(Path::to_path_buf)
}

fn is_path_char(char: char) -> bool {
    char.is_alphanumeric() || "/._-+@%~#".contains(char)
}

/// The variables that name proxies, in capitals or not.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy"];

/// The addresses of the proxies that programs are told to use, if the proxies may run on this machine.
fn proxy_addresses(environment: &Environment) -> Vec<SocketAddr> {
    let names = PROXY_VARIABLES.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
    let values = names.filter_map(|name| Some(environment.get(&name)?.to_str()?.to_owned()));
    values.flat_map(|value| addresses_of(&value)).collect()
}

/// The addresses of a proxy that is not named by a host of the network.
fn addresses_of(value: &str) -> Vec<SocketAddr> {
    let value = value.trim();
    let whole = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    let Ok(url) = Url::parse(&whole) else { return Vec::new() };
    let default = if url.scheme().starts_with("socks") { 1080 } else { 80 };
    let port = url.port_or_known_default().unwrap_or(default);
    // The host of an unknown scheme is not parsed.
    match url.host().and_then(|host| Host::parse(&host.to_string()).ok()) {
        Some(Host::Ipv4(address)) => vec![(address, port).into()],
        Some(Host::Ipv6(address)) => vec![(address, port).into()],
        Some(Host::Domain(name)) if name == "localhost" => {
            vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]
        }
        _ => Vec::new(),
    }
}

/// The variable with the socket of the SSH agent.
pub(super) const SSH_AGENT_VARIABLE: &str = "SSH_AUTH_SOCK";
/// The sockets of agents that the settings of SSH may name instead, in the home folder and in the
/// user's runtime folder.
const HOME_AGENTS: &[&str] = &[".1password/agent.sock"];
const RUNTIME_AGENTS: &[&str] =
    &["gcr/ssh", "gnupg/S.gpg-agent.ssh", "keyring/ssh", "openssh_agent", "ssh-agent.socket"];
/// Programs that need the SSH agent and use it only to connect.
const SSH_PROGRAMS: &[&str] = &["git", "ssh", "scp", "sftp", "rsync"];

/// The sockets of the SSH agents that exist, as real paths.
pub(super) fn ssh_agents(environment: &Environment) -> Vec<PathBuf> {
    let named = environment.get(SSH_AGENT_VARIABLE).map(PathBuf::from);
    let in_home = paths_below(environment, "HOME", HOME_AGENTS);
    let in_runtime = paths_below(environment, "XDG_RUNTIME_DIR", RUNTIME_AGENTS);
    let sockets = named.into_iter().chain(in_home).chain(in_runtime);
    sockets.filter_map(|socket| real_path(socket).ok()).collect()
}

/// The paths with these names in the folder that a variable names.
fn paths_below(environment: &Environment, variable: &str, names: &[&str]) -> Vec<PathBuf> {
    let Some(folder) = environment.get(variable).map(Path::new) else { return Vec::new() };
    names.iter().map(|name| folder.join(name)).collect()
}

/// Returns true if a command line runs only programs that need the SSH agent.
pub(super) fn only_connects(script: &shell::Script) -> bool {
    script.ambiguity.is_none()
        && !script.commands.is_empty()
        && script.commands.iter().all(|command| {
            let program = command.program();
            SSH_PROGRAMS.contains(&program)
                && command.wrappers.is_empty()
                && (program != "git" || shell::classify(command).starts_no_other)
        })
}

/// Lets a command see the service and connect to it.
fn show_service(signing: &SigningService, profile: &mut SandboxProfile) {
    let [socket, program, folder] = signing.places();
    profile.sockets.push(socket);
    // The agent's own files, in which the folder lies, are hidden.
    profile.unhidden.push(folder.clone());
    if let Some(readable) = &mut profile.readable {
        readable.extend([program, folder]);
    }
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use super::*;

    #[test]
    fn a_proxy_of_the_machine_is_found_however_it_is_written() {
        for (value, expected) in [
            ("http://127.0.0.1:3128", vec!["127.0.0.1:3128"]),
            ("http://localhost:3128/", vec!["127.0.0.1:3128", "[::1]:3128"]),
            ("localhost:8118", vec!["127.0.0.1:8118", "[::1]:8118"]),
            ("socks5h://me:word@127.0.0.1", vec!["127.0.0.1:1080"]),
            ("socks5://localhost:9050", vec!["127.0.0.1:9050", "[::1]:9050"]),
            ("http://[::1]:3128", vec!["[::1]:3128"]),
            ("http://10.0.0.1", vec!["10.0.0.1:80"]),
            ("http://proxy.example:3128", vec![]),
            ("", vec![]),
        ] {
            let found: Vec<_> = addresses_of(value).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn git_gets_the_ssh_agent_only_if_its_words_start_no_other_program() {
        for (line, expected) in [
            ("git push", true),
            ("git add -A && git commit -m x && git push -u origin x", true),
            ("ssh host ls", true),
            ("git -c alias.x='!cat ~/.ssh/id' x", false),
            ("git -C sub fetch", false),
            ("git clone -c core.sshCommand=./x host:y", false),
            ("git push && sh x", false),
        ] {
            let script = shell::parse(line, ShellDialect::Bash);
            assert_eq!(only_connects(&script), expected, "{line}");
        }
    }
}
