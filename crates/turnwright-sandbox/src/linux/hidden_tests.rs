//! Tests of what is hidden from a program, devices among it, with real processes.

use std::fs;
use std::path::Path;

use super::support::run_in_child;
use super::tests::{TestFolders, variants};
use super::*;

/// On some systems `/dev/random` is a link.
#[test]
fn a_device_may_be_a_link_to_another() {
    use std::os::unix::ffi::OsStrExt;
    if !namespace_support().mounts {
        return eprintln!("NOT TESTED: the mount namespace: namespaces are not available here");
    }
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("random");
    std::os::unix::fs::symlink("/dev/urandom", &link).unwrap();
    let link = std::ffi::CString::new(link.as_os_str().as_bytes()).unwrap();
    let profile = SandboxProfile::default();
    let planned = MountNamespace::plan(&profile, &[], None).unwrap();
    let cloned = run_in_child(move || {
        planned.join()?;
        let clone = mounts::clone_target(&link)?;
        clone.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    });
    cloned.unwrap();
}

/// Only root and some groups may open most of them. An empty file may be there in the place of one. A serial
/// line would wait for a carrier.
#[test]
fn devices_cannot_be_opened_but_those_that_hold_nothing() {
    let folders = TestFolders::new();
    let script = "find /dev ! -type d ! -type l 2> /dev/null | while read -r device; do \
                  test ! -f \"$device\" && dd if=\"$device\" iflag=nonblock count=0 2> /dev/null && echo \"$device\"; \
                  done | sort";
    for readable in [None, Some(Vec::new())] {
        let profile = SandboxProfile { readable, ..folders.profile() };
        for namespaces in variants() {
            let (text, _) = folders.run(&profile, namespaces, script);
            let opened: Vec<_> = text.lines().collect();
            let mut harmless =
                vec!["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];
            if namespaces.mounts {
                // It makes terminals of the program's own.
                harmless.insert(2, "/dev/pts/ptmx");
            }
            assert_eq!(opened, harmless, "{namespaces:?}");
        }
    }
}

/// Users link a history to it, or set `KUBECONFIG` to it, to switch something off.
#[test]
fn nothing_that_leads_to_the_null_device_hides_it() {
    let folders = TestFolders::new();
    let link = folders.home.join("history");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    let hidden = vec![link, "/dev/null".into()];
    let profile = SandboxProfile { hidden, ..folders.profile() };
    for namespaces in variants() {
        let (text, _) = folders.run(&profile, namespaces, "echo x > /dev/null && echo written");
        assert_eq!(text.trim(), "written", "{namespaces:?}");
    }
}

/// As `/run/current-system`, where `PATH` leads on NixOS.
#[test]
fn an_open_link_below_a_hidden_folder_stays_a_link() {
    if !namespace_support().mounts {
        return eprintln!("NOT TESTED: the mount namespace: namespaces are not available here");
    }
    let folders = TestFolders::new();
    let link = folders.home.join("system");
    std::os::unix::fs::symlink(&folders.outside, &link).unwrap();
    let mut profile = folders.profile();
    profile.hidden = vec![folders.home.clone()];
    profile.unhidden = vec![link];
    let script = "cat $HOME/system/file; ls $HOME; readlink $HOME/system; rm $HOME/system";
    let (text, _) = folders.run(&profile, namespace_support(), script);
    let expected = format!("untouchedsystem\n{}\n", folders.outside.display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(folders.home.join("system").is_symlink());
}

/// It is a link into `/run` where a service keeps the list.
#[test]
fn the_list_of_nameservers_is_found_where_its_link_leads() {
    if !Path::new("/etc/resolv.conf").exists() {
        return eprintln!("NOT TESTED: there is no list of nameservers here");
    }
    let folders = TestFolders::new();
    for namespaces in variants() {
        let (text, is_read) = folders.run(&folders.profile(), namespaces, "cat /etc/resolv.conf");
        assert!(is_read, "{namespaces:?}: {text}");
    }
}

/// Many systems come with such a file of root, whom the user namespace does not map.
#[test]
fn ssh_meets_no_settings_whose_owner_is_unknown() {
    if !Path::new("/etc/ssh/ssh_config.d").is_dir() {
        return eprintln!("NOT TESTED: there are no settings of ssh here");
    }
    let folders = TestFolders::new();
    for namespaces in variants() {
        let (text, is_read) =
            folders.run(&folders.profile(), namespaces, "ls /etc/ssh/ssh_config.d");
        let is_owner_known = !namespaces.mounts || mount_namespace::is_root();
        assert_eq!(is_read, is_owner_known, "{namespaces:?}: {text}");
    }
}

/// A GPU or `/dev/kvm` does nothing without `ioctl`.
#[test]
fn a_device_that_the_profile_names_can_be_controlled() {
    let folders = TestFolders::new();
    let mut profile = folders.profile();
    profile.writable.push("/dev/full".into());
    for namespaces in variants() {
        let (text, _) = folders.run(&profile, namespaces, "LC_ALL=C stty -F /dev/full");
        assert!(!text.to_lowercase().contains("permi"), "{namespaces:?}: {text}");
    }
}

/// The user may type a password there.
#[test]
fn the_terminals_of_other_programs_cannot_be_read() {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let controller = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    let mut number = 0_i32;
    let unlocked = 0_i32;
    #[expect(unsafe_code, reason = "system calls")]
    // SAFETY: reads and writes one number each.
    let results = unsafe {
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&controller);
        [
            libc::ioctl(descriptor, libc::TIOCSPTLCK, &raw const unlocked),
            libc::ioctl(descriptor, libc::TIOCGPTN, &raw mut number),
        ]
    };
    assert_eq!(results, [0, 0]);
    let terminal = format!("/dev/pts/{number}");
    let mut options = fs::OpenOptions::new();
    let _terminal = options.read(true).custom_flags(libc::O_NOCTTY).open(&terminal).unwrap();
    let folders = TestFolders::new();
    for namespaces in variants() {
        (&controller).write_all(b"password\n").unwrap();
        let script = format!("head -n 1 {terminal}; echo x > {terminal}; ls /dev/pts");
        let (text, _) = folders.run(&folders.profile(), namespaces, &script);
        assert!(!text.contains("password"), "{namespaces:?}: {text}");
    }
}

#[test]
fn a_device_that_the_profile_names_is_open() {
    let named =
        |path: PathBuf| SandboxProfile { writable: vec![path], ..SandboxProfile::default() };
    for path in raw_devices::find(&SandboxProfile::default()) {
        assert!(!raw_devices::find(&named(path.clone())).contains(&path));
        if path.is_dir() {
            assert!(!raw_devices::find(&named(path.join("device"))).contains(&path));
        }
    }
}

/// Files are hidden by their names: if a folder above one were moved, the next command could read it.
#[test]
fn a_folder_that_leads_to_something_hidden_cannot_be_moved() {
    for namespaces in variants().into_iter().filter(|variant| variant.mounts) {
        let folders = TestFolders::new();
        let mut profile = folders.profile();
        profile.writable.push(folders.home.clone());
        for script in ["mv $HOME/.config $HOME/moved", "cat $HOME/moved/gh/hosts"] {
            let (text, worked) = folders.run(&profile, namespaces, script);
            assert!(!worked && !text.contains("secret-token"), "{script}: {text}");
        }
        let script = "echo x > $HOME/.config/new && mkdir $HOME/a && mv $HOME/a $HOME/b";
        let (text, worked) = folders.run(&profile, namespaces, script);
        assert!(worked, "{text}");
    }
}

/// The content of pipes is counted by nobody, but the kernel gives a user little for all of them: then each new pipe
/// holds two pages, and none can be made larger.
#[test]
fn pipes_hold_little_memory_in_the_sandbox() {
    let limit = fs::read_to_string("/proc/sys/fs/pipe-user-pages-soft").unwrap_or_default();
    let limit: u64 = limit.trim().parse().unwrap_or_default();
    if !Path::new("/usr/bin/python3").exists() || limit == 0 {
        return eprintln!("NOT TESTED: pipes have no limit here, or there is no Python");
    }
    let script = r#"/usr/bin/python3 -c "
import fcntl, os, resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
pages = count = 0
try:
    for count in range(1, 4000):
        end, _ = os.pipe()
        try: fcntl.fcntl(end, 1031, 1 << 20)
        except OSError: pass
        pages += fcntl.fcntl(end, 1032) // os.sysconf('SC_PAGESIZE')
except OSError: pass
print(pages, count)""#;
    for namespaces in variants() {
        let folders = TestFolders::new();
        let (text, _) = folders.run(&folders.profile(), namespaces, script);
        let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert!(numbers[1] > 100, "{text}");
        assert!(numbers[0] <= limit + 256 + 2 * numbers[1], "{text}, {limit}, {namespaces:?}");
    }
}
