//! `turnwright sandbox -- …` confines a command: which files it can change and read, and whether it can
//! use the network.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use turnwright_testing::process_waits;

use crate::agent::run_mark;

/// A project folder, a folder beside it and a home folder.
struct Ground {
    project: PathBuf,
    beside: PathBuf,
    home: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Ground {
        let folder = turnwright_testing::temporary_folder();
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

    /// The stdout of a script. Its stderr is discarded.
    fn stdout_of(&self, options: &[&str], script: &str) -> String {
        let script = format!("exec 2>/dev/null; {script}");
        String::from_utf8(self.run(options, &script).stdout).unwrap()
    }
}

/// Whether this machine has a sandbox. Prints a note if the test has to skip.
fn can_confine() -> bool {
    let can = turnwright_sandbox::can_confine();
    if !can {
        eprintln!("NOT TESTED: {:?}", turnwright_sandbox::sandbox_support().missing);
    }
    can
}

#[test]
fn a_command_can_write_only_in_its_folder_and_a_temporary_one() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "echo x > here && mkdir a && mv here a/there && echo x > $BESIDE/no; \
                  echo x > $(mktemp) && echo $TMPDIR";
    let temporary = ground.stdout_of(&[], script);
    let temporary = Path::new(temporary.trim());
    assert!(temporary.is_absolute() && !temporary.exists(), "{temporary:?} still exists");
    assert!(ground.project.join("a/there").exists());
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);
}

#[test]
fn options_set_the_writable_folders() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "echo x > here; echo x > $BESIDE/there; echo x > $TMPDIR/x && echo temporary";
    assert_eq!(ground.stdout_of(&["--read-only"], script), "temporary\n");
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
fn secrets_in_the_home_folder_are_hidden() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let script = "cat $HOME/.ssh/id $HOME/.config/turnwright/config.toml $HOME/readme";
    assert_eq!(ground.stdout_of(&[], script), "no-secret");
}

#[test]
fn a_home_of_the_agent_opens_no_secret_and_the_settings_hide_more() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let own = ground.home.join("own");
    let hidden = ground.beside.join("hidden");
    fs::create_dir_all(own.join("config")).unwrap();
    fs::write(&hidden, "hidden").unwrap();
    let settings = format!("[sandbox]\nhide = ['{}']\n", hidden.display());
    fs::write(own.join("config/config.toml"), settings).unwrap();
    let script = "exec 2>/dev/null; cat $HOME/.ssh/id $BESIDE/hidden $HOME/readme";
    let mut command = ground.command(&["--", "sh", "-c", script]);
    let output = process_waits::output(command.env("TURNWRIGHT_HOME", &own)).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "no-secret");
}

/// A sample of each kind of credentials, and of the settings without which everyday tools do not work.
#[test]
fn credentials_of_all_kinds_of_programs_are_hidden_and_settings_that_tools_need_are_not() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let hidden = [
        ".aws/credentials",
        ".env",
        ".bash_history",
        ".claude.json",
        ".config/Code/User/globalStorage/state.vscdb",
        ".config/Slack/Cookies",
        ".config/google-chrome-beta/Default/Login Data",
        ".config/hcloud/cli.toml",
        ".config/openvpn3/profile",
        ".config/rclone/rclone.conf",
        ".config/syncthing/key.pem",
        ".ethereum/keystore/key",
        ".local/share/DBeaverData/credentials-config.json",
        ".local/share/com.vercel.cli/auth.json",
        ".msmtprc",
        ".pg_service.conf",
        ".pulumi/credentials.json",
        ".supabase/access-token",
        ".var/app/org.mozilla.firefox/logins.json",
        "snap/firefox/common/logins.json",
    ];
    let needed = [
        ".gitconfig",
        ".config/git/config",
        ".cargo/config.toml",
        ".npmrc",
        ".config/pip/pip.conf",
        ".rustup/settings.toml",
        ".gradle/gradle.properties",
        ".m2/settings.xml",
        ".config/pypoetry/auth.toml",
        ".bashrc",
    ];
    for name in hidden.iter().chain(&needed) {
        let path = ground.home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "content").unwrap();
    }
    let read = |name: &str| ground.stdout_of(&[], &format!("cat \"$HOME/{name}\""));
    for name in hidden {
        assert_eq!(read(name), "", "{name}");
    }
    for name in needed {
        assert_eq!(read(name), "content", "{name}");
    }
}

#[test]
fn git_hooks_cannot_be_changed() {
    if !can_confine() || !turnwright_sandbox::namespace_support().mounts {
        eprintln!("NOT TESTED: this machine has no mount namespaces");
        return;
    }
    let ground = Ground::new();
    let hooks = ground.project.join(".git/hooks");
    fs::create_dir_all(&hooks).unwrap();
    ground.run(&[], "echo x > .git/hooks/new; mv .git g; echo x > .git/index");
    assert_eq!(fs::read_dir(hooks).unwrap().count(), 0);
    assert!(ground.project.join(".git/index").exists());
}

/// Root runs the test as another user, if it can, since most users have no special rights.
#[test]
fn an_ordinary_user_is_confined_and_cannot_inspect_the_parent_process() {
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let top = ground.project.parent().unwrap();
    // In a PID namespace the parent has no number, but the first process is a copy of it.
    let script = "p=$PPID; [ $p = 0 ] && p=1; head -c 4000 /proc/$p/environ; cat /proc/$p/mem; \
                  kill -0 $p && echo killed; cat $HOME/.ssh/id; echo x > $BESIDE/no; echo x > here; id -u; cat $HOME/readme";
    let arguments = ["--", "sh", "-c", script];
    let mut command = ground.command(&arguments);
    if rustix::process::geteuid().is_root() {
        let user = "12345";
        for place in [top, &ground.project, &ground.beside, &ground.home, &ground.home.join(".ssh")]
        {
            fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
            if let Err(error) = std::os::unix::fs::chown(place, Some(12345), Some(12345)) {
                eprintln!("NOT TESTED: root cannot change the owner of files here: {error}");
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
            eprintln!("NOT TESTED: another user cannot start the program here");
            return;
        }
        command = become_user();
        command.args(inner.get_args()).current_dir(&ground.project);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    }
    let output = process_waits::output(&mut command).unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.ends_with("no-secret"), "{output:?}");
    for bad in ["canary", "killed", "secret-key", "BESIDE"] {
        assert!(!stdout.contains(bad), "{bad}: {stdout}");
    }
    assert!(ground.project.join("here").exists());
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);
}

#[test]
fn servers_of_the_machine_are_not_reached_with_and_without_the_network() {
    if !can_confine() {
        return;
    }
    if !Path::new("/bin/bash").exists() {
        eprintln!("NOT TESTED: the network, since bash is not installed");
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
    if turnwright_sandbox::namespace_support().supervision {
        assert_eq!(run(&["--network"]), "");
    }
}

#[test]
fn the_launcher_applies_the_profile_that_the_agent_sends() {
    use std::io::Write;
    if !can_confine() {
        return;
    }
    let ground = Ground::new();
    let socket = ground.home.join("line");
    let listener = UnixListener::bind(&socket).unwrap();
    let run = |profile: &str| {
        let script = "echo x > ../beside/no; echo x > here && echo wrote";
        let profile = format!(
            "{{ \"Run\": {{ \"program\": {}, \"workdir\": {}, \"accepts_input\": false, \"sandbox\": {profile} }} }}",
            serde_json::json!(["sh", "-c", script]),
            serde_json::json!(ground.project),
        );
        let mut command = ground.command(&["true"]);
        command.env("TURNWRIGHT_LAUNCHER_SOCKET", &socket);
        command.env("TURNWRIGHT_LAUNCHER_NONCE", "0123456789abcdef0123456789abcdef");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut agent = process_waits::accept(&listener, &child);
        // There is no network that it shares with other commands, and what it is to run.
        agent.write_all(b"\0m").unwrap();
        agent.write_all(&u32::try_from(profile.len()).unwrap().to_le_bytes()).unwrap();
        agent.write_all(profile.as_bytes()).unwrap();
        let report = process_waits::all_of(agent, &child);
        let output = process_waits::wait_with_output(child);
        (String::from_utf8_lossy(&report).into_owned(), output)
    };
    let profile = serde_json::json!({
        "write": [ground.project], "keep": [], "hide": [], "read": null, "network": "off",
    });
    let (report, output) = run(&profile.to_string());
    assert!(report.contains("wrote") && output.status.success(), "{report} {output:?}");
    assert_eq!(fs::read_dir(&ground.beside).unwrap().count(), 0);

    // The command does not run if the profile is invalid or cannot be applied.
    fs::remove_file(ground.project.join("here")).unwrap();
    let link = serde_json::json!({
        "write": ["/proc/self"], "keep": [], "hide": [], "read": null, "network": "off",
    });
    for (profile, code) in [("{}", 125), ("?", 125), (&link.to_string(), 125)] {
        let (report, output) = run(profile);
        assert_eq!(output.status.code(), Some(code), "{profile}: {report} {output:?}");
        assert!(!ground.project.join("here").exists(), "{profile}");
    }
}
