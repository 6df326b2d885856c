//! Signed commits: git in the sandbox reaches no key, and the agent signs once the user has allowed it. The tests print
//! a note and pass where there is no git or ssh-keygen, or no sandbox.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Runs a command outside of the sandbox. Returns true if it has worked.
fn run(line: &str, folder: &Path, home: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).env("HOME", home);
    command.output().is_ok_and(|output| output.status.success())
}

/// A home folder with a key named `id_ed25519` and settings that sign with it; `None` if this machine cannot sign in the
/// sandbox.
fn signing_home() -> Option<TempDir> {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    let settings = format!(
        "[user]\nname = Jane\nemail = jane@example.org\nsigningKey = {}.pub\n[commit]\ngpgSign = true\n[gpg]\nformat = ssh\n",
        home.path().join(".ssh/id_ed25519").display()
    );
    std::fs::write(home.path().join(".gitconfig"), settings).unwrap();
    let make_key = "ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519 && git --version";
    if !turnwright_sandbox::can_confine() || !run(make_key, home.path(), home.path()) {
        eprintln!("SKIPPED: there is no sandbox here, or no git or ssh-keygen");
        return None;
    }
    Some(home)
}

fn exec(line: &str, escalate: Option<&str>) -> Value {
    calls("exec", &json!({ "command": line, "escalate": escalate }))
}

const COMMIT: &str = "git commit -q --allow-empty -m x";
const SHOWN: &str = "git cat-file -p HEAD";

#[test]
fn the_user_s_program_signs_for_git_and_its_key_stays_out_of_reach() {
    if !turnwright_sandbox::namespace_support().mounts {
        return eprintln!(
            "SKIPPED: without mount namespaces no answer covers all of these commands"
        );
    }
    let Some(home) = signing_home() else { return };
    let key = home.path().join(".ssh/id_ed25519");
    let steal = format!("cat {}", key.display());
    let forge = format!(
        "echo text > f; $(git config gpg.ssh.program) -Y sign -n git -f {}.pub f",
        key.display()
    );
    let script = json!([
        exec(COMMIT, None),
        exec(COMMIT, Some("sign")),
        exec(SHOWN, None),
        exec(&format!("{COMMIT} && {SHOWN}"), None),
        exec(&steal, Some("sign")),
        exec(&forge, Some("sign")),
        says("done"),
    ]);
    let mut agent = TestAgent::builder()
        .variable("HOME", home.path().to_str().unwrap())
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("allow_always")
        .model(script)
        .start();
    assert!(run("git init -q", agent.workspace(), home.path()));
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 6);
    let [refused, signed, first, second, stolen, forged] = results.as_slice() else {
        panic!("{results:?}");
    };
    assert!(refused.contains(r#""escalate": "sign""#), "{refused}");
    assert!(signed.contains("exit 0"), "{signed}");
    for commit in [first, second] {
        assert!(commit.contains("BEGIN SSH SIGNATURE"), "{commit}");
    }
    assert!(!stolen.contains("PRIVATE KEY"), "{stolen}");
    assert!(forged.contains("only commits, tags and pushes"), "{forged}");
    // The answer is about `git commit`, and not about other commands that ask to sign.
    assert_eq!(cards::questions(&agent), 3);
}

/// The agent's own folder may lie in `/tmp`, where another place must be found, or in the home folder, where it is hidden.
#[test]
fn another_command_cannot_take_the_place_of_the_program_that_signs() {
    let Some(home) = signing_home() else { return };
    let own_folder = home.path().join("agent");
    let usurp = "while sleep 0.02; do for folder in /tmp/turnwright-tmp-*; do \
                 mv $folder /tmp/away-$RANDOM && mkdir $folder && \
                 printf '#!/bin/sh\\ntouch forged\\n' > $folder/sign-ssh && chmod +x $folder/sign-ssh; \
                 done; done > /dev/null 2>&1";
    let sign = format!("sleep 1; {COMMIT}; {SHOWN}; git config gpg.ssh.program; ls");
    for is_in_home in [false, true] {
        let script = json!([
            calls("exec", &json!({ "command": usurp, "background": true })),
            exec(&sign, Some("sign")),
            says("done"),
        ]);
        let mut builder = TestAgent::builder()
            .variable("HOME", home.path().to_str().unwrap())
            .variable("TURNWRIGHT_MODE", "auto")
            .permission("allow_once")
            .model(script);
        if is_in_home {
            builder = builder.variable("TURNWRIGHT_HOME", own_folder.to_str().unwrap());
        }
        let mut agent = builder.start();
        assert!(run("git init -q", agent.workspace(), home.path()));
        assert_eq!(agent.turn("go"), "end_turn");
        let results = cards::results(&agent, 2);
        let signed = &results[1];
        assert!(signed.contains("BEGIN SSH SIGNATURE"), "{results:?}");
        assert!(signed.contains("/sign-ssh") && !signed.contains("\n/tmp/"), "{signed}");
        if is_in_home {
            let place = own_folder.join("state/signing").display().to_string();
            assert!(signed.contains(&place), "{signed}");
        }
        assert!(!agent.workspace().join("forged").exists());
    }
}

#[test]
fn the_key_and_the_program_are_those_of_the_user_s_own_settings() {
    let Some(home) = signing_home() else { return };
    let at_home = |name: &str| home.path().join(name).display().to_string();
    let programs = at_home(".local/bin");
    std::fs::create_dir_all(&programs).unwrap();
    let wrapper = at_home(".local/bin/wrapper");
    let wrapping = "#!/bin/sh\necho wrapped >&2\nexec ssh-keygen \"$@\"\n";
    std::fs::write(&wrapper, wrapping).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let more = "[gpg \"ssh\"]\nprogram = ~/.local/bin/wrapper\n\
                [includeIf \"gitdir:**\"]\npath = ~/work\n";
    let settings = std::fs::read_to_string(at_home(".gitconfig")).unwrap() + more;
    std::fs::write(at_home(".gitconfig"), settings).unwrap();
    let [own, work] = ["id_ed25519", "work"].map(|key| at_home(&format!(".ssh/{key}.pub")));
    std::fs::write(at_home("work"), format!("[user]\nsigningKey = {work}\n")).unwrap();
    let make_key = "ssh-keygen -q -t ed25519 -N '' -f .ssh/work";
    assert!(run(make_key, home.path(), home.path()));
    let with_own = format!("git -c user.signingKey={own} commit -q --allow-empty -m x");
    let script = json!([
        exec(&format!("{COMMIT} && {SHOWN}"), Some("sign")),
        exec(&with_own, Some("sign")),
        exec(&format!("touch {programs}/x"), Some(programs.as_str())),
        exec(COMMIT, Some("sign")),
        says("done"),
    ]);
    let mut agent = TestAgent::builder()
        .variable("HOME", home.path().to_str().unwrap())
        .variable("TURNWRIGHT_MODE", "auto")
        .permission("allow_once")
        .model(script)
        .start();
    assert!(run("git init -q", agent.workspace(), home.path()));
    assert_eq!(agent.turn("go"), "end_turn");
    let results = cards::results(&agent, 4);
    let [signed, other_key, opened, replaceable] = results.as_slice() else {
        panic!("{results:?}");
    };
    assert!(signed.contains("BEGIN SSH SIGNATURE"), "{signed}");
    assert!(other_key.contains("is not the key that the user's own settings"), "{other_key}");
    assert!(other_key.contains(&own), "{other_key}");
    assert!(opened.contains("exit 0"), "{opened}");
    // A command could have written the program in the meantime.
    assert!(replaceable.contains("no `~/.local/bin/wrapper` was found"), "{replaceable}");
}
