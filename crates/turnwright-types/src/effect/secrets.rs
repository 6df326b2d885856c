//! Recognises files that are likely to hold secrets by their names. Reading one needs the user's
//! permission, and searches do not show their contents.

use std::path::{Path, PathBuf};

use crate::secret_file::is_secret_file;

/// Whole file names, in lower case.
const SECRET_FILE_NAMES: &[&str] = &[
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
    "credentials.json",
    "credentials.toml",
    ".dev.vars",
    "master.key",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
    "secrets.toml",
];

const SECRET_NAME_SUFFIXES: &[&str] = &[
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

/// Parts of the names of `.env` files that hold no secrets but are templates for the real one.
const TEMPLATE_MARKERS: &[&str] = &["example", "sample", "template", "dist", "defaults"];

/// Suffixes that editors and users give to copies of a file.
const COPY_SUFFIXES: &[&str] = &["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo"];

/// Places of credentials below a home folder. Everything below them counts too.
const HOME_CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".netrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".password-store",
    ".vault-token",
    ".boto",
    ".s3cfg",
    ".oci",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/doctl",
    ".config/github-copilot",
    ".config/stripe",
    ".config/containers/auth.json",
    ".config/goose/secrets.yaml",
    ".config/helm/repositories.yaml",
    ".config/solana/id.json",
    ".config/sops/age",
    ".authinfo",
    ".authinfo.gpg",
    ".netrc.gpg",
    ".bitcoin",
    ".databrickscfg",
    ".electrum",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".kaggle/kaggle.json",
    ".snowsql/config",
    ".local/share/opencode/auth.json",
    ".docker/config.json",
    ".fly",
    ".gem/credentials",
    ".local/share/keyrings",
    ".terraform.d/credentials.tfrc.json",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/BraveSoftware",
    ".config/chromium",
    ".config/google-chrome",
    ".config/microsoft-edge",
    ".mozilla",
    ".thunderbird",
    "Library/Application Support/Firefox",
    "Library/Application Support/Google/Chrome",
    "Library/Keychains",
];

/// Further such places. Builds read them, because they also hold settings.
const HOME_BUILD_CREDENTIALS: &[&str] = &[
    ".npmrc",
    ".yarnrc.yml",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet/NuGet.Config",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".config/pip",
    ".my.cnf",
    ".terraformrc",
    ".claude.json",
    ".bash_history",
    ".zsh_history",
    ".local/share/fish/fish_history",
    ".mysql_history",
    ".node_repl_history",
    ".psql_history",
    ".python_history",
    ".sqlite_history",
];

/// Places of both kinds that only Windows has. They are in no sandbox's list, because it has none.
const WINDOWS_CREDENTIALS: &[&str] = &[
    "AppData/Local/1Password",
    "AppData/Local/BraveSoftware",
    "AppData/Local/Chromium",
    "AppData/Local/github-copilot",
    "AppData/Local/Google/Chrome",
    "AppData/Local/Microsoft/Credentials",
    "AppData/Local/Microsoft/Edge",
    "AppData/Local/Microsoft/Vault",
    "AppData/Roaming/Bitcoin",
    "AppData/Roaming/Composer/auth.json",
    "AppData/Roaming/doctl",
    "AppData/Roaming/Electrum",
    "AppData/Roaming/gcloud",
    "AppData/Roaming/GitHub CLI",
    "AppData/Roaming/glab-cli",
    "AppData/Roaming/gnupg",
    "AppData/Roaming/helm/repositories.yaml",
    "AppData/Roaming/Microsoft/Credentials",
    "AppData/Roaming/Microsoft/Crypto",
    "AppData/Roaming/Microsoft/Protect",
    "AppData/Roaming/Microsoft/Vault",
    "AppData/Roaming/Microsoft/Windows/PowerShell/PSReadLine",
    "AppData/Roaming/Mozilla",
    "AppData/Roaming/NuGet/NuGet.Config",
    "AppData/Roaming/pip",
    "AppData/Roaming/postgresql/pgpass.conf",
    "AppData/Roaming/rclone",
    "AppData/Roaming/sops/age",
    "AppData/Roaming/Subversion/auth",
    "AppData/Roaming/Thunderbird",
];

/// The first parts of all places that do not begin with a dot.
const FIRST_PARTS: [&[u8]; 2] = [b"library", b"appdata"];

/// The places of credentials below a home folder that no program of the model may read. Not all of them
/// exist.
pub fn credential_paths(home: &Path) -> Vec<PathBuf> {
    HOME_CREDENTIALS.iter().map(|it| home.join(it)).collect()
}

/// Further places, which only the user's own commands need to read.
pub fn build_credential_paths(home: &Path) -> Vec<PathBuf> {
    HOME_BUILD_CREDENTIALS.iter().map(|it| home.join(it)).collect()
}

/// Whether the path is a place of credentials, or below one, in any folder.
fn is_in_credential_place(path: &Path) -> bool {
    let mut rest = path.components();
    while let Some(part) = rest.next() {
        let first = part.as_os_str().as_encoded_bytes();
        // The names of all these places begin so, and those of most others do not.
        let is_first = |it: &&[u8]| first.eq_ignore_ascii_case(it);
        if !first.starts_with(b".") && !FIRST_PARTS.iter().any(is_first) {
            continue;
        }
        let is_below = |place: &&str| {
            let Some((name, below)) = place.as_bytes().split_at_checked(first.len()) else {
                return false;
            };
            if !matches!(below.first(), None | Some(b'/')) || !name.eq_ignore_ascii_case(first) {
                return false;
            }
            let mut parts = rest.clone();
            let mut is_next = |name: &[u8]| {
                parts
                    .next()
                    .is_some_and(|it| it.as_os_str().as_encoded_bytes().eq_ignore_ascii_case(name))
            };
            below.split(|it| *it == b'/').skip(1).all(&mut is_next)
        };
        let all = [HOME_CREDENTIALS, HOME_BUILD_CREDENTIALS, WINDOWS_CREDENTIALS];
        if all.into_iter().flatten().any(is_below) {
            return true;
        }
    }
    false
}

/// Returns true if a file at this path is likely to hold keys or passwords, judging by its name, or if a secret of
/// this process comes from it.
pub fn is_secret_path(path: &Path) -> bool {
    if is_secret_file(path) {
        return true;
    }
    let Some(name) = path.file_name().map(|it| it.to_string_lossy().to_lowercase()) else {
        return false;
    };
    let name = without_copy_suffixes(&name);
    let at_path = is_in_credential_place(path);
    // Public keys are meant to be shared.
    let extension = name.rsplit_once('.').map(|it| it.1);
    let is_public = extension == Some("pub") || name == "known_hosts";
    let is_key = name.starts_with("id_rsa")
        || name.starts_with("id_ed25519")
        || name.starts_with("id_ecdsa")
        || name.starts_with("id_dsa");
    let is_named = SECRET_FILE_NAMES.contains(&name)
        || SECRET_NAME_SUFFIXES.iter().any(|it| name.ends_with(it));
    !is_public && (is_env_file(name) || is_key || is_named || at_path)
}

/// Removes the suffixes of backup copies.
fn without_copy_suffixes(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = COPY_SUFFIXES.iter().find_map(|it| name.strip_suffix(it)) {
        name = rest;
    }
    name
}

/// `.env`, `.env.local`, `.env-prod`, `prod.env`; not `.env.example`.
fn is_env_file(name: &str) -> bool {
    let is_template =
        TEMPLATE_MARKERS.iter().any(|it| name.split(['.', '-', '_']).any(|part| part == *it));
    let extension = name.rsplit_once('.').map(|it| it.1);
    let is_env = extension == Some("env")
        || [".env.", ".env-", ".env_"].iter().any(|it| name.starts_with(it));
    (is_env || name == ".envrc") && !is_template
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_files_are_recognised_by_name() {
        let secret = [
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
        ];
        let open = [
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
        ];
        for path in secret {
            assert!(is_secret_path(Path::new(path)), "{path}");
        }
        for path in open {
            assert!(!is_secret_path(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn the_names_of_all_places_begin_alike() {
        let all = [HOME_CREDENTIALS, HOME_BUILD_CREDENTIALS, WINDOWS_CREDENTIALS];
        for place in all.into_iter().flatten() {
            assert!(is_secret_path(&Path::new("/ws").join(place)), "{place}");
        }
    }
}
