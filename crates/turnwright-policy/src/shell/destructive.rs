//! Commands that destroy or publish something irrecoverably, which are asked about even in modes
//! that ask about little else. Options are recognised generously, so that rather too much is asked
//! about than too little. The texts complete a sentence that begins with "it".

use super::args::{Args, is_option, operands};
use super::{SimpleCommand, Word, catastrophic};

const CHANGES: &str = "throws away uncommitted changes";
const PUBLISHES: &str = "publishes something";
const DATA: &str = "deletes data for good";
const INFRASTRUCTURE: &str = "changes or takes down remote infrastructure";
const HISTORY: &str = "deletes the data that lost commits are recovered from";

/// What a command destroys or publishes, if anything.
pub(super) fn danger(command: &SimpleCommand) -> Option<&'static str> {
    super::args::behind_wrappers(command, |program, words| {
        program_danger(program, words, command.has_unknown_args)
    })
}

fn program_danger(program: &str, words: Args<'_>, has_unknown_args: bool) -> Option<&'static str> {
    match program {
        "git" => git(words),
        "rm" if has_unknown_args => Some("deletes files that are not known in advance"),
        "rm" => rm(words),
        "find" | "fd" | "fdfind" => find(words),
        "shred" => Some("overwrites files beyond recovery"),
        "truncate" => Some("truncates files"),
        "dd" => dd(words),
        "crontab" => has_option(words, 'r', "").then_some("deletes all scheduled commands"),
        "rsync" => words
            .iter()
            .any(|it| it.text.starts_with("--del"))
            .then_some("deletes files that the source does not have"),
        "docker" | "podman" => docker(words),
        "docker-compose" => compose(words),
        "dropdb" | "dropuser" => Some(DATA),
        "redis-cli" => has_word(words, &["flushall", "flushdb"]).then_some(DATA),
        "psql" | "mysql" | "mariadb" | "sqlite3" | "mysqladmin" => drops(words).then_some(DATA),
        "rails" | "rake" | "mix" | "artisan" | "php" => task(words),
        "prisma" => has_operands_in_order(words, &["migrate", "reset"]).then_some(DATA),
        "npm" | "pnpm" | "yarn" | "bun" => package(words),
        "cargo" => has_subcommand(words, &["publish", "yank"]).then_some(PUBLISHES),
        "gem" => has_subcommand(words, &["push", "yank"]).then_some(PUBLISHES),
        "twine" => has_subcommand(words, &["upload"]).then_some(PUBLISHES),
        "poetry" | "uv" | "hatch" | "flit" | "vsce" | "ovsx" => {
            has_subcommand(words, &["publish"]).then_some(PUBLISHES)
        }
        "mvn" => has_word(words, &["deploy"]).then_some(PUBLISHES),
        "gradle" | "gradlew" => {
            words.iter().any(|it| it.text.starts_with("publish")).then_some(PUBLISHES)
        }
        "dotnet" => has_operands_in_order(words, &["nuget", "push"]).then_some(PUBLISHES),
        "gh" | "glab" => hub(words),
        "kubectl" | "oc" => has_subcommand(words, &["delete", "drain"]).then_some(INFRASTRUCTURE),
        "helm" => has_subcommand(words, &["uninstall", "delete"]).then_some(INFRASTRUCTURE),
        "terraform" | "tofu" | "pulumi" | "cdk" => {
            has_subcommand(words, &["destroy", "apply", "up", "deploy"]).then_some(INFRASTRUCTURE)
        }
        "aws" | "gcloud" | "az" | "heroku" | "flyctl" | "fly" | "doctl" => cloud(words),
        "gsutil" | "rclone" => {
            has_subcommand(words, &["rm", "rb", "sync", "delete", "purge"]).then_some(DATA)
        }
        _ => None,
    }
}

fn has_option(words: Args<'_>, letter: char, name: &str) -> bool {
    words.iter().any(|it| is_option(&it.text, letter, name))
}

fn has_word(words: Args<'_>, any: &[&str]) -> bool {
    words.iter().any(|it| any.iter().any(|wanted| it.text.eq_ignore_ascii_case(wanted)))
}

/// True if one of these is the subcommand. The value of an option may precede it.
fn has_subcommand(words: Args<'_>, any: &[&str]) -> bool {
    operands(words).take(3).any(|it| any.contains(&it.text.as_str()))
}

fn has_operands_in_order(words: Args<'_>, all: &[&str]) -> bool {
    let mut operands = operands(words);
    all.iter().all(|wanted| operands.any(|it| it.text == *wanted))
}

fn git(words: Args<'_>) -> Option<&'static str> {
    let (sub, words) = super::args::git_subcommand(words)?;
    let first = operands(words).next().map_or("", |it| &it.text);
    match sub {
        "reset" => (has_option(words, '\0', "--hard") || has_option(words, '\0', "--merge"))
            .then_some(CHANGES),
        "clean" => (!has_option(words, 'n', "--dry-run")).then_some("deletes untracked files"),
        "checkout" => checks_out_files(words).then_some(CHANGES),
        "checkout-index" | "read-tree" => (has_option(words, 'f', "--force")
            || has_option(words, 'u', "--reset"))
        .then_some(CHANGES),
        "switch" => (has_option(words, 'f', "--force")
            || has_option(words, '\0', "--discard-changes"))
        .then_some(CHANGES),
        "restore" => {
            let is_staged =
                has_option(words, 'S', "--staged") && !has_option(words, 'W', "--worktree");
            (!is_staged).then_some(CHANGES)
        }
        "branch" => {
            let is_forced = has_option(words, 'd', "--delete") && has_option(words, 'f', "--force");
            (has_option(words, 'D', "") || is_forced)
                .then_some("deletes a branch even if it is not merged")
        }
        "tag" => has_option(words, 'd', "--delete").then_some("deletes a tag"),
        "stash" => ["drop", "clear"].contains(&first).then_some("throws away stashed changes"),
        "rm" => has_option(words, 'f', "--force").then_some(CHANGES),
        "push" => push(words),
        "worktree" => (first == "remove" && has_option(words, 'f', "--force")).then_some(CHANGES),
        "submodule" => (first == "deinit" && has_option(words, 'f', "--force")).then_some(CHANGES),
        "filter-branch" | "filter-repo" => Some("rewrites the whole history"),
        "prune" => Some(HISTORY),
        "gc" => words.iter().any(|it| it.text.starts_with("--prune")).then_some(HISTORY),
        "reflog" => ["expire", "delete", "drop"].contains(&first).then_some(HISTORY),
        "update-ref" => (has_option(words, 'd', "--delete") || has_option(words, '\0', "--stdin"))
            .then_some(HISTORY),
        _ => None,
    }
}

/// True if `git checkout` overwrites files instead of switching to a branch.
fn checks_out_files(words: Args<'_>) -> bool {
    let makes_branch = |it: &Word| {
        let is_option = |letter, name| is_option(&it.text, letter, name);
        is_option('b', "--orphan") || is_option('B', "") || is_option('t', "--track")
    };
    let is_forced = |it: &Word| it.text == "--" || is_option(&it.text, 'f', "--force");
    let is_path = |it: &Word| it.is_glob || looks_like_path(&it.text);
    words.iter().any(is_forced)
        || !words.iter().any(makes_branch)
            && (operands(words).any(is_path) || operands(words).count() > 1)
}

/// Branches such as `feature/x` and tags such as `v1.2` do not look like paths.
fn looks_like_path(text: &str) -> bool {
    let (_, last) = text.rsplit_once('/').unwrap_or(("", text));
    let extension = last.rsplit_once('.').map_or("", |it| it.1);
    text.starts_with(['.', ':'])
        || text.ends_with('/')
        || extension.starts_with(|it: char| it.is_ascii_alphabetic())
}

fn push(words: Args<'_>) -> Option<&'static str> {
    let is_forced = words.iter().any(|it| {
        let text = it.text.as_str();
        text.starts_with("--force")
            || is_option(text, 'f', "--force")
            || is_option(text, 'd', "--delete")
            || is_option(text, '\0', "--mirror")
            || is_option(text, '\0', "--prune")
            || text.starts_with(['+', ':'])
    });
    is_forced.then_some("overwrites or deletes what others may have pulled")
}

fn rm(words: Args<'_>) -> Option<&'static str> {
    let is_deep = has_option(words, 'r', "--recursive") || has_option(words, 'R', "");
    let is_all_of_folder = |it: &str| ["", "*", ".*", ".", "..", "**", "[!.]*", "?*"].contains(&it);
    let is_everything = |it: &str| it.split('/').all(is_all_of_folder);
    let mut named = operands(words).map(|it| it.text.as_str());
    named.find_map(|it| {
        if it.split('/').any(|it| it == ".git") && is_deep {
            Some("deletes the history of the repository")
        } else if is_everything(it) && (is_deep || it.contains('*')) {
            Some("deletes everything in a folder")
        } else if is_deep && it.starts_with(['~', '$']) {
            Some("deletes files in the home folder")
        } else {
            None
        }
    })
}

fn find(words: Args<'_>) -> Option<&'static str> {
    let deletes = |it: &str| ["rm", "shred", "unlink", "rmdir"].contains(&super::args::name(it));
    let runs = |it: &str| {
        ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"].contains(&it)
    };
    let is_deletion = words.iter().any(|it| it.text == "-delete")
        || words.windows(2).any(|it| runs(&it[0].text) && deletes(&it[1].text));
    is_deletion.then_some("deletes everything that it finds")
}

fn dd(words: Args<'_>) -> Option<&'static str> {
    let writes = |it: &str| it.strip_prefix("of=").is_some_and(|it| !it.starts_with("/dev/null"));
    words.iter().any(|it| writes(&it.text)).then_some("overwrites a file")
}

fn docker(words: Args<'_>) -> Option<&'static str> {
    let is_compose = operands(words).take(3).any(|it| it.text == "compose");
    let prunes = has_word(words, &["prune"]);
    if is_compose {
        return compose(words);
    }
    if has_subcommand(words, &["push"]) {
        return Some(PUBLISHES);
    }
    let is_volume = has_operands_in_order(words, &["volume", "rm"])
        || has_operands_in_order(words, &["volume", "remove"]);
    (prunes || is_volume).then_some("deletes containers, images or volumes for good")
}

fn compose(words: Args<'_>) -> Option<&'static str> {
    let with_volumes = has_option(words, 'v', "--volumes")
        && (has_word(words, &["down"]) || has_word(words, &["rm"]));
    with_volumes.then_some("deletes containers, images or volumes for good")
}

/// True for SQL statements that delete data.
fn drops(words: Args<'_>) -> bool {
    let pairs = [("drop", ""), ("truncate", ""), ("delete", "from")];
    let is_one = |it: &str| {
        let mut before = "";
        it.split(|it: char| !it.is_ascii_alphabetic()).filter(|it| !it.is_empty()).any(|word| {
            let found = pairs.iter().any(|(first, second)| {
                second.is_empty() && word.eq_ignore_ascii_case(first)
                    || before.eq_ignore_ascii_case(first) && word.eq_ignore_ascii_case(second)
            });
            before = word;
            found
        })
    };
    words.iter().any(|it| is_one(&it.text))
}

fn task(words: Args<'_>) -> Option<&'static str> {
    let tasks = [
        "db:drop",
        "db:reset",
        "db:purge",
        "ecto.drop",
        "ecto.reset",
        "migrate:fresh",
        "db:wipe",
        "migrate:reset",
    ];
    has_word(words, &tasks).then_some(DATA)
}

fn package(words: Args<'_>) -> Option<&'static str> {
    let published = has_subcommand(words, &["publish", "unpublish", "deprecate"]);
    let is_script = has_subcommand(words, &["run", "run-script"]);
    (published && !is_script).then_some(PUBLISHES)
}

fn hub(words: Args<'_>) -> Option<&'static str> {
    if has_word(words, &["delete"]) {
        return Some("deletes something on the server");
    }
    let publishes = has_operands_in_order(words, &["release", "create"])
        || has_operands_in_order(words, &["pr", "merge"]);
    publishes.then_some(PUBLISHES)
}

fn cloud(words: Args<'_>) -> Option<&'static str> {
    let takes_down = |it: &str| {
        ["rm", "rb", "delete", "destroy", "apps:destroy", "pg:reset"].contains(&it)
            || it.starts_with("delete-")
            || it.starts_with("terminate-")
    };
    operands(words).any(|it| takes_down(&it.text)).then_some(INFRASTRUCTURE)
}

/// What a command does to the whole system, if anything.
pub(super) fn catastrophe(command: &SimpleCommand) -> Option<&'static str> {
    let folder = command.folder.as_deref();
    super::args::behind_wrappers(command, |program, words| {
        catastrophic::program_catastrophe(program, words, folder)
    })
}

#[cfg(test)]
mod tests {
    use super::super::read_only::tests::simple;
    use super::*;

    #[test]
    fn destructive_commands_are_recognised() {
        for line in [
            "git reset --hard",
            "git reset --har HEAD~1",
            "git -C x reset --hard",
            "git -c a=b reset --hard",
            "git clean -fd",
            "git clean -xdf",
            "git clean",
            "git checkout -- a",
            "git checkout .",
            "git checkout HEAD a.rs",
            "git checkout src/main.rs",
            "git checkout -f main",
            "git checkout -qf",
            "git restore a",
            "git restore --staged --worktree a",
            "git switch -f main",
            "git switch --discard-changes x",
            "git branch -D x",
            "git branch -rD x",
            "git branch --delete --force x",
            "git branch -df x",
            "git tag -d v1",
            "git tag --delete v1",
            "git stash drop",
            "git stash clear",
            "git push --force",
            "git push -f origin main",
            "git push --force-with-lease",
            "git push origin +main",
            "git push origin :main",
            "git push --mirror",
            "git push origin --delete x",
            "git push -d origin x",
            "git filter-branch x",
            "git gc --prune=now",
            "git prune",
            "git reflog expire --expire=now --all",
            "git reflog delete HEAD@{0}",
            "git update-ref -d refs/heads/x",
            "git rm -rf x",
            "git worktree remove --force x",
            "git read-tree --reset -u HEAD",
            "/usr/bin/git reset --hard",
            "rm -rf .",
            "rm -rf ./",
            "rm -r ..",
            "rm -rf *",
            "rm -fr ./*",
            "rm *",
            "rm -rf .git",
            "rm -rf sub/.git/",
            "rm --recursive .git/objects",
            "rm --rec .git",
            "rm -rf ~/x",
            "rm -rf -- .",
            "sudo rm -rf .",
            "sudo -u root rm -rf .",
            "find . -delete",
            "find . -name x -exec rm {} +",
            "find . -execdir /bin/rm {} +",
            "fd -x rm",
            "shred a",
            "truncate -s 0 a",
            "dd if=a of=b",
            "crontab -r",
            "rsync -a --delete a b",
            "docker system prune -af",
            "docker volume rm x",
            "docker compose down -v",
            "docker-compose down --volumes",
            "podman image prune",
            "dropdb x",
            "redis-cli FLUSHALL",
            "psql -c 'DROP TABLE x'",
            "sqlite3 a.db 'delete from x'",
            "mysql -e 'truncate x'",
            "rails db:drop",
            "mix ecto.reset",
            "php artisan migrate:fresh",
            "prisma migrate reset",
            "npx prisma migrate reset",
            "npm publish",
            "npm --tag x publish",
            "pnpm publish",
            "cargo publish",
            "cargo +nightly publish",
            "cargo yank x",
            "twine upload dist/x",
            "gem push x",
            "poetry publish",
            "docker push x",
            "gh release create v1",
            "gh repo delete x",
            "gh pr merge 5",
            "kubectl delete pod x",
            "kubectl -n x delete pod y",
            "helm uninstall x",
            "terraform destroy",
            "terraform apply",
            "aws s3 rm s3://x",
            "aws ec2 terminate-instances x",
            "heroku apps:destroy x",
        ] {
            assert!(danger(&simple(line)).is_some(), "{line}");
        }
        for line in [
            "git reset",
            "git reset --soft HEAD~1",
            "git reset HEAD a",
            "git clean -n",
            "git clean -nfd",
            "git clean --dry-run -f",
            "git checkout main",
            "git checkout -b x",
            "git checkout -b x origin/main",
            "git checkout feature/x",
            "git checkout v1.2.0",
            "git checkout -",
            "git checkout --track origin/x",
            "git restore --staged a",
            "git restore -S a",
            "git switch main",
            "git switch -c x",
            "git branch -d x",
            "git branch x",
            "git tag v1",
            "git stash",
            "git stash pop",
            "git push",
            "git push origin main",
            "git push -u origin main",
            "git push --follow-tags",
            "git rebase main",
            "git commit -m 'reset --hard'",
            "git gc",
            "git rm a",
            "git log --hard",
            "rm a",
            "rm -rf target",
            "rm -rf src/*",
            "rm -rf node_modules dist",
            "rm -f .git/index.lock",
            "rm *.o",
            "find . -name x",
            "find . -exec cat {} +",
            "echo rm -rf .",
            "grep -r 'rm -rf .'",
            "dd if=a of=/dev/null",
            "rsync -a a b",
            "docker ps",
            "docker compose down",
            "docker compose up -d",
            "psql -c 'select 1'",
            "npm run publish",
            "npm test",
            "cargo build",
            "kubectl get pods",
            "terraform plan",
            "gh pr list",
            "aws s3 ls",
            "unknown --delete",
        ] {
            assert_eq!(danger(&simple(line)), None, "{line}");
        }
        let open = SimpleCommand { has_unknown_args: true, ..simple("rm -f") };
        assert!(danger(&open).is_some());
    }
}
