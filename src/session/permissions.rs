//! `/permissions`: what is allowed in this session and in this project, and how to change it. The
//! same rules as `turnwright policy` shows.

use tokio_util::sync::CancellationToken;

use turnwright_types::effect::{fenced, visible_line};
use turnwright_types::ids::MessageId;
use turnwright_types::message::Stop;
use turnwright_policy::permission::{
    Book, BookEntry, BookError, Grants, Law, Page, Pattern, Rule, Scope, Tier, in_words,
};
use crate::turn::Equipment;

const USAGE: &str = "`/permissions allow RULE` and `/permissions deny RULE` add a rule for this \
                     project, such as `exec(cargo test)`; `/permissions revoke ID` takes one out; \
                     `/permissions forget` forgets the answers of this session.";

/// Does what the words say, and tells what has come of it.
pub(super) async fn run(
    equipment: Equipment,
    mut grants: Grants,
    words: String,
    message: MessageId,
    cancel: CancellationToken,
) -> (Grants, Stop) {
    if words == "forget" {
        grants = Grants::default();
    }
    let (kept, given) = (equipment.clone(), grants.clone());
    let working = tokio::task::spawn_blocking(move || serve(&kept, &given, &words));
    let Some(done) = cancel.run_until_cancelled(working).await else {
        return (grants, Stop::Cancelled);
    };
    let text = done.unwrap_or_else(|error| format!("That could not be done: {error}."));
    equipment.say(message, text);
    (grants, Stop::EndTurn)
}

fn serve(equipment: &Equipment, grants: &Grants, words: &str) -> String {
    let (verb, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    match (verb, rest.trim()) {
        ("", _) => show(equipment, grants),
        ("forget", "") => "The answers of this session are forgotten.".to_owned(),
        ("allow", rule) if !rule.is_empty() => add(equipment, Tier::Allow, rule),
        ("deny", rule) if !rule.is_empty() => add(equipment, Tier::Deny, rule),
        ("revoke", ids) if !ids.is_empty() => revoke(equipment, ids),
        _ => USAGE.to_owned(),
    }
}

fn book(equipment: &Equipment) -> Result<Book, String> {
    let state = &equipment.bench.commons.folders.state;
    if !state.is_absolute() {
        return Err("There is no folder for the rules of projects.".to_owned());
    }
    Ok(Book::of(state, equipment.bench.files.roots().real_cwd()))
}

fn add(equipment: &Equipment, tier: Tier, rule: &str) -> String {
    let pattern = match Pattern::parse(rule.trim_matches('`'), tier) {
        Ok(pattern) => pattern,
        Err(why) => return format!("{} is no rule: {why}.", visible_line(rule)),
    };
    let added = book(equipment).and_then(|it| {
        let added = it.add(&[(tier, pattern.clone())], "/permissions");
        added.map_err(|error: BookError| format!("Nothing was changed: {error}."))
    });
    match added {
        Ok(added) => {
            let mut law = Law::clone(&equipment.law.get());
            law.rules.push(Rule { tier, pattern, scope: Scope::Local, why: None });
            equipment.law.set(law);
            let added = added.iter().map(row).collect::<String>();
            format!("From now on in this project:\n{}", fenced(&added))
        }
        Err(why) => why,
    }
}

fn revoke(equipment: &Equipment, ids: &str) -> String {
    let ids: Vec<_> =
        ids.split([' ', ',']).map(str::to_owned).filter(|it| !it.is_empty()).collect();
    let book = match book(equipment) {
        Ok(book) => book,
        Err(why) => return why,
    };
    match book.revoke(&ids) {
        Ok(gone) if gone.is_empty() => "There is no such rule.".to_owned(),
        Ok(gone) => {
            reload(equipment, &book, &gone);
            format!("No longer in force:\n{}", fenced(&gone.iter().map(row).collect::<String>()))
        }
        Err(error) => format!("Nothing was changed: {error}."),
    }
}

/// Takes rules out of what holds now. Others of the book may hold because of it.
fn reload(equipment: &Equipment, book: &Book, gone: &[BookEntry]) {
    let mut law = Law::clone(&equipment.law.get());
    let is_gone = |rule: &Rule| gone.iter().any(|it| is_of(it, rule));
    law.rules.retain(|it| !is_gone(it));
    for rule in book.read().rules() {
        if !law.rules.contains(&rule) {
            law.rules.push(rule);
        }
    }
    equipment.law.set(law);
}

fn is_of(entry: &BookEntry, rule: &Rule) -> bool {
    let is_same = || entry.rule == rule.pattern.to_string();
    rule.scope == Scope::Local && rule.tier == Tier::from(entry.tier) && is_same()
}

fn show(equipment: &Equipment, grants: &Grants) -> String {
    let (law, mode) = (equipment.law.get(), equipment.mode.get());
    let mut text = format!("* Mode: {} – {}\n", mode.name(), mode.description(law.can_confine));
    text.push_str(if law.can_confine {
        "* Sandbox: commands run in it, unless you allow one more\n"
    } else {
        "* Sandbox: there is none here, so no command runs unasked because of it\n"
    });
    let page = book(equipment).map(|it| it.read()).unwrap_or_default();
    let given = answers(grants, &law);
    text.push_str(&section("Answers of this session", &given));
    text.push_str(&section(
        "Rules for this project",
        &page.entries.iter().map(row).collect::<String>(),
    ));
    let is_other = |rule: &&Rule| !page.entries.iter().any(|it| is_of(it, rule));
    let others = law.rules.iter().filter(is_other).map(|it| format!("{}\n", plain(it)));
    text.push_str(&section("Other rules", &others.collect::<String>()));
    text.push_str(&trouble(&page));
    format!("{text}\n{USAGE}")
}

/// A part of the list. What it holds was written by models, among others: it stays in its fence.
fn section(title: &str, rows: &str) -> String {
    if rows.is_empty() {
        return format!("* {title}: none\n");
    }
    format!("\n{title}:\n{}\n", fenced(rows))
}

fn trouble(page: &Page) -> String {
    page.trouble.as_ref().map(|it| format!("\n⚠ {it}\n")).unwrap_or_default()
}

fn answers(grants: &Grants, law: &Law) -> String {
    let rules = grants.rules().iter().map(|it| format!("allow  {}", it.pattern));
    let exact = grants.exactly().map(|it| format!("allow  {}", in_words(it, &law.ground)));
    let rejected = grants.rejected().map(|it| format!("reject {}", in_words(it, &law.ground)));
    let mut rows: Vec<_> = rules.chain(exact).chain(rejected).map(|it| visible_line(&it)).collect();
    rows.sort();
    rows.join("\n")
}

fn row(entry: &BookEntry) -> String {
    let tier = Tier::from(entry.tier).word();
    let (rule, origin) = (visible_line(&entry.rule), visible_line(&entry.origin));
    format!("{}  {tier:5}  {rule}  ({}, {origin})\n", entry.id, entry.at)
}

fn plain(rule: &Rule) -> String {
    let why = rule.why.as_ref().map(|it| format!("  ({it})")).unwrap_or_default();
    visible_line(&format!("{:5}  {}  {}{why}", rule.tier.word(), rule.pattern, rule.scope.word()))
}
