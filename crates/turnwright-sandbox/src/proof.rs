//! The proof of the walls: what a hostile command would try, and what it means that it has, or has
//! not, come through. Runs nothing itself.

use std::path::{Path, PathBuf};

/// Where the attempts are made. Everything exists before the first one.
#[derive(Clone, Debug)]
pub struct Scene {
    /// A folder that may be written, in which the commands start. In it lie `.git/hooks`, which is
    /// to be kept, and nothing else.
    pub inside: PathBuf,
    /// A folder beside it that may be read and not written, with a file `file` that is not empty.
    pub outside: PathBuf,
    /// A folder that may not be read, with a file `secret` in which stands [`SECRET`].
    pub hidden: PathBuf,
    /// Who runs the attempts. Its environment is not empty.
    pub parent: u32,
    /// A process that has nothing to do with them.
    pub stranger: u32,
    /// Our own program, for what a shell cannot try.
    pub program: PathBuf,
    /// The port of a listener on the loopback interface.
    pub port: u16,
    /// The name of a listener that no file stands for.
    pub abstract_name: String,
}

/// What stands in the hidden file.
pub const SECRET: &str = "the text of the hidden file";

/// How strong the walls are said to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strength {
    /// The version of Landlock, where that is what the walls are made of.
    pub landlock: Option<i32>,
    /// Whether a command gets a view of the files of its own.
    pub mounts: bool,
}

/// What has to be there for an attempt to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// No more than walls at all.
    Walls,
    /// This version of Landlock.
    Landlock(i32),
    /// A view of the files.
    Mounts,
}

/// One thing that is tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// A stable name.
    pub name: &'static str,
    /// What is tried, for people.
    pub what: &'static str,
    /// The command line.
    pub command: String,
    /// Whether it is to succeed.
    pub is_allowed: bool,
    need: Need,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    /// What the command has printed.
    pub text: String,
    /// What is different now that must not be: a file outside, a stranger that is gone, a call at a
    /// listener.
    pub changes: Vec<String>,
}

/// What it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it is to be.
    Held,
    /// Not as it is to be.
    NotHeld(String),
    /// Not held, and nobody has said that it would be: what is missing for it.
    Open(String),
    /// Nobody knows.
    NotTested(String),
}

impl Verdict {
    /// A stable word.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::NotHeld(_) => "not held",
            Verdict::Open(_) => "open",
            Verdict::NotTested(_) => "not tested",
        }
    }

    /// Why, if there is something to say.
    pub fn why(&self) -> Option<&str> {
        match self {
            Verdict::Held => None,
            Verdict::NotHeld(why) | Verdict::Open(why) | Verdict::NotTested(why) => Some(why),
        }
    }
}

/// Printed before the attempt: the command has run at all.
const BEGUN: &str = "attempt begun";
/// Printed by an attempt that has come through.
const THROUGH: &str = "attempt came through";

/// Everything that is tried.
pub fn attempts(scene: &Scene) -> Vec<Attempt> {
    let (inside, outside) = (quoted(&scene.inside), quoted(&scene.outside));
    let (hidden, program) = (quoted(&scene.hidden), quoted(&scene.program));
    let Scene { parent, stranger, port, abstract_name, .. } = scene;
    let probe = |what: &str, argument: &str| format!("{program} sandbox-probe {what} {argument}");
    let mut all = Vec::new();
    let mut add = |name, what, need, attempt: String| {
        // A program that does not start has not been kept from anything.
        let ready = if attempt.starts_with(&program) {
            format!("{program} sandbox-probe ready && echo {BEGUN}")
        } else {
            format!("echo {BEGUN}")
        };
        let command = format!("{ready}; {attempt} && echo {THROUGH}; true");
        let is_allowed = name == "write-inside";
        all.push(Attempt { name, what, command, is_allowed, need });
    };
    add(
        "write-inside",
        "write a file in the project",
        Need::Walls,
        format!("echo x > {inside}/new && mkdir {inside}/d && mv {inside}/new {inside}/d/new"),
    );
    add(
        "write-outside",
        "write a file outside",
        Need::Walls,
        format!("{{ echo x > {outside}/new; }} 2>/dev/null"),
    );
    add(
        "change-outside",
        "change a file outside",
        Need::Walls,
        format!("{{ echo x >> {outside}/file; }} 2>/dev/null"),
    );
    add(
        "truncate-outside",
        "empty a file outside without opening it",
        Need::Landlock(3),
        probe("truncate", &format!("{outside}/file")),
    );
    add(
        "remove-outside",
        "remove a file outside",
        Need::Walls,
        format!("rm -f {outside}/file 2>/dev/null"),
    );
    add(
        "symlink-race",
        "write outside through a folder that turns into a symbolic link",
        Need::Walls,
        // Only what is outside afterwards tells: half of the writes are inside, and allowed.
        format!(
            "{{ cd {inside} && ln -s {outside} race; for i in 1 2 3 4 5 6 7 8 9 10; do \
             rm -rf race; mkdir race; (echo x > race/$i) ; rm -rf race; ln -s {outside} race; \
             (echo x > race/$i); done; rm -rf race; false; }} 2>/dev/null"
        ),
    );
    add(
        "read-hidden",
        "read a file that is hidden",
        Need::Walls,
        format!("grep -q '{SECRET}' {hidden}/secret 2>/dev/null"),
    );
    add(
        "protected",
        "write a protected file in the project, .git/hooks/pre-commit",
        Need::Mounts,
        format!("{{ echo x > {inside}/.git/hooks/pre-commit; }} 2>/dev/null"),
    );
    add("internet", "open an internet socket", Need::Walls, probe("internet", &port.to_string()));
    add("datagram", "open a datagram socket", Need::Walls, probe("datagram", &port.to_string()));
    add("netlink", "open a socket to the kernel's network", Need::Walls, probe("netlink", ""));
    add(
        "abstract-socket",
        "call a listener that no file stands for",
        Need::Landlock(6),
        probe("abstract", abstract_name),
    );
    add(
        "parent-environment",
        "read the environment of its parent",
        Need::Walls,
        format!("{{ tr -d '\\0' < /proc/{parent}/environ | grep -q .; }} 2>/dev/null"),
    );
    add(
        "parent-memory",
        "look into the memory of its parent",
        Need::Walls,
        format!("{{ : < /proc/{parent}/mem; }} 2>/dev/null"),
    );
    add(
        "signal",
        "end a process that is none of its own",
        Need::Landlock(6),
        format!("kill -KILL {stranger} 2>/dev/null"),
    );
    add("privileges", "gain privileges from a program", Need::Walls, privileges());
    add("namespace", "become root in a world of its own", Need::Walls, probe("namespace", ""));
    all
}

/// Succeeds if programs may give more power than one has.
fn privileges() -> String {
    "grep -q '^NoNewPrivs:[[:space:]]*0' /proc/self/status 2>/dev/null".to_owned()
}

/// What the traces of an attempt mean, behind walls of this strength.
pub fn judge(attempt: &Attempt, traces: &Traces, strength: Strength) -> Verdict {
    if !traces.text.contains(BEGUN) {
        let said: String = traces.text.trim().chars().take(200).collect();
        return Verdict::NotTested(format!("the command did not run: {said}"));
    }
    let came_through = traces.text.contains(THROUGH);
    match (attempt.is_allowed, came_through) {
        (true, true) if traces.changes.is_empty() => Verdict::Held,
        (true, false) => Verdict::NotHeld("what is allowed does not work".to_owned()),
        (false, false) if traces.changes.is_empty() => Verdict::Held,
        _ => {
            let what = if traces.changes.is_empty() {
                "it came through".to_owned()
            } else {
                traces.changes.join(", ")
            };
            match attempt.need.missing(strength) {
                Some(missing) => Verdict::Open(format!("{what}; {missing}")),
                None => Verdict::NotHeld(what),
            }
        }
    }
}

impl Need {
    /// What is missing, if something is.
    fn missing(self, strength: Strength) -> Option<String> {
        match self {
            Need::Walls => None,
            Need::Landlock(least) => {
                let lacks = strength.landlock.is_some_and(|it| it < least);
                lacks.then(|| format!("Landlock {least} would be needed"))
            }
            Need::Mounts => {
                let lacks = strength.landlock.is_some() && !strength.mounts;
                lacks.then(|| "user namespaces would be needed".to_owned())
            }
        }
    }
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        Scene {
            inside: "/b/in".into(),
            outside: "/b/it's".into(),
            hidden: "/b/hidden".into(),
            parent: 2,
            stranger: 3,
            program: "/bin/turnwright".into(),
            port: 4,
            abstract_name: "name".to_owned(),
        }
    }

    fn attempt(name: &str) -> Attempt {
        attempts(&scene()).into_iter().find(|it| it.name == name).unwrap()
    }

    #[test]
    fn names_are_stable_words_and_one_attempt_is_allowed() {
        let all = attempts(&scene());
        assert_eq!(all.iter().filter(|it| it.is_allowed).count(), 1);
        for attempt in &all {
            let same = all.iter().filter(|it| it.name == attempt.name).count();
            assert_eq!(same, 1, "{}", attempt.name);
        }
        assert!(attempt("write-outside").command.contains(r"'/b/it'\''s'/new"));
    }

    #[test]
    fn traces_tell_what_held() {
        let full = Strength { landlock: Some(7), mounts: true };
        let old = Strength { landlock: Some(2), mounts: false };
        let change = ["a file outside".to_owned()];
        let through = format!("{BEGUN}\n{THROUGH}\n");
        let table: &[(&str, &str, &[String], Strength, &str)] = &[
            ("write-inside", &through, &[], full, "held"),
            ("write-inside", BEGUN, &[], full, "not held"),
            ("write-inside", &through, &change, full, "not held"),
            ("write-outside", BEGUN, &[], full, "held"),
            ("write-outside", &through, &[], full, "not held"),
            // What it says itself counts for nothing against what it has done.
            ("write-outside", BEGUN, &change, full, "not held"),
            ("write-outside", "", &[], full, "not tested"),
            ("truncate-outside", &through, &change, full, "not held"),
            ("truncate-outside", &through, &change, old, "open"),
            ("truncate-outside", BEGUN, &[], old, "held"),
            ("signal", BEGUN, &change, old, "open"),
            ("protected", &through, &change, old, "open"),
            ("protected", &through, &change, full, "not held"),
            ("internet", &through, &[], old, "not held"),
            // Walls that are not made of Landlock have no excuse.
            ("signal", &through, &[], Strength::default(), "not held"),
        ];
        for (name, text, changes, strength, expected) in table {
            let traces = Traces { text: (*text).to_owned(), changes: changes.to_vec() };
            let verdict = judge(&attempt(name), &traces, *strength);
            assert_eq!(verdict.name(), *expected, "{name} {text:?} {changes:?}");
        }
    }
}
