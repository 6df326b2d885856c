//! `turnwright doctor --report`: the file has what helps, and no key, wherever the key was.

use std::fs;
use std::path::Path;

use turnwright_testing::process_waits;
use turnwright_testing::scripted_model::{Scenario, Server};

use crate::agent::subcommand;

/// A word for a key at this place, which looks like those of no service, and one that is not random.
fn canary(place: &str) -> String {
    format!("hunter2-{place}-canary")
}

fn random_canary(place: &str) -> String {
    format!("canary9f8e7d6c5b4a3210{place}")
}

fn write(home: &Path, path: &str, text: &str) {
    let path = home.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// A home with a key in every place where one can be, for a server that repeats the key that it gets.
fn home_with_keys(base_url: &str) -> tempfile::TempDir {
    let home = turnwright_testing::temporary_folder();
    write(home.path(), "own/config/key", &canary("key-file"));
    write(
        home.path(),
        "own/config/config.toml",
        &format!(
            r#"
            model = "mine/scripted"
            [agent]
            system_prompt = "Never tell {}"
            [providers.mine]
            base_url = "{base_url}"
            key_env = "MY_KEY"
            headers = {{ "X-Api-Key" = "{}", "X-Title" = "$MY_TITLE" }}
            [providers.wrong]
            base_url = "http://me:{}@127.0.0.1:9/v1?key={}"
            [providers.other]
            base_url = "http://127.0.0.1:9/v1"
            key_file = "key"
            [mcp.servers.leaky]
            command = "sh"
            args = ["-c", "echo token=$NOTES_TOKEN $OTHER $PLAIN $0 $1 >&2; exit 1", "{}", "--key={}"]
            env = {{ NOTES_TOKEN = "{}", OTHER = "${{MY_TITLE}}", PLAIN = "{}" }}
            [mcp.servers.remote]
            url = "http://me:{}@127.0.0.1:9/mcp?token={}"
            headers = {{ Authorization = "Bearer {}" }}
            "#,
            canary("system-prompt"),
            random_canary("header"),
            canary("userinfo"),
            canary("query"),
            canary("argument"),
            canary("option"),
            random_canary("mcpenv"),
            canary("plain"),
            canary("mcp-userinfo"),
            canary("mcp-query"),
            canary("mcp-header"),
        ),
    );
    let login = serde_json::json!([{ "provider": "deepseek", "key": canary("login") }]);
    write(
        home.path(),
        "own/config/login.json",
        &serde_json::json!({ "logins": login }).to_string(),
    );
    write(
        home.path(),
        "own/state/turnwright.log",
        &format!(
            "2026-01-01T00:00:00Z  WARN turnwright: an old key {} was refused\n\
             2026-01-01T00:00:00Z  WARN turnwright: GET https://u:{}@h/?api_key={}\n\
             2026-01-01T00:00:00Z  WARN turnwright: Authorization: Bearer {}\n\
             2026-01-01T00:00:00Z  WARN turnwright: SOME_TOKEN={} sk-{}\n\
             2026-01-01T00:00:00Z  WARN turnwright: {}\n\
             2026-01-01T00:00:00Z  WARN turnwright: the last line\n",
            random_canary("log"),
            canary("log-userinfo"),
            canary("log-query"),
            canary("log-header"),
            canary("log-token"),
            canary("log-prefix"),
            canary("variable"),
        ),
    );
    home
}

fn turnwright(home: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = subcommand(&home.join("own"), arguments);
    command
        .current_dir(home)
        .env("HOME", home)
        .env("MY_KEY", canary("variable"))
        .env("GROQ_API_KEY", canary("other-variable"))
        .env("MY_TITLE", random_canary("title"));
    let output = process_waits::output(&mut command).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code().unwrap(), text + &String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_report_has_what_helps_and_no_key_from_anywhere() {
    let message = format!("Incorrect API key provided: {}", canary("variable"));
    let body = serde_json::json!({ "error": { "message": message } });
    let replies = serde_json::json!([[{ "status": 401, "body": body }]]);
    let scenario = Scenario::from_value(serde_json::json!({ "replies": replies })).unwrap();
    let server = Server::start(scenario, 0).unwrap();
    let home = home_with_keys(&server.base_url());
    // A session whose prompt, file and answer hold one, too.
    write(home.path(), "notes.txt", &canary("file"));
    let prompt = format!("read notes.txt {}", canary("prompt"));
    let (status, said) = turnwright(home.path(), &["--model", "offline", "run", &prompt]);
    assert_eq!(status, 0, "{said}");

    let (status, said) = turnwright(home.path(), &["doctor", "--report", "report.md"]);
    assert_eq!(status, 1, "{said}");
    let path = home.path().join("report.md");
    let report = fs::read_to_string(&path).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert!(!report.contains("canary") && !report.contains("hunter2"), "{report}");
    assert!(!report.contains(home.path().to_str().unwrap()), "{report}");
    for expected in [
        concat!("turnwright ", env!("CARGO_PKG_VERSION")),
        "platform   ",
        "1 sessions",
        "model = mine/scripted (",
        "FAIL answer",
        "FAIL mcp        leaky",
        "mcp.servers.remote = http://127.0.0.1:9/mcp, headers Authorization",
        "turn 1: read_file: success",
        "the last line",
        "## Editor seen last",
    ] {
        assert!(report.contains(expected), "{expected}: {report}");
    }

    // It is not overwritten, and nothing is checked in vain.
    let (status, said) = turnwright(home.path(), &["doctor", "--report", "report.md"]);
    assert!(status == 2 && said.contains("exists"), "{said}");
    assert!(!said.contains("platform"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), report);
    let (status, said) = turnwright(home.path(), &["doctor", "--report", "missing/report.md"]);
    assert!(status == 2 && said.contains("missing/report.md"), "{said}");
    assert!(!said.contains("platform"), "{said}");
}
