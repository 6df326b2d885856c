//! Lets package managers work in the sandbox: makes missing caches, and turns retries off without a network.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::ConfinementBuilder;
use turnwright_sandbox::SandboxProfile;
use turnwright_types::effect::ShellCommand;
use turnwright_types::private_file;
use turnwright_types::shell_script::SimpleCommand;
use turnwright_workspace::exec::{DEFAULT_CACHES, Environment, default_cache};

/// Variables that make programs give up at the first failed connection instead of trying again for minutes.
const NO_RETRIES: &[(&str, &str)] = &[
    ("BUN_CONFIG_HTTP_RETRY_COUNT", "0"),
    ("CARGO_NET_RETRY", "0"),
    (
        "MAVEN_ARGS",
        "-Daether.connector.http.retryHandler.count=0 -Dmaven.wagon.http.retryHandler.count=0",
    ),
    ("npm_config_fetch_retries", "0"),
    ("PIP_RETRIES", "0"),
    ("POETRY_REQUESTS_MAX_RETRIES", "0"),
    ("RUSTUP_MAX_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
    ("YARN_HTTP_RETRY", "0"),
];

impl ConfinementBuilder<'_> {
    /// Makes the caches that installed programs would make in a fresh home, so that there is something to put a private
    /// layer over. Once in a session, and only default caches: one that the user has listed may be missing on purpose.
    pub(super) fn create_missing_caches(&self) {
        if self.site.guard.has_made_caches.swap(true, Ordering::Relaxed) {
            return;
        }
        let confinement = &self.site.settings;
        let environment = &self.site.environment;
        let Some(home) = environment.get("HOME").map(Path::new).filter(|home| home.is_dir()) else {
            return;
        };
        for path in &confinement.caches {
            if is_missing(path, home, environment)
                && let Err(error) = create_below(home, path)
            {
                tracing::debug!(%error, cache = %path.display(), "a cache cannot be made");
            }
        }
    }

    /// Removes the layers over folders with programs for a line that was allowed the network, unless it installs: an
    /// earlier command may have put a `git` of its own there.
    pub(super) fn remove_program_layers(&self, profile: &mut SandboxProfile) {
        if !self.network || is_of_package_managers(self.command) {
            return;
        }
        let environment = &self.site.environment;
        let Some(home) = environment.get("HOME").map(Path::new) else { return };
        let with_programs = DEFAULT_CACHES.iter().filter(|cache| cache.has_programs);
        let folders: Vec<_> = with_programs
            .filter_map(|cache| self.real_paths.get(&home.join(cache.folder)))
            .collect();
        profile.caches.retain(|layer| !folders.contains(&layer.path));
    }
}

/// The variables for programs without a network, except those that the user has set.
pub(super) fn offline_variables(
    profile: &SandboxProfile,
    environment: &Environment,
) -> Vec<(&'static str, String)> {
    if profile.network.reaches_other_machines() {
        return Vec::new();
    }
    let unset = NO_RETRIES.iter().filter(|(name, _)| environment.get(name).is_none());
    unset.map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// Returns true if a line certainly runs only programs that install packages.
fn is_of_package_managers(command: &ShellCommand) -> bool {
    let is_certain = command.uncertainty.is_none() && command.script.ambiguity.is_none();
    is_certain && command.script.commands.iter().all(is_package_manager)
}

fn is_package_manager(command: &SimpleCommand) -> bool {
    let program = Path::new(command.program()).file_name().unwrap_or_default();
    if program == "python" || program == "python3" {
        return command.argv().skip(1).take(2).eq(["-m", "pip"]);
    }
    // A shell is in the table because of the cache that all programs use.
    let mut installers = DEFAULT_CACHES.iter().flat_map(|cache| cache.made_by);
    program == "cd" || program != "sh" && installers.any(|name| program == *name)
}

/// Returns true if a default cache does not exist, and a program that makes it does.
fn is_missing(path: &Path, home: &Path, environment: &Environment) -> bool {
    let Some(cache) = default_cache(home, path) else { return false };
    !path.exists() && cache.made_by.iter().any(|program| is_installed(program, environment))
}

fn is_installed(program: &str, environment: &Environment) -> bool {
    let folders = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    folders.filter(|folder| folder.is_absolute()).any(|folder| folder.join(program).is_file())
}

/// Makes a folder below the home folder that only the user may read.
fn create_below(home: &Path, folder: &Path) -> std::io::Result<()> {
    // A link leads to a place that nobody has named.
    let mut above = folder.ancestors().take_while(|above| *above != home);
    if above.any(Path::is_symlink) {
        return Ok(());
    }
    private_file::create_folder(folder)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use turnwright_sandbox::Network;

    use super::*;

    #[test]
    fn only_default_caches_of_installed_programs_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let programs = folder.path().join("bin");
        fs::create_dir_all(home.join(".npm")).unwrap();
        fs::create_dir(&programs).unwrap();
        for program in ["cargo", "npm"] {
            fs::write(programs.join(program), "").unwrap();
        }
        let environment = Environment::default().with("PATH", &programs);
        let listed = [".npm", ".cargo/registry", "go/pkg/mod", "own"].map(|name| home.join(name));
        let missing = listed.map(|path| is_missing(&path, &home, &environment));
        assert_eq!(missing, [false, true, false, false]);
        create_below(&home, &home.join(".cargo/registry")).unwrap();
        assert!(home.join(".cargo/registry").is_dir());
    }

    #[test]
    fn only_without_a_network_nothing_is_tried_again() {
        let environment = Environment::default().with("PIP_RETRIES", "7");
        let names = |network| -> Vec<_> {
            let profile = SandboxProfile { network, ..SandboxProfile::default() };
            offline_variables(&profile, &environment).into_iter().map(|(name, _)| name).collect()
        };
        assert!(names(Network::Off).contains(&"npm_config_fetch_retries"));
        assert!(!names(Network::Loopback).contains(&"PIP_RETRIES"), "the user has set it");
        assert!(names(Network::On).is_empty());
    }
}
