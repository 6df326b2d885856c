//! Programs that talk to other machines, containers and databases.

use crate::shell::args::{Args, attached_value, first_operand, operands};
use crate::shell::prefix::{Grant, form};
use crate::shell::{OperandUse, Word};

use super::{NetworkUse, Program, Starts, is_in, is_remote, program};
use crate::shell::harm::{
    self, CHANGES, CONTAINERS, DATA, Danger, INFRASTRUCTURE, PUBLISHES, has_operands_in_order,
    has_option, has_subcommand, has_word,
};

const ONLINE: Program = program("").network(NetworkUse::Always);
/// It can do anything.
const CLIENT: Program = ONLINE.grantable_prefixes(&[]);
const CLOUD: Program = ONLINE.dangers(&[Danger::Check(takes_down)]);
const CONTAINER: Program = program("").options_outside_grant(
    "vfHc --volume --mount --privileged --host --context --file --config --device --cap-add \
     --security-opt --network --pid --env-file --project-directory",
);
const BUCKETS: Danger = Danger::Subcommand("rm rb sync delete purge", DATA);
const STACK: Danger = Danger::Subcommand("destroy apply up deploy", INFRASTRUCTURE);
const CLUSTER: Danger = Danger::Subcommand("delete drain", INFRASTRUCTURE);
const SQL: Program = program("").dangers(&[Danger::Check(deletes_data)]);

pub(super) const PROGRAMS: &[Program] = &[
    ONLINE.with_names("aria2c dig host lftp mtr nslookup ping ping6 traceroute whois xh"),
    CLIENT.with_names("ftp http https nc ncat netcat sftp telnet"),
    CLIENT.with_names("scp").operand_use(OperandUse::Copies),
    CLIENT.with_names("wget").targets(harm::wget_targets),
    CLIENT.with_names("curl").version("--version").targets(harm::curl_targets),
    CLIENT.with_names("ssh").starts(Starts::Line),
    program("rsync")
        .targets(harm::rsync_targets)
        .operand_use(OperandUse::Copies)
        .network(NetworkUse::Check(|words| operands(words).any(is_remote)))
        .dangers(&[Danger::Prefix("--del", "deletes files that the source does not have")])
        .options_outside_grant(
            "e --rsh --rsync-path --daemon --temp-dir --backup-dir --partial-dir --log-file \
             --write-batch",
        )
        .grantable_prefixes(&[]),
    ONLINE.with_names("gh glab").dangers(&[
        Danger::Word("delete", "deletes something on the server"),
        Danger::InOrder("release create", PUBLISHES),
        Danger::Subcommand("merge accept", PUBLISHES),
        Danger::InOrder("repo edit", "changes the repository for everybody"),
    ]),
    program("hg p4 sl svn").grant(Grant::Exact).dangers(&[
        Danger::Subcommand("clean purge revert strip", CHANGES),
        Danger::Check(overwrites),
    ]),
    CLOUD.with_names("aws gcloud az heroku flyctl doctl"),
    CLOUD.with_names("fly").grantable_prefixes(&[]),
    ONLINE.with_names("gsutil rclone").dangers(&[BUCKETS]),
    ONLINE
        .with_names("kubectl")
        .dangers(&[CLUSTER])
        .options_outside_grant("sf --kubeconfig --server --context --token --as --filename --raw")
        .grantable_prefixes(&[form("get describe logs", 3)]),
    ONLINE.with_names("oc").dangers(&[CLUSTER]),
    ONLINE
        .with_names("helm")
        .offline_words("template lint create package")
        .dangers(&[Danger::Subcommand("uninstall delete", INFRASTRUCTURE)]),
    program("terraform")
        .network(NetworkUse::Subcommand("init apply plan destroy"))
        .dangers(&[STACK]),
    program("tofu pulumi cdk").dangers(&[STACK]),
    program("firebase netlify sam serverless supabase vercel wrangler")
        .grant(Grant::Exact)
        .dangers(&[Danger::Subcommand("delete deploy remove rm", INFRASTRUCTURE)]),
    program("ansible ansible-playbook").grantable_prefixes(&[]),
    CONTAINER
        .with_names("docker")
        .version("--version")
        .network(NetworkUse::Subcommand("pull push build login search buildx"))
        .dangers(&[Danger::Check(docker)])
        .grantable_prefixes(&[
            form("ps images logs inspect version info stats", 2),
            form("compose", 3).except("exec run"),
        ]),
    CONTAINER
        .with_names("podman")
        .version("--version")
        .network(NetworkUse::Subcommand("pull push build login search"))
        .dangers(&[Danger::Check(docker)])
        .grantable_prefixes(&[]),
    CONTAINER
        .with_names("docker-compose")
        .dangers(&[Danger::Check(compose)])
        .grantable_prefixes(&[form("up down ps logs build start stop restart", 2)]),
    SQL.with_names("psql sqlite3").version("--version").grantable_prefixes(&[]),
    SQL.with_names("mongo mongosh mysql").grantable_prefixes(&[]),
    SQL.with_names("mariadb mysqladmin"),
    program("dropdb dropuser").dangers(&[Danger::Always(DATA)]),
    program("redis-cli").dangers(&[Danger::Word("flushall flushdb", DATA)]),
    program("openssl").version("version"),
];

fn docker(words: Args<'_>) -> Option<&'static str> {
    let is_compose = operands(words).take(3).any(|word| word.text == "compose");
    if is_compose {
        return compose(words);
    }
    if has_subcommand(words, "push") {
        return Some(PUBLISHES);
    }
    let is_volume =
        has_operands_in_order(words, "volume rm") || has_operands_in_order(words, "volume remove");
    (has_word(words, "prune") || is_volume).then_some(CONTAINERS)
}

fn compose(words: Args<'_>) -> Option<&'static str> {
    let with_volumes = has_option(words, "v --volumes") && has_word(words, "down rm");
    with_volumes.then_some(CONTAINERS)
}

/// SQL statements that delete data.
fn deletes_data(words: Args<'_>) -> Option<&'static str> {
    words.iter().any(has_deleting_statement).then_some(DATA)
}

fn has_deleting_statement(word: &Word) -> bool {
    let value = attached_value(&word.text, &['c', 'e']);
    let text = format!("{} {value}", word.text).to_ascii_lowercase();
    let parts = text.split(|char: char| !char.is_ascii_alphabetic());
    let names: Vec<&str> = parts.filter(|name| !name.is_empty()).collect();
    names.iter().any(|name| is_in("deletemany drop dropdatabase truncate", name))
        || names.windows(2).any(|pair| pair == ["delete", "from"])
}

fn takes_down(words: Args<'_>) -> Option<&'static str> {
    let starts = ["delete-", "terminate-", "--delete"];
    let is_found = words.iter().any(|word| {
        is_in("rm rb delete destroy apps:destroy pg:reset", &word.text)
            || starts.iter().any(|start| word.text.starts_with(start))
    });
    is_found.then_some(INFRASTRUCTURE)
}

/// Options of Mercurial, Sapling and Subversion that throw changes away. `-C` of `hg status` shows copies.
fn overwrites(words: Args<'_>) -> Option<&'static str> {
    let switches = !is_in("status st stat", first_operand(words)) && has_option(words, "C --clean");
    (switches || has_option(words, "--remove-unversioned")).then_some(CHANGES)
}

#[cfg(test)]
mod tests {
    use turnwright_types::shell_script::ShellDialect;

    use crate::shell::{parse, stakes};

    #[test]
    fn other_version_control_throws_changes_away_too() {
        for (line, expected) in [
            ("hg update -C", true),
            ("hg up --clean default", true),
            ("hg revert --all --no-backup", true),
            ("hg -R x purge", true),
            ("sl goto -C main", true),
            ("svn revert -R .", true),
            ("svn cleanup --remove-unversioned", true),
            ("p4 revert //...", true),
            ("hg update", false),
            ("hg status -C", false),
            ("svn cleanup", false),
            ("svn commit -m 'revert x'", false),
        ] {
            let found = stakes(&parse(line, ShellDialect::Bash));
            assert_eq!(found == ["throws away uncommitted changes"], expected, "{line}");
        }
    }

    #[test]
    fn merges_of_gitlab_and_changes_of_a_repository_are_as_final_as_merges_of_github() {
        for (line, expected) in [
            ("glab mr merge 5 --yes", "publishes something"),
            ("glab mr accept 5", "publishes something"),
            ("gh pr merge 5", "publishes something"),
            (
                "gh repo edit o/r --visibility private --accept-visibility-change-consequences",
                "changes the repository for everybody",
            ),
            ("glab mr list", ""),
            ("gh repo view", ""),
        ] {
            assert_eq!(stakes(&parse(line, ShellDialect::Bash)).join("; "), expected, "{line}");
        }
    }
}
