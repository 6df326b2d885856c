//! Repositories as git makes them, and settings that name programs.

use turnwright_policy::shell::{self, GitUse};
use turnwright_types::shell_script::ShellDialect;

use super::*;

struct TestFolder {
    _folder: tempfile::TempDir,
    base: PathBuf,
}

impl TestFolder {
    fn new() -> TestFolder {
        let folder = tempfile::tempdir().unwrap();
        let base = real_path(folder.path()).unwrap();
        TestFolder { _folder: folder, base }
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.base.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn repository(&self, git: &str, config: &str) {
        self.file(&format!("{git}/HEAD"), "ref: refs/heads/main\n");
        self.file(&format!("{git}/config"), config);
        for folder in ["objects", "refs"] {
            fs::create_dir_all(self.base.join(git).join(folder)).unwrap();
        }
    }

    fn reason(&self, folder: &str) -> String {
        fs::create_dir_all(self.base.join(folder)).unwrap();
        let risk = program_risk(&self.base.join(folder), None, false);
        risk.map_or(String::new(), |risk| risk.reason)
    }

    fn folders(&self, root: &str) -> Vec<PathBuf> {
        fs::create_dir_all(self.base.join(root)).unwrap();
        git_folder(&self.base.join(root)).into_iter().collect()
    }
}

const USUAL_CONFIG: &str =
    "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://a.example/b\n";

#[test]
fn a_remote_is_reached_with_ssh_if_its_address_or_the_user_says_so() {
    let disk = TestFolder::new();
    disk.repository("a/.git", USUAL_CONFIG);
    disk.repository("b/.git", "[remote \"origin\"]\nurl = git@a.example:b\n");
    fs::create_dir_all(disk.base.join("none")).unwrap();
    disk.file("ssh/.gitconfig", "[url \"git@a.example:\"]\ninsteadOf = https://a.example/\n");
    disk.file("push/.gitconfig", "[url \"git@a.example:\"]\npushInsteadOf = https://a.example/\n");
    for (folder, home, expected) in [
        ("a", "none", false),
        ("b", "none", true),
        ("a", "ssh", true),
        ("none", "ssh", true),
        ("a", "push", false),
    ] {
        let found = has_ssh_remote(&disk.base.join(folder), Some(&disk.base.join(home)));
        assert_eq!(found, expected, "{folder}, {home}");
    }
}

#[test]
fn hooks_and_settings_that_git_takes_from_the_project_are_found() {
    let disk = TestFolder::new();
    let config = "[core]\nhooksPath = ./scripts/hooks/\n[include]\npath = ../cfg/team.inc\n\
                      [includeIf \"onbranch:x\"]\npath = /etc/x\n";
    disk.repository("a/.git", config);
    disk.file("a/cfg/team.inc", "[include]\npath = more.inc\n");
    disk.file("user", "[core]\nhooksPath = mine\n[include]\npath = ~/b\n");
    let obeyed = |folder: &str| {
        let mut all = obeyed_by_git(&disk.base.join(folder), &[disk.base.join("user")]).1;
        for path in &mut all {
            *path = path.replace(std::path::MAIN_SEPARATOR, "/");
        }
        all.sort();
        all
    };
    assert_eq!(obeyed("a"), ["cfg/more.inc", "cfg/team.inc", "mine", "scripts/hooks"]);
    disk.file("a/scripts/x", "");
    assert_eq!(obeyed("a/scripts"), ["hooks"]);
    // In a subfolder, what is in the folder of the repository is obeyed, too.
    let config = "[core]\nhooksPath = .git/my-hooks\n[include]\npath = extra.inc\n\
                      [filter \"x\"]\nclean = ./b/clean.sh %f\nsmudge = sh \\\"b/smudge\\\"\n\
                      [diff \"x\"]\ntextconv = b/x\n[core]\neditor = b/edit --wait\n\
                      [alias]\ns = !b/alias x\nt = diff origin/main\n[lfs]\nurl = b/y\n\
                      [credential]\nhelper = store\n[core]\nfsmonitor = true\npager = less\n";
    disk.repository("programs/.git", config);
    for file in ["alias", "edit", "y"] {
        disk.file(&format!("programs/b/{file}"), "");
    }
    let programs = ["alias", "clean.sh", "edit", "smudge", "x"];
    let below = |folder: &str| programs.map(|name| format!("{folder}{name}")).to_vec();
    let expected = [vec![".git/extra.inc".into(), ".git/my-hooks".into()], below("b/")];
    assert_eq!(obeyed("programs"), [expected.concat(), vec!["mine".into()]].concat());
    let mut expected = [below(""), vec!["extra.inc".into(), "my-hooks".into()]].concat();
    expected.sort();
    assert_eq!(obeyed("programs/b"), expected);
    disk.repository("plain/.git", USUAL_CONFIG);
    assert_eq!(obeyed("plain"), ["mine"]);
    assert!(obeyed("").is_empty());
}

#[test]
fn the_files_with_attributes_of_the_user_and_the_repository_are_found() {
    let disk = TestFolder::new();
    disk.repository("a/.git", "[core]\nattributesFile = own/attributes\n");
    disk.file("home/.gitconfig", "[include]\npath = ~/more\n");
    disk.file("home/more", "[core]\nattributesfile = \"~/named\" ; here\n");
    let config = disk.base.join("home/.config");
    let home = Some(disk.base.join("home"));
    let user = GitSettings { home, config: Some(config), attribute_files };
    let found = attribute_files(&disk.base.join("a"), &user);
    let mut below: Vec<_> =
        found.iter().filter_map(|path| path.strip_prefix(&disk.base).ok()).collect();
    below.sort();
    let expected =
        ["a/.git/info/attributes", "a/own/attributes", "home/.config/git/attributes", "home/named"];
    assert_eq!(below, expected.map(Path::new));
}

#[test]
fn a_repository_is_untrusted_when_its_config_starts_programs() {
    let disk = TestFolder::new();
    disk.repository("plain/.git", USUAL_CONFIG);
    disk.repository("trap/.git", "[core]\nfsmonitor = ./x\n");
    disk.repository("odd/.git", "[core\nbare = false\n");
    disk.repository("bare", "[core]\n bare = true\n");
    disk.repository("super/.git", USUAL_CONFIG);
    disk.repository("super/.git/modules/a/b", "[core]\nworktree = ../../../../a/b\n");
    disk.repository("worse/.git", USUAL_CONFIG);
    disk.repository("worse/.git/modules/a", "[diff \"x\"]\ntextconv = ./x\n");
    disk.file("away/.git", "gitdir: ../trap/.git\n");
    disk.file("thief/.git", "gitdir: ../plain/.git\n");
    disk.repository("borrower/.git", USUAL_CONFIG);
    disk.file("borrower/.git/objects/info/alternates", "../../plain/.git/objects\n");
    disk.repository("stray/.git", USUAL_CONFIG);
    disk.file("stray/.git/commondir", "../../plain/.git\n");
    disk.repository("moved/.git", "[core]\nworktree = ..\nworktree = /\n");
    disk.file("lost/.git", "gitdir: ../nowhere\n");
    disk.file("noise/.git", "what?\n");
    for folder in ["plain", "plain/deep/er", "super"] {
        assert_eq!(disk.reason(folder), "", "{folder}");
    }
    for folder in ["trap", "trap/sub"] {
        assert!(disk.reason(folder).contains("core.fsmonitor"), "{folder}");
    }
    for folder in ["thief", "away", "stray"] {
        assert!(disk.reason(folder).contains("another folder"), "{folder}");
    }
    assert!(disk.reason("moved").contains("core.worktree"));
    assert!(disk.reason("borrower").contains("alternates"));
    for folder in ["odd", "bare", "bare/sub", "worse", "lost", "noise", "plain/.git"] {
        assert_ne!(disk.reason(folder), "", "{folder}");
    }
}

#[test]
fn settings_are_risky_only_for_the_commands_that_obey_them() {
    let disk = TestFolder::new();
    disk.repository("own/.git", "[core]\nfsmonitor = x\nhooksPath = x\neditor = x\n");
    disk.repository("text/.git", "[diff \"x\"]\ntextconv = x\n");
    disk.repository("lazy/.git", "[core]\nsshCommand = x\n[remote \"o\"]\npromisor = true\n");
    disk.repository("ssh/.git", "[core]\nsshCommand = x\n");
    disk.repository("super/.git", USUAL_CONFIG);
    disk.repository("super/.git/modules/a", "[core]\nfsmonitor = x\n");
    for (folder, line, only_reads, expected) in [
        // Readers get other settings in place of these, but not in submodules.
        ("own", "git status", true, false),
        ("own", "git status", false, true),
        ("own", "git commit -m x", false, true),
        ("own", "git log", true, false),
        ("own", "git log", false, true),
        ("super", "git status", true, true),
        ("text", "git diff", true, true),
        ("text", "git rev-parse HEAD", false, false),
        ("ssh", "git log", false, false),
        ("ssh", "git push", false, true),
        ("lazy", "git log", false, true),
    ] {
        let script = shell::parse(line, ShellDialect::Bash);
        let git = GitUse::of(&script.commands[0]);
        let found = program_risk(&disk.base.join(folder), Some(&git), only_reads);
        assert_eq!(found.is_some(), expected, "{folder}: {line}: {found:?}");
        assert!(found.is_none_or(|risk| risk.only_runs_programs));
    }
    disk.file("super/.git/objects/info/alternates", "../../own/.git/objects\n");
    let found = program_risk(&disk.base.join("super"), None, false).unwrap();
    assert!(!found.only_runs_programs && found.reason.contains("alternates"));
}

#[test]
fn a_new_git_file_leads_into_a_repository_around_it_or_beside_it() {
    let disk = TestFolder::new();
    for (top, git, is_linked, expected) in [
        ("ws/tree", "ws/.git/worktrees/tree", true, true),
        ("ws/libs/b", "ws/libs/a/.git/worktrees/b", true, true),
        ("ws/trees/a", "ws/app/.git/worktrees/a", true, true),
        ("ws/tree", "ws/app.git/worktrees/tree", true, true),
        ("ws/main", "ws/.bare/worktrees/main", true, true),
        ("bare/tree", "bare/.bare/worktrees/tree", true, true),
        ("ws/sub", "ws/.git/modules/sub", false, true),
        ("ws/sub/sub", "ws/.git/modules/sub/modules/sub", false, true),
        ("ws/tree/sub", "ws/.git/worktrees/tree/modules/sub", false, true),
        ("ws/tree/tree", "ws/.git/worktrees/inner", true, true),
        ("ws/forged", "ws/node_modules/r", false, false),
        ("ws/forged", "ws/node_modules/r/modules/x", false, false),
        ("ws/forged", "ws/node_modules/r/worktrees/x", true, false),
        ("ws/forged", "ws/node_modules/r/.git/worktrees/x", true, false),
        ("ws/forged", ".npm/.git/worktrees/x", true, false),
    ] {
        for git in ["ws/.git", "ws/libs/a/.git", "ws/app/.git", "bare/.bare"] {
            disk.repository(git, USUAL_CONFIG);
        }
        disk.file("bare/.git", "gitdir: .bare\n");
        let top = disk.base.join(top);
        let real = disk.base.join(git);
        if is_linked {
            disk.repository(&format!("{git}/../.."), USUAL_CONFIG);
            disk.file(&format!("{git}/HEAD"), "");
            disk.file(&format!("{git}/commondir"), "../..\n");
            let back = top.join(".git").display().to_string();
            disk.file(&format!("{git}/gitdir"), &back);
        } else {
            disk.repository(git, &format!("[core]\nworktree = {}\n", top.display()));
        }
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join(".git"), format!("gitdir: {}\n", real.display())).unwrap();
        assert_eq!(program_risk(&top, None, false), None, "{git}");
        assert_eq!(untrusted_config(&top).is_none(), expected, "{git}");
    }
}

#[test]
fn the_settings_of_a_folder_are_those_of_the_repository_that_git_uses_there() {
    let disk = TestFolder::new();
    disk.repository("own/.git", USUAL_CONFIG);
    disk.repository("own/bare", "");
    disk.file("own/forged/.git", "gitdir: ../bare\n");
    disk.repository("own/inner/.git", "");
    for (folder, expected) in [
        ("own/sub", Some("own/.git/config")),
        ("own/inner/sub", Some("own/inner/.git/config")),
        ("own/bare/sub", None),
        ("own/forged", None),
        ("elsewhere", None),
    ] {
        fs::create_dir_all(disk.base.join(folder)).unwrap();
        let expected = expected.map(|path| disk.base.join(path));
        assert_eq!(config_of(&disk.base.join(folder)), expected, "{folder}");
    }
}

#[test]
fn a_repository_is_untrusted_when_the_config_of_a_submodule_starts_programs() {
    let disk = TestFolder::new();
    disk.repository("top/.git", USUAL_CONFIG);
    // One entry, as `git update-index --add --cacheinfo 160000,…,sub` makes it.
    let mut index = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    index.extend([0; 24]);
    index.extend(0o160_000_u32.to_be_bytes());
    index.extend([0; 12]);
    index.extend([1; 20]);
    index.extend(b"\0\x03sub\0\0\0\0\0\0\0");
    index.extend([0; 20]);
    fs::write(disk.base.join("top/.git/index"), &index).unwrap();
    assert_eq!(disk.reason("top"), "", "it is not there yet");
    disk.repository("top/sub/.git", USUAL_CONFIG);
    assert_eq!(disk.reason("top"), "");
    disk.repository("top/sub/.git", "[core]\nfsmonitor = ./x\n");
    assert!(disk.reason("top").contains("core.fsmonitor"));
    // git does not look at the permissions of a submodule, and takes the length of a name from the flags.
    let mut odd = index.clone();
    odd[36..40].copy_from_slice(&0o160_644_u32.to_be_bytes());
    fs::write(disk.base.join("top/.git/index"), &odd).unwrap();
    assert!(disk.reason("top").contains("core.fsmonitor"));
    odd[73] = 2;
    fs::write(disk.base.join("top/.git/index"), &odd).unwrap();
    assert!(disk.reason("top").contains("not understood"));
    disk.repository("top/sub/.git", USUAL_CONFIG);
    fs::write(disk.base.join("top/.git/index"), &index[..40]).unwrap();
    assert!(disk.reason("top").contains("not understood"));
}

#[test]
fn a_bare_repository_beside_its_working_trees_is_the_folders_own() {
    let disk = TestFolder::new();
    disk.repository("top/.bare", "[core]\nbare = true\n");
    disk.file("top/.git", "gitdir: ./.bare\n");
    assert_eq!(disk.reason("top/docs"), "");
    assert_eq!(history_folders(&disk.base.join("top")), [disk.base.join("top/.bare")]);
    disk.file("top/.bare/config", "[core]\nfsmonitor = ./x\n");
    assert!(disk.reason("top").contains("core.fsmonitor"));
    disk.file("top/docs/.git", "gitdir: ../.bare\n");
    assert!(disk.reason("top/docs").contains("another folder"));
}

#[test]
fn a_linked_working_tree_of_a_submodule_is_understood() {
    let disk = TestFolder::new();
    let config = "[core]\nworktree = ../../../sub\n";
    disk.repository("top/.git", USUAL_CONFIG);
    disk.repository("top/.git/modules/sub", config);
    let tree = "top/.git/modules/sub/worktrees/tree";
    disk.file(&format!("{tree}/commondir"), "../..\n");
    disk.file(&format!("{tree}/gitdir"), &disk.base.join("tree/.git").display().to_string());
    disk.file("tree/.git", &format!("gitdir: ../{tree}\n"));
    assert_eq!(disk.reason("tree"), "");
    let own = format!("{config}[extensions]\nworktreeConfig = true\n");
    disk.file("top/.git/modules/sub/config", &own);
    assert!(disk.reason("tree").contains("core.worktree"));
}

#[test]
fn a_repository_with_as_many_submodules_as_boost_is_understood() {
    let disk = TestFolder::new();
    disk.repository("top/.git", USUAL_CONFIG);
    let mut index = b"DIRC\0\0\0\x02\0\0\0\xab".to_vec();
    for number in 0..171 {
        index.extend([0; 24]);
        index.extend(0o160_000_u32.to_be_bytes());
        index.extend([0; 12]);
        index.extend([1; 20]);
        index.extend(format!("\0\x04s{number:03}\0\0\0\0\0\0").bytes());
        disk.repository(&format!("top/s{number:03}/.git"), USUAL_CONFIG);
        disk.file(&format!("top/.git/modules/s{number:03}/config"), USUAL_CONFIG);
    }
    index.extend([0; 20]);
    fs::write(disk.base.join("top/.git/index"), &index).unwrap();
    assert_eq!(disk.reason("top"), "");
    disk.file("top/s170/.git/config", "[core]\nfsmonitor = ./x\n");
    assert!(disk.reason("top").contains("core.fsmonitor"));
}

#[test]
fn the_settings_of_included_files_count_in_place_of_the_includes() {
    let disk = TestFolder::new();
    let reason = |line: &str| {
        let script = shell::parse(line, ShellDialect::Bash);
        let git = GitUse::of(&script.commands[0]);
        let risk = program_risk(&disk.base.join("a"), Some(&git), false);
        risk.map_or(String::new(), |risk| risk.reason)
    };
    // So does `actions/checkout` from version 6 on.
    let config = format!(
        "{USUAL_CONFIG}[includeIf \"gitdir:/work/a/.git\"]\npath = ../../runner/credentials\n\
         [includeIf \"gitdir:/github/workspace/.git\"]\npath = /missing/credentials\n"
    );
    disk.repository("a/.git", &config);
    assert_eq!(reason("git status"), "");
    assert!(
        disk.reason("a").contains("includeif"),
        "they may change after the repository appeared"
    );
    disk.file("runner/credentials", "[http \"https://a.example/\"]\nextraHeader = x\n");
    assert_eq!(reason("git status"), "");
    assert!(reason("git push").contains("extraheader"));
    disk.file("runner/credentials", "[include]\npath = more\n");
    disk.file("runner/more", "[core]\nfsmonitor = x\n");
    assert!(reason("git status").contains("core.fsmonitor"));
    for more in ["credentials", "~/more"] {
        disk.file("runner/more", &format!("[include]\npath = {more}\n"));
        assert!(reason("git status").contains("include.path"), "{more}");
    }
}

#[cfg(unix)]
#[test]
fn names_of_files_mean_what_they_mean_to_git() {
    let disk = TestFolder::new();
    let script = shell::parse("git status", ShellDialect::Bash);
    let git = GitUse::of(&script.commands[0]);
    disk.repository("a/.git", "[include]\npath = link/../x\n");
    disk.file("a/.git/x", "");
    disk.file("a/evil/x", "[core]\nfsmonitor = ./x\n");
    disk.file("a/evil/sub/y", "");
    std::os::unix::fs::symlink("../evil/sub", disk.base.join("a/.git/link")).unwrap();
    let risk = program_risk(&disk.base.join("a"), Some(&git), false).unwrap();
    assert!(risk.reason.contains("core.fsmonitor"), "{risk:?}");
    disk.repository("b/.bare", USUAL_CONFIG);
    disk.repository("b/.bare ", "[core]\nfsmonitor = ./x\n");
    disk.file("b/.git", "gitdir: .bare \n");
    assert!(disk.reason("b").contains("core.fsmonitor"));
    // In Shift JIS the backslash is a part of a character, so the quote would begin what hides the next line.
    fs::write(disk.base.join("b/.bare /config"), b"[user]\nname = \x83\x5c\" \n").unwrap();
    assert!(disk.reason("b").contains("not understood"));
}

#[cfg(unix)]
#[test]
fn settings_that_could_block_or_never_end_are_not_read() {
    let disk = TestFolder::new();
    disk.repository("loop/.git", USUAL_CONFIG);
    for target in ["/dev/zero", "config"] {
        fs::remove_file(disk.base.join("loop/.git/config")).unwrap();
        std::os::unix::fs::symlink(target, disk.base.join("loop/.git/config")).unwrap();
        assert_ne!(disk.reason("loop"), "", "{target}");
    }
    disk.repository("long/.git", &format!("{USUAL_CONFIG}#{}", "x".repeat(MAX_CONFIG_BYTES)));
    assert_ne!(disk.reason("long"), "");
}

#[test]
fn a_folder_that_git_passes_over_hides_no_settings_of_the_repository_around_it() {
    let disk = TestFolder::new();
    disk.repository("p/.git", "[core]\nfsmonitor = ./x\n");
    disk.repository("p/sub/.git", USUAL_CONFIG);
    assert_eq!(disk.reason("p/sub"), "");
    disk.file("p/sub/.git/HEAD", "no branch\n");
    assert!(disk.reason("p/sub").contains("core.fsmonitor"));
}

#[test]
fn a_repository_around_the_root_is_opened_and_a_forged_pointer_opens_nothing() {
    let disk = TestFolder::new();
    let base = disk.base.clone();
    disk.repository("mono/.git", USUAL_CONFIG);
    assert_eq!(disk.folders("mono/packages/a"), [base.join("mono/.git")]);
    assert!(disk.folders("mono").is_empty());

    // A linked working tree.
    disk.file("tree/.git", "gitdir: ../mono/.git/worktrees/tree\n");
    disk.file("mono/.git/worktrees/tree/commondir", "../..\n");
    let back = format!("{}\n", base.join("tree/.git").display());
    disk.file("mono/.git/worktrees/tree/gitdir", &back);
    assert_eq!(disk.folders("tree"), [base.join("mono/.git")]);
    disk.file("thief/.git", "gitdir: ../mono/.git/worktrees/tree\n");
    assert!(disk.folders("thief").is_empty());

    // A link.
    #[cfg(unix)]
    for target in ["../mono/.git", "/"] {
        fs::create_dir_all(base.join("linked")).unwrap();
        fs::remove_file(base.join("linked/.git")).ok();
        std::os::unix::fs::symlink(target, base.join("linked/.git")).unwrap();
        assert!(disk.folders("linked").is_empty(), "{target}");
        assert_ne!(disk.reason("linked"), "", "{target}");
    }

    // A submodule.
    disk.repository("mono/.git/modules/sub", "[core]\nworktree = ../../../sub\n");
    disk.file("mono/sub/.git", "gitdir: ../.git/modules/sub\n");
    assert_eq!(disk.folders("mono/sub"), [base.join("mono/.git/modules/sub")]);
    for forged in ["../mono/.git/modules/sub", "../mono/.git", "..", "/etc", "../mono/.git/../.."] {
        disk.file("thief/.git", &format!("gitdir: {forged}\n"));
        assert!(disk.folders("thief").is_empty(), "{forged}");
    }
}
