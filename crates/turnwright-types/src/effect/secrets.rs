//! Recognises files that are likely to hold secrets by their names. Reading one needs the user's
//! permission, and searches do not show their contents.

use std::path::{Components, Path, PathBuf};
use std::sync::LazyLock;

use super::MovedPlace;
use crate::secret::is_secret_file;
use crate::text;

/// Where programs keep credentials below a home folder, or private things such as histories and mail, one place a
/// line. Everything below a place belongs to it. Names count in any folder, so a place must not be one that projects
/// have, too.
const PRIVATE_PLACES: &str = include_str!("secrets/private_places.txt");
const BUILD_PLACES: &str = include_str!("secrets/build_places.txt");
const WINDOWS_PLACES: &str = include_str!("secrets/windows_places.txt");

/// Where Docker, Podman and Kubernetes put the secrets of a container, and some systems their own.
pub const CONTAINER_SECRETS: [&str; 2] = ["/run/secrets", "/var/run/secrets"];

/// The places of all lists.
static ALL_PLACES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let lists = [PRIVATE_PLACES, BUILD_PLACES, WINDOWS_PLACES];
    lists.into_iter().flat_map(text::list_entries).collect()
});

/// The first parts of all places that do not begin with a dot.
const FIRST_PARTS: [&[u8]; 4] = [b"library", b"appdata", b"snap", b"monero"];

/// The places of credentials below a home folder that no program of the model may read, also where variables have
/// moved them. Not all of them exist.
pub fn credential_paths(home: &Path, moved: &[MovedPlace]) -> Vec<PathBuf> {
    let places = text::list_entries(PRIVATE_PLACES);
    places
        .flat_map(|place| {
            let elsewhere = moved.iter().filter_map(move |moved| moved.find(place, home));
            elsewhere.chain([home.join(place)])
        })
        .collect()
}

/// Further places, which only the user's own commands need to read.
pub fn build_credential_paths(home: &Path) -> Vec<PathBuf> {
    text::list_entries(BUILD_PLACES).map(|place| home.join(place)).collect()
}

/// Returns true if the path is a place of credentials, or below one, in any folder.
fn is_in_credential_place(path: &Path) -> bool {
    if CONTAINER_SECRETS.iter().any(|place| path.starts_with(place)) {
        return true;
    }
    let mut rest = path.components();
    while let Some(part) = rest.next() {
        let first = part.as_os_str().as_encoded_bytes();
        // Fast path: almost nothing else has such a prefix.
        if !first.starts_with(b".")
            && !FIRST_PARTS.iter().any(|known| first.eq_ignore_ascii_case(known))
        {
            continue;
        }
        if ALL_PLACES.iter().any(|place| begins_with_place(first, &rest, place)) {
            return true;
        }
    }
    false
}

fn begins_with_place(first: &[u8], rest: &Components<'_>, place: &str) -> bool {
    let Some((name, below)) = place.as_bytes().split_at_checked(first.len()) else {
        return false;
    };
    if !matches!(below.first(), None | Some(b'/')) || !name.eq_ignore_ascii_case(first) {
        return false;
    }
    let mut parts = rest.clone();
    below.split(|byte| *byte == b'/').skip(1).all(|name| {
        let part = parts.next();
        part.is_some_and(|part| part.as_os_str().as_encoded_bytes().eq_ignore_ascii_case(name))
    })
}

/// Returns true if a file at this path is likely to hold keys or passwords, judging by its name, or if a secret of
/// this process comes from it.
pub fn is_secret_path(path: &Path) -> bool {
    if is_secret_file(path) {
        return true;
    }
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().to_lowercase()) else {
        return false;
    };
    let name = without_copy_suffixes(&name);
    // Public keys are meant to be shared.
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_public = extension == Some("pub") || name == "known_hosts";
    !is_public && (is_secret_name(name) || is_in_credential_place(path))
}

/// Returns true if everything in the folder at this path is likely to be secret.
pub fn is_secret_folder(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let is_of_files_only = name.is_some_and(|name| matches_any(SECRET_NAMES_OF_FILES, &name));
    is_secret_path(path) && (is_in_credential_place(path) || !is_of_files_only)
}

/// Returns true if the name of a secret file may end like this, for example with an extension that a pattern such as
/// `*.json` finds. Left out are names that may have any end, such as `.env.local`.
pub fn secret_names_may_end_with(end: &str) -> bool {
    let end = &*end.to_lowercase();
    let all = [&**SECRET_NAMES, &**SECRET_NAMES_UNLESS_TEMPLATES, SECRET_NAMES_OF_FILES];
    all.into_iter().flatten().any(|pattern| match pattern.rsplit_once('*') {
        Some((_, "")) => false,
        Some((_, last)) => last.ends_with(end) || end.ends_with(last),
        None => pattern.ends_with(end),
    }) || end == ".env"
}

/// Names in lower case that stand for a secret whatever else is said about the file.
static SECRET_NAMES: LazyLock<Vec<&str>> =
    LazyLock::new(|| text::list_entries(include_str!("secrets/secret_names.txt")).collect());

/// Names that stand for a secret unless they say that the file is a template or made up.
static SECRET_NAMES_UNLESS_TEMPLATES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    text::list_entries(include_str!("secrets/secret_names_unless_templates.txt")).collect()
});

/// Names without an extension that mean a secret only for a file: folders with source code have them, too.
const SECRET_NAMES_OF_FILES: &[&str] = &["kubeconfig", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519"];

/// Parts of the names of templates for a file with secrets.
const TEMPLATE_MARKERS: &[&str] = &["example", "sample", "template", "dist", "defaults"];
/// Parts of further names of files with which no login is possible.
const FAKE_MARKERS: &[&str] = &["schema", "fake", "mock", "dummy"];

/// Suffixes that editors and users give to copies of a file.
const COPY_SUFFIXES: &[&str] = &["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo"];

/// Returns true if a file with this name, in lower case, is likely to hold secrets.
fn is_secret_name(name: &str) -> bool {
    is_env_file(name)
        || matches_any(&SECRET_NAMES, name)
        || matches_any(SECRET_NAMES_OF_FILES, name)
        || matches_any(&SECRET_NAMES_UNLESS_TEMPLATES, name)
            && !has_marker(name, TEMPLATE_MARKERS)
            && !has_marker(name, FAKE_MARKERS)
}

fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| text::fits_wildcard(name, pattern))
}

/// Removes the suffixes of backup copies.
fn without_copy_suffixes(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = COPY_SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix)) {
        name = rest;
    }
    name
}

/// `.env`, `.env.local`, `.env-prod`, `prod.env`; not `.env.example`.
fn is_env_file(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_env = extension == Some("env")
        || [".env.", ".env-", ".env_"].iter().any(|start| name.starts_with(start));
    (is_env || name == ".envrc") && !has_marker(name, TEMPLATE_MARKERS)
}

fn has_marker(name: &str, markers: &[&str]) -> bool {
    name.split(['.', '-', '_']).any(|part| markers.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[&str] = &[
        "/ws/.env",
        "/ws/.env.local",
        "/ws/prod.env",
        "/ws/.env-prod",
        "/ws/.dev.vars",
        "/ws/credentials.json",
        "/ws/library/keychains/x",
        "/ws/.envrc",
        "/ws/certs/server.PEM",
        "/ws/id_rsa",
        "/home/u/.ssh/config",
        "/home/u/.aws/credentials",
        "/home/u/.azure/msal_token_cache.json",
        "/home/u/.config/gh/hosts.yml",
        "/home/u/.config/gcloud/credentials.db",
        "/home/u/.cargo/credentials",
        "/home/u/.aws",
        "/home/u/.config/bravesoftware/x",
        "/home/u/.m2/settings.xml",
        "/ws/.npmrc",
        "/home/u/APPDATA/roaming/github cli/hosts.yml",
        "/home/u/.SSH/Config",
        "/ws/.Env",
        "/ws/ID_RSA",
        "/ws/.config/.CONFIG/git/credentials/x",
        "/ws/terraform.tfvars",
        "/ws/.env~",
        "/ws/server.key.bak",
        "/ws/.netrc.old~",
        "/ws/.server.pem.swp",
        "/ws/service-account.json",
        "/ws/prod-service-account.json",
        "/ws/service_account_key.json",
        "/ws/serviceAccountKey.json",
        "/ws/shop-firebase-adminsdk-x1y2z-0123456789.json",
        "/ws/gcp-key.json",
        "/ws/gha-creds-0123456789abcdef.json",
        "/ws/gcloud-service-key.json",
        "/ws/application_default_credentials.json",
        "/ws/google-credentials.json",
        "/ws/client_secret_123.apps.googleusercontent.com.json",
        "/ws/client_secrets.json",
        "/ws/oauth_creds.json",
        "/ws/terraform.tfstate",
        "/ws/terraform.tfstate.backup",
        "/ws/terraform.tfstate.1700000000.backup",
        "/ws/prod.auto.tfvars.json",
        "/ws/kubeconfig",
        "/ws/kubeconfig.yaml",
        "/ws/staging-kubeconfig.yml",
        "/ws/prod.kubeconfig",
        "/ws/AuthKey_ABC1234567.p8",
        "/ws/release.pkcs12",
        "/ws/app.keytab",
        "/ws/office.ovpn",
        "/ws/deploy_rsa",
        "/ws/deploy_ed25519",
        "/ws/wp-config.php",
        "/ws/local.settings.json",
        "/ws/.secrets",
        "/ws/.dev.vars.staging",
        "/ws/.dockerconfigjson",
        "/ws/.htpasswd",
        "/ws/credentials.yml",
        "/ws/.docker/config.json",
        "/home/u/.cline/data/secrets.json",
        "/home/u/.hermes/auth.json",
        "/home/u/.kimi-code/credentials/kimi-code.json",
        "/home/u/.openclaw/agents/main/agent/auth-profiles.json",
        "/home/u/.pi/agent/auth.json",
        "/home/u/.doppler/.doppler.yaml",
        "/home/u/snap/firefox/common/.mozilla/cookies.sqlite",
        "/home/u/.config/Code/User/globalStorage/state.vscdb",
        "/run/secrets/db_password",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
    ];

    const OPEN: &[&str] = &[
        "/ws/.env.example",
        "/ws/sample.env",
        "/ws/.env-example",
        "/ws/.environment",
        "/ws/id_rsa.pub",
        "/ws/a.txt~",
        "/ws/.old",
        "/ws/src/key.rs",
        "/ws/environment.rs",
        "/ws/credentials.rs",
        "/ws/.config",
        "/ws/.config/git",
        "/ws/.config/x/git/credentials",
        "/ws/.sshx/config",
        "/ws/.ss/h",
        "/",
        "/ws/package.json",
        "/ws/keys.json",
        "/ws/.pi/agent/settings.json",
        "/ws/service-account.yaml",
        "/ws/service-account.example.json",
        "/ws/sample-credentials.json",
        "/ws/credentials.schema.json",
        "/ws/service_account.py",
        "/ws/kubeconfig.go",
        "/ws/main.tf",
        "/ws/wp-config-sample.php",
        "/ws/client_secret.rs",
        "/ws/known_hosts",
        "/ws/rsa",
        "/ws/deploy_rsa.rs",
        "/ws/.dockerignore",
        "/ws/secrets.rs",
        "/ws/run/secrets/x",
    ];

    #[test]
    fn secret_files_are_recognised_by_name() {
        for path in SECRET {
            assert!(is_secret_path(Path::new(path)), "{path}");
        }
        for path in OPEN {
            assert!(!is_secret_path(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_names_of_all_places_begin_alike() {
        for list in [PRIVATE_PLACES, BUILD_PLACES, WINDOWS_PLACES] {
            assert!(text::list_entries(list).count() > 20);
        }
        for place in &*ALL_PLACES {
            assert!(!place.is_empty() && place.trim() == *place);
            assert!(is_secret_path(&Path::new("/ws").join(place)), "{place}");
        }
    }
}
