//! Which files hold secrets, told by their names: they are read only after a question, and no
//! search shows what is in them.

use std::path::Path;

/// Whole names, in lower case.
const NAMES: &[&str] = &[
    ".netrc",
    "_netrc",
    ".vault-token",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".git-credentials",
    ".dockercfg",
    "credentials.toml",
    "master.key",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
    "secrets.toml",
];

/// Ends of names.
const ENDS: &[&str] = &[
    ".pem",
    ".key",
    ".pfx",
    ".p12",
    ".kdbx",
    ".keystore",
    ".jks",
    ".ppk",
    ".asc",
    ".gpg",
    ".tfvars",
];

/// What `.env` files are called that hold no secrets but show what belongs into the real one.
const SAMPLES: &[&str] = &["example", "sample", "template", "dist", "defaults"];

/// What is added to the name of a file for the name of its copy.
const COPIES: &[&str] = &["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo"];

/// Places in a home folder, and what lies below them.
const PATHS: &[&[&str]] = &[
    &[".aws", "credentials"],
    &[".aws", "config"],
    &[".aws", "sso"],
    &[".docker", "config.json"],
    &[".config", "gh"],
    &[".config", "gcloud"],
    &[".local", "share", "keyrings"],
    &[".cargo", "credentials"],
    &[".gem", "credentials"],
];

/// Folders that hold nothing else.
const FOLDERS: &[&str] = &[".ssh", ".azure", ".gnupg", ".kube", ".password-store"];

/// Whether a file of that name is likely to hold keys or passwords.
pub fn is_secret(path: &Path) -> bool {
    let parts: Vec<String> =
        path.components().map(|it| it.as_os_str().to_string_lossy().to_lowercase()).collect();
    let Some(name) = parts.last().map(|it| original(it)) else { return false };
    let in_folder = parts.iter().any(|it| FOLDERS.contains(&it.as_str()));
    let at_path = PATHS.iter().any(|it| parts.windows(it.len()).any(|part| part == *it));
    // A public key is what one gives away.
    let extension = name.rsplit_once('.').map(|it| it.1);
    let is_public = extension == Some("pub") || name == "known_hosts";
    let is_key = name.starts_with("id_rsa")
        || name.starts_with("id_ed25519")
        || name.starts_with("id_ecdsa")
        || name.starts_with("id_dsa");
    let is_named = NAMES.contains(&name) || ENDS.iter().any(|it| name.ends_with(it));
    !is_public && (is_environment(name) || is_key || is_named || in_folder || at_path)
}

/// The name of which this is that of a copy, as editors and careful people make them.
fn original(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = COPIES.iter().find_map(|it| name.strip_suffix(it)) {
        name = rest;
    }
    name
}

/// `.env`, `.env.local`, `prod.env`; not `.env.example`.
fn is_environment(name: &str) -> bool {
    let is_sample = SAMPLES.iter().any(|it| name.split('.').any(|part| part == *it));
    let extension = name.rsplit_once('.').map(|it| it.1);
    let is_env = extension == Some("env") || name.starts_with(".env.");
    (is_env || name == ".envrc") && !is_sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_secret() {
        let secret = [
            "/ws/.env",
            "/ws/.env.local",
            "/ws/prod.env",
            "/ws/.envrc",
            "/ws/certs/server.PEM",
            "/ws/id_rsa",
            "/home/u/.ssh/config",
            "/home/u/.aws/credentials",
            "/home/u/.azure/msal_token_cache.json",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/.config/gcloud/credentials.db",
            "/home/u/.cargo/credentials",
            "/ws/.npmrc",
            "/ws/terraform.tfvars",
            "/ws/.env~",
            "/ws/server.key.bak",
            "/ws/.netrc.old~",
            "/ws/.server.pem.swp",
        ];
        let open = [
            "/ws/.env.example",
            "/ws/sample.env",
            "/ws/id_rsa.pub",
            "/ws/a.txt~",
            "/ws/.old",
            "/ws/src/key.rs",
            "/ws/environment.rs",
            "/ws/credentials.rs",
            "/ws/.aws",
            "/",
        ];
        for path in secret {
            assert!(is_secret(Path::new(path)), "{path}");
        }
        for path in open {
            assert!(!is_secret(Path::new(path)), "{path}");
        }
    }
}
