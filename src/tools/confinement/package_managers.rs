//! Lets package managers work in the sandbox: makes missing caches, and turns retries off without a network.

use std::fs::DirBuilder;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::{ConfinementBuilder, ConfinementSettings};
use turnwright_sandbox::SandboxProfile;
use turnwright_workspace::exec::Environment;

/// Programs, and the default caches in the home folder that they make themselves when they run outside of the sandbox.
const CACHES_OF_PROGRAMS: &[(&str, &[&str])] = &[
    ("bun", &[".bun/install/cache"]),
    ("cargo", &[".cargo/registry", ".cargo/git"]),
    ("go", &["go/pkg/mod"]),
    ("gradle", &[".gradle"]),
    ("mvn", &[".m2"]),
    ("npm", &[".npm"]),
    ("pnpm", &[".local/share/pnpm"]),
    ("yarn", &[".yarn"]),
];
/// Many programs use this one, and make it.
const SHARED_CACHE: &str = ".cache";

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
    /// layer over. Once in a session, and only default caches: what the user has listed may be missing on purpose.
    pub(super) fn create_missing_caches(&self) {
        if self.env.guard.has_made_caches.swap(true, Ordering::Relaxed) {
            return;
        }
        let confinement = &self.env.confinement;
        let environment = &self.env.command_environment;
        let Some(home) = environment.get("HOME").map(Path::new).filter(|home| home.is_dir()) else {
            return;
        };
        for cache in missing_caches(confinement, home) {
            let needs = |program: &str| is_installed(program, environment);
            let is_needed =
                cache == home.join(SHARED_CACHE) || programs_with_cache(home, &cache).any(needs);
            if is_needed && let Err(error) = create_below(home, &cache) {
                tracing::debug!(%error, cache = %cache.display(), "a cache cannot be made");
            }
        }
    }
}

/// Returns what programs are told if they have no network, except what the user tells them.
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

fn missing_caches(confinement: &ConfinementSettings, home: &Path) -> Vec<PathBuf> {
    let is_default = |path: &Path| {
        let of_programs = CACHES_OF_PROGRAMS.iter().flat_map(|(_, caches)| *caches);
        of_programs.chain([&SHARED_CACHE]).any(|cache| path == home.join(cache))
    };
    let missing = confinement.caches.iter().filter(|path| is_default(path) && !path.exists());
    missing.cloned().collect()
}

fn programs_with_cache<'a>(home: &'a Path, cache: &'a Path) -> impl Iterator<Item = &'static str> {
    let has_cache =
        move |caches: &[&str]| caches.iter().any(|relative| cache == home.join(relative));
    let with_cache = CACHES_OF_PROGRAMS.iter().filter(move |(_, caches)| has_cache(caches));
    with_cache.map(|(program, _)| *program)
}

fn is_installed(program: &str, environment: &Environment) -> bool {
    let folders = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    folders.filter(|folder| folder.is_absolute()).any(|folder| folder.join(program).is_file())
}

/// Makes a folder below the home folder as a program would that keeps its files to itself.
fn create_below(home: &Path, folder: &Path) -> std::io::Result<()> {
    // A link leads to a place of which nobody has said anything.
    let mut above = folder.ancestors().take_while(|above| *above != home);
    if above.any(Path::is_symlink) {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
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
        let (home, programs) = (folder.path().join("home"), folder.path().join("bin"));
        fs::create_dir_all(home.join(".npm")).unwrap();
        fs::create_dir(&programs).unwrap();
        for program in ["cargo", "npm"] {
            fs::write(programs.join(program), "").unwrap();
        }
        let environment = Environment::default().with("PATH", &programs);
        let listed = [".npm", ".cargo/registry", "go/pkg/mod", "own"].map(|name| home.join(name));
        let confinement = ConfinementSettings { caches: listed.into(), ..Default::default() };
        let missing = missing_caches(&confinement, &home);
        assert_eq!(missing, [".cargo/registry", "go/pkg/mod"].map(|name| home.join(name)));
        let is_needed = |cache: &PathBuf| {
            programs_with_cache(&home, cache).any(|program| is_installed(program, &environment))
        };
        assert_eq!(missing.iter().map(is_needed).collect::<Vec<_>>(), [true, false]);
        create_below(&home, &missing[0]).unwrap();
        assert!(missing[0].is_dir());
    }

    #[test]
    fn only_without_a_network_nothing_is_tried_again() {
        let environment = Environment::default().with("PIP_RETRIES", "7");
        let names = |network| -> Vec<_> {
            let profile = SandboxProfile { network, ..SandboxProfile::default() };
            offline_variables(&profile, &environment).into_iter().map(|it| it.0).collect()
        };
        assert!(names(Network::Off).contains(&"npm_config_fetch_retries"));
        assert!(!names(Network::Loopback).contains(&"PIP_RETRIES"), "the user has set it");
        assert!(names(Network::On).is_empty());
    }
}
