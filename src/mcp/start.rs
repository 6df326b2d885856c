//! What is run for a server that is a program: where it is found, what it is kept to, and what it
//! gets to know.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::hub::Ground;
use super::spec::{Hidden, ServerSpec, Walls};
use turnwright_types::effect::visible_line;
use turnwright_workspace::exec::{Environment, Program};
use turnwright_sandbox::{Network, Profile};
use crate::tools::private_folder;

/// Programs that fetch what they run, each with where it keeps that, below the home folder.
const FETCHERS: &[(&str, &str)] =
    &[("npx", ".npm"), ("npm", ".npm"), ("uvx", ".cache/uv"), ("uv", ".cache/uv")];

/// Programs that will not run without a folder for what is installed for good, each with the variable
/// that says where it is. What the user has installed there runs outside of the sandbox: it is not
/// for a server to write.
const TOOL_FOLDERS: &[(&str, &str)] = &[("uvx", "UV_TOOL_DIR"), ("uv", "UV_TOOL_DIR")];

/// A program that can be started.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) program: Program,
    /// Its own temporary folder, which goes with it.
    pub(super) temp: Option<TempDir>,
}

/// A program as somebody has asked for it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) command: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, Hidden)>,
    pub(super) walls: Walls,
    pub(super) ground: Ground,
    pub(super) environment: Environment,
}

impl Wanted {
    /// `None` for a server that is no program.
    pub(super) fn new(
        spec: &ServerSpec,
        ground: &Ground,
        environment: &Environment,
    ) -> Option<Wanted> {
        let super::spec::Reach::Stdio { command, arguments, environment: variables } = &spec.reach
        else {
            return None;
        };
        Some(Wanted {
            command: command.clone(),
            arguments: arguments.clone(),
            variables: variables.clone(),
            walls: spec.walls.clone(),
            ground: ground.clone(),
            environment: environment.clone(),
        })
    }

    /// Looks for the program and makes what it needs. Works on files: not for the runtime's thread.
    ///
    /// # Errors
    /// Why it cannot be started, for people.
    pub(super) fn prepare(self) -> Result<Prepared, String> {
        let cwd = self.ground.cwd.clone();
        let jail = self.ground.jail.clone().filter(|_| self.walls.on);
        let mut environment = self.environment.clone();
        let mut temp = None;
        let jail = match jail {
            None => None,
            Some(jail) => {
                let mut jail = self.confine(jail);
                let folder = private_folder()
                    .map_err(|error| format!("it has no temporary folder: {error}"))?;
                let real = fs::canonicalize(folder.path()).map_err(|it| it.to_string())?;
                environment = environment.indoors();
                for name in ["TMPDIR", "TMP", "TEMP"] {
                    environment = environment.with(name, real.clone());
                }
                for (_, name) in TOOL_FOLDERS.iter().filter(|it| self.is_named(it.0)) {
                    environment = environment.with(name, real.join("tools"));
                }
                jail.write.push(real);
                temp = Some(folder);
                Some(jail)
            }
        };
        for (name, value) in &self.variables {
            environment = environment.with(name, value.expose());
        }
        let command = find(&self.command, &cwd, environment.get("PATH"))?;
        let words = std::iter::once(command.into_os_string())
            .chain(self.arguments.iter().map(OsString::from))
            .collect();
        Ok(Prepared { program: Program { words, workdir: cwd, environment, jail }, temp })
    }

    /// The walls of this one.
    fn confine(&self, mut jail: Profile) -> Profile {
        let real = |it: &PathBuf| fs::canonicalize(it).ok();
        if self.walls.network {
            jail.network = Network::On;
        }
        jail.write.extend(self.walls.write.iter().filter_map(real));
        jail.write.extend(self.cache());
        let open: Vec<_> = self.walls.read.iter().filter_map(real).collect();
        jail.hide.retain(|it| !open.iter().any(|open| it.starts_with(open)));
        if let Some(read) = &mut jail.read {
            read.extend(open);
        }
        jail
    }

    fn is_named(&self, name: &str) -> bool {
        self.command.file_name().is_some_and(|it| it == name)
    }

    /// Where a program that fetches servers keeps them. It is made if it is not there: else nothing
    /// that was never run outside of the sandbox could be run in it.
    fn cache(&self) -> Option<PathBuf> {
        let (_, place) = FETCHERS.iter().find(|it| self.is_named(it.0))?;
        let cache = self.ground.fetched.iter().find(|it| it.ends_with(place))?;
        fs::create_dir_all(cache).ok()?;
        fs::canonicalize(cache).ok()
    }
}

/// Finds a program as a shell does. A relative folder in `PATH` is passed over: what lies in a
/// project is not what the user means by a bare name.
fn find(command: &Path, cwd: &Path, path: Option<&OsStr>) -> Result<PathBuf, String> {
    let shown = visible_line(&command.to_string_lossy());
    let is_bare =
        command.components().count() == 1 && command.file_name() == Some(command.as_os_str());
    if command.as_os_str().is_empty() {
        return Err("no program is named for it".to_owned());
    }
    if !is_bare {
        let file = cwd.join(command);
        return match is_program(&file) {
            Ok(true) => Ok(file),
            Ok(false) => Err(format!("{shown} is no program that may be run")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
                "{shown} does not exist. Install it, or correct the path of its command"
            )),
            Err(error) => Err(format!("{shown} cannot be run: {error}")),
        };
    }
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let mut files = folders.filter(|it| it.is_absolute()).map(|it| it.join(command));
    files.find(|it| is_program(it).unwrap_or(false)).ok_or_else(|| {
        format!(
            "there is no program {shown} in PATH. Install it, or give the whole path of its command"
        )
    })
}

fn is_program(file: &Path) -> io::Result<bool> {
    let found = fs::metadata(file)?;
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    Ok(found.is_file() && may_run)
}

#[cfg(unix)]
#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::mcp::{Reach, Source};

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_is_found_as_by_a_shell_and_what_is_not_found_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        program(&base.join("bin/runner"), 0o755);
        program(&base.join("bin/text"), 0o644);
        program(&base.join("ws/runner"), 0o755);
        let path = std::env::join_paths([Path::new("."), &base.join("no"), &base.join("bin")]);
        let path = path.unwrap();
        let absolute = base.join("bin/runner");
        let table = [
            ("runner", Ok(base.join("bin/runner"))),
            ("./runner", Ok(base.join("ws/./runner"))),
            (absolute.to_str().unwrap(), Ok(absolute.clone())),
            ("text", Err("there is no program text in PATH")),
            ("../bin/text", Err("../bin/text is no program that may be run")),
            ("./gone", Err("./gone does not exist")),
            ("a\u{1b}b", Err("there is no program a\\u{1b}b in PATH")),
            ("", Err("no program is named for it")),
        ];
        for (command, expected) in table {
            let found = find(Path::new(command), &base.join("ws"), Some(&path));
            match expected {
                Ok(file) => assert_eq!(found, Ok(file), "{command}"),
                Err(why) => assert!(found.unwrap_err().starts_with(why), "{command}"),
            }
        }
        assert!(find(Path::new("sh"), base, None).is_err());
    }

    fn wanted(command: PathBuf, base: &Path, walls: Walls) -> Wanted {
        let reach = Reach::Stdio {
            command,
            arguments: Vec::new(),
            environment: vec![("DOCKER_HOST".to_owned(), "tcp://x".to_owned().into())],
        };
        let mut spec = ServerSpec::new("s", Source::User, reach);
        spec.walls = walls;
        let jail = Profile {
            write: vec![base.join("ws")],
            hide: vec![base.join("keys"), base.join("own")],
            ..Profile::default()
        };
        let ground = Ground {
            cwd: base.join("ws"),
            roots: Vec::new(),
            jail: Some(jail),
            fetched: vec![base.join("home/.npm")],
            logins: crate::mcp::Logins::new(Path::new("/none")),
            forms: false,
        };
        let environment = [("SSH_AUTH_SOCK", "/tmp/a"), ("DISPLAY", ":0"), ("LANG", "C")];
        let environment = environment
            .iter()
            .fold(Environment::default(), |all, (name, value)| all.with(name, *value));
        Wanted::new(&spec, &ground, &environment).unwrap()
    }

    #[test]
    fn a_server_is_kept_to_the_folders_its_own_temp_and_what_its_walls_add() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        for folder in ["ws", "keys", "own", "data"] {
            fs::create_dir(base.join(folder)).unwrap();
        }
        program(&base.join("bin/npx"), 0o755);
        let walls = Walls {
            write: vec![base.join("data"), base.join("gone")],
            read: vec![base.join("keys")],
            ..Walls::default()
        };
        let prepared = wanted(base.join("bin/npx"), &base, walls).prepare().unwrap();
        let jail = prepared.program.jail.unwrap();
        let temp = fs::canonicalize(prepared.temp.as_ref().unwrap().path()).unwrap();
        let write = [base.join("ws"), base.join("data"), base.join("home/.npm"), temp.clone()];
        assert_eq!((jail.write, jail.hide), (write.to_vec(), vec![base.join("own")]));
        assert_eq!(jail.network, Network::On);
        let environment = prepared.program.environment;
        assert_eq!(environment.get("TMPDIR"), Some(temp.as_os_str()));
        assert_eq!(environment.get("LANG"), Some(OsStr::new("C")));
        // What is declared is meant; what is merely there is a way out.
        assert_eq!(environment.get("DOCKER_HOST"), Some(OsStr::new("tcp://x")));
        assert_eq!((environment.get("SSH_AUTH_SOCK"), environment.get("DISPLAY")), (None, None));
    }

    #[test]
    fn a_program_that_fetches_has_a_folder_for_tools_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(base.join("ws")).unwrap();
        for (name, has_one) in [("uvx", true), ("uv", true), ("npx", false)] {
            let command = base.join("bin").join(name);
            program(&command, 0o755);
            let prepared = wanted(command, &base, Walls::default()).prepare().unwrap();
            let temp = fs::canonicalize(prepared.temp.as_ref().unwrap().path()).unwrap();
            let folder = prepared.program.environment.get("UV_TOOL_DIR");
            assert_eq!(folder.is_some_and(|it| Path::new(it).starts_with(temp)), has_one, "{name}");
        }
    }

    #[test]
    fn without_walls_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        program(&base.join("bin/npx"), 0o755);
        let walls = Walls { on: false, ..Walls::default() };
        let prepared = wanted(base.join("bin/npx"), &base, walls).prepare().unwrap();
        assert_eq!(prepared.program.jail, None);
        assert!(prepared.temp.is_none() && !base.join("home").exists());
        assert!(prepared.program.environment.get("SSH_AUTH_SOCK").is_some());
    }
}
