//! Tests of a `/tmp` of the program's own, with real processes.

#![expect(clippy::disallowed_methods, reason = "tests write temporary files")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::super::{NamespaceSupport, PrivateLayer, PrivateTmp, SandboxProfile, namespace_support};
use super::LinuxSandbox;
use super::private_tmp::TmpMounts;
use super::socket_tests::{can_test, run};
use super::tests::{TestFolders, variants};

/// A folder that programs are to see as their `/tmp`.
struct OwnTmp(tempfile::TempDir);

impl OwnTmp {
    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for OwnTmp {
    /// What was mounted leaves folders that nobody may open.
    fn drop(&mut self) {
        for entry in fs::read_dir(self.path()).into_iter().flatten().flatten() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700)).ok();
        }
    }
}

/// Folders in the machine's `/tmp`, and one that programs are to see as their own.
fn in_tmp() -> Option<(TestFolders, OwnTmp, SandboxProfile)> {
    let folders = TestFolders::new();
    if !folders.inside.starts_with("/tmp") {
        eprintln!("NOT TESTED: temporary files are not in /tmp here");
        return None;
    }
    let own = OwnTmp(tempfile::tempdir().unwrap());
    let mut profile = folders.profile();
    profile.writable.push(own.path().to_owned());
    profile.private_tmp = Some(PrivateTmp { folder: own.path().to_owned(), shown: Vec::new() });
    Some((folders, own, profile))
}

fn with_mounts() -> impl Iterator<Item = NamespaceSupport> {
    variants().into_iter().filter(|variant| variant.mounts)
}

#[test]
fn the_next_program_finds_what_one_has_left_in_tmp_and_nobody_else_does() {
    let Some((folders, own, profile)) = in_tmp() else { return };
    let name = own.path().file_name().unwrap().to_str().unwrap();
    let users = tempfile::Builder::new().prefix("of-the-user-").tempfile_in("/tmp").unwrap();
    let users = users.path().display();
    for namespaces in with_mounts() {
        let run = |script: &str| folders.run(&profile, namespaces, script);
        let script = format!(
            "echo left > /tmp/{name}-x && mkdir -p /tmp/a/b && echo deep > /tmp/a/b/c && \
             test ! -e {users} && ls -A $OUT 2>&1"
        );
        let (text, worked) = run(&script);
        assert!(!worked && text.contains("No such file"), "{text}");
        let (text, worked) = run(&format!("cat /tmp/{name}-x /tmp/a/b/c"));
        assert_eq!((text.as_str(), worked), ("left\ndeep\n", true));
        // Its own path leads to it only if it is directly in the machine's.
        if own.path().parent() == Some(Path::new("/tmp")) {
            let (text, worked) = run(&format!("cat /tmp/{name}/a/b/c"));
            assert_eq!((text.as_str(), worked), ("deep\n", true));
        }
        assert_eq!(fs::read_to_string(own.path().join("a/b/c")).unwrap(), "deep\n");
        assert!(!Path::new(&format!("/tmp/{name}-x")).exists());
        let (text, worked) =
            run("find /tmp > all && rm -r /tmp/a && touch /tmp/$$ && test ! -e /tmp/a");
        assert!(worked, "{text}");
    }
}

#[test]
fn a_project_in_tmp_stays_where_it_is_and_is_kept_as_everywhere() {
    let Some((folders, own, mut profile)) = in_tmp() else { return };
    profile.read_only = vec![folders.inside.join(".git/hooks")];
    profile.hidden.push(folders.inside.join(".env"));
    for namespaces in with_mounts() {
        for (script, expected) in [
            ("echo x > new && test $(pwd) = $(pwd -P) && cat $PWD/new && rm new", Some("x\n")),
            ("cat .git/config", Some("config")),
            ("echo x > .git/hooks/pre-commit", None),
            ("rm -r .git/hooks", None),
            ("mv .git other", None),
            ("! grep -s secret .env", Some("")),
            ("cd .. && mv inside other", None),
            ("cd ../.. && d=$(dirname $OLDPWD) && mv $d other", None),
            ("touch ../x", None),
        ] {
            let (text, worked) = folders.run(&profile, namespaces, script);
            assert_eq!(worked, expected.is_some(), "{script}: {text}");
            assert_eq!(expected.unwrap_or(&text), text, "{script}");
        }
        assert!(fs::read_dir(own.path()).unwrap().count() > 0);
    }
}

#[test]
fn what_is_named_of_the_machines_tmp_is_seen_and_cannot_be_changed() {
    let Some((folders, _own, mut profile)) = in_tmp() else { return };
    let tmp = profile.private_tmp.as_mut().unwrap();
    tmp.shown = vec![folders.outside.join("file"), folders.home.clone(), "/tmp/missing/x".into()];
    for namespaces in with_mounts() {
        for (script, expected) in [
            ("cat $OUT/file", Some("untouched")),
            ("cat $HOME/.profile", Some("no-secret")),
            ("cat $HOME/.ssh/id", None),
            ("echo x > $OUT/file", None),
            ("chmod 777 $HOME/.profile", None),
            ("touch $OUT/new", None),
            ("ls -A $OUT", Some("file\n")),
        ] {
            let (text, worked) = folders.run(&profile, namespaces, script);
            assert_eq!(worked, expected.is_some(), "{script}: {text}");
            assert_eq!(expected.unwrap_or(&text), text, "{script}");
        }
    }
}

/// Landlock's rule for a folder covers what is mounted in it, also if a command was allowed to read only a list.
#[test]
fn of_what_is_named_a_program_sees_only_what_it_may_read() {
    let Some((folders, own, mut profile)) = in_tmp() else { return };
    let tmp = profile.private_tmp.as_mut().unwrap();
    tmp.shown = vec![folders.outside.join("file"), folders.home.clone()];
    profile.readable = Some(vec![folders.home.join(".config")]);
    for namespaces in with_mounts() {
        let script = "grep -rhs . /tmp; cat $OUT/file $HOME/.profile 2> /dev/null; ls -A $HOME";
        let (text, _) = folders.run(&profile, namespaces, script);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"neighbour") && lines.contains(&"no-secret-either"), "{text}");
        assert!(!lines.contains(&"untouched") && !lines.contains(&"no-secret"), "{text}");
        assert!(lines.ends_with(&[".config"]), "{text}");
    }
    if namespace_support().mounts {
        // A program that does not see the place cannot take it for an empty one.
        let entry = folders.inside.components().nth(2).unwrap();
        let mode = fs::metadata(own.path().join(entry)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0);
    }
}

/// What is written to them would leave the sandbox, although their mount is read-only.
#[test]
fn pipes_that_are_named_are_not_seen() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let Some((folders, _own, mut profile)) = in_tmp() else { return };
    let pipe = folders.outside.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    profile.private_tmp.as_mut().unwrap().shown = vec![pipe, folders.outside.join("file")];
    for namespaces in with_mounts() {
        let (text, worked) = folders.run(&profile, namespaces, "ls -A $OUT");
        assert_eq!((text.as_str(), worked), ("file\n", true));
    }
}

#[test]
fn if_too_much_is_named_the_sockets_and_caches_are_seen() {
    let Some((folders, _own, mut profile)) = in_tmp() else { return };
    let names: Vec<_> = (0..90).map(|number| folders.outside.join(number.to_string())).collect();
    for name in &names {
        fs::write(name, "").unwrap();
    }
    let cache = folders.home.join("cache");
    fs::create_dir(&cache).unwrap();
    profile.sockets = vec![names[89].clone()];
    profile.caches = vec![PrivateLayer::new(cache.clone(), &folders.inside)];
    let twice = names.iter().flat_map(|name| [name.clone(), name.clone()]);
    profile.private_tmp.as_mut().unwrap().shown = twice.collect();
    let planned = TmpMounts::plan(&profile).unwrap().unwrap();
    assert!(planned.shows(&names[89]) && planned.shows(&cache));
    assert_eq!(names.iter().filter(|name| planned.shows(name)).count(), 63);
}

#[test]
fn a_program_that_may_not_write_reads_its_tmp() {
    let Some((folders, own, mut profile)) = in_tmp() else { return };
    profile.writable.clear();
    fs::write(own.path().join("x"), "left").unwrap();
    profile.private_tmp.as_mut().unwrap().shown = vec![folders.inside.clone()];
    for namespaces in with_mounts() {
        let (text, _) = folders.run(&profile, namespaces, "cat /tmp/x; echo y > /tmp/x");
        assert!(text.starts_with("left") && text.contains("Read-only"), "{text}");
    }
}

#[test]
fn a_profile_that_names_tmp_itself_and_a_system_without_mounts_have_no_other_tmp() {
    let Some((folders, own, profile)) = in_tmp() else { return };
    let file = tempfile::Builder::new().tempfile_in("/tmp").unwrap();
    let script = format!("test -e {} && ! test -e /tmp/only-in-own", file.path().display());
    fs::write(own.path().join("only-in-own"), "").unwrap();
    let mut all = profile.clone();
    all.writable.push("/tmp".into());
    for namespaces in variants() {
        let used = if namespaces.mounts { &all } else { &profile };
        let (text, worked) = folders.run(used, namespaces, &script);
        assert!(worked, "{namespaces:?}: {text}");
    }
}

/// Those of the machine are not reached, also where they are shown.
#[test]
fn programs_reach_the_sockets_in_their_own_tmp_only() {
    if !can_test() || !namespace_support().mounts {
        return;
    }
    let Some((folders, own, mut profile)) = in_tmp() else { return };
    profile.private_tmp.as_mut().unwrap().shown = vec![folders.outside.clone()];
    let name = own.path().file_name().unwrap().to_str().unwrap();
    let path = format!("/tmp/{name}-late");
    let _late = UnixListener::bind(&path).unwrap();
    let _shown = UnixListener::bind(folders.home.join("moved")).unwrap();
    fs::rename(folders.home.join("moved"), folders.outside.join("shown")).unwrap();
    let script = format!(
        "serve('/tmp/mine'); print(talk('/tmp/mine')); print(reach('{path}')); \
         print(reach(os.environ['OUT'] + '/shown'))"
    );
    let text = run(&folders, &profile, &script);
    fs::remove_file(path).unwrap();
    assert_eq!(text, "hello\nNo such file or directory\nPermission denied\n");
}

#[test]
fn a_folder_outside_of_tmp_and_one_in_the_project_serve_as_well() {
    let Some((folders, _, profile)) = in_tmp() else { return };
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let in_project = folders.inside.join("tmp");
    fs::create_dir(&in_project).unwrap();
    let users = tempfile::Builder::new().prefix("of-the-user-").tempfile_in("/tmp").unwrap();
    for own in [elsewhere.path(), &in_project] {
        let mut profile = profile.clone();
        profile.writable.push(own.to_owned());
        profile.hidden.push(users.path().to_owned());
        profile.private_tmp = Some(PrivateTmp { folder: own.to_owned(), shown: Vec::new() });
        for namespaces in with_mounts() {
            let script = format!(
                "echo left > /tmp/left && cat {}/left && test ! -e {}",
                own.display(),
                users.path().display()
            );
            let (text, worked) = folders.run(&profile, namespaces, &script);
            assert_eq!((text.as_str(), worked), ("left\n", true), "{}", own.display());
        }
    }
}

/// It does not see the machine's instead.
#[test]
fn a_program_whose_tmp_cannot_be_mounted_does_not_start() {
    let Some((folders, _own, profile)) = in_tmp() else { return };
    let with_folder = |folder| SandboxProfile {
        private_tmp: Some(PrivateTmp { folder, shown: Vec::new() }),
        ..profile.clone()
    };
    // A program may have put a link in its place.
    let link = folders.inside.join("tmp");
    std::os::unix::fs::symlink(&folders.outside, &link).unwrap();
    let mut many = profile.clone();
    for number in 0..65 {
        let place = folders.home.join(number.to_string());
        fs::create_dir(&place).unwrap();
        many.writable.push(place);
    }
    let missing = folders.inside.join("missing");
    for (profile, why) in [
        (with_folder(link), "inside/tmp"),
        (with_folder(missing), "inside/missing"),
        (many, "more than 64 places"),
    ] {
        for namespaces in with_mounts() {
            let refused = LinuxSandbox::with_namespaces(&profile, None, namespaces).unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("a private /tmp cannot be mounted"), "{text}");
            assert!(text.contains(why), "{text}");
        }
    }
}

#[test]
fn links_in_tmp_make_nothing_elsewhere() {
    let Some((folders, own, mut profile)) = in_tmp() else { return };
    let Ok(name) = own.path().strip_prefix("/tmp") else { return };
    let inner = own.path().join("inner");
    fs::create_dir_all(inner.join(name.parent().unwrap())).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), inner.join(name)).unwrap();
    profile.private_tmp = Some(PrivateTmp { folder: inner, shown: Vec::new() });
    for namespaces in with_mounts() {
        folders.run(&profile, namespaces, "true");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
