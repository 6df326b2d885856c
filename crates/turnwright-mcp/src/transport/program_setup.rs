//! Prepares the process of a server: finds its program, and sets up its sandbox and environment.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::features::tools::{sanitized, with_digest};
use crate::server::pool::ServerEnv;
use crate::server::spec::{ServerSource, ServerSpec, ServerTransport};
use turnwright_sandbox::{Network, PrivateLayer, SandboxProfile};
use turnwright_types::effect::escape_hidden_line;
use turnwright_types::error_text::io_error_text;
use turnwright_workspace::exec::{Environment, PipedProgram, find_in_path, is_program, program_at};
use turnwright_workspace::real_path;
use turnwright_workspace::temp_folder::PrivateTempFolder;

/// Programs that download other programs and run them, each with its cache, relative to the home folder, and the
/// variable that sets another cache.
const PACKAGE_RUNNERS: [(&[&str], &str, &str); 2] =
    [(&["npx", "npm"], ".npm", "npm_config_cache"), (&["uvx", "uv"], ".cache/uv", "UV_CACHE_DIR")];

/// A request to prepare a program.
#[derive(Debug)]
pub(crate) struct ProgramRequest {
    pub(crate) spec: ServerSpec,
    pub(crate) env: ServerEnv,
    pub(crate) environment: Environment,
}

impl ProgramRequest {
    /// Finds the program and creates the folders that it needs. Returns it with its temporary folder, which is removed
    /// on drop. Blocks on file I/O.
    ///
    /// # Errors
    /// If the program cannot be started; the text is for the user.
    pub(crate) fn prepare(self) -> Result<(PipedProgram, Option<PrivateTempFolder>), String> {
        let ServerTransport::Stdio { command, arguments, environment: variables } =
            &self.spec.transport
        else {
            return Err("it is not a local program".to_owned());
        };
        let cwd = self.spec.folder.clone().unwrap_or_else(|| self.env.cwd.clone());
        if !cwd.is_dir() {
            let shown = escape_hidden_line(&cwd.to_string_lossy());
            return Err(format!("its folder {shown} does not exist"));
        }
        let allowed = self.env.profile.clone().filter(|_| self.spec.sandbox.is_enabled);
        let mut sandbox = allowed.map(|profile| self.confine(profile));
        let mut environment = self.environment.clone();
        let mut temp_folder = None;
        if let Some(profile) = &mut sandbox {
            let folder = PrivateTempFolder::create()
                .map_err(|error| format!("its temporary folder could not be created: {error}"))?;
            let real = real_path(folder.path()).map_err(|error| error.to_string())?;
            environment = environment.for_sandbox().with_temp_folder(&real);
            // They need a folder for installed tools. Those in the user's own folder run outside the sandbox, so a
            // server must not be able to write there.
            if matches!(self.spec.downloader(), Some("uvx" | "uv")) {
                environment = environment.with("UV_TOOL_DIR", real.join("tools"));
            }
            profile.writable.push(real);
            if let Some((variable, cache)) = self.redirected_cache() {
                environment = environment.with(variable, cache.clone());
                profile.writable.push(cache);
            }
            temp_folder = Some(folder);
        }
        for (name, value) in variables {
            environment = environment.with(name, value.expose());
        }
        // The project's own programs come last, but those of an environment that the user has activated.
        if self.spec.source != ServerSource::Project
            && let Some(path) = environment.get("PATH")
        {
            let roots = &self.env.roots;
            let active =
                ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| environment.get(name).map(Path::new));
            let mut folders: Vec<_> = std::env::split_paths(path).collect();
            folders.sort_by_cached_key(|folder| {
                !folder.ancestors().take(2).any(|place| active.contains(&Some(place)))
                    && (folder.is_relative() || environment.is_in_project(folder, roots))
            });
            let sorted = std::env::join_paths(folders).unwrap_or_default();
            environment = environment.with("PATH", sorted);
        }
        let command = find_program(command, &cwd, environment.get("PATH"))?;
        let words = arguments.iter().map(OsString::from);
        let command_line = std::iter::once(command.into_os_string()).chain(words).collect();
        let program = PipedProgram { command_line, workdir: cwd, environment, sandbox };
        Ok((program, temp_folder))
    }

    /// Adds the permissions of this server's settings to the session's profile.
    fn confine(&self, mut profile: SandboxProfile) -> SandboxProfile {
        let sandbox = &self.spec.sandbox;
        if sandbox.network {
            profile.network = Network::On;
        }
        profile.writable.extend(sandbox.write.iter().filter_map(|path| real_path(path).ok()));
        let cache = self.package_cache().map(|path| PrivateLayer::new(path, Path::new("")));
        let new = cache.filter(|layer| {
            self.can_layer_caches() && !profile.caches.iter().any(|known| known.path == layer.path)
        });
        profile.caches.extend(new);
        for cache in &mut profile.caches {
            *cache = PrivateLayer::new(cache.path.clone(), &self.private_caches());
        }
        let open: Vec<_> = sandbox.read.iter().filter_map(|path| real_path(path).ok()).collect();
        profile.hidden.retain(|path| !open.iter().any(|open| path.starts_with(open)));
        if let Some(read) = &mut profile.readable {
            read.extend(open);
        }
        profile
    }

    /// The cache of the package runner that the program is, and the variable that sets another one.
    fn package_runner(&self) -> Option<(&Path, &'static str)> {
        let name = self.spec.downloader()?;
        let (_, place, variable) = PACKAGE_RUNNERS.into_iter().find(|row| row.0.contains(&name))?;
        let cache = self.env.package_caches.iter().find(|folder| folder.ends_with(place))?;
        Some((cache, variable))
    }

    /// The cache of a package runner. It is created if it does not exist, because otherwise nothing
    /// could be downloaded in the sandbox.
    fn package_cache(&self) -> Option<PathBuf> {
        let (cache, _) = self.package_runner()?;
        fs::create_dir_all(cache).ok()?;
        real_path(cache).ok()
    }

    /// The variable and the folder that redirect a package runner's cache on systems without private layers.
    fn redirected_cache(&self) -> Option<(&'static str, PathBuf)> {
        let (_, variable) = self.package_runner().filter(|_| !self.can_layer_caches())?;
        let folder = self.private_caches().join("redirected");
        fs::create_dir_all(&folder).ok()?;
        Some((variable, real_path(folder).ok()?))
    }

    fn can_layer_caches(&self) -> bool {
        turnwright_sandbox::can_layer_caches(&self.env.private_caches)
    }

    /// The folder for this server's writes to caches. Servers start at the same time, so each has its own.
    fn private_caches(&self) -> PathBuf {
        let plain = sanitized(&self.spec.name);
        let folder =
            if plain == self.spec.name { plain } else { with_digest(&self.spec.name, "", 0) };
        self.env.private_caches.join(folder)
    }
}

/// Finds a program as a shell does, but a bare name must not mean a file of the project.
fn find_program(command: &Path, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, String> {
    let shown = escape_hidden_line(&command.to_string_lossy());
    let is_bare =
        command.components().count() == 1 && command.file_name() == Some(command.as_os_str());
    if command.as_os_str().is_empty() {
        return Err("its command is empty".to_owned());
    }
    if !is_bare {
        let named = cwd.join(command);
        let file = program_at(&named).unwrap_or(named);
        return match is_program(&file) {
            Ok(true) => Ok(file),
            Ok(false) => Err(format!("{shown} is not an executable file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "{shown} does not exist. Install it, or correct the path of its command"
            )),
            Err(error) => Err(format!("{shown} cannot be run: {}", io_error_text(&error))),
        };
    }
    find_in_path(command, path).ok_or_else(|| {
        format!("{shown} was not found in PATH. Install it, or give the full path of its command")
    })
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::ServerSandbox;
    use turnwright_types::client::ElicitationModes;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_is_found_as_by_a_shell_and_errors_say_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        program(&base.join("bin/runner"), 0o755);
        program(&base.join("bin/text"), 0o644);
        program(&base.join("ws/runner"), 0o755);
        let path =
            std::env::join_paths([Path::new("."), &base.join("no"), &base.join("bin")]).unwrap();
        let absolute = base.join("bin/runner");
        let table = [
            ("runner", Ok(base.join("bin/runner"))),
            ("./runner", Ok(base.join("ws/./runner"))),
            (absolute.to_str().unwrap(), Ok(absolute.clone())),
            ("text", Err("text was not found in PATH")),
            ("../bin/text", Err("../bin/text is not an executable file")),
            ("./gone", Err("./gone does not exist")),
            ("a\u{1b}b", Err("a\\u{1b}b was not found in PATH")),
            ("", Err("its command is empty")),
        ];
        for (command, expected) in table {
            let found = find_program(Path::new(command), &base.join("ws"), Some(&path));
            match expected {
                Ok(file) => assert_eq!(found, Ok(file), "{command}"),
                Err(why) => assert!(found.unwrap_err().starts_with(why), "{command}"),
            }
        }
        assert!(find_program(Path::new("sh"), base, None).is_err());
    }

    fn wanted(command: PathBuf, base: &Path, sandbox: ServerSandbox) -> ProgramRequest {
        let reach = ServerTransport::Stdio {
            command,
            arguments: Vec::new(),
            environment: vec![("DOCKER_HOST".to_owned(), "tcp://x".to_owned().into())],
        };
        fs::create_dir_all(base.join("ws")).unwrap();
        let mut spec = ServerSpec::new("s", ServerSource::User, reach);
        spec.sandbox = sandbox;
        let profile = SandboxProfile {
            writable: vec![base.join("ws")],
            hidden: vec![base.join("keys"), base.join("own")],
            ..SandboxProfile::default()
        };
        let env = ServerEnv {
            cwd: base.join("ws"),
            roots: Vec::new(),
            profile: Some(profile),
            package_caches: vec![base.join("home/.npm")],
            private_caches: base.join("private"),
            logins: crate::LoginStore::new(Path::new("/none")),
            elicitation: ElicitationModes::default(),
            memory: None,
        };
        let variables = [("SSH_AUTH_SOCK", "/tmp/a"), ("DISPLAY", ":0"), ("LANG", "C")];
        let environment = variables
            .iter()
            .fold(Environment::default(), |all, (name, value)| all.with(name, *value));
        ProgramRequest { spec, env, environment }
    }

    #[test]
    fn a_server_may_write_the_roots_its_temporary_folder_and_what_its_settings_add() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        for folder in ["ws", "keys", "own", "data"] {
            fs::create_dir(base.join(folder)).unwrap();
        }
        program(&base.join("bin/npx"), 0o755);
        let sandbox = ServerSandbox {
            write: vec![base.join("data"), base.join("gone")],
            read: vec![base.join("keys")],
            ..ServerSandbox::default()
        };
        let request = wanted(base.join("bin/npx"), &base, sandbox);
        let (prepared, temp_folder) = request.prepare().unwrap();
        let profile = prepared.sandbox.unwrap();
        let temp = real_path(temp_folder.as_ref().unwrap().path()).unwrap();
        let mut write = vec![base.join("ws"), base.join("data"), temp.clone()];
        let mut caches = Vec::new();
        let redirected = base.join("private/s/redirected");
        if turnwright_sandbox::can_layer_caches(&base) {
            let path = base.join("home/.npm");
            let folder = base.join("private/s");
            caches.push(PrivateLayer::new(path, &folder));
        } else {
            write.push(redirected.clone());
        }
        assert_eq!((profile.writable, profile.hidden), (write, vec![base.join("own")]));
        let variable = prepared.environment.get("npm_config_cache");
        assert_eq!(variable.map(Path::new), caches.is_empty().then_some(redirected.as_path()));
        assert_eq!(profile.caches, caches);
        assert_eq!(profile.network, Network::On);
        let environment = prepared.environment;
        assert_eq!(environment.get("TMPDIR"), Some(temp.as_os_str()));
        assert_eq!(environment.get("LANG"), Some(OsStr::new("C")));
        // A declared variable is passed; inherited ones that lead out of the sandbox are not.
        assert_eq!(environment.get("DOCKER_HOST"), Some(OsStr::new("tcp://x")));
        assert_eq!((environment.get("SSH_AUTH_SOCK"), environment.get("DISPLAY")), (None, None));
    }

    #[test]
    fn servers_with_names_in_any_script_have_caches_of_their_own() {
        let base = Path::new("/private");
        let dir = tempfile::tempdir().unwrap();
        let folders = ["s", "高德地图", "飞书文档", "a/b", "a b"].map(|name| {
            let mut request = wanted("npx".into(), dir.path(), ServerSandbox::default());
            request.env.private_caches = base.to_path_buf();
            request.spec.name = name.to_owned();
            request.private_caches()
        });
        assert_eq!(folders[0], base.join("s"));
        assert!(folders.iter().all(|folder| folder.parent() == Some(base)), "{folders:?}");
        assert_eq!(BTreeSet::from(folders).len(), 5);
    }

    #[test]
    fn a_program_of_the_project_stands_in_for_none_that_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        for name in ["ws/bin/both", "ws/bin/own", "bin/both"] {
            program(&base.join(name), 0o755);
        }
        fs::create_dir(base.join("ws/me")).unwrap();
        let path = std::env::join_paths([base.join("ws/bin"), base.join("bin")]).unwrap();
        for (name, source, (variable, place), expected) in [
            ("both", ServerSource::User, ("HOME", "gone"), "bin/both"),
            ("both", ServerSource::Client, ("HOME", "gone"), "bin/both"),
            ("both", ServerSource::Project, ("HOME", "gone"), "ws/bin/both"),
            ("both", ServerSource::User, ("HOME", "ws/me"), "ws/bin/both"),
            ("both", ServerSource::User, ("VIRTUAL_ENV", "ws"), "ws/bin/both"),
            ("both", ServerSource::Client, ("CONDA_PREFIX", "ws"), "ws/bin/both"),
            ("both", ServerSource::User, ("VIRTUAL_ENV", "ws/.venv"), "bin/both"),
            ("own", ServerSource::User, ("HOME", "gone"), "ws/bin/own"),
        ] {
            let mut request = wanted(name.into(), &base, ServerSandbox::default());
            request.env.roots = vec![base.join("ws")];
            request.spec.source = source;
            request.environment =
                request.environment.with("PATH", &path).with(variable, base.join(place));
            let (prepared, _temp_folder) = request.prepare().unwrap();
            let found = PathBuf::from(&prepared.command_line[0]);
            assert_eq!(found, base.join(expected), "{name} {source:?} {variable} {place}");
            // A script finds its interpreter in the same order.
            let order = prepared.environment.get("PATH");
            assert_eq!(
                find_in_path(Path::new("both"), order).as_ref() == Some(&found),
                name == "both"
            );
        }
    }

    #[test]
    fn a_package_runner_gets_its_own_folder_for_tools() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        for (name, has_one) in [("uvx", true), ("uv", true), ("npx", false)] {
            let command = base.join("bin").join(name);
            program(&command, 0o755);
            let request = wanted(command, &base, ServerSandbox::default());
            let (prepared, temp_folder) = request.prepare().unwrap();
            let temp = real_path(temp_folder.as_ref().unwrap().path()).unwrap();
            let folder = prepared.environment.get("UV_TOOL_DIR");
            assert_eq!(
                folder.is_some_and(|folder| Path::new(folder).starts_with(temp)),
                has_one,
                "{name}"
            );
        }
    }

    #[test]
    fn a_server_with_its_sandbox_disabled_is_not_confined() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        program(&base.join("bin/npx"), 0o755);
        let sandbox = ServerSandbox { is_enabled: false, ..ServerSandbox::default() };
        let request = wanted(base.join("bin/npx"), &base, sandbox);
        let (prepared, temp_folder) = request.prepare().unwrap();
        assert_eq!(prepared.sandbox, None);
        assert!(temp_folder.is_none() && !base.join("home").exists());
        assert!(prepared.environment.get("SSH_AUTH_SOCK").is_some());
    }
}
