//! Tests of the sandbox with real processes. Each runs with a mount namespace and without one, as
//! in a container.

#![expect(clippy::disallowed_methods, reason = "tests start processes and write temporary files")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use super::*;

/// A writable folder, a read-only one beside it, and a home with secrets.
pub(super) struct TestFolders {
    pub(super) inside: PathBuf,
    pub(super) outside: PathBuf,
    pub(super) home: PathBuf,
    _folder: tempfile::TempDir,
}

impl TestFolders {
    pub(super) fn new() -> TestFolders {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let [inside, outside, home] = ["inside", "outside", "home"].map(|name| top.join(name));
        for (name, text) in [
            ("inside/.git/hooks/pre-commit", "hook"),
            ("inside/.git/config", "config"),
            ("inside/.env", "secret-of-the-project"),
            ("inside/neighbour", "neighbour"),
            ("outside/file", "untouched"),
            ("home/.ssh/id", "secret-key"),
            ("home/.netrc", "secret-password"),
            ("home/.profile", "no-secret"),
            ("home/.config/gh/hosts", "secret-token"),
            ("home/.config/app", "no-secret-either"),
        ] {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(".ssh", home.join("link")).unwrap();
        TestFolders { inside, outside, home, _folder: folder }
    }

    pub(super) fn profile(&self) -> SandboxProfile {
        SandboxProfile {
            writable: vec![self.inside.clone()],
            hidden: [".ssh", ".netrc", ".config/gh"].map(|name| self.home.join(name)).to_vec(),
            ..SandboxProfile::default()
        }
    }

    pub(super) fn run(
        &self,
        profile: &SandboxProfile,
        namespaces: NamespaceSupport,
        script: &str,
    ) -> (String, bool) {
        let sandbox = LinuxSandbox::with_namespaces(profile, None, namespaces).unwrap();
        let mut command = Command::new("/bin/sh");
        let variables = [("OUT", &self.outside), ("HOME", &self.home)];
        // Names of folders may contain spaces, and the scripts do not quote `$OUT`.
        let script = format!("IFS=\n{script}");
        command.args(["-c", &script]).envs(variables).current_dir(&self.inside);
        command.env("TMPDIR", &self.inside).env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output =
            confined(&mut command, sandbox, || Ok(())).stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&text).into_owned(), output.status.success())
    }
}

/// Makes the command enter the sandbox and call `then` there.
fn confined<F>(command: &mut Command, sandbox: LinuxSandbox, then: F) -> &mut Command
where
    F: Fn() -> io::Result<()> + Send + Sync + 'static,
{
    #[expect(unsafe_code, reason = "pre_exec: system calls only")]
    // SAFETY: runs between fork and exec, and `then` makes system calls only.
    unsafe {
        command.pre_exec(move || {
            sandbox.enter()?;
            then()
        })
    }
}

/// The namespaces to test with, as far as this system supports them.
pub(super) fn variants() -> Vec<NamespaceSupport> {
    if !super::super::can_confine() {
        eprintln!("NOT TESTED: no sandbox here: {:?}", sandbox_support().missing);
        return Vec::new();
    }
    if !namespace_support().mounts {
        eprintln!("NOT TESTED: the mount namespace: namespaces are not available here");
        return vec![NamespaceSupport::default()];
    }
    vec![NamespaceSupport::default(), namespace_support()]
}

fn has(program: &str) -> bool {
    let found = ["/bin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists());
    if !found {
        eprintln!("NOT TESTED: there is no {program} here");
    }
    found
}

#[test]
fn what_is_outside_cannot_be_changed_in_any_way() {
    let scripts = [
        "echo x > $OUT/new",
        "echo x > $OUT/file",
        "echo x >> $OUT/file",
        ": > $OUT/file",
        "truncate -s 0 $OUT/file",
        "rm $OUT/file",
        "mkdir $OUT/folder",
        "mv $OUT/file here",
        "mv neighbour $OUT/file",
        "ln neighbour $OUT/linked",
        "ln $OUT/file linked && echo x > linked",
        "ln -s x $OUT/link",
        "ln -s $OUT/file out && echo x > out",
        "mkfifo $OUT/pipe",
        "cp neighbour $OUT/file",
        "cd $OUT && echo x > new",
        "(sh -c '(echo x > $OUT/new; echo over > over) &'); \
         until test -s over; do :; done; test -e $OUT/new",
        "echo x > /proc/self/oom_score_adj",
        "echo x > /dev/tty",
        "echo x > /tmp/turnwright-must-not-be-there",
    ];
    for namespaces in variants() {
        for script in scripts {
            let folders = TestFolders::new();
            let (text, worked) = folders.run(&folders.profile(), namespaces, script);
            assert!(!worked, "{script} with {namespaces:?}: {text}");
            assert_eq!(
                fs::read_to_string(folders.outside.join("file")).unwrap(),
                "untouched",
                "{script}"
            );
            assert_eq!(fs::read_dir(&folders.outside).unwrap().count(), 1, "{script}");
        }
    }
}

/// Landlock alone lets a process change the metadata of files that it cannot open.
#[test]
fn modes_owners_and_times_of_what_is_outside_stay_as_they_are() {
    use std::os::unix::fs::MetadataExt;
    for namespaces in variants().into_iter().filter(|variant| variant.mounts) {
        let folders = TestFolders::new();
        let look = || {
            let it = fs::metadata(folders.outside.join("file")).unwrap();
            (it.mode(), it.uid(), it.gid(), it.mtime())
        };
        let before = look();
        let script = "chmod 777 $OUT/file; chown 1:1 $OUT/file; touch -d @0 $OUT/file; \
                      chmod 700 neighbour && touch -d @0 neighbour && stat -c %a:%Y neighbour";
        let (text, _) = folders.run(&folders.profile(), namespaces, script);
        assert!(text.starts_with("700:0\n"), "{text}");
        assert_eq!(look(), before);
    }
}

#[test]
fn what_is_inside_works_as_usual() {
    let scripts = [
        "echo x > new && test \"$(cat new)\" = x && echo y >> new && : > new && rm new",
        "mkdir -p a/b c && echo x > a/b/f && mv a/b c/ && mv c/b/f . && ln f g && ln -s f h && rm -r a c",
        "mkfifo pipe && { echo x > pipe & } && read line < pipe && test $line = x",
        "seq 200000 -1 1 | sort -n -S 1M > sorted && test $(head -n 1 sorted) = 1",
        "f=$(mktemp) && echo x > $f && rm $f",
        "echo x > /dev/null && echo y >&2 && echo z > /dev/stderr",
        "printf '#!/bin/sh\\necho ran\\n' > program && chmod +x program && test $(./program) = ran",
        "sleep 10 & kill $! && ! wait $!",
        "ls / /etc /usr > /dev/null && head -c 16 /dev/urandom > random && cat $OUT/file",
        "cat $HOME/.profile && cat $HOME/.config/app",
    ];
    for namespaces in variants() {
        for script in scripts {
            let folders = TestFolders::new();
            let (text, worked) = folders.run(&folders.profile(), namespaces, script);
            assert!(worked, "{script} with {namespaces:?}: {text}");
        }
    }
}

#[test]
fn programs_that_build_work_inside() {
    let scripts = [
        (
            "git",
            "git init -q new && cd new && echo x > f && git add f && \
                 git -c user.name=a -c user.email=a@b.example commit -qm x && \
                 git mv f g && git status --short && git gc -q && git log --oneline",
        ),
        ("cc", "printf 'int main(void) { return 0; }' > a.c && cc a.c -o a && ./a"),
        (
            "python3",
            "python3 -c 'import subprocess, tempfile; tempfile.mkdtemp(); \
                     subprocess.run([\"true\"], check=True); open(\"out\", \"w\").write(\"x\")'",
        ),
        ("tar", "tar cf a.tar neighbour && mkdir t && tar xf a.tar -C t && cat t/neighbour"),
        ("make", "printf 'all: b\\nb:\\n\\ttouch b\\n' > Makefile && make -j2 && test -e b"),
    ];
    for namespaces in variants() {
        for (program, script) in scripts.iter().filter(|(it, _)| has(it)) {
            let folders = TestFolders::new();
            let (text, worked) = folders.run(&folders.profile(), namespaces, script);
            assert!(worked, "{program} with {namespaces:?}: {text}");
        }
    }
}

#[test]
fn secrets_cannot_be_read_and_their_neighbours_can() {
    let script = "cat $HOME/.ssh/id $HOME/.netrc $HOME/link/id $HOME/.config/gh/hosts; \
                  cat $HOME/.ssh/../.netrc; cd $HOME/.ssh && cat id; \
                  cat $HOME/.profile $HOME/.config/app";
    for namespaces in variants() {
        let folders = TestFolders::new();
        let strict =
            SandboxProfile { readable: Some(vec![folders.home.clone()]), ..folders.profile() };
        for profile in [folders.profile(), strict] {
            let (text, _) = folders.run(&profile, namespaces, script);
            assert!(text.contains("no-secret") && text.contains("no-secret-either"), "{text}");
            assert!(!text.contains("secret-key") && !text.contains("secret-password"), "{text}");
            assert!(!text.contains("secret-token"), "{text}");
        }
        if namespaces.mounts {
            let hide = vec![folders.inside.join(".env")];
            let profile = SandboxProfile { hidden: hide, ..folders.profile() };
            let script = "cat .env neighbour; mv .env e; cat e";
            let (text, _) = folders.run(&profile, namespaces, script);
            assert!(text.contains("neighbour") && !text.contains("secret-of"), "{text}");
        }
    }
}

#[test]
fn what_is_open_below_a_hidden_folder_is_all_that_is_seen_of_it() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let config = folders.home.join(".config");
        fs::create_dir(config.join("cache")).unwrap();
        fs::write(config.join("cache/key"), "secret-of-the-cache").unwrap();
        let mut profile = folders.profile();
        profile.hidden = vec![config.clone(), config.join("cache/key")];
        profile.writable.push(config.join("cache"));
        profile.unhidden = vec![config.join("gh")];
        for readable in [None, Some(Vec::new())] {
            let profile = SandboxProfile { readable, ..profile.clone() };
            let script = "cd $HOME/.config; cat gh/hosts; echo x > cache/new; \
                          cat app; echo x > gh/hosts; echo x > new";
            let (text, _) = folders.run(&profile, namespaces, script);
            assert!(text.contains("secret-token") && !text.contains("no-secret"), "{text}");
            assert!(config.join("cache/new").exists() && !config.join("new").exists(), "{text}");
            assert_eq!(fs::read_to_string(config.join("gh/hosts")).unwrap(), "secret-token");
            fs::remove_file(config.join("cache/new")).unwrap();
            if namespaces.mounts && profile.readable.is_none() {
                let script = "cd $HOME/.config; ls; cat cache/key";
                let (text, _) = folders.run(&profile, namespaces, script);
                assert!(text.starts_with("cache\ngh\n"), "{text}");
                assert!(!text.contains("secret-of-the-cache"), "{text}");
            }
        }
    }
}

#[test]
fn with_a_list_nothing_else_is_read() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let profile = SandboxProfile {
            readable: Some(vec![folders.home.join(".config")]),
            ..folders.profile()
        };
        let script = "cat neighbour $HOME/.config/app; cat $OUT/file; cat $HOME/.profile; ls $OUT";
        let (text, _) = folders.run(&profile, namespaces, script);
        assert!(text.contains("neighbour") && text.contains("no-secret-either"), "{text}");
        assert!(!text.contains("untouched") && !text.contains("no-secret\n"), "{text}");
    }
}

#[test]
fn a_folder_of_the_list_is_listed_although_something_in_it_is_hidden() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let profile = SandboxProfile {
            readable: Some(vec![folders.inside.clone()]),
            hidden: vec![folders.inside.join(".env")],
            ..SandboxProfile::default()
        };
        let (text, worked) = folders.run(&profile, namespaces, "grep -rh . .; true");
        assert!(worked && text.contains("neighbour") && text.contains("hook"), "{text}");
        assert!(!text.contains("secret-of-the-project"), "{text}");
    }
}

#[test]
fn what_is_to_be_kept_is_kept_where_it_is() {
    let scripts = [
        "echo x > .git/hooks/new",
        "echo x >> .git/hooks/pre-commit",
        "rm -f .git/hooks/pre-commit",
        "rm -rf .git/hooks",
        "mv .git/hooks .git/h && mkdir .git/hooks",
        "mv .git .g && cp -r .g .git",
        "echo x > .git/config",
        "mv neighbour .git/config",
        "cd .git/hooks && echo x > new",
    ];
    for namespaces in variants().into_iter().filter(|variant| variant.mounts) {
        for script in scripts {
            let folders = TestFolders::new();
            let git = folders.inside.join(".git");
            let keep = vec![git.join("hooks"), git.join("config"), git.join("not-there")];
            let profile = SandboxProfile { read_only: keep, ..folders.profile() };
            let (text, worked) = folders.run(&profile, namespaces, script);
            assert!(!worked, "{script}: {text}");
            assert_eq!(
                fs::read_to_string(git.join("hooks/pre-commit")).unwrap(),
                "hook",
                "{script}"
            );
            assert_eq!(fs::read_to_string(git.join("config")).unwrap(), "config", "{script}");
            assert_eq!(fs::read_dir(git.join("hooks")).unwrap().count(), 1, "{script}");
            let (text, worked) =
                folders.run(&profile, namespaces, "echo x > .git/index && cat .git/config");
            assert!(worked, "{text}");
        }
    }
}

#[test]
fn a_command_that_begins_in_a_kept_place_cannot_change_it_either() {
    for namespaces in variants().into_iter().filter(|variant| variant.mounts) {
        let mut folders = TestFolders::new();
        let write = vec![folders.inside.clone()];
        folders.inside = folders.inside.join(".git/hooks");
        let profile = SandboxProfile {
            writable: write,
            read_only: vec![folders.inside.clone()],
            ..SandboxProfile::default()
        };
        let (text, worked) = folders.run(&profile, namespaces, "echo x > new");
        assert!(!worked && !folders.inside.join("new").exists(), "{text}");
    }
}

#[test]
fn shared_memory_is_its_own() {
    for namespaces in variants().into_iter().filter(|variant| variant.mounts) {
        let folders = TestFolders::new();
        let name = format!("/dev/shm/turnwright-test-{}", std::process::id());
        let script = format!("ls -A /dev/shm; echo x > {name} && cat {name}");
        assert_eq!(folders.run(&folders.profile(), namespaces, &script), ("x\n".to_owned(), true));
        assert!(!Path::new(&name).exists());
        let script = "df -Pk /dev/shm | awk 'NR == 2 { print $2 }'; \
                      awk '/^MemTotal/ { print $2 }' /proc/meminfo";
        let (text, _) = folders.run(&folders.profile(), namespaces, script);
        let sizes: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        assert!(sizes[0] <= sizes[1] / 4 + 4, "{text}");
    }
}

/// The error number of a system call inside, or 0.
fn errno_of(sandbox: LinuxSandbox, call: impl Fn() -> i64 + Send + Sync + 'static) -> i32 {
    const SUCCESS: i32 = libc::ECANCELED;
    let mut command = Command::new("/bin/true");
    let error = confined(&mut command, sandbox, move || {
        let result = if call() < 0 {
            io::Error::last_os_error()
        } else {
            io::Error::from_raw_os_error(SUCCESS)
        };
        Err(result)
    });
    let number = error.spawn().unwrap_err().raw_os_error().unwrap();
    if number == SUCCESS { 0 } else { number }
}

#[expect(unsafe_code, reason = "system calls with numbers and null pointers")]
fn call(number: i64, a: i64, b: i64, c: i64) -> impl Fn() -> i64 + Send + Sync + 'static {
    // SAFETY: those that are allowed do not access memory.
    move || unsafe { libc::syscall(number, a, b, c, 0, 0, 0) }
}

#[test]
fn dangerous_system_calls_are_denied() {
    const CHILD_OF_PARENT: i64 = (libc::CLONE_PARENT | libc::SIGCHLD) as i64;
    let denied = libc::EPERM;
    let none = libc::ENOSYS;
    let parent = i64::from(std::process::id());
    let device = i64::from(libc::S_IFBLK | 0o600);
    let rows: &[(&str, i64, [i64; 3], i32)] = &[
        ("memory that nobody sees", libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 0, 0], denied),
        ("an internet socket", libc::SYS_socket, [libc::AF_INET.into(), 1, 0], denied),
        ("an IPv6 socket", libc::SYS_socket, [libc::AF_INET6.into(), 2, 0], denied),
        ("a netlink socket", libc::SYS_socket, [libc::AF_NETLINK.into(), 3, 0], denied),
        ("a packet socket", libc::SYS_socket, [libc::AF_PACKET.into(), 3, 0], denied),
        ("a socket to the host", libc::SYS_socket, [libc::AF_VSOCK.into(), 1, 0], denied),
        ("crypto by socket", libc::SYS_socket, [libc::AF_ALG.into(), 5, 0], denied),
        ("upper bits that nobody reads", libc::SYS_socket, [(1 << 32) | 2, 1, 0], denied),
        ("a Unix socket", libc::SYS_socket, [libc::AF_UNIX.into(), 1, 0], 0),
        ("tracing", libc::SYS_ptrace, [16, parent, 0], denied),
        ("being traced", libc::SYS_ptrace, [0, 0, 0], denied),
        ("another's memory", libc::SYS_process_vm_readv, [parent, 0, 0], denied),
        ("io_uring", libc::SYS_io_uring_setup, [1, 0, 0], denied),
        ("keys", libc::SYS_keyctl, [0, -3, 0], denied),
        ("bpf", libc::SYS_bpf, [0, 0, 0], denied),
        ("perf", libc::SYS_perf_event_open, [0, 0, 0], denied),
        ("page faults", libc::SYS_userfaultfd, [1, 0, 0], denied),
        ("mount", libc::SYS_mount, [0, 0, 0], denied),
        ("unmount", libc::SYS_umount2, [0, 0, 0], denied),
        ("another root", libc::SYS_chroot, [0, 0, 0], denied),
        ("files by number", libc::SYS_open_by_handle_at, [0, 0, 0], denied),
        ("a namespace of users", libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0], denied),
        ("a namespace of time", libc::SYS_unshare, [0x80, 0, 0], denied),
        ("its own files", libc::SYS_unshare, [libc::CLONE_FS.into(), 0, 0], 0),
        ("a child elsewhere", libc::SYS_clone, [libc::CLONE_NEWPID.into(), 0, 0], denied),
        ("a child of the parent", libc::SYS_clone, [CHILD_OF_PARENT, 0, 0], denied),
        ("the new clone", libc::SYS_clone3, [0, 0, 0], none),
        ("modules", libc::SYS_finit_module, [0, 0, 0], denied),
        ("a device", libc::SYS_mknodat, [libc::AT_FDCWD.into(), 0, device], denied),
        ("a set-id bit", libc::SYS_fchmod, [9999, 0o4755, 0], denied),
        ("a set-id bit by name", libc::SYS_fchmodat, [libc::AT_FDCWD.into(), 0, 0o2755], denied),
        ("another mode", libc::SYS_fchmod, [9999, 0o1755, 0], libc::EBADF),
        ("opening without rules", libc::SYS_openat2, [0, 0, 0], none),
        ("typing for somebody", libc::SYS_ioctl, [0, 0x5412, 0], denied),
        ("limits of others", libc::SYS_prlimit64, [parent, 0, 0], denied),
        ("its own limits", libc::SYS_prlimit64, [0, 0, 0], 0),
        ("executable data", libc::SYS_personality, [0x0040_0000, 0, 0], denied),
        ("who am I", libc::SYS_personality, [0xffff_ffff, 0, 0], 0),
        ("a signal to the parent", libc::SYS_kill, [parent, 0, 0], denied),
        #[cfg(target_arch = "x86_64")]
        ("x32", 0x4000_0000 | libc::SYS_getpid, [0, 0, 0], denied),
        #[cfg(target_arch = "x86_64")]
        ("a socket by x32", 0x4000_0000 | libc::SYS_socket, [2, 1, 0], denied),
    ];
    let can_scope = sandbox_support().landlock_abi.is_some_and(|abi| abi >= 6);
    for namespaces in variants() {
        for (name, number, [a, b, c], expected) in rows {
            if *number == libc::SYS_kill && !can_scope {
                eprintln!("NOT TESTED: {name}: Landlock is too old to deny it");
                continue;
            }
            let folders = TestFolders::new();
            let sandbox =
                LinuxSandbox::with_namespaces(&folders.profile(), None, namespaces).unwrap();
            assert_eq!(
                errno_of(sandbox, call(*number, *a, *b, *c)),
                *expected,
                "{name}, {namespaces:?}"
            );
        }
    }
}

#[test]
fn listeners_outside_are_not_reached_and_those_inside_are() {
    if !has("python3") || !namespace_support().mounts {
        return eprintln!("NOT TESTED: there are no mount namespaces here");
    }
    let folders = TestFolders::new();
    let places = [folders.inside.join("line"), folders.outside.join("line")];
    let _listeners =
        places.each_ref().map(|path| std::os::unix::net::UnixListener::bind(path).unwrap());
    let script = |path: &Path| {
        let path = path.display();
        format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{path}\")'")
    };
    for network in [Network::Off, Network::On] {
        let profile = SandboxProfile { network, ..folders.profile() };
        let (said, ok) = folders.run(&profile, namespace_support(), &script(&places[0]));
        assert!(ok, "{said}");
        let (said, ok) = folders.run(&profile, namespace_support(), &script(&places[1]));
        assert!(!ok && said.contains("Error"), "{network:?}: {said}");
        let named = SandboxProfile { sockets: vec![places[1].clone()], ..profile };
        let (said, ok) = folders.run(&named, namespace_support(), &script(&places[1]));
        assert!(ok, "{network:?}: {said}");
    }
}

#[test]
fn listeners_that_were_renamed_or_named_by_a_relative_path_are_not_reached() {
    if !has("python3") || !namespace_support().mounts {
        return eprintln!("NOT TESTED: there are no mount namespaces here");
    }
    let folders = TestFolders::new();
    let listen = "import os, socket, sys\nall = []\nfor name in ['relative', 'first']:\n \
                  it = socket.socket(socket.AF_UNIX); it.bind(name); it.listen(); all.append(it)\n\
                  os.rename('first', 'renamed')\n\
                  it = socket.socket(socket.AF_UNIX); it.bind(os.getcwd() + '/absolute'); it.listen()\n\
                  os.rename('absolute', 'moved')\nprint('ready', flush=True)\nsys.stdin.read()";
    let mut server = Command::new("python3");
    server.args(["-c", listen]).current_dir(&folders.outside);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    server.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    for name in ["relative", "renamed", "moved"] {
        let path = folders.outside.join(name);
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok(), "{name}");
        let script = format!(
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
            path.display()
        );
        let (said, ok) = folders.run(&folders.profile(), namespace_support(), &script);
        assert!(!ok && said.contains("Error"), "{name}: {said}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_listener_of_a_daemon_that_starts_meanwhile_is_not_reached() {
    let socket = PathBuf::from(format!("/run/turnwright-test-{}", std::process::id()));
    let can_listen = std::os::unix::net::UnixListener::bind(&socket).is_ok();
    fs::remove_file(&socket).ok();
    if !can_listen || !has("python3") || !namespace_support().mounts {
        eprintln!(
            "NOT TESTED: there are no mount namespaces here, or this user may not write to /run"
        );
        return;
    }
    let folders = TestFolders::new();
    let started = folders.inside.join("started");
    let listening = folders.outside.join("listening");
    let script = format!(
        "touch started; until [ -e $OUT/listening ]; do sleep 0.01; done; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{}\")'",
        socket.display()
    );
    let said = std::thread::scope(|scope| {
        let command = scope.spawn(|| folders.run(&folders.profile(), namespace_support(), &script));
        while !started.exists() && !command.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        fs::write(&listening, "").unwrap();
        command.join().unwrap()
    });
    fs::remove_file(&socket).unwrap();
    assert!(!said.1 && said.0.contains("Error"), "{}", said.0);
}

#[test]
fn what_programs_share_by_number_is_its_own() {
    if !namespace_support().mounts {
        return eprintln!("NOT TESTED: there are no mount namespaces here");
    }
    let sandbox =
        LinuxSandbox::with_namespaces(&TestFolders::new().profile(), None, namespace_support())
            .unwrap();
    let outside = fs::metadata("/proc/self/ns/ipc")
        .map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata));
    let mut command = Command::new("stat");
    command.args(["-Lc", "%i", "/proc/self/ns/ipc"]);
    let output = confined(&mut command, sandbox, || Ok(())).output().unwrap();
    let inside = String::from_utf8(output.stdout).unwrap();
    assert_ne!(inside.trim(), outside.unwrap().to_string());
    assert!(output.status.success());
}

#[test]
fn a_pair_of_unix_sockets_talks() {
    for namespaces in variants() {
        let sandbox =
            LinuxSandbox::with_namespaces(&SandboxProfile::default(), None, namespaces).unwrap();
        let pair = || {
            let mut ends = [0; 2];
            #[expect(unsafe_code, reason = "one system call")]
            // SAFETY: writes two numbers.
            let made =
                unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
            made.into()
        };
        assert_eq!(errno_of(sandbox, pair), 0);
    }
}

#[test]
fn the_network_is_there_if_it_is_to_be() {
    let socket =
        |domain: i32, kind, protocol| call(libc::SYS_socket, domain.into(), kind, protocol);
    for namespaces in variants() {
        let sandbox = || {
            let profile = SandboxProfile { network: Network::On, ..SandboxProfile::default() };
            LinuxSandbox::with_namespaces(&profile, None, namespaces).unwrap()
        };
        assert_eq!(errno_of(sandbox(), socket(libc::AF_INET, 1, 0)), 0);
        assert_eq!(
            errno_of(sandbox(), socket(libc::AF_NETLINK, 3, 0)),
            0,
            "which interfaces there are"
        );
        assert_eq!(
            errno_of(sandbox(), socket(libc::AF_NETLINK, 3, 9)),
            libc::EPERM,
            "the audit log"
        );
        assert_eq!(errno_of(sandbox(), socket(libc::AF_PACKET, 3, 0)), libc::EPERM);
    }
}

#[test]
fn loopback_is_a_network_of_its_own() {
    for namespaces in variants() {
        let profile = SandboxProfile { network: Network::Loopback, ..SandboxProfile::default() };
        let sandbox = LinuxSandbox::with_namespaces(&profile, None, namespaces).unwrap();
        if !namespaces.network {
            assert_eq!(errno_of(sandbox, call(libc::SYS_socket, 2, 1, 0)), libc::EPERM);
            eprintln!("NOT TESTED: loopback: no network of its own here");
            continue;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connect = move || i64::from(connect(port));
        assert_eq!(
            errno_of(sandbox, connect),
            libc::ECONNREFUSED,
            "not the one outside, and `lo` is up"
        );
    }
}

#[expect(unsafe_code, reason = "two system calls")]
fn connect(port: u16) -> i32 {
    let address = libc::sockaddr_in {
        sin_family: 2,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: reads `address`, which is of that size.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        libc::connect(socket, (&raw const address).cast(), 16)
    }
}

#[test]
fn the_priority_of_other_programs_cannot_be_changed() {
    if !has("python3") {
        return;
    }
    for namespaces in variants() {
        // The priority that it has anyway.
        let script = "python3 -c 'import os; own = os.getpriority(os.PRIO_PROCESS, 0); \
                      os.setpriority(os.PRIO_PROCESS, 0, own); print(\"own\"); \
                      os.setpriority(os.PRIO_USER, 0, own); print(\"of the user\")'";
        let folders = TestFolders::new();
        let (text, _) = folders.run(&folders.profile(), namespaces, script);
        assert!(text.contains("own") && !text.contains("of the user"), "{text}");
    }
}

#[test]
fn root_inside_is_not_root() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let (text, _) =
            folders.run(&folders.profile(), namespaces, "cat /proc/self/status; ulimit -c");
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().next_back().unwrap(), 16).unwrap()
        };
        let dangerous = !0b100_1111_1011_u64;
        for set in ["CapPrm", "CapEff", "CapInh", "CapAmb"] {
            assert_eq!(value(set) & dangerous, 0, "{set}");
        }
        assert_eq!(value("NoNewPrivs"), 1);
        assert!(text.ends_with("\n0\n"), "core dumps");
    }
}

#[test]
fn the_parent_is_out_of_reach() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let script = "for it in environ mem maps stack fd/0 cwd/. root/.; do \
                      head -c 1 /proc/$PPID/$it >/dev/null 2>&1 && echo read: $it; \
                      readlink /proc/$PPID/$it; ls /proc/$PPID/$it/ 2>/dev/null; done; \
                      echo x 2>/dev/null > /proc/$PPID/root$PWD/new && echo wrote";
        let (text, _) = folders.run(&folders.profile(), namespaces, script);
        assert_eq!(text, "", "{namespaces:?}");
    }
}

#[test]
fn a_writable_place_that_has_become_a_symlink_is_an_error() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let place = folders.inside.join("place");
        std::os::unix::fs::symlink(&folders.outside, &place).unwrap();
        for write in [place.clone(), place.join("file")] {
            let profile = SandboxProfile { writable: vec![write], ..SandboxProfile::default() };
            let error =
                LinuxSandbox::with_namespaces(&profile, None, namespaces).unwrap_err().to_string();
            assert!(error.contains("place"), "{error}");
        }
    }
}

#[test]
fn a_single_file_can_be_given() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let write = vec![folders.outside.join("file"), folders.outside.join("not-there")];
        let profile = SandboxProfile { writable: write, ..SandboxProfile::default() };
        let (text, worked) = folders.run(&profile, namespaces, "echo x > $OUT/file");
        assert!(worked, "{text}");
        for script in ["echo x > $OUT/not-there", "rm $OUT/file", "echo x > neighbour"] {
            assert!(!folders.run(&profile, namespaces, script).1, "{script}");
        }
    }
}

/// 10 000 writes into a folder that a process outside keeps swapping for a symlink.
#[test]
fn no_write_follows_a_folder_that_becomes_a_symlink() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    for namespaces in variants() {
        let folders = TestFolders::new();
        let folder = folders.inside.join("folder");
        let link = folders.inside.join("link");
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&folders.outside, &link).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let swapping = std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                let mut swaps = 0;
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                    swaps += 1;
                }
                swaps
            }
        });
        let script = "i=0; while [ $i -lt 10000 ]; do \
                      { echo x > folder/$i; } 2>/dev/null; i=$((i + 1)); done";
        folders.run(&folders.profile(), namespaces, script);
        over.store(true, Ordering::Relaxed);
        assert!(swapping.join().unwrap() > 100);
        assert_eq!(fs::read_dir(&folders.outside).unwrap().count(), 1);
        let paths = ["folder", "link"].map(|name| folders.inside.join(name));
        let written = paths.into_iter().find(|path| !path.is_symlink()).unwrap();
        assert!(fs::read_dir(written).unwrap().count() > 0, "nothing was tried");
    }
}

#[test]
fn a_sandbox_that_cannot_be_entered_says_so_and_nothing_runs() {
    for namespaces in variants() {
        let folders = TestFolders::new();
        let mut sandbox =
            LinuxSandbox::with_namespaces(&folders.profile(), None, namespaces).unwrap();
        // More than the kernel takes.
        sandbox.filter = Box::leak(Box::new(vec![sandbox.filter[0].clone(); 5000]));
        let sandbox = Arc::new(sandbox);
        let ran: OsString = folders.inside.join("ran").into();
        let mut command = Command::new("touch");
        command.arg(&ran);
        #[expect(unsafe_code, reason = "pre_exec: system calls only")]
        // SAFETY: as above.
        unsafe {
            let sandbox = Arc::clone(&sandbox);
            command.pre_exec(move || sandbox.enter());
        }
        let error = sandbox.explain(command.spawn().unwrap_err());
        assert!(super::super::is_setup_error(&error));
        let text = error.to_string();
        assert!(
            text.starts_with("the sandbox could not be set up: seccomp: Invalid arg"),
            "{text}"
        );
        assert!(!Path::new(&ran).exists());

        let sandbox = LinuxSandbox::with_namespaces(&folders.profile(), None, namespaces).unwrap();
        let error = sandbox.explain(io::ErrorKind::NotFound.into());
        assert!(
            !super::super::is_setup_error(&error),
            "a program that is not there is another thing"
        );
    }
}
