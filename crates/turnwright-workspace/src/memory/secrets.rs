//! Detects what looks like a key or password, so that none is written to a note. This is a
//! heuristic: unknown formats pass.

/// A key format: prefixes, which characters follow, how many at least, and what the key is called. A key has
/// a digit or a capital letter, unlike `sk-circle-fade-dot-before` and `npm_config_…`.
type KeyFormat = (&'static [&'static str], fn(char) -> bool, usize, &'static str);

const KEY_FORMATS: &[KeyFormat] = &[
    (&["sk-", "dckr_pat_", "glsa_", "hvs.", "nvapi-", "SG.", "xapp-"], is_word, 20, "an API key"),
    (&["sk_live_", "rk_live_", "sk_test_", "sb_secret_", "tvly-"], is_word, 16, "an API key"),
    (&["AGE-SECRET-KEY-1", "dapi", "dop_v1_", "lin_api_", "xai-"], is_plain, 30, "an API key"),
    (&["llx-", "ntn_", "pplx-", "r8_", "sbp_", "shpat_", "whsec_"], is_plain, 30, "an API key"),
    (&["gsk_", "hf_", "AIza", "GOCSPX-"], is_word, 28, "an API key"),
    (&["github_pat_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_"], is_word, 30, "a GitHub token"),
    (&["glpat-", "glptt-", "glrt-", "gldt-"], is_word, 20, "a GitLab token"),
    (&["npm_", "pypi-"], is_word, 30, "a token for packages"),
    (&["AKIA", "ASIA"], is_upper, 16, "an AWS key"),
    (&["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-"], is_word, 10, "a Slack token"),
    (&["eyJ"], is_dotted, 40, "a token"),
];

/// Names of secret values. Latin letters are in lower case.
const SECRET_NAMES: &str = "password,passwd,pwd,secret,token,api_key,api-key,apikey,api key,access_key,access key,\
                            accesskey,accountkey,secret_key,passwort,пароль,Пароль,密码,密钥,口令,bearer";

/// A shorter value may be an ordinary word.
const MIN_VALUE_CHARS: usize = 12;

/// Finds something in a text that looks like a secret, and describes it for the model.
pub fn find_secret(text: &str) -> Option<&'static str> {
    let key = KEY_FORMATS.iter().find(|(prefixes, fits, least, _)| {
        prefixes.iter().any(|prefix| contains_key(text, prefix, *fits, *least))
    });
    if let Some((.., what)) = key {
        return Some(what);
    }
    if text.lines().any(|line| line.contains("-----BEGIN ") && line.contains("PRIVATE KEY")) {
        return Some("a private key");
    }
    if text.lines().any(assigns_secret) {
        return Some("a password or token");
    }
    text.split_whitespace().any(has_password).then_some("a login in a URL")
}

fn contains_key(text: &str, prefix: &str, fits: fn(char) -> bool, least: usize) -> bool {
    text.match_indices(prefix).any(|(at, _)| {
        let begins = !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let rest = &text[at + prefix.len()..];
        let key = rest.split(|c: char| !fits(c)).next().unwrap_or_default();
        begins && key.len() >= least && key.contains(is_upper)
    })
}

/// Returns true if a line assigns a secret, as in `PASSWORD = "k3x…"` or `the token is …`.
fn assigns_secret(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    SECRET_NAMES.split(',').any(|name| {
        lower.match_indices(name).any(|(at, _)| {
            let rest = line[at + name.len()..].trim_start_matches(['"', '\'', '`', '*', ' ']);
            let assigned = rest.strip_prefix([':', '=', '：']);
            let said = ["是", "is ", "is:"].into_iter().find_map(|word| rest.strip_prefix(word));
            // A header has nothing between this and the token.
            let header = (name == "bearer").then_some(rest);
            let Some(value) = assigned.or(said).or(header) else { return false };
            let value = value.trim_start_matches([':', '：', '=', ' ', '"', '\'', '`', '*']);
            // Chinese and Japanese have no blanks between words.
            let end =
                value.find(|c: char| c.is_whitespace() || c > '\u{2e7f}' || "\"'`,;)".contains(c));
            let value = &value[..end.unwrap_or(value.len())];
            is_random(value) && (assigned.is_some() || is_mixed(value))
        })
    })
}

/// Returns true if a value mixes letters and digits and is not a placeholder.
fn is_random(value: &str) -> bool {
    value.chars().count() >= MIN_VALUE_CHARS
        && !value.starts_with(['$', '<', '{', '[', '(', '%', '/', '.'])
        && !value.contains("://")
        && value.chars().any(|c| c.is_ascii_digit())
        && value.chars().any(char::is_alphabetic)
}

/// Returns true if digits and other characters alternate often, not as in `base64-encoded`, of which sentences speak.
fn is_mixed(value: &str) -> bool {
    let pairs = value.as_bytes().windows(2);
    pairs.filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit()).count() > 4
}

/// Returns true if a URL contains a password, as in `https://user:password@host`.
fn has_password(word: &str) -> bool {
    let Some((_, rest)) = word.split_once("://") else { return false };
    let Some((login, _)) = rest.split('/').next().and_then(|authority| authority.rsplit_once('@'))
    else {
        return false;
    };
    login.split_once(':').is_some_and(|(_, password)| {
        password.len() >= 6 && !password.starts_with(['$', '<', '{', '*'])
    })
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn is_word(c: char) -> bool {
    is_plain(c) || c == '_' || c == '-'
}

fn is_dotted(c: char) -> bool {
    is_word(c) || c == '.'
}

fn is_upper(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_passwords_are_seen_and_words_about_them_are_not() {
        let long = "a1B2".repeat(10);
        let secret = [
            format!("key sk-{long}"),
            format!("OPENAI=sk-proj-{long}"),
            format!("ghp_{long}"),
            format!("github_pat_{long}"),
            "AKIAABCDEFGHIJ123456".to_owned(),
            "AKIAABCDEFGHIJKLMNOP".to_owned(),
            format!("xoxb-{long}"),
            format!("dapi{long}, sbp_"),
            format!("SG.{long}.{long}"),
            format!("sb_secret_{long}"),
            format!("AGE-SECRET-KEY-1{}", long.to_uppercase()),
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCY".to_owned(),
            "DefaultEndpointsProtocol=https;AccountKey=Zk39xQ71vvLm==".to_owned(),
            "SECRET_KEY = 'k3x9v8b2m4n7'".to_owned(),
            format!("eyJ{long}.{long}.x"),
            "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
            "password=correct-horse-1".to_owned(),
            "DB_PASSWORD: \"correct1horse2\"".to_owned(),
            "- **token**: `abcdef123456789`".to_owned(),
            "postgres://app:hunter22@db/x".to_owned(),
            "The staging password is `k3x9-v8b2-m4n7`.".to_owned(),
            "curl -H 'Authorization: Bearer a1b2c3d4e5f6'".to_owned(),
            "数据库密码：k3x9v8b2m4n7。".to_owned(),
            "密码是k3x9v8b2m4n7".to_owned(),
            "密码是：k3x9v8b2m4n7".to_owned(),
            "The staging password is: k3x9-v8b2-m4n7".to_owned(),
            "Пароль: k3x9v8b2m4n7".to_owned(),
        ];
        let open = [
            "The password is in the keychain.",
            "task-force-of-many-words-that-is-long",
            "risk-averse-people-choose-the-slow-path",
            "PASSWORD=$DATABASE_PASSWORD_1",
            "token: <your token 123456789>",
            "password: see docs/setup2.md",
            "The password is in docs/setup2.md",
            "Authorization: Bearer $API_TOKEN_2",
            "The token is base64-encoded, the password is SHA256-hashed-v2.",
            "bearer_auth_v2_enabled is for Bearer token-v2-header",
            "密码是用bcrypt算法加密12轮之后存储的",
            "密钥：存放在1号服务器的/etc/keys目录里面",
            "api_key = read from the environment",
            "-----BEGIN PUBLIC KEY-----",
            "https://example.com:8080/a@b",
            "ssh://git@example.com/x",
            "the tokenizer: cl100k",
            "AKIA is a prefix",
            "sk-circle-fade-dot-before-after",
            "npm_config_cache_of_the_second_package",
            "the model xai-grok-4-1-fast-non-reasoning-latest",
            "the access key is in the vault",
        ];
        for text in secret {
            assert!(find_secret(&text).is_some(), "{text}");
        }
        for text in open {
            assert_eq!(find_secret(text), None, "{text}");
        }
    }
}
