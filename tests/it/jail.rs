//! `turnwright sandbox -- …` as a wall around a command: what it may change, read and reach.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use turnwright_testing::process_waits;

use crate::agent::run_mark;

/// A project, a folder beside it and a home.
struct Ground {
    project: PathBuf,
    beside: PathBuf,
    home: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let [project, beside, home] = ["project", "beside", "home"].map(|it| top.join(it));
        for place in [&project, &beside, &home.join(".ssh"), &home.join(".config/turnwright")] {
            fs::create_dir_all(place).unwrap();
        }
        fs::write(home.join(".ssh/id"), "secret-key").unwrap();
        fs::write(home.join(".config/turnwright/config.toml"), "# secret-config").unwrap();
        fs::write(home.join("readme"), "no-secret").unwrap();
        Ground { project, beside, home, _folder: folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwright"));
        command.arg("sandbox").args(arguments).current_dir(&self.project);
        command.env("HOME", &self.home).env("XDG_CONFIG_HOME", self.home.join(".config"));
        command.env("BESIDE", &self.beside).env("CANARY_KEY", "canary").envs([run_mark()]);
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let arguments = [options, &["--", "sh", "-c", script]].concat();
        process_waits::output(&mut self.command(&arguments)).unwrap()
    }

    /// What it prints, without its errors.
    fn says(&self, options: &[&str], script: &str) -> String {
        let script = format!("exec 2>/dev/null; {script}");
        String::from_utf8(self.run(options, &script).stdout).unwrap()
    }
}

/// Whether there are walls here.
fn can_confine() -> bool {
    let can = turnwright_sandbox::can_confine();
    if !can {
        eprintln!("NOT TESTED: {:?}", turnwright_sandbox::sandbox_support().missing);
    }
    can
}

#[test]
fn a_command_of_people_is_kept_to_its_folder_and_a_temporary_one() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "echo x > here && mkdir a && mv here a/there && echo x > $BESIDE/no; \
                  echo x > $(mktemp) && echo $TMPDIR";
    let temporary = ground.says(&[], script);
    let temporary = Path::new(temporary.trim());
    assert!(temporary.is_absolute() && !temporary.exists(), "{temporary:?} is gone afterwards");
    assert!(ground.project.join("a/there").exists());
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);
}

#[test]
fn what_it_may_change_is_said_by_options() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "echo x > here; echo x > $BESIDE/there; echo x > $TMPDIR/x && echo temporary";
    assert_eq!(ground.says(&["--read-only"], script), "temporary\n");
    assert!(!ground.project.join("here").exists());
    let beside = ground.beside.to_str().unwrap();
    ground.run(&["--write", beside], script);
    assert!(ground.project.join("here").exists() && ground.beside.join("there").exists());

    let output = ground.run(&["--write", "/no/such/place"], "touch ran");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/place"));
    assert!(!ground.project.join("ran").exists());
}

#[test]
fn secrets_of_the_home_are_hidden_and_ours_too() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "cat $HOME/.ssh/id $HOME/.config/turnwright/config.toml $HOME/readme";
    assert_eq!(ground.says(&[], script), "no-secret");
}

#[test]
fn hooks_of_git_are_kept() {
    if !can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("NOT TESTED: there is no view of the files of its own here");
        return;
    }
    let ground = Ground::new();
    let hooks = ground.project.join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    ground.run(&[], "echo x > .git/hooks/new; mv .git g; echo x > .git/index");
    assert_eq!(fs::read_dir(hooks).unwrap().count(), 0);
    assert!(ground.project.join(".git/index").exists());
}

/// In a process without special rights, as most are. Root can become one.
#[test]
fn an_ordinary_user_is_confined_as_well_and_cannot_look_at_who_has_started_it() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let top = ground.project.parent().unwrap();
    let script = "head -c 4000 /proc/$PPID/environ; cat /proc/$PPID/mem; kill -0 $PPID && echo killed; \
                  cat $HOME/.ssh/id; echo x > $BESIDE/no; echo x > here; id -u; cat $HOME/readme";
    let arguments = ["--", "sh", "-c", script];
    let mut command = ground.command(&arguments);
    if rustix::process::geteuid().is_root() {
        let user = "12345";
        for place in [top, &ground.project, &ground.beside, &ground.home, &ground.home.join(".ssh")]
        {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
            if let Err(error) = std::os::unix::fs::chown(place, Some(12345), Some(12345)) {
                eprintln!("NOT TESTED: root cannot give files to somebody else here: {error}");
                return;
            }
        }
        let inner = command;
        let become_user = || {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
            command.arg(inner.get_program());
            command
        };
        let can_start = process_waits::output(become_user().arg("--version"));
        if !can_start.is_ok_and(|it| it.status.success()) {
            eprintln!("NOT TESTED: root cannot become somebody here who may start the program");
            return;
        }
        command = become_user();
        command.args(inner.get_args()).current_dir(&ground.project);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    }
    let output = process_waits::output(&mut command).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.ends_with("no-secret"), "{output:?}");
    for bad in ["canary", "killed", "secret-key", "BESIDE"] {
        assert!(!said.contains(bad), "{bad}: {said}");
    }
    assert!(ground.project.join("here").exists());
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);
}

#[test]
fn no_network_unless_it_is_asked_for() {
    if !can_confine() {
        return;
    }
    if !Path::new("/bin/bash").exists() {
        eprintln!("NOT TESTED: the network, without bash");
        return;
    }
    let ground = Ground::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = format!(
        "exec 2>/dev/null; exec 3<>/dev/tcp/127.0.0.1/{} && echo connected",
        listener.local_addr().unwrap().port()
    );
    let run = |options: &[&str]| {
        let arguments = [options, &["--", "/bin/bash", "-c", &connect]].concat();
        let output = process_waits::output(&mut ground.command(&arguments)).unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(&[]), "");
    assert_eq!(run(&["--network"]), "connected\n");
}

#[test]
fn what_an_agent_says_counts_in_its_terminals() {
    use std::io::Write;
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let socket = ground.home.join("line");
    let listener = UnixListener::bind(&socket).unwrap();
    let run = |profile: &str| {
        let script = "echo x > ../beside/no; echo x > here && echo wrote";
        let arguments = ["--report", socket.to_str().unwrap(), "--", "sh", "-c", script];
        let mut command = ground.command(&arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut agent = process_waits::accept(&listener, &child);
        agent.write_all(b"r").unwrap();
        agent.write_all(&u32::try_from(profile.len()).unwrap().to_le_bytes()).unwrap();
        agent.write_all(profile.as_bytes()).unwrap();
        let said = process_waits::all_of(agent, &child);
        let output = process_waits::wait_with_output(child);
        (String::from_utf8_lossy(&said).into_owned(), output)
    };
    let profile = serde_json::json!({
        "write": [ground.project], "keep": [], "hide": [], "read": null, "network": "off",
    });
    let (said, output) = run(&profile.to_string());
    assert!(said.contains("wrote") && output.status.success(), "{said} {output:?}");
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);

    // Nothing runs that was to be confined and cannot be.
    fs::remove_file(ground.project.join("here")).unwrap();
    let link = serde_json::json!({
        "write": ["/proc/self"], "keep": [], "hide": [], "read": null, "network": "off",
    });
    for (profile, code) in [("{}", 125), ("?", 125), (&link.to_string(), 125)] {
        let (said, output) = run(profile);
        assert_eq!(output.status.code(), Some(code), "{profile}: {said} {output:?}");
        assert!(!ground.project.join("here").exists(), "{profile}");
    }
}
