//! Stored facts about models, and endpoints' lists of models: small JSON files in the state folder. All of
//! it can be learned again, so an unreadable file counts as missing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::Paths;
use turnwright_types::hash::fnv1a;
use turnwright_types::private_file;

/// The largest profile, in bytes.
const MAX_PROFILE_SIZE: u64 = 64 * 1024;
/// The largest list of models, in bytes; the longest lists have some hundred models.
const MAX_LIST_SIZE: u64 = 512 * 1024;

/// The store of profiles and lists. A file names its server and its model for people, and because hashes may collide.
#[derive(Clone, Debug)]
pub struct ModelProfiles {
    profiles: PathBuf,
    lists: PathBuf,
}

impl ModelProfiles {
    /// The store in the state folder. Does not access the disk yet.
    pub fn new(paths: &Paths) -> ModelProfiles {
        ModelProfiles { profiles: paths.state.join("profiles"), lists: paths.state.join("models") }
    }

    /// Loads the profile of a model; `None` if there is none that can be read.
    pub fn load(&self, base_url: &str, model: &str) -> Option<Value> {
        let mut profile = read(&self.path(base_url, model), MAX_PROFILE_SIZE)?;
        let is_meant =
            profile["base_url"] == without_trailing_slash(base_url) && profile["model"] == model;
        profile.get_mut("learned").filter(|_| is_meant).map(Value::take)
    }

    /// Stores the profile of a model, and replaces an existing one.
    pub fn store(&self, base_url: &str, model: &str, learned: &Value) -> io::Result<()> {
        let server = without_trailing_slash(base_url);
        let profile = json!({ "base_url": server, "model": model, "learned": learned });
        let text = format!("{profile:#}");
        if text.len() as u64 > MAX_PROFILE_SIZE {
            return Err(io::Error::other("the profile is too large"));
        }
        private_file::write(&self.path(base_url, model), text.as_bytes())
    }

    /// Removes the profile of a model. Returns whether there was one.
    pub fn remove(&self, base_url: &str, model: &str) -> io::Result<bool> {
        private_file::remove(&self.path(base_url, model))
    }

    /// Loads the list of an endpoint's models, and when it was requested.
    pub fn load_model_list(&self, base_url: &str) -> Option<(Vec<String>, SystemTime)> {
        let mut list = read(&self.list_path(base_url), MAX_LIST_SIZE)?;
        let since_1970 = Duration::from_secs(list["asked_at"].as_u64()?);
        let is_meant = list["base_url"] == without_trailing_slash(base_url);
        let models = list.get_mut("models").filter(|_| is_meant)?.take();
        let asked_at = SystemTime::UNIX_EPOCH.checked_add(since_1970)?;
        Some((serde_json::from_value(models).ok()?, asked_at))
    }

    /// Stores the list of an endpoint's models.
    pub fn store_model_list(&self, base_url: &str, models: &[String]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let server = without_trailing_slash(base_url);
        let list = json!({ "base_url": server, "asked_at": now.as_secs(), "models": models });
        let text = format!("{list:#}");
        if text.len() as u64 > MAX_LIST_SIZE {
            return Err(io::Error::other("the list of models is too long"));
        }
        private_file::write(&self.list_path(base_url), text.as_bytes())
    }

    /// The path of a model's profile, which need not exist.
    pub fn path(&self, base_url: &str, model: &str) -> PathBuf {
        self.profiles
            .join(format!("{:016x}.json", hash(&[without_trailing_slash(base_url), model])))
    }

    fn list_path(&self, base_url: &str) -> PathBuf {
        self.lists.join(format!("{:016x}.json", hash(&[without_trailing_slash(base_url)])))
    }
}

fn read(path: &Path, limit: u64) -> Option<Value> {
    serde_json::from_str(&private_file::read(path, limit).ok()?).ok()
}

fn without_trailing_slash(base_url: &str) -> &str {
    base_url.trim_end_matches('/')
}

/// Names a file. The standard library's hash may differ between versions.
fn hash(parts: &[&str]) -> u64 {
    fnv1a(parts.iter().flat_map(|part| part.as_bytes().iter().chain(&[0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles() -> (tempfile::TempDir, ModelProfiles) {
        let home = tempfile::tempdir().unwrap();
        let profiles = ModelProfiles::new(&Paths::below(home.path()));
        (home, profiles)
    }

    #[test]
    fn what_was_learned_is_kept_for_one_model_at_one_endpoint_until_it_is_forgotten() {
        let (_home, profiles) = profiles();
        assert_eq!(profiles.load("http://a/v1", "m"), None);
        assert!(!profiles.remove("http://a/v1", "m").unwrap());
        let learned = json!({ "window": 4096, "drops": ["stream_options"] });
        profiles.store("http://a/v1", "m", &json!(1)).unwrap();
        profiles.store("http://a/v1/", "m", &learned).unwrap();
        assert_eq!(profiles.load("http://a/v1", "m"), Some(learned));
        assert_eq!(profiles.load("http://a/v1", "n"), None);
        assert_eq!(profiles.load("http://b/v1", "m"), None);
        assert!(profiles.remove("http://a/v1", "m").unwrap());
        assert_eq!(profiles.load("http://a/v1", "m"), None);
    }

    #[test]
    fn what_cannot_be_read_or_is_about_something_else_is_not_there() {
        let (_home, profiles) = profiles();
        let path = profiles.path("http://a/v1", "m");
        let huge = format!(
            "{{\"base_url\":\"http://a/v1\",\"model\":\"m\",\"learned\":\"{}\"}}",
            "x".repeat(70_000)
        );
        let other = json!({ "base_url": "http://b/v1", "model": "m", "learned": 1 }).to_string();
        for text in ["", "{", "{}", "\u{0}", &huge, &other] {
            private_file::write(&path, text.as_bytes()).unwrap();
            assert_eq!(profiles.load("http://a/v1", "m"), None);
        }
        assert!(profiles.store("http://a/v1", "m", &json!("x".repeat(70_000))).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_profile_is_private_and_says_for_people_what_it_is_about() {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let (_home, profiles) = profiles();
        profiles.store("http://a/v1", "m", &json!({ "x": 1 })).unwrap();
        let files: Vec<_> = fs::read_dir(&profiles.profiles).unwrap().map(Result::unwrap).collect();
        assert_eq!(files.len(), 1, "nothing else is left lying about");
        assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text: Value =
            serde_json::from_str(&fs::read_to_string(files[0].path()).unwrap()).unwrap();
        assert_eq!(text, json!({ "base_url": "http://a/v1", "model": "m", "learned": { "x": 1 } }));
    }

    #[test]
    fn a_list_of_models_knows_its_age() {
        let (_home, profiles) = profiles();
        assert_eq!(profiles.load_model_list("http://a/v1"), None);
        let models = ["x".to_owned(), "org/y".to_owned()];
        profiles.store_model_list("http://a/v1", &models).unwrap();
        let (listed, asked_at) = profiles.load_model_list("http://a/v1/").unwrap();
        assert_eq!(listed, models);
        assert!(asked_at <= SystemTime::now());
        assert_eq!(profiles.load_model_list("http://b/v1"), None);
    }
}
