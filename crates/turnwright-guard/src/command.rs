//! Determines the effects of a command line: its words name paths, and the paths make effects. The sandbox takes
//! care of everything that the parser does not see.
//!
//! A project may provide programs: rustup and other version managers run the programs that a folder's file names, even
//! for `--version`.

pub(crate) mod escalation;

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::obeyed_files::TOOLCHAINS;
use crate::repository;
use crate::restricted_files::restricted_effects_of_command;
use turnwright_policy::permission::{
    DeniedPaths, IDIOMATIC_VERSION_FILES, PolicyRules, ProtectedPaths,
};
use turnwright_policy::shell::{
    self, Classification, GitContentQuery, GitUse, LookUp, NamedPlace, SimpleCommand,
};
use turnwright_types::effect::{
    Effect, PathScope, ResolvedPath, ShellCommand, Uncertainty, is_secret_path,
};
use turnwright_types::plain_path::normalize_lexically;
use turnwright_types::text;
use turnwright_workspace::exec::{Environment, dialect};
use turnwright_workspace::files::{Roots, read_head};
use turnwright_workspace::real_path;

pub use crate::restricted_files::{TOO_MANY_FILES, restricted_effects};
pub use escalation::Escalation;

/// At most this many names in a folder are compared with a pattern.
const MAX_MATCHED: usize = 4_096;

/// The prefixes of git patterns that exclude a path.
const EXCLUSIONS: [&str; 3] = [":!", ":^", ":(exclude)"];

/// Parses a line that runs in a folder. `git -C` with that very folder leads nowhere else, so it is taken off. Of
/// `git checkout`, it notes when a word means no branch but a file. Reads the disk.
pub fn parse_line(line: &str, workdir: &ResolvedPath, roots: &Roots) -> shell::Script {
    let mut script =
        parse_after_cd(line, &workdir.path).unwrap_or_else(|| shell::parse(line, dialect()));
    for command in &mut script.commands {
        let is_here = command.folder.as_ref().is_some_and(|folder| folder.as_os_str().is_empty());
        while let [git, option, folder, ..] = command.words.as_slice()
            && git.text == "git"
            && option.text == "-C"
            && !folder.is_glob
            && (folder.text == "." || is_here && is_workdir(&folder.text, &workdir.path, roots))
        {
            command.words.drain(1..3);
        }
        command.drops_changes = checks_out_file(command, &workdir.path, roots);
    }
    script
}

/// Returns true if the words of a `git checkout` may mean a branch, but the disk tells that they mean a file or folder.
fn checks_out_file(command: &SimpleCommand, workdir: &Path, roots: &Roots) -> bool {
    let arguments = command.words.get(1..).unwrap_or_default();
    let Some(("checkout", [options @ .., name])) = shell::git_subcommand(arguments) else {
        return false;
    };
    let class = shell::classify(command);
    let Some(folder) = command.folder.as_ref().filter(|_| class.is_git) else { return false };
    let folder = workdir.join(folder).join(&class.git_folder);
    // Options other than those that make a branch of this name.
    options.iter().all(|option| match option.text.strip_prefix("--") {
        Some(long) => !"orphan".starts_with(long),
        None => option.text.starts_with('-') && !option.text.contains(['b', 'B']),
    }) && shell::danger(command).is_none()
        && !roots.leads_elsewhere(&folder.join(&name.text))
        && names_file(&folder, &name.text)
        && !real_path(folder).is_ok_and(|folder| repository::has_branch(&folder, &name.text))
}

/// Parses a line that begins with a `cd` to a folder that is there and has a plain name. Behind any other `cd`, each
/// command after `;` is judged also in the folder before, as if the `cd` had failed. Reads the disk.
fn parse_after_cd(line: &str, workdir: &Path) -> Option<shell::Script> {
    let (cd, rest) = line.split_once([';', '\n'])?;
    let target = cd.strip_prefix("cd ")?.trim_matches(' ');
    let folder = Path::new(target);
    // With quotes, comments, redirects or `&`, the line may end elsewhere, or the shell stay where it is.
    let is_plain = !target.is_empty()
        && !target.starts_with('-')
        && target.chars().all(|char| char.is_ascii_alphanumeric() || "_-./".contains(char))
        && folder.components().all(|part| matches!(part, Component::Normal(_)));
    let mut script = shell::parse_in(folder, rest, dialect());
    script.commands.splice(0..0, shell::parse(cd, dialect()).commands);
    // Every line for cmd is ambiguous, so no path of Windows is looked at. The dot is not found in a closed folder.
    let is_understood = is_plain && script.ambiguity.is_none();
    (is_understood && workdir.join(folder).join(".").is_dir()).then_some(script)
}

/// Returns true if a word is the absolute path of the working folder.
fn is_workdir(word: &str, workdir: &Path, roots: &Roots) -> bool {
    let path = Path::new(word);
    path == workdir || workdir == roots.real_cwd() && path == roots.cwd()
}

/// The resolved paths of the files that a line names when it runs in `workdir`, each with true if a redirect writes it.
/// Deterministic: the same words give the same list.
pub fn named_files(
    script: &shell::Script,
    workdir: &Path,
    mut resolve: impl FnMut(PathBuf) -> ResolvedPath,
) -> Vec<(ResolvedPath, bool)> {
    let files = shell::named_files(script, workdir).into_iter();
    files.map(|(path, is_write)| (resolve(path), is_write)).collect()
}

/// Variables that lead git to another repository, or to other objects, files or settings.
const LEADING_ELSEWHERE: &str = "GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE GIT_OBJECT_DIRECTORY \
                                 GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_CONFIG GIT_NAMESPACE \
                                 GIT_REPLACE_REF_BASE GIT_EXEC_PATH";

/// Shell builtins that may change the variables which keep git from starting editors and the like.
const SETTERS: [&str; 12] = [
    "export", "unset", "declare", "typeset", "readonly", "local", "source", ".", "eval", "set",
    "exec", "read",
];

/// Why a line may run programs that its words do not name, or git in a repository that nobody has looked at; `None` if
/// it does not. Git obeys the config of the repository that it runs in; rustup and other version managers obey files in
/// a folder. Reads the disk.
fn uncertainty_of(
    (script, line): (&shell::Script, &str),
    workdir: &Path,
    environment: &Environment,
    restricted: &DeniedPaths,
) -> Option<Uncertainty> {
    let mut known: Vec<(PathBuf, Option<GitUse>)> = Vec::new();
    let only_edits = shell::project_edits(script).is_some();
    let only_reads = only_reads(script);
    let mut of_settings = None;
    for simple in &script.commands {
        let class = shell::classify(simple);
        if let Some(reason) = lead_elsewhere(&class, script, line) {
            return Some(reason.into());
        }
        let may_be_version_managed =
            (class.is_read_only || only_edits) && class.may_be_version_managed;
        if !class.is_git && !class.uses_rustup && !may_be_version_managed {
            continue;
        }
        let Some(relative) = &simple.folder else {
            return Some("it is not known in which folder it will run".to_owned().into());
        };
        let named = workdir.join(relative).join(&class.git_folder);
        let folder = real_path(named).unwrap_or(workdir.to_path_buf());
        let program = simple.program();
        if may_be_version_managed
            && let Some(reason) = untrusted_version_reason(program, &folder, environment)
        {
            return Some(reason.into());
        }
        if !class.is_git && !class.uses_rustup {
            continue;
        }
        let shows_any = shell::may_show_any_content(simple, script.ambiguity.is_none());
        if let Some(shown) = shows_any.then(|| secret_kept_in(&folder, restricted)).flatten() {
            return Some(shown.into());
        }
        let git = class.is_git.then(|| git_use(simple, script));
        let place = (folder, git);
        if known.contains(&place) {
            continue;
        }
        let uncertainty = match &place {
            (folder, Some(git)) => repository::program_risk(folder, Some(git), only_reads),
            (folder, None) => untrusted_toolchain_reason(folder).map(Uncertainty::from),
        };
        match uncertainty {
            Some(found) if found.only_runs_programs => of_settings = of_settings.or(Some(found)),
            None => {}
            strict => return strict,
        }
        known.push(place);
    }
    of_settings
}

/// Why git may use another repository than its folder's.
fn lead_elsewhere(class: &Classification, script: &shell::Script, line: &str) -> Option<String> {
    if class.leads_elsewhere {
        return Some("its options lead git to another repository or working tree".to_owned());
    }
    // A line without ambiguity sets no variable.
    if script.ambiguity.is_none() || !class.is_git {
        return None;
    }
    let mut words = line.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let name =
        words.find_map(|word| LEADING_ELSEWHERE.split(' ').find(|name| word.starts_with(name)))?;
    Some(format!("with {name}, git may use another repository or other settings"))
}

/// The use that a command makes of git. In a line that may change the variables which keep git from starting an editor,
/// it may start any program.
fn git_use(simple: &SimpleCommand, script: &shell::Script) -> GitUse {
    let keeps_variables = script.ambiguity.is_none()
        && !script.commands.iter().any(|command| SETTERS.contains(&command.program()));
    if keeps_variables { GitUse::of(simple) } else { GitUse::ANY }
}

/// Returns true if a line only reads, so that git runs without the repository's hooks.
pub(crate) fn only_reads(script: &shell::Script) -> bool {
    script.ambiguity.is_none()
        && !script.commands.is_empty()
        && script.commands.iter().all(|command| shell::classify(command).is_read_only)
}

/// Why git must not show everything that it keeps of the repository in this folder; `None` if it may. Reads the disk.
fn secret_kept_in(folder: &Path, restricted: &DeniedPaths) -> Option<String> {
    let secrets = repository::tracked_secrets(folder, restricted, false);
    let name = secrets.first()?.file_name().unwrap_or_default().to_string_lossy();
    Some(format!("git may show tracked files such as {name}, which are secret or restricted"))
}

/// The tracked files whose content commands such as `git diff` and `git log -p` would show without naming them, if they
/// hold secrets or rules restrict who reads them, and the files that the line asks git to show. Reads the disk.
fn secrets_shown_by_git(
    script: &shell::Script,
    workdir: &Path,
    roots: &Roots,
    restricted: &DeniedPaths,
) -> Vec<ResolvedPath> {
    let mut found = Vec::new();
    for simple in &script.commands {
        let class = shell::classify(simple);
        let folder = simple.folder.as_ref().map(|folder| real_path(workdir.join(folder)));
        let Some(Ok(folder)) = folder.filter(|_| class.is_git) else { continue };
        if class.is_read_only {
            let named = files_named_for_git(simple, &folder).into_iter();
            found.extend(named.filter(|path| is_inside(path, roots)));
        }
        let shown = class.git_content_shown.filter(|_| script.ambiguity.is_none());
        let Some(shown) = shown else { continue };
        let folder = real_path(folder.join(&class.git_folder)).unwrap_or(folder);
        let (paths, excluded, is_search_of_files) = paths_shown_by_git(&shown, &folder);
        let secrets = repository::tracked_secrets(&folder, restricted, is_search_of_files);
        found.extend(secrets.into_iter().filter(|path| {
            (paths.is_empty() || is_below_any(path, &paths)) && !is_below_any(path, &excluded)
        }));
    }
    found.sort();
    found.dedup();
    // Git shows the content that it has stored for a path, even if the path is a link by now.
    let resolved = found.into_iter().map(|path| {
        let scope = if is_inside(&path, roots) { PathScope::Workspace } else { PathScope::Outside };
        ResolvedPath { scope, path }
    });
    resolved.collect()
}

/// Returns true if a path is in the session's folders.
fn is_inside(path: &Path, roots: &Roots) -> bool {
    roots.folders().any(|root| path.starts_with(root))
}

fn is_below_any(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// The files that the words of a git command name, in the working tree or in a revision (`HEAD:a`). A rule may deny
/// reading them. The words of `git grep` are left out, because it finds nothing in such files.
fn files_named_for_git(simple: &SimpleCommand, folder: &Path) -> Vec<PathBuf> {
    if simple.words.iter().any(|word| word.text == "grep") {
        return Vec::new();
    }
    let bases = [Some(folder.to_path_buf()), repository::working_tree_top(folder)];
    let mut named = Vec::new();
    for word in simple.words.iter().skip(2).filter(|word| !word.text.starts_with('-')) {
        let name = word.text.rsplit_once(':').map_or(word.text.as_str(), |(_, name)| name);
        if !name.is_empty() {
            named.extend(bases.iter().flatten().map(|base| in_folder(base, Path::new(name))));
        }
    }
    named
}

/// The paths that a command restricts the output of git to (none if git shows everything), the paths that it excludes
/// (`:!path`), and true if the command only searches the files of the working tree. Before `--`, git treats a word as
/// a path only if there is such a file, and refuses a word that may be a revision, too.
fn paths_shown_by_git(
    shown: &GitContentQuery,
    folder: &Path,
) -> (Vec<PathBuf>, Vec<PathBuf>, bool) {
    // A word that is neither a pattern nor a file is a revision.
    let is_search_of_files = shown.only_assumed_unchanged
        && shown.operands.iter().all(|word| is_pattern(word) || names_file(folder, word));
    let excluded = shown.paths.iter().filter_map(|word| excluded_path(folder, word)).collect();
    let mut paths = shown.paths.clone();
    paths.retain(|word| excluded_path(folder, word).is_none());
    if paths.iter().any(|word| is_pattern(word)) {
        return (Vec::new(), excluded, is_search_of_files);
    }
    let operands = shown.operands.iter().filter(|word| names_file(folder, word));
    let named = operands.chain(&paths).map(|word| in_folder(folder, Path::new(word)));
    (named.collect(), excluded, is_search_of_files)
}

/// Returns true if git takes a word as a pattern.
fn is_pattern(word: &str) -> bool {
    word.starts_with(':') || has_wildcard(word)
}

fn has_wildcard(word: &str) -> bool {
    word.contains(['*', '?', '[', '\\'])
}

/// Returns true if a word is no pattern and there is such a file.
fn names_file(folder: &Path, word: &str) -> bool {
    !is_pattern(word) && folder.join(word).symlink_metadata().is_ok()
}

/// The path that a word excludes from the output of git; `None` if it is no plain exclusion.
fn excluded_path(folder: &Path, word: &str) -> Option<PathBuf> {
    let path = EXCLUSIONS.iter().find_map(|exclusion| word.strip_prefix(exclusion))?;
    // A further `/` begins at the top of the repository, a further `!` or `^` excludes nothing else.
    let is_plain = !has_wildcard(path) && !path.starts_with(['/', '!', '^', '(', ':']);
    (is_plain && !path.is_empty()).then(|| in_folder(folder, Path::new(path)))
}

fn in_folder(folder: &Path, name: &Path) -> PathBuf {
    normalize_lexically(&folder.join(name))
}

/// The effects of a line that runs in the project, to show how it would be judged. Reads the disk.
pub fn command_line_effects(line: &str, roots: &Roots, policy: &PolicyRules) -> Vec<Effect> {
    let workdir = roots.resolve(".");
    let script = Arc::new(parse_line(line, &workdir, roots));
    let named = named_files(&script, Path::new("."), |path| roots.resolve(path));
    let environment = Environment::default();
    let (command, _) = inspect(line, &script, &workdir.path, &environment, roots, policy);
    effects(command, &workdir, &Escalation::default(), Vec::new(), named)
}

/// The command of a line with the facts about it that only the disk tells, and true if it concerns more files than can
/// be looked at. Blocks.
pub fn inspect(
    line: &str,
    script: &Arc<shell::Script>,
    workdir: &Path,
    environment: &Environment,
    roots: &Roots,
    policy: &PolicyRules,
) -> (ShellCommand, bool) {
    let denied = DeniedPaths::restricted(policy);
    let mut command = ShellCommand::new(line, workdir, Arc::clone(script));
    command.reads = secrets_shown_by_git(script, workdir, roots, &denied);
    let (restricted, is_incomplete) = restricted_effects_of_command(script, workdir, roots, policy);
    for effect in restricted {
        match effect {
            Effect::Read(target) => command.reads.push(target),
            Effect::Write(target) | Effect::Delete(target) => command.changes.push(target),
            _ => {}
        }
    }
    command.edits = shell::edited_files(script, workdir, &Disk(roots));
    note_replaced_secrets(&mut command, roots);
    command.uncertainty = uncertainty_of((script, line), workdir, environment, &denied);
    command.has_ssh_remote = script.commands.iter().any(|simple| {
        let class = (simple.program() == "git").then(|| shell::classify(simple));
        class.filter(|class| class.fails_offline).is_some_and(|class| {
            let folder = simple.folder.clone().unwrap_or_default().join(class.git_folder);
            let folder = real_path(workdir.join(folder)).unwrap_or_default();
            repository::has_ssh_remote(&folder, environment.get("HOME").map(Path::new))
        })
    });
    (command, is_incomplete)
}

/// Looks at the disk, except where that would connect to something else.
struct Disk<'a>(&'a Roots);

impl LookUp for Disk<'_> {
    fn place(&self, path: &Path) -> Option<NamedPlace> {
        let target = (!self.0.leads_elsewhere(path)).then(|| self.0.resolve(path))?;
        Some(NamedPlace { is_folder: target.path.is_dir(), target })
    }

    fn names_in(&self, folder: &Path) -> Option<Vec<String>> {
        let place = self.place(folder)?;
        if place.target.scope != PathScope::Workspace {
            return None;
        }
        let entries = fs::read_dir(place.target.path).ok()?.take(MAX_MATCHED + 1);
        let names: Option<Vec<_>> =
            entries.map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.filter(|names| names.len() <= MAX_MATCHED)
    }
}

/// The effects of a line whose paths are resolved. `command` has the facts that were read from the disk, `writes` are
/// the paths of `escalation`. Reads the disk.
pub fn effects(
    mut command: ShellCommand,
    workdir: &ResolvedPath,
    escalation: &Escalation,
    writes: Vec<ResolvedPath>,
    files: Vec<(ResolvedPath, bool)>,
) -> Vec<Effect> {
    if workdir.scope != PathScope::Workspace {
        // An allow rule for the project does not apply elsewhere; and whether a folder exists there
        // is information that needs a permission, too.
        command.reads.push(workdir.clone());
    }
    command.extra_access = escalation.access(writes);
    let hosts = escalation.hosts.iter().map(|host| Effect::Fetch { host: host.clone() });
    shell::effects_with_files(command, files).into_iter().chain(hosts).collect()
}

/// Notes which files with secrets a line may replace: by its redirects, or by programs that are given their names. Reads
/// the disk.
fn note_replaced_secrets(command: &mut ShellCommand, roots: &Roots) {
    for simple in &Arc::clone(&command.script).commands {
        let Some(relative) = &simple.folder else { continue };
        let folder = command.workdir.join(relative);
        let written = simple.redirects.iter().filter(|file| file.is_write && !file.only_appends);
        let paths = written.map(|redirect| folder.join(&redirect.path));
        command.overwrites.extend(paths.filter_map(|path| filled_secret(&path, roots)));
        let mut replaced = replaced_paths(simple).into_iter().map(|path| folder.join(path));
        command.replaces_secret |= replaced.any(|path| filled_secret(&path, roots).is_some());
    }
}

/// The file at a path if it is one of the project that may hold secrets, and not empty.
fn filled_secret(path: &Path, roots: &Roots) -> Option<ResolvedPath> {
    let target = Disk(roots).place(path)?.target;
    let is_secret = target.scope == PathScope::Workspace && is_secret_path(&target.path);
    let found = target.path.metadata().ok().filter(|_| is_secret)?;
    (found.is_file() && found.len() > 0).then_some(target)
}

/// The paths that a plain program may replace because its words name them. Of `dd`, every use is asked about.
fn replaced_paths(command: &SimpleCommand) -> Vec<PathBuf> {
    let keeping: &[&str] = match command.program() {
        "cp" | "mv" => &["-n", "--no-clobber"],
        "tee" => &["-a", "--append"],
        "install" | "sed" => &[],
        _ => return Vec::new(),
    };
    // Of `-n` and `-f`, the last counts.
    let is_forced = command.argv().any(|word| matches!(word, "-f" | "--force" | "--"));
    let is_kept = !is_forced && command.argv().any(|word| keeping.contains(&word));
    let Some(used) = shell::file_use(command).filter(|_| !is_kept) else { return Vec::new() };
    let sources = used.sources.iter().map(|word| PathBuf::from(&word.text));
    let Some(into) = used.destination.map(|word| PathBuf::from(word.text)) else {
        return sources.collect();
    };
    sources.filter_map(|path| Some(into.join(path.file_name()?))).chain([into.clone()]).collect()
}

/// Files that name the versions of several programs or of Python.
const VERSION_FILES: [&str; 3] = [".tool-versions", ".python-version", ".python-versions"];
/// Files of mise that can name anything to run.
const MISE_FILES: &str = "mise.toml mise.local.toml .mise.toml .mise.local.toml mise .mise .config/mise \
                          .config/mise.toml";
const MAX_FILE_BYTES: usize = 16 * 1024;

/// Why `cargo` or `rustc` in this real folder may not be the user's own program; `None` if it is.
/// Reads the disk.
fn untrusted_toolchain_reason(folder: &Path) -> Option<String> {
    let mut files = folder.ancestors().flat_map(|folder| TOOLCHAINS.map(|name| folder.join(name)));
    files.any(|file| may_run_something(&file)).then(|| {
        "the project's `rust-toolchain` file may select a toolchain inside the project".to_owned()
    })
}

/// Why a program in this real folder may be the project's own if a version manager provides it; `None` if
/// it is not, or no manager does. Reads the disk.
fn untrusted_version_reason(
    program: &str,
    folder: &Path,
    environment: &Environment,
) -> Option<String> {
    let path = environment.get("PATH")?;
    // A silent command does not find the programs in some of the folders, so each counts.
    let mut holders = std::env::split_paths(path).filter(|folder| folder.join(program).exists());
    let found =
        holders.find(|folder| folder.ends_with(".volta/bin") || folder.ends_with("shims"))?;
    let is_volta = found.ends_with(".volta/bin");
    let home = environment.get("HOME").map(Path::new);
    let version_files =
        VERSION_FILES.into_iter().chain(text::list_entries(IDIOMATIC_VERSION_FILES));
    // Files in the home folder are the user's own settings.
    let mut folders = folder.ancestors().take_while(|folder| Some(*folder) != home);
    let is_named = folders.any(|folder| {
        // Volta prefers the programs that the project has installed.
        is_volta && folder.join("node_modules/.bin").join(program).exists()
            || version_files.clone().any(|name| may_run_something(&folder.join(name)))
            || MISE_FILES.split(' ').any(|name| folder.join(name).symlink_metadata().is_ok())
    });
    is_named.then(|| {
        format!("a version manager may run the project's `{program}` ({})", found.display())
    })
}

/// Returns true if there is a file that makes other programs run something, or one that cannot be read as a whole.
fn may_run_something(file: &Path) -> bool {
    file.symlink_metadata().is_ok()
        && read_head(file, None, MAX_FILE_BYTES).is_none_or(|head| {
            let runs = ProtectedPaths::runs_something(file, head.text.as_bytes());
            !head.is_complete || runs != Some(false)
        })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test sets up its files")]
mod tests {
    use super::*;
    #[cfg(unix)]
    use turnwright_policy::permission::{Pattern, Rule, RuleAction, Scope};
    use turnwright_types::shell_script::ShellDialect;

    #[cfg(unix)]
    #[test]
    fn nothing_runs_in_the_folder_before_a_cd_to_one_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        fs::create_dir_all(base.join("sub/below")).unwrap();
        let roots = Roots::new(&base).unwrap();
        for (line, expected) in [
            ("cd sub; make > ../out", "sub/../out"),
            ("cd sub/below\nmake > out", "sub/below/out"),
            ("cd sub; cd below && make > out", "sub/below/out"),
            ("cd missing; make > ../out", "../out missing/../out"),
            ("touch a; cd sub; make > out", "out sub/out"),
            ("cd 'sub;'; make > out", "out sub;/out"),
            ("cd sub # ; echo '\nmake > out\n# '", "out sub/out"),
            ("cd sub >&9; make > out", "out sub/out"),
            ("cd sub &\nmake > out", "out"),
            ("cd sub || true; make > out", "out sub/out"),
        ] {
            let script = parse_line(line, &roots.resolve("."), &roots);
            assert_eq!(script.ambiguity, None, "{line}");
            let mut opened = Vec::new();
            for command in &script.commands {
                let folder = command.folder.as_ref().unwrap();
                opened.extend(command.redirects.iter().map(|file| folder.join(&file.path)));
            }
            let opened: Vec<_> = opened.iter().map(|path| path.to_string_lossy()).collect();
            assert_eq!(opened.join(" "), expected, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_checkout_of_a_file_throws_away_its_changes_and_that_of_a_branch_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        for folder in [".git/objects", ".git/refs/heads/src", "src", "docs"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        for (name, text) in [
            (".git/HEAD", "ref: refs/heads/main\n"),
            (".git/config", ""),
            (".git/refs/heads/docs", "1234\n"),
            (".git/refs/heads/src/feature", "1234\n"),
            ("Makefile", ""),
            ("src/Makefile", ""),
        ] {
            fs::write(base.join(name), text).unwrap();
        }
        let roots = Roots::new(&base).unwrap();
        for (line, expected) in [
            ("git checkout Makefile", true),
            ("git checkout src", true),
            ("git checkout -q src", true),
            ("git --no-pager checkout --no-guess src", true),
            ("git checkout --orphan src", false),
            ("git checkout src/Makefile", true),
            ("git checkout src/..", true),
            ("git checkout --theirs other", true),
            ("git -C . checkout src", true),
            ("git -C src checkout Makefile", true),
            ("git -C docs/../src -c core.pager=cat checkout -q Makefile", true),
            ("git -C docs -C ../src checkout Makefile", true),
            ("git -C src checkout docs", false),
            ("git -C docs checkout Makefile", false),
            ("git -C missing checkout src", false),
            ("cd docs && git -C ../src checkout Makefile", true),
            ("sudo /usr/bin/git checkout src", true),
            ("cd src && git checkout Makefile", true),
            ("cd src && git checkout docs", false),
            ("git checkout docs", false),
            ("git checkout main", false),
            ("git checkout src/feature", false),
            ("git checkout -b src", false),
            ("git add src", false),
        ] {
            let script = parse_line(line, &roots.resolve("."), &roots);
            assert_eq!(!shell::stakes(&script).is_empty(), expected, "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn rules_about_the_checkout_of_a_file_mean_the_words_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        let roots = Roots::new(dir.path()).unwrap();
        let script = parse_line("git checkout src", &roots.resolve("."), &roots);
        for (action, text, expected) in [
            (RuleAction::Allow, "exec(git checkout src)", true),
            (RuleAction::Allow, "exec(=git checkout src)", true),
            (RuleAction::Allow, "exec(git checkout)", false),
            (RuleAction::Deny, "exec(=git checkout src)", true),
        ] {
            let pattern = Pattern::parse(text, action).unwrap();
            let rule = Rule::new(action, pattern, Scope::User);
            assert_eq!(rule.matches_command(&script.commands[0]), expected, "{text}");
        }
    }

    #[test]
    fn a_line_that_may_replace_secrets_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let base = real_path(dir.path()).unwrap();
        fs::create_dir(base.join("sub")).unwrap();
        for (name, text) in
            [(".env", "KEY=x\n"), ("empty.pem", ""), ("note", "x\n"), ("sub/.env", "KEY=x\n")]
        {
            fs::write(base.join(name), text).unwrap();
        }
        let roots = Roots::new(&base).unwrap();
        for (line, expected) in [
            ("echo A=1 > .env", "> .env"),
            ("echo A=1 >| .env", "> .env"),
            ("echo A=1 >> .env > ./.env", "> .env"),
            ("cd sub && echo A=1 2>.env", "> sub/.env"),
            ("echo A=1 >> .env 2> errors", ""),
            ("echo A=1 >> .env", ""),
            ("echo A=1 >> .env; echo B=2 > \".\"env", "> .env"),
            ("for x in 1; do echo $x >> .env; done", ""),
            ("for x in 1; do echo $x > .env; done", "> .env"),
            ("cat .env.example >>'.env'", ""),
            ("cat >>.env <<'END'\nA=1\nEND", ""),
            ("cat .env.example > .env.local", ""),
            ("echo x > empty.pem", ""),
            ("echo x > note", ""),
            ("cp .env.example .env", "program"),
            ("cp -n .env.example .env", ""),
            ("cp .env .env.backup", ""),
            ("cp sub/.env .", "program"),
            ("mv -f note .env", "program"),
            ("mv .env old", ""),
            ("install -m 600 note .env", "program"),
            ("cat note | tee .env", "program"),
            ("cat note | tee -a .env", ""),
            ("mv -n -f note .env", "program"),
            ("sed -i s/x/y/ .env note", "program"),
            ("sed s/x/y/ .env", ""),
            ("chmod 600 .env", ""),
        ] {
            let mut command = shell::command(line, &base, ShellDialect::Bash);
            note_replaced_secrets(&mut command, &roots);
            let mut found: Vec<_> = command
                .overwrites
                .iter()
                .map(|target| target.path.strip_prefix(&base).unwrap().to_string_lossy())
                .map(|name| format!("> {}", name.replace('\\', "/")))
                .collect();
            found.dedup();
            found.extend(command.replaces_secret.then(|| "program".to_owned()));
            assert_eq!(found.join(", "), expected, "{line}");
        }
    }

    #[test]
    fn a_toolchain_given_by_path_is_untrusted() {
        for (name, text, expected) in [
            ("rust-toolchain.toml", "[toolchain]\npath = \"/ws/evil\"", true),
            ("rust-toolchain", "[toolchain]\n'path' = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\n\"p\\u0061th\" = '/ws/evil'", true),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.88\"", false),
            ("rust-toolchain", "stable\n", false),
            ("rust-toolchain", "/ws/evil", true),
            ("rust-toolchain", "../evil", true),
            ("rust-toolchain.toml", "toolchain.channel = [", true),
            ("README.md", "path", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("sub")).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
            assert_eq!(
                untrusted_toolchain_reason(&dir.path().join("sub")).is_some(),
                expected,
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn a_program_of_a_version_manager_is_untrusted_if_the_project_may_provide_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path();
        let file = |name: &str, text: &str| {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for program in [".asdf/shims/node", ".volta/bin/tsc", "bin/node", "bin/tsc"] {
            file(program, "");
        }
        file(".config/mise/config.toml", "[env]");
        for (path, program, text, expected) in [
            (".asdf/shims", "node", (".tool-versions", "nodejs path:./evil"), true),
            (".asdf/shims", "node", (".tool-versions", "nodejs 20.1.0"), false),
            (".asdf/shims", "node", (".nvmrc", "path:./evil"), true),
            (".asdf/shims", "node", (".nvmrc", "v20"), false),
            (".asdf/shims", "node", (".python-version", "../evil"), true),
            (".asdf/shims", "node", ("mise.toml", "[env]"), true),
            (".asdf/shims", "node", ("package.json", "{}"), false),
            (".asdf/shims", "tsc", ("mise.toml", "[env]"), false),
            ("bin", "node", ("mise.toml", "[env]"), false),
            (".volta/bin", "tsc", ("node_modules/.bin/tsc", "evil"), true),
            (".volta/bin", "tsc", ("node_modules/.bin/x", "evil"), false),
            ("bin", "tsc", ("node_modules/.bin/tsc", "evil"), false),
        ] {
            file(&format!("project/{}", text.0), text.1);
            fs::create_dir_all(home.join("project/sub")).unwrap();
            let path = home.join(path).into_os_string();
            let environment = Environment::default().with("PATH", path).with("HOME", home);
            let reason = untrusted_version_reason(program, &home.join("project/sub"), &environment);
            assert_eq!(reason.is_some(), expected, "{program} {text:?}");
            fs::remove_dir_all(home.join("project")).unwrap();
        }
        // The first one may be in a folder in which a silent command does not look.
        file("project/mise.toml", "[env]");
        let path = std::env::join_paths([home.join("bin"), home.join(".asdf/shims")]).unwrap();
        let environment = Environment::default().with("PATH", path).with("HOME", home);
        assert!(untrusted_version_reason("node", &home.join("project"), &environment).is_some());
    }
}
