//! What destroys for good, or does what cannot be taken back: asked about even where nothing else
//! is. Rather too often than too seldom, so options are recognised by any part that may be meant.
//! The texts end a sentence that begins with “it”.

use super::args::{Words, is_option, operands};
use super::{Simple, Word, catastrophe};

const CHANGES: &str = "throws away uncommitted changes";
const PUBLISHES: &str = "publishes something for everybody";
const DATA: &str = "deletes data for good";
const INFRASTRUCTURE: &str = "takes down what runs elsewhere";
const HISTORY: &str = "deletes what commits could be recovered from";

/// What it destroys.
pub(super) fn danger(command: &Simple) -> Option<&'static str> {
    super::args::behind_wrappers(command, |program, words| one(program, words, command.is_open))
}

fn one(program: &str, words: Words<'_>, is_open: bool) -> Option<&'static str> {
    match program {
        "git" => git(words),
        "rm" if is_open => Some("deletes whatever it is told to"),
        "rm" => rm(words),
        "find" | "fd" | "fdfind" => find(words),
        "shred" => Some("overwrites files beyond recovery"),
        "truncate" => Some("cuts off what is in files"),
        "dd" => dd(words),
        "crontab" => has(words, 'r', "").then_some("deletes all scheduled commands"),
        "rsync" => words
            .iter()
            .any(|it| it.text.starts_with("--del"))
            .then_some("deletes what the other side does not have"),
        "docker" | "podman" => docker(words),
        "docker-compose" => compose(words),
        "dropdb" | "dropuser" => Some(DATA),
        "redis-cli" => said(words, &["flushall", "flushdb"]).then_some(DATA),
        "psql" | "mysql" | "mariadb" | "sqlite3" | "mysqladmin" => drops(words).then_some(DATA),
        "rails" | "rake" | "mix" | "artisan" | "php" => task(words),
        "prisma" => begins(words, &["migrate", "reset"]).then_some(DATA),
        "npm" | "pnpm" | "yarn" | "bun" => package(words),
        "cargo" => said_first(words, &["publish", "yank"]).then_some(PUBLISHES),
        "gem" => said_first(words, &["push", "yank"]).then_some(PUBLISHES),
        "twine" => said_first(words, &["upload"]).then_some(PUBLISHES),
        "poetry" | "uv" | "hatch" | "flit" | "vsce" | "ovsx" => {
            said_first(words, &["publish"]).then_some(PUBLISHES)
        }
        "mvn" => said(words, &["deploy"]).then_some(PUBLISHES),
        "gradle" | "gradlew" => {
            words.iter().any(|it| it.text.starts_with("publish")).then_some(PUBLISHES)
        }
        "dotnet" => begins(words, &["nuget", "push"]).then_some(PUBLISHES),
        "gh" | "glab" => hub(words),
        "kubectl" | "oc" => said_first(words, &["delete", "drain"]).then_some(INFRASTRUCTURE),
        "helm" => said_first(words, &["uninstall", "delete"]).then_some(INFRASTRUCTURE),
        "terraform" | "tofu" | "pulumi" | "cdk" => {
            said_first(words, &["destroy", "apply", "up", "deploy"]).then_some(INFRASTRUCTURE)
        }
        "aws" | "gcloud" | "az" | "heroku" | "flyctl" | "fly" | "doctl" => cloud(words),
        "gsutil" | "rclone" => {
            said_first(words, &["rm", "rb", "sync", "delete", "purge"]).then_some(DATA)
        }
        _ => None,
    }
}

fn has(words: Words<'_>, letter: char, name: &str) -> bool {
    words.iter().any(|it| is_option(&it.text, letter, name))
}

fn said(words: Words<'_>, any: &[&str]) -> bool {
    words.iter().any(|it| any.iter().any(|wanted| it.text.eq_ignore_ascii_case(wanted)))
}

/// Whether one of these is the subcommand; the value of an option may stand before it.
fn said_first(words: Words<'_>, any: &[&str]) -> bool {
    operands(words).take(3).any(|it| any.contains(&it.text.as_str()))
}

fn begins(words: Words<'_>, all: &[&str]) -> bool {
    let mut operands = operands(words);
    all.iter().all(|wanted| operands.any(|it| it.text == *wanted))
}

fn git(words: Words<'_>) -> Option<&'static str> {
    let (sub, words) = super::args::git_subcommand(words)?;
    let first = operands(words).next().map_or("", |it| &it.text);
    match sub {
        "reset" => (has(words, '\0', "--hard") || has(words, '\0', "--merge")).then_some(CHANGES),
        "clean" => {
            (!has(words, 'n', "--dry-run")).then_some("deletes files that git does not know")
        }
        "checkout" => checks_out_files(words).then_some(CHANGES),
        "checkout-index" | "read-tree" => {
            (has(words, 'f', "--force") || has(words, 'u', "--reset")).then_some(CHANGES)
        }
        "switch" => {
            (has(words, 'f', "--force") || has(words, '\0', "--discard-changes")).then_some(CHANGES)
        }
        "restore" => {
            let is_staged = has(words, 'S', "--staged") && !has(words, 'W', "--worktree");
            (!is_staged).then_some(CHANGES)
        }
        "branch" => {
            let is_forced = has(words, 'd', "--delete") && has(words, 'f', "--force");
            (has(words, 'D', "") || is_forced)
                .then_some("deletes a branch even if it is not merged")
        }
        "tag" => has(words, 'd', "--delete").then_some("deletes a tag"),
        "stash" => ["drop", "clear"].contains(&first).then_some("throws away stashed changes"),
        "rm" => has(words, 'f', "--force").then_some(CHANGES),
        "push" => push(words),
        "worktree" => (first == "remove" && has(words, 'f', "--force")).then_some(CHANGES),
        "submodule" => (first == "deinit" && has(words, 'f', "--force")).then_some(CHANGES),
        "filter-branch" | "filter-repo" => Some("rewrites the whole history"),
        "prune" => Some(HISTORY),
        "gc" => words.iter().any(|it| it.text.starts_with("--prune")).then_some(HISTORY),
        "reflog" => ["expire", "delete", "drop"].contains(&first).then_some(HISTORY),
        "update-ref" => {
            (has(words, 'd', "--delete") || has(words, '\0', "--stdin")).then_some(HISTORY)
        }
        _ => None,
    }
}

/// Whether `git checkout` writes over files instead of going to a branch.
fn checks_out_files(words: Words<'_>) -> bool {
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

/// A branch may be called `feature/x`, a tag `v1.2`.
fn looks_like_path(text: &str) -> bool {
    let (_, last) = text.rsplit_once('/').unwrap_or(("", text));
    let extension = last.rsplit_once('.').map_or("", |it| it.1);
    text.starts_with(['.', ':'])
        || text.ends_with('/')
        || extension.starts_with(|it: char| it.is_ascii_alphabetic())
}

fn push(words: Words<'_>) -> Option<&'static str> {
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

fn rm(words: Words<'_>) -> Option<&'static str> {
    let is_deep = has(words, 'r', "--recursive") || has(words, 'R', "");
    let is_here = |it: &str| ["", "*", ".*", ".", "..", "**", "[!.]*", "?*"].contains(&it);
    let is_everything = |it: &str| it.split('/').all(is_here);
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

fn find(words: Words<'_>) -> Option<&'static str> {
    let deletes = |it: &str| ["rm", "shred", "unlink", "rmdir"].contains(&super::args::name(it));
    let runs = |it: &str| {
        ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"].contains(&it)
    };
    let is_deletion = words.iter().any(|it| it.text == "-delete")
        || words.windows(2).any(|it| runs(&it[0].text) && deletes(&it[1].text));
    is_deletion.then_some("deletes everything that it finds")
}

fn dd(words: Words<'_>) -> Option<&'static str> {
    let writes = |it: &str| it.strip_prefix("of=").is_some_and(|it| !it.starts_with("/dev/null"));
    words.iter().any(|it| writes(&it.text)).then_some("overwrites a file")
}

fn docker(words: Words<'_>) -> Option<&'static str> {
    let is_compose = operands(words).take(3).any(|it| it.text == "compose");
    let prunes = said(words, &["prune"]);
    if is_compose {
        return compose(words);
    }
    if said_first(words, &["push"]) {
        return Some(PUBLISHES);
    }
    let is_volume = begins(words, &["volume", "rm"]) || begins(words, &["volume", "remove"]);
    (prunes || is_volume).then_some("deletes containers, images or volumes for good")
}

fn compose(words: Words<'_>) -> Option<&'static str> {
    let with_volumes =
        has(words, 'v', "--volumes") && (said(words, &["down"]) || said(words, &["rm"]));
    with_volumes.then_some("deletes containers, images or volumes for good")
}

/// Statements that take data away, in any case.
fn drops(words: Words<'_>) -> bool {
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

fn task(words: Words<'_>) -> Option<&'static str> {
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
    said(words, &tasks).then_some(DATA)
}

fn package(words: Words<'_>) -> Option<&'static str> {
    let published = said_first(words, &["publish", "unpublish", "deprecate"]);
    let is_script = said_first(words, &["run", "run-script"]);
    (published && !is_script).then_some(PUBLISHES)
}

fn hub(words: Words<'_>) -> Option<&'static str> {
    if said(words, &["delete"]) {
        return Some("deletes something on the server");
    }
    let publishes = begins(words, &["release", "create"]) || begins(words, &["pr", "merge"]);
    publishes.then_some(PUBLISHES)
}

fn cloud(words: Words<'_>) -> Option<&'static str> {
    let takes_down = |it: &str| {
        ["rm", "rb", "delete", "destroy", "apps:destroy", "pg:reset"].contains(&it)
            || it.starts_with("delete-")
            || it.starts_with("terminate-")
    };
    operands(words).any(|it| takes_down(&it.text)).then_some(INFRASTRUCTURE)
}

/// What it does to the whole system, if anything.
pub(super) fn ruin(command: &Simple) -> Option<&'static str> {
    let folder = command.folder.as_deref();
    super::args::behind_wrappers(command, |program, words| catastrophe::of(program, words, folder))
}

#[cfg(test)]
mod tests {
    use super::super::known::tests::simple;
    use super::*;

    #[test]
    fn what_destroys_for_good_is_told_from_what_does_not() {
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
        let open = Simple { is_open: true, ..simple("rm -f") };
        assert!(danger(&open).is_some());
    }
}
