//! Tells the harmless contents of files that may name programs. A content is read as the program reads it that obeys
//! the file; one that is not understood is not harmless, nor is a setting that is not known to be.

use std::path::{Component, Path};

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Objects and lists in a JSON file; a file with more may be nested too deeply for the parser, which calls itself.
const MAX_BRACKETS: usize = 100;

const YARN_SETTINGS: &[&str] = &[
    "catalog",
    "catalogs",
    "changesetBaseRefs",
    "checksumBehavior",
    "compressionLevel",
    "defaultProtocol",
    "defaultSemverRangePrefix",
    "enableColors",
    "enableGlobalCache",
    "enableHyperlinks",
    "enableImmutableCache",
    "enableImmutableInstalls",
    "enableInlineBuilds",
    "enableMessageNames",
    "enableMirror",
    "enableProgressBars",
    "enableTelemetry",
    "enableTimers",
    "enableTransparentWorkspaces",
    "httpRetry",
    "httpTimeout",
    "immutablePatterns",
    "initFields",
    "initScope",
    "logFilters",
    "networkConcurrency",
    "nmHoistingLimits",
    "nmMode",
    "nmSelfReferences",
    "nodeLinker",
    "npmAlwaysAuth",
    "npmAuditExcludePackages",
    "npmAuditIgnoreAdvisories",
    "npmAuthToken",
    "npmMinimalAgeGate",
    "npmPreapprovedPackages",
    "npmPublishAccess",
    "npmPublishRegistry",
    "npmRegistries",
    "npmRegistryServer",
    "npmScopes",
    "packageExtensions",
    "pnpFallbackMode",
    "pnpIgnorePatterns",
    "pnpMode",
    "preferDeferredVersions",
    "preferInteractive",
    "preferReuse",
    "supportedArchitectures",
    "tsEnableAutoTypes",
    "winLinkType",
];

const YARN_CLASSIC_SETTINGS: &[&str] = &[
    "--install.frozen-lockfile",
    "child-concurrency",
    "disable-self-update-check",
    "ignore-engines",
    "ignore-optional",
    "ignore-platform",
    "init-author-email",
    "init-author-name",
    "init-license",
    "lastUpdateCheck",
    "network-timeout",
    "registry",
    "save-prefix",
    "strict-ssl",
    "version-git-message",
    "version-git-tag",
    "version-tag-prefix",
    "workspaces-experimental",
];

const NPM_SETTINGS: &[&str] = &[
    "access",
    "audit",
    "audit-level",
    "auto-install-peers",
    "dedupe-peer-dependents",
    "disallow-workspace-cycles",
    "enable-pre-post-scripts",
    "engine-strict",
    "fetch-retries",
    "fetch-timeout",
    "force",
    "fund",
    "git-checks",
    "git-tag-version",
    "hoist",
    "hoist-pattern[]",
    "ignore-workspace-root-check",
    "include-workspace-root",
    "init-author-name",
    "init-license",
    "init-version",
    "inject-workspace-packages",
    "install-links",
    "install-strategy",
    "legacy-peer-deps",
    "link-workspace-packages",
    "lockfile",
    "lockfile-include-tarball-url",
    "loglevel",
    "manage-package-manager-versions",
    "message",
    "minimum-release-age",
    "node-linker",
    "omit",
    "optional",
    "package-import-method",
    "package-lock",
    "prefer-frozen-lockfile",
    "prefer-offline",
    "prefer-workspace-packages",
    "production",
    "progress",
    "provenance",
    "public-hoist-pattern[]",
    "recursive-install",
    "registry",
    "resolution-mode",
    "resolve-peers-from-workspace-root",
    "save",
    "save-exact",
    "save-prefix",
    "save-workspace-protocol",
    "shamefully-hoist",
    "shared-workspace-lockfile",
    "side-effects-cache",
    "sign-git-tag",
    "strict-peer-dependencies",
    "tag-version-prefix",
    "update-notifier",
    "workspaces",
];

/// The settings of one registry, after its address.
const NPM_REGISTRY_SETTINGS: &[&str] =
    &["_auth", "_authToken", "_password", "always-auth", "email", "username"];

const PNPM_SETTINGS: &[&str] = &[
    "allowBuilds",
    "allowUnusedPatches",
    "allowedDeprecatedVersions",
    "auditConfig",
    "autoInstallPeers",
    "blockExoticSubdeps",
    "catalog",
    "catalogMode",
    "catalogs",
    "cleanupUnusedCatalogs",
    "dedupePeerDependents",
    "dedupePeers",
    "disallowWorkspaceCycles",
    "engineStrict",
    "gitChecks",
    "hoist",
    "hoistPattern",
    "ignoreWorkspaceCycles",
    "ignoredBuiltDependencies",
    "ignoredOptionalDependencies",
    "includeWorkspaceRoot",
    "injectWorkspacePackages",
    "linkWorkspacePackages",
    "minimumReleaseAge",
    "minimumReleaseAgeExclude",
    "neverBuiltDependencies",
    "nodeLinker",
    "onlyBuiltDependencies",
    "overrides",
    "packageExtensions",
    "packages",
    "patchedDependencies",
    "peerDependencyRules",
    "preferWorkspacePackages",
    "publicHoistPattern",
    "resolutionMode",
    "resolvePeersFromWorkspaceRoot",
    "saveExact",
    "savePrefix",
    "saveWorkspaceProtocol",
    "shamefullyHoist",
    "sharedWorkspaceLockfile",
    "strictDepBuilds",
    "strictPeerDependencies",
    "supportedArchitectures",
    "trustPolicy",
    "trustPolicyExclude",
    "updateConfig",
];

/// Settings of LuaLS, and the first parts of others.
const LUA_SETTINGS: &[&str] = &[
    "$schema",
    "codeLens",
    "completion",
    "diagnostics",
    "doc",
    "format",
    "hint",
    "hover",
    "language",
    "nameStyle",
    "runtime.builtin",
    "runtime.fileEncoding",
    "runtime.nonstandardSymbol",
    "runtime.path",
    "runtime.pathStrict",
    "runtime.special",
    "runtime.unicodeName",
    "runtime.version",
    "semantic",
    "signatureHelp",
    "spell",
    "telemetry",
    "type",
    "typeFormat",
    "window",
    "workspace.checkThirdParty",
    "workspace.ignoreDir",
    "workspace.ignoreSubmodules",
    "workspace.library",
    "workspace.maxPreload",
    "workspace.preloadFileSize",
    "workspace.useGitIgnore",
];

/// Never: the file is a program.
pub(super) fn program(_folder: &Path, _text: &str) -> bool {
    false
}

/// The name of a channel, or TOML.
pub(super) fn rust_toolchain(_folder: &Path, text: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        toolchain: Option<Toolchain>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Toolchain {
        channel: Option<String>,
        #[serde(rename = "components")]
        _components: Option<IgnoredAny>,
        #[serde(rename = "profile")]
        _profile: Option<IgnoredAny>,
        #[serde(rename = "targets")]
        _targets: Option<IgnoredAny>,
    }
    let channel = match toml_edit::de::from_str::<File>(text) {
        Ok(file) => file.toolchain.and_then(|toolchain| toolchain.channel),
        Err(_) => Some(text.trim().to_owned()),
    };
    channel.is_none_or(|channel| is_plain_word(&channel))
}

/// A program and its versions in each line.
pub(super) fn tool_versions(_folder: &Path, text: &str) -> bool {
    let is_version = |word: &str| {
        let prefixes = ["ref:", "prefix:", "latest:"];
        let version = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix));
        is_plain_word(version.unwrap_or(word))
    };
    // In mise it is a template, comments included.
    !text.contains('{')
        && text.lines().all(|line| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            words.next().is_none_or(|name| is_plain_word(name.trim_end_matches(':')))
                && words.all(is_version)
        })
}

/// Versions. All other words may name a program or a folder beside the file.
pub(super) fn python_version(_folder: &Path, text: &str) -> bool {
    let is_version = |word: &str| {
        let names = ["cpython@", "pypy@", "graalpy@", "python@"];
        let number = names.iter().find_map(|name| word.strip_prefix(name)).unwrap_or(word);
        let number = number.strip_suffix('t').unwrap_or(number);
        let end = number.find(|character: char| !matches!(character, '0'..='9' | '.'));
        let (number, pre_release) = number.split_at(end.unwrap_or(number.len()));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let pre_number = ["rc", "a", "b"].iter().find_map(|kind| pre_release.strip_prefix(kind));
        number.split('.').all(is_number)
            && (pre_release.is_empty() || pre_number.is_some_and(is_number))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).all(is_version)
}

/// The path of a Python of the system, or in the project's `.venv`, which is protected itself.
pub(super) fn pdm_python(folder: &Path, text: &str) -> bool {
    let path = Path::new(text.trim());
    let is_straight = !path.components().any(|part| part == Component::ParentDir);
    is_straight && (path.starts_with("/usr/bin") || path.starts_with(folder.join(".venv")))
}

pub(super) fn yarnrc_yml(_folder: &Path, text: &str) -> bool {
    has_only_yaml_keys(text, YARN_SETTINGS)
}

pub(super) fn pnpm_workspace(_folder: &Path, text: &str) -> bool {
    has_only_yaml_keys(text, PNPM_SETTINGS)
}

/// A setting and one value in each line.
pub(super) fn yarnrc(_folder: &Path, text: &str) -> bool {
    let is_value = |value: &str| {
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        match quoted {
            Some(inner) => !inner.contains(['"', '\\']),
            None => value.bytes().all(|it| it.is_ascii_alphanumeric() || b".^~-".contains(&it)),
        }
    };
    is_plain_text(text)
        && text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).all(|line| {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            YARN_CLASSIC_SETTINGS.contains(&key) && is_value(value)
        })
}

/// `key=value` in each line. Keys are neither quoted nor escaped, and name no variable.
pub(super) fn npmrc(_folder: &Path, text: &str) -> bool {
    text.split(['\n', '\r']).map(str::trim_ascii).all(|line| {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (key, value) = (key.trim_ascii(), value.trim_ascii());
        let of_registry = key.strip_prefix("//").and_then(|rest| rest.rsplit_once(':'));
        let scope = key.strip_prefix('@').and_then(|rest| rest.strip_suffix(":registry"));
        line.is_empty()
            || line.starts_with(['#', ';'])
            || NPM_SETTINGS.contains(&key)
            || key == "ignore-scripts" && value == "true"
            || scope.is_some_and(is_plain_word)
            || of_registry.is_some_and(|(address, key)| {
                NPM_REGISTRY_SETTINGS.contains(&key)
                    && address.split(['/', ':']).all(|part| part.is_empty() || is_plain_word(part))
            })
    })
}

/// JSON with comments, whose keys may be written as paths.
pub(super) fn luarc(_folder: &Path, text: &str) -> bool {
    fn is_harmless(parent: &str, property: &ObjectProp) -> bool {
        let path = format!("{parent}{}", property.name.as_str());
        let path = path.strip_prefix("Lua.").unwrap_or(&path);
        let is_known = |known: &str| {
            let rest = path.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        LUA_SETTINGS.iter().any(|known| is_known(known))
            || property.value.as_object().is_some_and(|object| {
                let path = format!("{path}.");
                object.properties.iter().all(|property| is_harmless(&path, property))
            })
    }
    if text.matches(['{', '[']).count() > MAX_BRACKETS {
        return false;
    }
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default());
    match parsed.ok().and_then(|parsed| parsed.value) {
        Some(Value::Object(object)) => object.properties.iter().all(|it| is_harmless("", it)),
        _ => false,
    }
}

/// Returns true if all that a YAML text has at its top are these keys. It reads lines: what is indented below a key, or
/// is an item of its list, belongs to the key, whatever it is.
fn has_only_yaml_keys(text: &str, known: &[&str]) -> bool {
    let mut is_below_key = false;
    is_plain_text(text)
        && text.lines().all(|line| {
            let content = line.trim_start_matches(' ');
            let is_key = line.split_once(':').is_some_and(|(key, value)| {
                known.contains(&key) && (value.is_empty() || value.starts_with(' '))
            });
            let belongs = content.len() < line.len() || line.starts_with("- ") || line == "-";
            // Some parsers take a tab for no indentation.
            let is_harmless = !content.starts_with('\t')
                && (content.is_empty()
                    || content.starts_with('#')
                    || is_key
                    || is_below_key && belongs
                    || !is_below_key && line == "---");
            is_below_key |= is_key;
            is_harmless
        })
}

/// Returns true if a text has no character that ends a line for some programs and not for others.
fn is_plain_text(text: &str) -> bool {
    let is_plain = |character: char| {
        matches!(character, '\n' | '\t')
            || !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    text.replace("\r\n", "\n").chars().all(is_plain)
}

/// Returns true for names and versions, which are no path in any system.
fn is_plain_word(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    !word.is_empty() && !word.starts_with('.') && word.bytes().all(is_plain)
}
