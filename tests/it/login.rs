//! `turnwright login` and `logout` on a terminal and from a pipe, with servers that accept, refuse and do not
//! know the key. `tests/it/auth.rs` tests their effect on agents.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
#[cfg(unix)]
use turnwright_testing::process_waits;
#[cfg(unix)]
use turnwright_testing::pseudo_terminal::PseudoTerminal;
use turnwright_testing::raw_server::RawServer;

use crate::agent::{piped, subcommand};

/// Ctrl-C on a terminal.
#[cfg(unix)]
const INTERRUPT: &str = "\u{3}";

/// The command with its folders below `home` and no other variables. No request leaves this machine.
fn command(home: &Path, arguments: &[&str]) -> Command {
    let mut command = subcommand(home, arguments);
    command.env("https_proxy", closed_port());
    command
}

/// The URL of a port at which nobody listens. It is not ephemeral, so no other test can get it.
fn closed_port() -> String {
    "http://127.0.0.1:9".to_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn file(home: &Path) -> PathBuf {
    home.join("config/login.json")
}

/// The stored logins.
fn stored(home: &Path) -> Value {
    let text = std::fs::read_to_string(file(home)).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["logins"].clone()
}

/// A server that lists two models to whoever has the key `sk-right`.
#[cfg(unix)]
fn model_server() -> RawServer {
    RawServer::with_models(|_, request, stream| {
        let is_right = request.to_lowercase().contains("authorization: bearer sk-right\r\n");
        let (status, body) = if is_right {
            (
                200,
                json!({ "data": [{ "id": "beta" }, { "id": "an-embedding" }, { "id": "alpha" }] }),
            )
        } else {
            (401, json!({ "error": { "message": "Who is there?" } }))
        };
        respond(stream, status, &body.to_string());
    })
}

/// A server without a list of models.
#[cfg(unix)]
fn server_without_a_list() -> RawServer {
    RawServer::with_models(|_, _, stream| respond(stream, 404, "not found"))
}

fn respond(stream: &mut impl std::io::Write, status: u16, body: &str) {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} \r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
}

fn home() -> TempDir {
    turnwright_testing::temporary_folder()
}

#[cfg(unix)]
#[test]
fn a_refused_key_is_asked_for_again_and_a_model_is_chosen_from_the_list() {
    let (home, server) = (home(), model_server());
    let base_url = server.base_url();
    let mut terminal =
        PseudoTerminal::start(command(home.path(), &["login", "--base-url", &base_url]));
    terminal.answer("empty if the server needs none): ", "sk-wrong");
    terminal.wait_for("answered 401: Who is there? Check the key. Nothing was stored.");
    assert!(!file(home.path()).exists());
    terminal.answer("(hidden; empty if the server needs none): ", "sk-right");
    terminal.wait_for("1  alpha\r\n   2  beta\r\n");
    terminal.answer("Model (number or name; empty for alpha): ", "9");
    terminal.wait_for("Enter a number from 1 to 2, or a name.");
    terminal.answer("empty for alpha): ", "2");
    let (status, shown) = terminal.wait_for_end("turnwright now starts with beta.");
    assert!(status.success() && !shown.contains("sk-"), "{status} {shown}");
    let expected = json!([{ "base_url": base_url, "key": "sk-right", "model": "beta" }]);
    assert_eq!(stored(home.path()), expected);

    // The stored key is offered, and the model that was chosen is the usual one.
    let mut terminal =
        PseudoTerminal::start(command(home.path(), &["login", "--base-url", &base_url]));
    terminal.answer("login.json): ", "");
    terminal.answer("empty for beta): ", "of-my-own");
    assert!(terminal.wait_for_end("turnwright now starts with of-my-own.").0.success());
    assert_eq!(stored(home.path())[0]["key"], "sk-right");
}

#[cfg(unix)]
#[test]
fn after_three_refused_keys_nothing_is_stored() {
    let (home, server) = (home(), model_server());
    let arguments = ["login", "--base-url", &server.base_url()];
    let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
    for key in ["sk-1", "sk-2", "sk-3"] {
        terminal.answer("API key for ", key);
    }
    let (status, shown) =
        terminal.wait_for_end("Nothing was stored: there was no valid key in 3 attempts");
    assert_eq!(status.code(), Some(1), "{shown}");
    assert_eq!(server.requests().len(), 3);
    assert!(!file(home.path()).exists());
}

#[cfg(unix)]
#[test]
fn a_key_that_cannot_be_tried_is_stored_only_after_a_yes() {
    let (home, server) = (home(), server_without_a_list());
    let closed = closed_port();
    for (base_url, why) in [(server.base_url(), "answered 404"), (closed, "Nothing answers at")] {
        let arguments = ["login", "--base-url", &base_url, "--model", "m"];
        let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
        terminal.answer("API key for ", "");
        terminal.wait_for(why);
        terminal.answer("Store it nevertheless? [y/N] ", "");
        let (status, shown) = terminal.wait_for_end("Nothing was stored");
        assert!(!status.success() && !file(home.path()).exists(), "{shown}");

        let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
        terminal.answer("API key for ", "");
        terminal.answer("Store it nevertheless? [y/N] ", "yes");
        assert!(terminal.wait_for_end("turnwright now starts with m.").0.success());
        assert_eq!(stored(home.path()), json!([{ "base_url": base_url, "model": "m" }]));
        std::fs::remove_file(file(home.path())).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_the_key_is_typed_restores_the_echo() {
    let home = home();
    let arguments = ["login", "--provider", "deepseek"];
    let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
    terminal.wait_for("API key for deepseek (hidden): ");
    assert!(!terminal.echoes());
    terminal.type_in("sk-half");
    terminal.type_in(INTERRUPT);
    let (status, shown) = terminal.wait_for_end("Nothing was stored: it was interrupted");
    assert!(!status.success() && !shown.contains("sk-half"), "{shown}");
    assert!(!file(home.path()).exists());
}

#[cfg(unix)]
#[test]
fn a_signal_while_the_key_is_typed_restores_the_echo() {
    let home = home();
    let arguments = ["login", "--provider", "deepseek"];
    let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
    terminal.wait_for("API key for deepseek (hidden): ");
    assert!(!terminal.echoes());
    terminal.terminate();
    let (status, _) = terminal.wait_for_end("Nothing was stored: it was ended by a signal");
    assert!(!status.success());
}

#[cfg(unix)]
#[test]
fn a_base_url_without_its_version_is_stored_with_it() {
    let home = home();
    let server = RawServer::with_models(|_, request, stream| {
        if request.starts_with("GET /v1/models ") {
            respond(stream, 200, r#"{ "data": [{ "id": "qwen3" }] }"#);
        } else {
            respond(stream, 404, "not found");
        }
    });
    let base_url = format!("http://{}", server.host());
    let arguments = ["login", "--base-url", &base_url];
    let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
    terminal.answer("API key for ", "");
    terminal.wait_for(&format!("The server answers at {}, so that is used.", server.base_url()));
    terminal.answer("empty for qwen3): ", "");
    assert!(terminal.wait_for_end("turnwright now starts with qwen3.").0.success());
    let expected = json!([{ "base_url": server.base_url(), "model": "qwen3" }]);
    assert_eq!(stored(home.path()), expected);
}

#[cfg(unix)]
#[test]
fn a_proxy_that_does_not_answer_is_named() {
    let (home, proxy) = (home(), closed_port());
    let arguments = ["login", "--base-url", "http://models.invalid/v1", "--model", "m"];
    let mut command = command(home.path(), &arguments);
    let mut terminal = PseudoTerminal::start({
        command.env("http_proxy", proxy.replace("http://", "http://user:secret@"));
        command
    });
    terminal.answer("API key for ", "");
    let address = proxy.trim_start_matches("http://");
    terminal.wait_for(&format!("Nothing answers at the proxy {address}. Check the proxy"));
    terminal.answer("Store it nevertheless? [y/N] ", "");
    let (_, shown) = terminal.wait_for_end("Nothing was stored");
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_key_in_the_place_of_a_provider_is_not_shown() {
    let home = home();
    let key = "sk-proj-0123456789abcdef";
    let output = piped(&mut command(home.path(), &["login", "--provider", key]), "\n");
    let said = stderr(&output);
    assert!(said.contains("no provider is called what was typed") && !said.contains(key), "{said}");
}

#[cfg(unix)]
#[test]
fn a_provider_is_chosen_from_the_list_by_number_or_name() {
    let (home, server) = (home(), model_server());
    let mut command = command(home.path(), &["login"]);
    command.env("GROQ_API_KEY", "sk-groq");
    let mut terminal = PseudoTerminal::start(command);
    terminal.wait_for("  openai\r\n");
    terminal.wait_for("  groq            key in GROQ_API_KEY\r\n");
    terminal.wait_for("  another server\r\n");
    terminal.answer("Provider (number or name", "open");
    terminal.wait_for("`open` may be openai or openrouter.");
    terminal.answer("Provider (number or name", "nobody");
    terminal.wait_for("Nothing here is called `nobody`.");
    terminal.answer("Provider (number or name", "ANOTHER");
    terminal.answer("Base URL, such as https://example.com/v1: ", "localhost");
    terminal.wait_for("is not an http or https URL");
    terminal.answer("Base URL, such as https://example.com/v1: ", &server.base_url());
    terminal.answer("API key for ", "sk-right");
    terminal.answer("empty for alpha): ", "");
    let (status, shown) = terminal.wait_for_end("turnwright now starts with alpha.");
    assert!(status.success() && !shown.contains("sk-"), "{shown}");
}

#[cfg(unix)]
#[test]
fn a_key_in_the_environment_is_not_stored_with_the_model() {
    let home = home();
    let mut command = command(home.path(), &["login", "--provider", "deepseek"]);
    command.env("DEEPSEEK_API_KEY", "sk-variable");
    let mut terminal = PseudoTerminal::start(command);
    terminal.answer("(hidden; empty for the one in DEEPSEEK_API_KEY): ", "");
    terminal.answer("Store it nevertheless? [y/N] ", "y");
    terminal.answer("Model (name): ", "deepseek-chat");
    assert!(
        terminal.wait_for_end("turnwright now starts with deepseek/deepseek-chat.").0.success()
    );
    let expected = json!([{ "provider": "deepseek", "model": "deepseek-chat" }]);
    assert_eq!(stored(home.path()), expected);
}

#[cfg(unix)]
#[test]
fn several_logins_are_kept_shown_and_removed_one_by_one() {
    let home = home();
    let login = |provider, key: &str, model| {
        let arguments = ["login", "--provider", provider, "--model", model];
        let output = piped(&mut command(home.path(), &arguments), key);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        stderr(&output)
    };
    let said = login("groq", "sk-groq\n", "g");
    assert!(said.contains("The key could not be tried: Nothing answers at the proxy "), "{said}");
    assert!(said.contains("turnwright now starts with groq/g."), "{said}");
    let said = login("DeepSeek", "sk-deepseek", "deepseek/chat");
    assert!(said.ends_with("turnwright now starts with deepseek/chat.\n"), "{said}");
    let expected = json!([
        { "provider": "groq", "key": "sk-groq", "model": "g" },
        { "provider": "deepseek", "key": "sk-deepseek", "model": "chat" },
    ]);
    assert_eq!(stored(home.path()), expected);

    let shown = process_waits::output(&mut command(home.path(), &["config", "show", "--json"]));
    let shown: Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
    let path = file(home.path()).display().to_string();
    for (name, value) in [
        ("model", "deepseek/chat"),
        ("key", "set"),
        ("login.groq", "https://api.groq.com/openai/v1, key set, model g"),
        ("login.deepseek", "https://api.deepseek.com/v1, key set, model chat"),
    ] {
        let row = json!({ "name": name, "value": value, "from": path });
        assert!(shown["settings"].as_array().unwrap().contains(&row), "{row} {shown}");
    }

    let logout = |arguments: &[&str]| {
        let output = piped(&mut command(home.path(), &[&["logout"], arguments].concat()), "");
        (output.status.success(), stderr(&output))
    };
    let (done, said) = logout(&[]);
    assert!(!done && said.contains("Add --all, or --provider with one of groq, deep"), "{said}");
    let (done, said) = logout(&["--provider", "mistral"]);
    assert!(!done && said.contains("there is no login of `mistral`. Stored are: groq"), "{said}");

    let mut terminal = PseudoTerminal::start(command(home.path(), &["logout"]));
    terminal.wait_for("1  groq\r\n   2  deepseek\r\n   3  all\r\n");
    terminal.answer("Log out of (number or name): ", "deep");
    let (status, shown) =
        terminal.wait_for_end("Removed the login of deepseek.\r\nThere is still a key for groq");
    assert!(status.success(), "{shown}");
    let (done, said) = logout(&[]);
    assert!(done && said == "Removed the login of groq.\n", "{said}");
    assert!(!file(home.path()).exists());
    assert_eq!(logout(&["--all"]), (true, "There was no stored login.\n".to_owned()));
}

#[test]
fn logout_names_the_variable_that_still_gives_a_key() {
    let home = home();
    let arguments = ["login", "--provider", "groq"];
    assert!(piped(&mut command(home.path(), &arguments), "sk-groq\n").status.success());
    let mut command = command(home.path(), &["logout", "--provider", "groq"]);
    command.env("GROQ_API_KEY", "sk-other");
    let said = stderr(&piped(&mut command, ""));
    let expected = "Removed the login of groq.\nThere is still a key for groq (GROQ_API_KEY).\n";
    assert_eq!(said, expected);
}

#[test]
fn a_piped_key_that_the_server_refuses_is_not_stored() {
    let home = home();
    // The server plays the proxy through which the requests go.
    for (server, expected) in [
        (RawServer::with_models(|_, _, stream| respond(stream, 403, "No.")), None),
        (
            model_server_without_keys(),
            Some(
                json!([{ "base_url": "http://models.invalid/v1", "key": "sk-some-key", "model": "qwen3" }]),
            ),
        ),
    ] {
        let address = "http://models.invalid/v1/chat/completions";
        let arguments = ["login", "--provider", "azure", "--base-url", address];
        let mut command = command(home.path(), &arguments);
        command.env("http_proxy", format!("http://{}", server.host()));
        let output = piped(&mut command, "sk-some-key\n");
        assert_eq!(output.status.success(), expected.is_some(), "{output:?}");
        match expected {
            Some(expected) => assert_eq!(stored(home.path()), expected),
            None => {
                assert!(stderr(&output).starts_with("Nothing was stored: "), "{output:?}");
                assert!(!file(home.path()).exists());
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn a_key_that_the_server_does_not_look_at_is_not_called_good() {
    let (home, server) = (home(), model_server_without_keys());
    let arguments = ["login", "--base-url", &server.base_url()];
    let mut terminal = PseudoTerminal::start(command(home.path(), &arguments));
    terminal.answer("API key for ", "sk-any");
    terminal.wait_for("lists its models without a key, too, so the key itself was not tried.");
    terminal.answer("empty for qwen3): ", "");
    assert!(terminal.wait_for_end("turnwright now starts with qwen3.").0.success());
}

fn model_server_without_keys() -> RawServer {
    RawServer::with_models(|_, _, stream| {
        respond(stream, 200, r#"{ "data": [{ "id": "qwen3" }] }"#);
    })
}

#[test]
fn a_provider_that_nobody_knows_is_answered_with_the_known_ones() {
    let home = home();
    for (arguments, expected) in [
        (
            &["--provider", "deepsek"][..],
            "no provider is called `deepsek`. Known are openai, azure",
        ),
        (&["--provider", "groq", "--base-url", "http://h/v1"], "groq has a base URL of its own"),
        (&["--provider", "azure"], "each account of azure has its own server: add --base-url"),
        (&["--provider", "groq"], "groq needs a key"),
    ] {
        let output = piped(&mut command(home.path(), &[&["login"], arguments].concat()), "\n");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = stderr(&output);
        assert!(said.starts_with("Nothing was stored: ") && said.contains(expected), "{said}");
        assert!(!file(home.path()).exists());
    }
}

#[test]
fn a_damaged_file_is_replaced_by_the_next_login_and_removed_by_a_logout() {
    let home = home();
    let damage = || {
        std::fs::create_dir_all(home.path().join("config")).unwrap();
        std::fs::write(file(home.path()), "{").unwrap();
    };
    damage();
    let arguments = ["login", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"];
    let said = stderr(&piped(&mut command(home.path(), &arguments), "sk-new\n"));
    assert!(said.contains("login.json is damaged") && said.contains("replaces it"), "{said}");
    assert_eq!(stored(home.path())[0]["key"], "sk-new");
    damage();
    let said = stderr(&piped(&mut command(home.path(), &["logout"]), ""));
    assert_eq!(said, "Removed the stored logins, which were damaged.\n");
    assert!(!file(home.path()).exists());
}

#[test]
fn a_file_that_cannot_be_read_is_neither_replaced_nor_removed() {
    let home = home();
    std::fs::create_dir_all(home.path().join("config")).unwrap();
    // Permissions mean nothing to root, but no larger file is read.
    let text = "{ \"logins\": [] }".to_owned() + &" ".repeat(1024 * 1024);
    std::fs::write(file(home.path()), &text).unwrap();
    for (arguments, expected) in [
        (&["login", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"][..], "stored"),
        (&["logout"], "removed"),
    ] {
        let output = piped(&mut command(home.path(), arguments), "sk-new\n");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let expected = format!("Nothing was {expected}: The stored login ");
        let said = stderr(&output);
        assert!(said.contains(&expected) && said.contains("cannot be read ("), "{said}");
    }
    assert!(std::fs::read_to_string(file(home.path())).unwrap() == text);
}

#[test]
fn a_key_that_cannot_be_sent_is_not_stored() {
    let home = home();
    let mut command =
        command(home.path(), &["login", "--base-url", "http://127.0.0.1:9/v1?key=hidden"]);
    let output = piped(&mut command, "sk-\u{1}key\nm\n");
    assert!(!output.status.success() && !file(home.path()).exists(), "{output:?}");
    let shown = stderr(&output);
    assert!(
        shown.contains("Nothing was stored: The key for 127.0.0.1 contains invalid"),
        "{shown}"
    );
    assert!(!shown.contains("hidden"), "{shown}");
}

#[test]
fn the_key_of_a_service_that_searches_is_tried_and_kept_for_its_host() {
    let home = home();
    let server = RawServer::reading(|_, request, stream| {
        let is_right = request.contains("x-api-key: right-key-of-exa\r\n");
        let status = if is_right { 200 } else { 401 };
        respond(stream, status, r#"{ "results": [] }"#);
    });
    let login = ["login", "search"];
    let said = stderr(&piped(&mut command(home.path(), &login), "right-key-of-exa\n"));
    assert!(said.contains("name no service that can be used"), "{said}");
    let settings = format!("[web]\nsearch = 'exa'\nsearch_url = 'http://{}/'\n", server.host());
    std::fs::create_dir_all(home.path().join("config")).unwrap();
    std::fs::write(home.path().join("config/config.toml"), settings).unwrap();
    let said = stderr(&piped(&mut command(home.path(), &login), "\n"));
    assert!(said.contains("Nothing was stored: no key was given"), "{said}");
    let refused = piped(&mut command(home.path(), &login), "wrong-key-of-exa\n");
    let said = stderr(&refused);
    assert!(said.contains("Nothing was stored: exa refuses the key (status 401)"), "{said}");
    assert!(!refused.status.success() && !file(home.path()).exists(), "{said}");
    let accepted = piped(&mut command(home.path(), &login), "right-key-of-exa\n");
    let said = stderr(&accepted);
    assert!(accepted.status.success() && !said.contains("right-key"), "{said}");
    let name = format!("search:{}", server.host());
    let expected = json!([{ "provider": name, "key": "right-key-of-exa" }]);
    assert_eq!(stored(home.path()), expected);
    let doctor = ["doctor", "--model", "offline", "--json"];
    let report = piped(&mut command(home.path(), &doctor), "");
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let shown = report["search"].as_str().unwrap();
    assert!(shown.starts_with(&format!("exa at {}, key in ", server.host())), "{shown}");
    let said = stderr(&piped(&mut command(home.path(), &["logout", "--provider", &name]), ""));
    assert!(said.contains(&format!("Removed the login of {name}")), "{said}");
    assert!(!file(home.path()).exists());
}
