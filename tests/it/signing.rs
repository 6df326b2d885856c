//! Signed commits: git in the sandbox reaches no key, and the agent signs once the user has allowed it. The test prints a
//! note and passes where there is no git or ssh-keygen, or no sandbox.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use turnwright_testing::cards;

use crate::agent::{TestAgent, calls, says};

/// Runs a command outside of the sandbox. Returns true if it has worked.
fn run(line: &str, folder: &Path, home: &Path) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).env("HOME", home);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_user_s_program_signs_for_git_and_its_key_stays_out_of_reach() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let key = home.path().join(".ssh/id_ed25519");
    std::fs::create_dir(home.path().join(".ssh")).unwrap();
    let settings = format!(
        "[user]\nname = Jane\nemail = jane@example.org\nsigningKey = {}.pub\n[commit]\ngpgSign = true\n[gpg]\nformat = ssh\n",
        key.display()
    );
    std::fs::write(home.path().join(".gitconfig"), settings).unwrap();
    let make_key = "ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519 && git --version";
    if !turnwright_sandbox::can_confine() || !run(make_key, home.path(), home.path()) {
        eprintln!("SKIPPED: there is no sandbox here, or no git or ssh-keygen");
        return;
    }
    let commit = "git commit -q --allow-empty -m x";
    let shown = "git cat-file -p HEAD";
    let steal = format!("cat {}", key.display());
    let forge = format!(
        "echo text > f; $(git config gpg.ssh.program) -Y sign -n git -f {}.pub f",
        key.display()
    );
    let exec = |line: &str, escalate: Option<&str>| {
        calls("exec", &json!({ "command": line, "escalate": escalate }))
    };
    let script = json!([
        exec(commit, None),
        exec(commit, Some("sign")),
        exec(shown, None),
        exec(&format!("{commit} && {shown}"), None),
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
    let results: Vec<String> = agent.model_request(6)["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            message["content"].as_str().map_or_else(|| message.to_string(), str::to_owned)
        })
        .collect();
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
