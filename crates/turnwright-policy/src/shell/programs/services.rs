//! Programs that talk to other machines, containers and databases.

use crate::shell::OperandUse;
use crate::shell::args::{self, Args, attached_value, first_operand, operands};
use crate::shell::prefix::{Grant, form};

use super::{NetworkUse, Program, SimpleCommand, Starts, WordList, is_in, is_remote, program};
use crate::shell::harm::{
    self, CHANGES, CONTAINERS, DATA, Danger, INFRASTRUCTURE, PUBLISHES, has_operands_in_order,
    has_option, has_word,
};

const ONLINE: Program = program("").network(NetworkUse::Always);
/// It can do anything.
const CLIENT: Program = ONLINE.grantable_prefixes(&[]);
const CLOUD: Program = ONLINE.dangers(REMOTE);
/// They also run statements, as `wrangler d1 execute --command` does.
const REMOTE: &[Danger] = &[Danger::Check(takes_down), Danger::Check(deletes_data)];
/// Tools that bring about the state that files describe.
const STACK: &[Danger] = &[Danger::Check(takes_down), Danger::Word("apply up", INFRASTRUCTURE)];
const ON_SERVER: &str = "deletes something on the server";
const REQUEST: &[Danger] = &[Danger::Check(requests_deletion)];
const CONTAINER: Program = program("").options_outside_grant(
    "vfHc --volume --mount --privileged --host --context --file --config --device --cap-add \
     --security-opt --network --pid --env-file --project-directory",
);
const BUCKETS: Danger = Danger::Subcommand("delete move purge rb rm sync", DATA);
const CLUSTER: Danger = Danger::Subcommand("delete drain", INFRASTRUCTURE);
const SQL: Program = program("").statements().dangers(&[Danger::Check(deletes_data)]);

pub(super) const PROGRAMS: &[Program] = &[
    ONLINE.with_names("aria2c dig host lftp mtr nslookup ping ping6 traceroute whois xh"),
    CLIENT.with_names("ftp http https nc ncat netcat sftp telnet"),
    CLIENT.with_names("scp").operand_use(OperandUse::Copies),
    CLIENT.with_names("wget").targets(harm::wget_targets).dangers(REQUEST),
    CLIENT.with_names("curl").version("--version").targets(harm::curl_targets).dangers(REQUEST),
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
        Danger::InOrder("repo archive", ON_SERVER),
        Danger::Word("delete", ON_SERVER),
        Danger::Check(requests_deletion),
        Danger::InOrder("release create", PUBLISHES),
        Danger::Word("merge accept --public", PUBLISHES),
        Danger::InOrder("repo edit", "changes the repository for everybody"),
    ]),
    program("hg p4 sl svn").grant(Grant::Exact).dangers(&[
        Danger::Subcommand("clean purge revert strip", CHANGES),
        Danger::Check(overwrites),
    ]),
    CLOUD.with_names("aws az bq doctl flyctl gcloud hcloud heroku pscale railway stripe"),
    CLOUD.with_names("fly").grantable_prefixes(&[]),
    ONLINE.with_names("gsutil rclone").dangers(&[BUCKETS]),
    ONLINE
        .with_names("kubectl")
        .dangers(&[CLUSTER])
        .options_outside_grant("sf --kubeconfig --server --context --token --as --filename --raw")
        .grantable_prefixes(&[form("get describe logs", 3)]),
    ONLINE.with_names("oc").dangers(&[CLUSTER, Danger::InOrder("adm drain", INFRASTRUCTURE)]),
    ONLINE.with_names("helm").offline_words("template lint create package").dangers(&[
        Danger::Subcommand("del delete rollback un uninstall", INFRASTRUCTURE),
        Danger::InOrder("secrets uninstall", INFRASTRUCTURE),
    ]),
    program("terraform").network(NetworkUse::Subcommand("init apply plan destroy")).dangers(STACK),
    program("tofu pulumi cdk").dangers(STACK),
    program("helmfile sst terragrunt").grant(Grant::Exact).dangers(STACK),
    program("neonctl turso").grant(Grant::Exact).dangers(REMOTE),
    program("firebase kamal netlify sam serverless sls supabase vault vercel wrangler")
        .grant(Grant::Exact)
        .dangers(REMOTE),
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
        .with_names("podman nerdctl")
        .version("--version")
        .network(NetworkUse::Subcommand("pull push build login search"))
        .dangers(&[Danger::Check(docker)])
        .grantable_prefixes(&[]),
    CONTAINER
        .with_names("docker-compose")
        .dangers(&[Danger::Check(compose)])
        .grantable_prefixes(&[form("up down ps logs build start stop restart", 2)]),
    SQL.with_names("clickhouse-client psql sqlite3").version("--version").grantable_prefixes(&[]),
    SQL.with_names("duckdb mariadb mongo mongosh mysql mysqladmin redis-cli sqlcmd valkey-cli")
        .grantable_prefixes(&[]),
    program("dropdb dropuser").dangers(&[Danger::Always(DATA)]),
    program("openssl").version("version"),
];

fn docker(words: Args<'_>) -> Option<&'static str> {
    let is_named = |name: &str| operands(words).take(3).any(|word| word.text == name);
    if is_named("push") || has_word(words, "--push") {
        return Some(PUBLISHES);
    }
    if is_named("compose") {
        return compose(words);
    }
    let deletes = ["volume rm", "volume remove", "stack rm", "service rm", "system reset"];
    let is_found = deletes.into_iter().any(|in_order| has_operands_in_order(words, in_order))
        || has_word(words, "prune")
        || super::names_subcommand(words, "rm") && has_option(words, "v --volumes");
    is_found.then_some(CONTAINERS)
}

fn compose(words: Args<'_>) -> Option<&'static str> {
    let with_volumes = has_option(words, "v --volumes") && has_word(words, "down rm");
    with_volumes.then_some(CONTAINERS)
}

/// Statements that delete data.
fn deletes_data(words: Args<'_>) -> Option<&'static str> {
    words.iter().any(|word| has_deleting_statement(&word.text)).then_some(DATA)
}

pub(in crate::shell) fn has_deleting_statement(word: &str) -> bool {
    let value = attached_value(word, &['c', 'e']);
    let text = format!("{word} {value}").to_ascii_lowercase();
    let parts = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    let names: Vec<&str> = parts.filter(|name| !name.is_empty()).collect();
    let deleting = "deletemany drop dropdatabase flushall flushdb truncate";
    names.iter().any(|name| is_in(deleting, name))
        || names.windows(2).any(|pair| pair == ["delete", "from"])
}

/// Returns true for a client of a database, also behind a program that starts it.
pub(in crate::shell) fn names_client(command: &SimpleCommand) -> bool {
    command.argv().any(|word| super::find(args::name(word)).reads_statements)
}

fn takes_down(words: Args<'_>) -> Option<&'static str> {
    const VERBS: WordList = "bulk-delete delete deploy destroy down drop promote prune purge rb remove reset \
        restore rm rollback terminate undefine --prod";
    const BEGINNINGS: WordList =
        "--delete delete- deregister- purge- schedule-key-deletion terminate-";
    let is_found = words.iter().any(|word| {
        let verb = word.text.rsplit(':').next().unwrap_or_default();
        is_in(VERBS, verb) || BEGINNINGS.split(' ').any(|start| word.text.starts_with(start))
    });
    is_found.then_some(INFRASTRUCTURE)
}

/// `curl -X DELETE` and mutations of GraphQL that delete, unless this machine answers.
fn requests_deletion(words: Args<'_>) -> Option<&'static str> {
    let deletes = has_word(words, "delete")
        || words.iter().any(|word| {
            let text = word.text.to_ascii_lowercase();
            text.contains("mutation") && text.contains("delete")
        });
    (deletes && !super::names_only_this_machine(super::find("curl"), words)).then_some(ON_SERVER)
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

    /// Asserts which of the lines destroy or publish something.
    fn assert_stakes(lines: &[&str], expected: bool) {
        let wrong: Vec<_> = lines
            .iter()
            .filter(|line| stakes(&parse(line, ShellDialect::Bash)).is_empty() == expected)
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn what_a_command_starts_elsewhere_or_behind_a_runner_is_as_dangerous_as_alone() {
        let dangerous = [
            "pnpm exec prisma migrate reset",
            "pnpm dlx prisma@5 migrate reset",
            "yarn prisma migrate reset",
            "bun x prisma db push --force-reset",
            "npx -y prisma@latest migrate reset",
            "npx dotenv-cli -e .env -- prisma migrate reset",
            "cross-env A=b prisma migrate reset",
            "mise x -- terraform destroy",
            "aws-vault exec prod -- aws s3 rm s3://x",
            "nix shell nixpkgs#terraform -c terraform destroy",
            "tmux send-keys 'terraform destroy' Enter",
            ".venv/bin/python -m alembic downgrade base",
            "python -m twine upload dist/x",
            "uv run python manage.py flush",
            "node node_modules/.bin/prisma migrate reset",
            "php bin/console doctrine:fixtures:load",
            "docker exec -i db psql -c 'drop table x'",
            "docker compose exec app php artisan migrate:fresh",
            "docker run --rm hashicorp/terraform destroy",
            "kubectl exec db-0 -- dropdb x",
            "heroku run rails db:drop",
            "ssh host 'docker compose down -v'",
            "ssh -p 22 host docker exec db dropdb x",
            "ssh host \"cd /srv && psql -c 'drop table x'\"",
        ];
        assert_stakes(&dangerous, true);
        let harmless = [
            "pnpm add prisma",
            "pnpm rm prisma",
            "npx -y prisma@latest migrate dev",
            "mise x -- terraform plan",
            "python -m pytest -k delete",
            "python3 manage.py migrate",
            "npm run publish",
            "docker exec x rm -rf /var/cache/x",
            "docker compose exec app npm test",
            "docker run --rm -v a:b node npm test",
            "docker exec c ls",
            "docker exec c rm -v x",
            "docker run -v./:/w alpine rm -r /w/x",
            "docker compose exec web pytest",
            "docker compose exec web python manage.py migrate",
            "kubectl exec p -- ls",
            "kubectl get np",
            "kubectl -n argocd get deploy",
            "kubectl rollout restart deploy vault",
            "tmux send-keys 'npm run dev' Enter",
            "npx prettier --write .",
            "pnpm dlx create-vite",
            "ssh host uptime",
            "ssh host 'git pull && sudo systemctl restart app'",
        ];
        assert_stakes(&harmless, false);
    }

    #[test]
    fn statements_that_a_client_gets_by_its_input_count() {
        let dangerous = [
            "psql x <<EOF\ndrop table y;\nEOF",
            "psql x <<'EOF'\ndelete from y;\nEOF",
            "cat <<EOF | mysql x\ndrop table y;\nEOF",
            "mongosh <<EOF\ndb.dropDatabase()\nEOF",
            "docker exec -i db psql <<EOF\ntruncate y;\nEOF",
            "echo 'DROP DATABASE x' | mysql -u root",
            "printf 'delete from y' | sqlite3 x.db",
            "echo FLUSHALL | redis-cli",
            "cat > x.sql <<'EOF'\ndrop table y;\nEOF\npsql -f x.sql",
        ];
        assert_stakes(&dangerous, true);
        let harmless = [
            "psql x <<EOF\nselect 1;\nEOF",
            "echo 'select 1' | psql",
            "echo 'drop table x' > x.sql",
            "cat > x.sql <<'EOF'\ndrop table y;\nEOF",
            "git commit -m 'drop table x'",
        ];
        assert_stakes(&harmless, false);
    }

    #[test]
    fn clients_of_clouds_databases_and_registries_are_known() {
        let dangerous = [
            "aws kms schedule-key-deletion --key-id x",
            "gcloud alpha firestore bulk-delete",
            "heroku addons:destroy x",
            "firebase firestore:delete --all-collections",
            "hcloud server delete x",
            "railway volume delete",
            "npx supabase db reset --linked",
            "npx wrangler d1 execute x --remote --command 'drop table y'",
            "vercel --prod",
            "neonctl branches delete x",
            "terragrunt run-all apply",
            "terraform state rm x",
            "kubectl -n x --context p --kubeconfig k delete ns y",
            "kubectl delete ns x --dry-run=none",
            "helm -n x un y",
            "docker rm -fv db",
            "docker stack rm x",
            "docker buildx build --push .",
            "podman system reset -f",
            "nerdctl volume rm x",
            "rclone move a b:",
            "railway run npx prisma migrate reset",
            "fly ssh console -C 'dropdb x'",
            "duckdb x.db 'drop table y'",
            "flask db downgrade",
            "npx drizzle-kit push --force",
            "npx sequelize-cli db:drop",
            "npx sequelize-cli db:migrate:undo:all",
            "npx typeorm schema:drop -d x",
            "npx knex migrate:rollback --all",
            "clickhouse-client -q 'drop table x'",
            "turso db destroy x",
            "pscale branch delete x y",
            "stripe customers delete x",
            "sls remove",
            "deno publish",
            "npx jsr publish",
            "wp db reset --yes",
            "rails db:migrate:reset",
            "gh repo archive o/r",
            "gh gist create x --public",
            "curl -X DELETE https://api.example/x",
            r#"curl https://api.example -d '{"query":"mutation { volumeDelete(id: 1) }"}'"#,
            "yarn npm publish",
            "yarn npm tag add x@1.0.0 latest",
            "npm dist-tag add x@1.0.0 latest",
            "npm dist-tags a x@1.0.0 latest",
            "npm owner add mallory x --dry-run",
            "npm unpublish x@1.0.0",
            "npm deprecate x@1 'use 2'",
            "npm owner add mallory x",
            "npm access grant read-write o:t x",
            "npx semantic-release",
            "cargo owner --add mallory x",
            "gem owner x --add mallory",
            "./mvnw deploy",
            "pdm publish",
        ];
        assert_stakes(&dangerous, true);
    }

    #[test]
    fn what_only_looks_explains_or_tries_is_not_dangerous() {
        let harmless = [
            "terraform destroy -help",
            "terraform plan -destroy",
            "kubectl delete --help",
            "kubectl delete pod x --dry-run=client",
            "helm uninstall x --dry-run",
            "aws s3 rm s3://x --dryrun",
            "cargo publish --dry-run",
            "npm publish --dry-run",
            "npm dist-tag ls x",
            "npm owner ls x",
            "yarn workspace x add npm",
            "npx semantic-release --dry-run",
            "gh pr merge --help",
            "cargo test publish",
            "cargo run -- publish",
            "uv run pytest publish",
            "psql -c 'select * from drop_log'",
            "curl -X DELETE http://localhost:3000/x",
            "curl -X POST https://api.example/x",
            "alembic upgrade head",
            "terraform plan",
            "gh pr create --fill",
            "helm repo remove x",
            "npx expo run:android --variant release",
            "npx supabase start",
            "docker rm x",
        ];
        assert_stakes(&harmless, false);
        // Programs of BSD take an option behind an operand for a file.
        let dangerous = [
            "rm -rf * --help",
            "yarn publish --dry-run",
            "cdk destroy --force --dry-run",
            "gh pr merge 5 --squash --body --help",
            "kubectl delete ns x --dry-run=client --dry-run=none",
            "npm publish --dry-run --no-dry-run",
            "npm publish --dry-run false",
            "gh api -X DELETE repos/o/r -H localhost:1",
            "oc adm drain node1",
            "yarn workspace x publish",
            "cargo workspaces publish",
        ];
        assert_stakes(&dangerous, true);
    }
}
