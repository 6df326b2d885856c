//! The names of files that are likely to hold secrets, wherever they are. In a pattern, `*` stands for any
//! characters. The names come from what the programs themselves write, from GitHub's collection of
//! `.gitignore` templates, and from the names that scanners such as gitrob and gitleaks look for.

/// Names in lower case that stand for a secret whatever else is said about the file.
const SECRET_NAMES: &[&str] = &[
    // Logins of curl, git, ftp and the like.
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".htpasswd",
    ".ftpconfig",
    "sftp-config.json",
    // Logins of databases.
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    // Tokens for registries of packages and images.
    ".npmrc",
    ".pypirc",
    ".dockercfg",
    ".dockerconfigjson",
    // Tokens and values of services: Vault, Cloudflare, Azure Functions, Rails, Dynaconf, Streamlit.
    ".vault-token",
    ".dev.vars",
    ".dev.vars.*",
    "local.settings.json",
    "master.key",
    ".secrets",
    ".secrets.toml",
    ".secrets.yml",
    ".secrets.yaml",
    ".secrets.json",
    "secrets.yml",
    "secrets.yaml",
    "secrets.json",
    "secrets.toml",
    "credentials.json",
    "credentials.toml",
    "credentials.yml",
    "credentials.yaml",
    // The password of the database and the keys of sessions.
    "wp-config.php",
    // Private keys, and stores of keys and passwords. Apple names its keys `AuthKey_ID.p8`.
    "*.pem",
    "*.key",
    "*.p8",
    "*.pk8",
    "*.pfx",
    "*.p12",
    "*.pkcs12",
    "*.jks",
    "*.keystore",
    "*.bks",
    "*.kdb",
    "*.kdbx",
    "*.psafe3",
    "*.agilekeychain",
    "*.keychain",
    "*.keychain-db",
    "*.keytab",
    "*.ppk",
    "*.asc",
    "*.gpg",
    "*.ovpn",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "id_dsa*",
    // Terraform writes all values, passwords among them, in clear.
    "*.tfvars",
    "*.tfvars.json",
    "*.tfstate",
    "*.tfstate.*",
];

/// Names that stand for a secret unless they say that the file is a template or made up.
const SECRET_NAMES_UNLESS_TEMPLATES: &[&str] = &[
    // Keys of service accounts and logins, as Google's and Firebase's consoles and manuals name them.
    "*service-account*.json",
    "*service_account*.json",
    "*serviceaccount*.json",
    "*firebase-adminsdk*.json",
    "gcp*key*.json",
    "gcloud*key*.json",
    "google*key*.json",
    "keyfile.json",
    "*credentials.json",
    "client_secret*.json",
    "oauth_creds.json",
    // Clusters with their tokens and keys.
    "*.kubeconfig",
    "*kubeconfig.yaml",
    "*kubeconfig.yml",
    "*kubeconfig.json",
    "kubeconfig*.yaml",
    "kubeconfig*.yml",
];

/// Names without an extension that mean a secret only for a file: folders with source code have them, too.
const SECRET_NAMES_OF_FILES: &[&str] = &["kubeconfig", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519"];

/// Parts of the names of templates for a file with secrets.
const TEMPLATE_MARKERS: &[&str] = &["example", "sample", "template", "dist", "defaults"];
/// Parts of further names of files with which no login is possible.
const FAKE_MARKERS: &[&str] = &["schema", "fake", "mock", "dummy"];

/// Suffixes that editors and users give to copies of a file.
const COPY_SUFFIXES: &[&str] = &["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo"];

/// Returns true if a file with this name, in lower case, is likely to hold secrets.
pub(super) fn is_secret_name(name: &str) -> bool {
    is_env_file(name)
        || matches_any(SECRET_NAMES, name)
        || matches_any(SECRET_NAMES_OF_FILES, name)
        || matches_any(SECRET_NAMES_UNLESS_TEMPLATES, name)
            && !has_marker(name, TEMPLATE_MARKERS)
            && !has_marker(name, FAKE_MARKERS)
}

/// Returns true if this name, in lower case, says nothing about a folder.
pub(super) fn is_of_files_only(name: &str) -> bool {
    matches_any(SECRET_NAMES_OF_FILES, name)
}

/// Returns true if the name of a secret file may end like this, in lower case. Left out are names that may have any
/// end, such as `.env.local`.
pub(super) fn may_end_with(end: &str) -> bool {
    let all = [SECRET_NAMES, SECRET_NAMES_UNLESS_TEMPLATES, SECRET_NAMES_OF_FILES];
    all.into_iter().flatten().any(|pattern| match pattern.rsplit_once('*') {
        Some((_, "")) => false,
        Some((_, last)) => last.ends_with(end) || end.ends_with(last),
        None => pattern.ends_with(end),
    }) || end == ".env"
}

fn matches_any(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, pattern)) = pattern.split_once('*') else { return name == pattern };
    let (middle, end) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    let rest = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
    rest.is_some_and(|rest| rest.contains(middle))
}

/// Removes the suffixes of backup copies.
pub(super) fn without_copy_suffixes(name: &str) -> &str {
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
