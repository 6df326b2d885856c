//! What was learned about models and which models there are, kept between runs: small JSON files
//! in the state folder. All of it can be learned again, so what cannot be read is not there.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use turnwright_workspace::private_file;
use super::{Paths};

/// The most that is read of what was learned about a model.
const LARGEST_PROFILE: u64 = 64 * 1024;
/// The most that is read of a list of models; the longest have some hundreds.
const LARGEST_LIST: u64 = 512 * 1024;

/// The store.
#[derive(Clone, Debug)]
pub struct Profiles {
    profiles: PathBuf,
    lists: PathBuf,
}

/// A file of a profile. Which model it is about stands in it for people, and because two may have
/// the same hash.
#[derive(Serialize, Deserialize)]
struct Profile {
    base_url: String,
    model: String,
    learned: Value,
}

/// A file of a list.
#[derive(Serialize, Deserialize)]
struct List {
    base_url: String,
    /// Seconds since 1970.
    asked_at: u64,
    models: Vec<String>,
}

impl Profiles {
    /// The store in the state folder. Nothing is touched yet.
    pub fn new(paths: &Paths) -> Profiles {
        Profiles { profiles: paths.state.join("profiles"), lists: paths.state.join("models") }
    }

    /// What was learned about a model.
    pub fn load(&self, base_url: &str, model: &str) -> Option<Value> {
        let profile: Profile = read(&self.path(base_url, model), LARGEST_PROFILE)?;
        let is_it = profile.base_url == tidy(base_url) && profile.model == model;
        is_it.then_some(profile.learned)
    }

    /// Stores what was learned about a model, in place of what was known.
    ///
    /// # Errors
    /// When it is too large, or the state folder cannot be written.
    pub fn store(&self, base_url: &str, model: &str, learned: &Value) -> io::Result<()> {
        let profile = Profile {
            base_url: tidy(base_url).to_owned(),
            model: model.to_owned(),
            learned: learned.clone(),
        };
        let text = serde_json::to_string_pretty(&profile)?;
        if text.len() as u64 > LARGEST_PROFILE {
            return Err(io::Error::other("the profile is too large"));
        }
        private_file::store(&self.path(base_url, model), text.as_bytes())
    }

    /// Removes what was learned about a model. Returns whether there was anything.
    ///
    /// # Errors
    /// When it is there and cannot be removed.
    pub fn forget(&self, base_url: &str, model: &str) -> io::Result<bool> {
        private_file::remove(&self.path(base_url, model))
    }

    /// The models that an endpoint has listed, and when.
    pub fn models_list(&self, base_url: &str) -> Option<(Vec<String>, SystemTime)> {
        let list: List = read(&self.list_path(base_url), LARGEST_LIST)?;
        let asked_at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(list.asked_at))?;
        (list.base_url == tidy(base_url)).then_some((list.models, asked_at))
    }

    /// Stores the models that an endpoint lists now.
    ///
    /// # Errors
    /// When the list is too long, or the state folder cannot be written.
    pub fn store_models_list(&self, base_url: &str, models: &[String]) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let list = List {
            base_url: tidy(base_url).to_owned(),
            asked_at: now.as_secs(),
            models: models.to_vec(),
        };
        let text = serde_json::to_string_pretty(&list)?;
        if text.len() as u64 > LARGEST_LIST {
            return Err(io::Error::other("the list of models is too long"));
        }
        private_file::store(&self.list_path(base_url), text.as_bytes())
    }

    /// Where what was learned about a model is, or would be.
    pub fn path(&self, base_url: &str, model: &str) -> PathBuf {
        self.profiles.join(format!("{:016x}.json", hash(&[tidy(base_url), model])))
    }

    fn list_path(&self, base_url: &str) -> PathBuf {
        self.lists.join(format!("{:016x}.json", hash(&[tidy(base_url)])))
    }
}

fn read<T: DeserializeOwned>(path: &std::path::Path, limit: u64) -> Option<T> {
    serde_json::from_str(&private_file::read(path, limit).ok()?).ok()
}

fn tidy(base_url: &str) -> &str {
    base_url.trim_end_matches('/')
}

/// FNV-1a: short, and the same in every version, which the standard library does not promise.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|it| it.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn profiles() -> (tempfile::TempDir, Profiles) {
        let home = tempfile::tempdir().unwrap();
        let profiles = Profiles::new(&Paths::below(home.path()));
        (home, profiles)
    }

    #[test]
    fn what_was_learned_is_kept_for_one_model_at_one_endpoint_until_it_is_forgotten() {
        let (_home, profiles) = profiles();
        assert_eq!(profiles.load("http://a/v1", "m"), None);
        assert!(!profiles.forget("http://a/v1", "m").unwrap());
        let learned = json!({ "window": 4096, "drops": ["stream_options"] });
        profiles.store("http://a/v1", "m", &json!(1)).unwrap();
        profiles.store("http://a/v1/", "m", &learned).unwrap();
        assert_eq!(profiles.load("http://a/v1", "m"), Some(learned));
        assert_eq!(profiles.load("http://a/v1", "n"), None);
        assert_eq!(profiles.load("http://b/v1", "m"), None);
        assert!(profiles.forget("http://a/v1", "m").unwrap());
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
            private_file::store(&path, text.as_bytes()).unwrap();
            assert_eq!(profiles.load("http://a/v1", "m"), None);
        }
        assert!(profiles.store("http://a/v1", "m", &json!("x".repeat(70_000))).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_profile_is_private_and_says_for_people_what_it_is_about() {
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
        assert_eq!(profiles.models_list("http://a/v1"), None);
        let models = ["x".to_owned(), "org/y".to_owned()];
        profiles.store_models_list("http://a/v1", &models).unwrap();
        let (listed, asked_at) = profiles.models_list("http://a/v1/").unwrap();
        assert_eq!(listed, models);
        assert!(asked_at <= SystemTime::now());
        assert_eq!(profiles.models_list("http://b/v1"), None);
    }
}
