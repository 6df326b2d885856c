//! Setting, refusing and showing values, in real files.

use std::fs;

use super::*;
use crate::{EnvironmentVariables, Flags, MODE_VARIABLE, Paths, UserFile};

/// A folder with settings.
struct Home(tempfile::TempDir);

impl Home {
    fn with(text: &str) -> Home {
        let home = Home(tempfile::tempdir().unwrap());
        private_file::write(&home.path(), text.as_bytes()).unwrap();
        home
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("config/config.toml")
    }

    fn config(&self, variables: EnvironmentVariables) -> Config {
        let paths = Paths::below(self.0.path());
        Config::new(variables, Flags::default(), UserFile::at_default_path(&paths), paths)
    }

    fn change(&self, key: &str, typed: Option<&[&str]>) -> Result<SettingChange, ConfigError> {
        let typed =
            typed.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        self.config(EnvironmentVariables::default()).change_setting(key, typed.as_deref())
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

#[test]
fn a_value_is_typed_as_toml_or_as_a_text() {
    for (key, typed, expected) in [
        ("model", &["openai/gpt-5-mini"][..], "model = \"openai/gpt-5-mini\"\n"),
        ("model", &["'x'"], "model = 'x'\n"),
        ("model", &["7"], "model = \"7\"\n"),
        ("mode", &["Plan"], "mode = \"plan\"\n"),
        ("mode", &["\"auto\""], "mode = \"auto\"\n"),
        ("list_models", &["false"], "list_models = false\n"),
        ("sessions.keep_days", &["0"], "[sessions]\nkeep_days = 0\n"),
        ("web.allow", &["localhost:3000"], "[web]\nallow = [\"localhost:3000\"]\n"),
        ("web.allow", &["'a'"], "[web]\nallow = [\"a\"]\n"),
        ("web.allow", &["a", "b:1"], "[web]\nallow = [\"a\", \"b:1\"]\n"),
        ("web.allow", &["['a']"], "[web]\nallow = ['a']\n"),
        ("providers.x.base_url", &["http://h/v1"], "[providers.x]\nbase_url = \"http://h/v1\"\n"),
        ("providers.x.headers.Cookie", &["$ME"], "[providers.x.headers]\nCookie = \"$ME\"\n"),
        ("providers.x.quirks.images", &["true"], "[providers.x.quirks]\nimages = true\n"),
        (
            "providers.x.model.'m-1.5'.price",
            &["{ input = 1, output = 2.5 }"],
            "[providers.x.model.\"m-1.5\"]\nprice = { input = 1, output = 2.5 }\n",
        ),
        ("mcp.servers.n.command", &["notes"], "[mcp.servers.n]\ncommand = \"notes\"\n"),
    ] {
        let home = Home::with("");
        let change = home.change(key, Some(typed)).unwrap();
        assert_eq!((change.old, home.text()), (None, String::new()), "{key}");
        home.change(key, Some(typed)).unwrap().save().unwrap();
        assert_eq!(home.text(), expected, "{key}");
        assert!(home.change(key, Some(typed)).unwrap().old.is_some(), "{key}");
    }
}

#[test]
fn what_is_wrong_or_a_key_is_refused_with_what_is_allowed() {
    let file =
        "mode = \"ask\"\nshiny = 1\n[providers.x]\nbase_url = 'http://h'\n[[permissions.rule]]\n";
    let key = "sk-0123456789abcdef0123";
    for (key, typed, expected) in [
        ("mdoe", &["x"][..], "Unknown setting `mdoe`. Perhaps `mode` is meant"),
        ("nonsense", &["x"], "Known are model, mode, max_turn_requests"),
        (
            "sandbox.walls",
            &["x"],
            "`sandbox` has network, read, write, caches, hide, protect, memory_mb",
        ),
        ("mode.x", &["x"], "`mode` is not a section"),
        ("a b", &["x"], "`a b` is not the key of a setting"),
        (
            "mode",
            &["all"],
            "`mode` cannot be `all`, expected one of ask, plan, auto-edit, auto, full",
        ),
        ("mode", &["ask", "plan"], "and only one"),
        ("effort", &["huge"], "expected one of default, none, low"),
        ("sandbox.network", &["yes"], "which is no host"),
        ("providers.x.api", &["completions"], "expected one of chat, responses"),
        ("max_turn_requests", &["0"], "expected a whole number ≥ 1"),
        ("max_turn_requests", &["many"], "expected a whole number ≥ 1"),
        ("list_models", &["perhaps"], "expected true or false"),
        ("providers.x.models", &["[1]"], "expected a list of texts"),
        ("providers.x.quirks.nonsense", &["1"], "unknown quirk `nonsense`"),
        ("providers.x.model.m.price.input", &["1"], "`output` is missing"),
        ("web.allow", &["http://h/"], "expected HOST or HOST:PORT"),
        ("sandbox.write", &["here"], "must start with / or ~/"),
        ("mcp.servers.n.args", &["a"], "neither `command` nor `url`"),
        ("providers.x", &["{ api = 'chat' }"], "`providers.x` is a section"),
        ("permissions.rule", &["x"], "expected a list of tables"),
        ("providers.x.key", &[key], "set `providers.x.key_env`"),
        ("providers.x.key_env", &["sk-1"], "the name of an environment variable"),
        ("providers.x.headers.Authorization", &["Bearer letmein"], "would be a credential"),
        ("providers.x.headers.X", &[&format!("Bearer {key}")], "looks like a key"),
        ("providers.x.base_url", &["http://me:pass@h/v1"], "looks like a key"),
        ("mcp.servers.n.env", &["{ API_TOKEN = 'letmein' }"], "neither `command` nor `url`"),
        (
            "mcp.servers.n",
            &["{ command = 'x', env = { A_TOKEN = 'letmein' } }"],
            "would be a credential",
        ),
        ("model", &[key], "looks like a key"),
    ] {
        let home = Home::with(file);
        let error = home.change(key, Some(typed)).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
        assert!(!error.contains("letmein") && !error.contains("sk-"), "{error}");
        assert_eq!(home.text(), file);
    }
}

#[test]
fn a_wrong_file_can_be_mended_and_is_not_made_worse() {
    let home = Home::with("mode = \"all\"\nshiny = 1\n");
    home.change("effort", Some(&["low"])).unwrap();
    home.change("mode", Some(&["plan"])).unwrap().save().unwrap();
    home.change("shiny", None).unwrap().save().unwrap();
    assert_eq!(home.text(), "mode = \"plan\"\n");
    let home = Home::with("max_turn_requests = 0");
    assert!(home.change("mode", Some(&["plan"])).is_err());
    home.change("max_turn_requests", Some(&["9"])).unwrap().save().unwrap();
    assert_eq!(home.text(), "max_turn_requests = 9");
    for broken in ["mode = ", "mode = 'ask'\nmode = 'plan'"] {
        let home = Home::with(broken);
        let error = home.change("mode", Some(&["plan"])).unwrap_err().to_string();
        assert!(error.contains("config.toml, line"), "{error}");
    }
    let home = Home::with("mode = 'ask'");
    assert!(home.change("effort", None).unwrap_err().to_string().contains("is not set in"));
}

#[test]
fn the_old_value_is_told_unless_it_may_be_a_secret() {
    let home = Home::with(
        "mode = 'ask'\n[providers.x]\nbase_url = 'http://me:pass@h/v1'\nheaders = { A = 'one' }\n",
    );
    let change = home.change("mode", Some(&["plan"])).unwrap();
    assert_eq!((change.old.as_deref(), change.new.as_deref()), (Some("'ask'"), Some("\"plan\"")));
    for (key, typed) in [("providers.x.base_url", "http://h/v1"), ("providers.x.headers.A", "two")]
    {
        let change = home.change(key, Some(&[typed])).unwrap();
        assert_eq!(change.old.as_deref(), Some("\"…\""));
    }
    let config = home.config(EnvironmentVariables::of(&[(MODE_VARIABLE, "auto")]));
    assert_eq!(config.change_setting("mode", None).unwrap().overridden_by, Some("TURNWRIGHT_MODE"));
}

#[cfg(unix)]
#[test]
fn the_file_is_private_and_a_link_to_it_stays_one() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::with("");
    let other = tempfile::tempdir().unwrap();
    fs::remove_file(home.path()).unwrap();
    home.change("mode", Some(&["plan"])).unwrap().save().unwrap();
    assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let target = other.path().join("my.toml");
    fs::rename(home.path(), &target).unwrap();
    symlink(&target, home.path()).unwrap();
    home.change("mode", Some(&["auto"])).unwrap().save().unwrap();
    assert!(fs::symlink_metadata(home.path()).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(target).unwrap(), "mode = \"auto\"\n");
}
