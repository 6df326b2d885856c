//! The places that commands which run unasked may read: they were judged by the words of
//! their line, which may lead elsewhere through links and patterns.

use std::path::{Path, PathBuf};

use crate::repository;
use crate::restricted_files::outermost;
use turnwright_policy::shell::Script;
use turnwright_workspace::RealPaths;
use turnwright_workspace::exec::{Environment, is_program};
use turnwright_workspace::files::Roots;
use turnwright_workspace::fixed_places::FixedPlaces;

/// Folders of programs.
const PROGRAM_FOLDERS: [&str; 2] = ["bin", "sbin"];
/// Folders that programs need next to their own, and files. Anything else there may be the user's, such as a login.
const BESIDE_PROGRAMS: [&str; 9] =
    ["bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "go.env", "pyvenv.cfg"];
/// The folders below the home folder in which programs that choose a version find the program that they
/// run.
const TOOLCHAINS: [&str; 8] =
    [".rustup", ".nvm", ".pyenv", ".rbenv", ".asdf", ".volta", ".sdkman", ".local/share/mise"];
/// Variables that name such a folder.
const TOOLCHAIN_VARIABLES: [&str; 6] =
    ["RUSTUP_HOME", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "RBENV_ROOT"];

/// The places besides the system's own: the session's folders with their repositories, the user's git
/// settings, and the programs that `environment` names. Links are trusted if they are `fixed`, or lead to what commands
/// of this session can write; those of other sessions are not open to it. Looks files up: not for the runtime's thread.
pub(crate) fn readable(
    roots: &Roots,
    environment: &Environment,
    script: &Script,
    real_paths: &RealPaths,
    fixed: &FixedPlaces,
    writable: &[PathBuf],
) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(Path::new);
    let mut all = project_folders(roots, environment);
    all.extend(roots.folders().filter_map(repository::git_folder));
    if let Some(home) = home {
        let named = environment.get("XDG_CONFIG_HOME");
        let config = named.map_or_else(|| home.join(".config"), PathBuf::from);
        all.extend(repository::user_settings(home, &config));
        all.extend(TOOLCHAINS.iter().map(|folder| home.join(folder)));
    }
    let named = TOOLCHAIN_VARIABLES.iter().filter_map(|name| environment.get(name));
    all.extend(named.map(PathBuf::from).filter(|folder| is_below_home(folder, home)));
    let path = environment.get("PATH").into_iter().flat_map(std::env::split_paths);
    let folders: Vec<_> = path.collect();
    all.extend(folders.iter().flat_map(|folder| installation(folder, home)));
    for command in &script.commands {
        let named = folders.iter().map(|folder| folder.join(command.program()));
        let mut targets =
            named.filter_map(|path| trusted_target(&path, real_paths, fixed, writable));
        // A shell passes over files that it cannot run.
        let program = targets.find(|target| is_program(target).unwrap_or(false));
        all.extend(program.into_iter().flat_map(|program| places_of_program(program, home)));
    }
    // Seatbelt knows a file only by its real path.
    let absolute = all.iter().filter(|path| path.is_absolute());
    let mut real: Vec<_> =
        absolute.filter_map(|path| trusted_target(path, real_paths, fixed, writable)).collect();
    outermost(&mut real);
    real
}

/// The folders among these that hold the user's own files: the session's folders and the repositories
/// around them. None lies in another.
pub(crate) fn project_folders(roots: &Roots, environment: &Environment) -> Vec<PathBuf> {
    let home = environment.get("HOME").map(Path::new);
    let folders = roots.folders().map(Path::to_path_buf);
    // The project may lie in a repository of the whole home folder.
    let tops = roots
        .folders()
        .filter_map(repository::working_tree_top)
        .filter(|top| is_below_home(top, home));
    let mut all: Vec<_> = folders.chain(roots.readable_folders()).chain(tops).collect();
    outermost(&mut all);
    all
}

/// The target of a path, but none that a command can have chosen by a link: only to what commands of the session can write
/// anyway.
fn trusted_target(
    path: &Path,
    real_paths: &RealPaths,
    fixed: &FixedPlaces,
    writable: &[PathBuf],
) -> Option<PathBuf> {
    let target = real_paths.get(path)?;
    let is_trusted = target == path
        || fixed.is_fixed(path)
        || writable.iter().any(|folder| target.starts_with(folder));
    is_trusted.then_some(target)
}

/// The places of a program, which `PATH` may have only as a link to another installation.
fn places_of_program(program: PathBuf, home: Option<&Path>) -> Vec<PathBuf> {
    match program.parent() {
        Some(folder) if is_program_folder(folder) => installation(folder, home),
        _ => vec![program],
    }
}

fn is_program_folder(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| PROGRAM_FOLDERS.iter().any(|known| name == *known))
}

/// The places of a toolchain, given the folder of its programs.
fn installation(programs: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    match programs.parent() {
        Some(folder) if is_program_folder(programs) && is_below_home(folder, home) => {
            BESIDE_PROGRAMS.iter().map(|name| folder.join(name)).collect()
        }
        _ => vec![programs.to_path_buf()],
    }
}

/// Returns true for a folder of its own, as opposed to the home folder, one above it, and `~/.local`, where
/// programs keep the user's data.
fn is_below_home(folder: &Path, home: Option<&Path>) -> bool {
    let is_shared =
        home.is_some_and(|home| home.starts_with(folder) || folder == home.join(".local"));
    folder.parent().is_some() && !is_shared
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;
    use turnwright_types::shell_script::ShellDialect;
    use turnwright_workspace::real_path;

    #[test]
    fn programs_may_read_what_belongs_to_them_and_not_what_else_lies_beside_them() {
        let home = Path::new("/home/a");
        for (folder, opened, closed) in [
            ("/home/a/.cargo/bin", "/home/a/.cargo/lib", "/home/a/.cargo/credentials.toml"),
            ("/home/a/.pulumi/bin", "/home/a/.pulumi/bin", "/home/a/.pulumi/credentials.json"),
            ("/home/a/node/v20/bin", "/home/a/node/v20/lib", "/home/a/node/v20"),
            ("/srv/tool/bin", "/srv/tool/share", "/srv/tool/etc"),
            ("/home/a/x/shims", "/home/a/x/shims", "/home/a/x/lib"),
            ("/home/a/bin", "/home/a/bin", "/home/a/lib"),
            ("/home/a/.local/bin", "/home/a/.local/bin", "/home/a/.local/share"),
            ("/home/bin", "/home/bin", "/home/lib"),
            ("/bin", "/bin", "/lib"),
            ("/srv/tools", "/srv/tools", "/srv"),
        ] {
            let all = installation(Path::new(folder), Some(home));
            let is_open = |path: &str| all.iter().any(|place| Path::new(path).starts_with(place));
            assert!(is_open(opened) && !is_open(closed), "{folder}: {all:?}");
        }
    }

    #[test]
    fn secrets_are_searched_in_the_whole_repository_that_may_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let top = real_path(folder.path()).unwrap().join("repository");
        fs::create_dir_all(top.join("sub/er")).unwrap();
        let session = Roots::new(&top.join("sub/er")).unwrap();
        let environment = Environment::default();
        assert_eq!(project_folders(&session, &environment), [top.join("sub/er")]);
        for name in ["HEAD", "objects/x", "refs/x", "config"] {
            let file = top.join(".git").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        assert_eq!(project_folders(&session, &environment), std::slice::from_ref(&top));
        let fixed = FixedPlaces::default();
        let places =
            readable(&session, &environment, &script("ls"), &RealPaths::default(), &fixed, &[]);
        assert!(places.contains(&top));
    }

    fn script(line: &str) -> Script {
        let command = turnwright_policy::shell::command(line, "/", ShellDialect::Bash);
        Script::clone(&command.script)
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_is_a_link_may_read_what_belongs_to_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let top = real_path(folder.path()).unwrap();
        let [links, sdk, loose] = ["links", "sdk/bin", "loose"].map(|name| top.join(name));
        for folder in [&links, &sdk, &loose] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::create_dir(top.join("sdk/lib")).unwrap();
        fs::write(top.join("sdk/pyvenv.cfg"), "").unwrap();
        let first = top.join("first");
        fs::create_dir(&first).unwrap();
        fs::write(top.join("own"), "").unwrap();
        // A shell does not run it.
        std::os::unix::fs::symlink(top.join("own"), first.join("own")).unwrap();
        for (name, target) in [("go", &sdk), ("own", &loose)] {
            add_program(&target.join(name));
            std::os::unix::fs::symlink(target.join(name), links.join(name)).unwrap();
        }
        let path = std::env::join_paths([&first, &links]).unwrap();
        let environment = Environment::default().with("PATH", path);
        let session = Roots::new(&links).unwrap();
        let line = script("go version; own");
        let fixed = FixedPlaces::default();
        let places = readable(&session, &environment, &line, &RealPaths::default(), &fixed, &[]);
        for (path, is_open) in [
            (sdk.join("go"), true),
            (top.join("sdk/lib"), true),
            (top.join("sdk/pyvenv.cfg"), true),
            (loose.join("own"), true),
            (top.join("sdk/secrets"), false),
            (loose.join("other"), false),
            (top.join("own"), false),
        ] {
            let found = places.iter().any(|place| path.starts_with(place));
            assert_eq!(found, is_open, "{}", path.display());
        }
    }

    #[cfg(unix)]
    fn add_program(path: &Path) {
        use std::os::unix::fs::PermissionsExt;
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn no_command_chooses_by_a_link_what_programs_may_read() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let top = real_path(folder.path()).unwrap();
        let [programs, private, project] = ["tools/bin", "private", "project"].map(|name| {
            fs::create_dir_all(top.join(name)).unwrap();
            top.join(name)
        });
        fs::create_dir(top.join("tools/real")).unwrap();
        add_program(&private.join("x"));
        symlink(private.join("x"), programs.join("x")).unwrap();
        symlink(&private, top.join("tools/lib")).unwrap();
        symlink(private.join("x"), top.join("tools/pyvenv.cfg")).unwrap();
        symlink("real", top.join("tools/share")).unwrap();
        let environment = Environment::default().with("PATH", programs.as_os_str());
        let session = Roots::new(&project).unwrap();
        // Another session can write the first of these, too.
        for (of_others, writable, is_open) in [
            (None, project.clone(), true),
            (None, top.join("tools"), false),
            (Some(&private), top.join("tools"), false),
        ] {
            let opened = of_others.into_iter().cloned().chain([writable.clone()]).collect();
            let fixed = FixedPlaces::new(opened);
            let line = script("x");
            let real_paths = RealPaths::default();
            let found = readable(&session, &environment, &line, &real_paths, &fixed, &[writable]);
            assert_eq!(found.iter().any(|place| place.starts_with(&private)), is_open, "{found:?}");
            // A link within the installation is as good as a folder.
            assert!(found.contains(&top.join("tools/real")), "{found:?}");
            assert!(found.contains(&programs), "{found:?}");
        }
    }
}
