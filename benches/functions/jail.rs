//! What the walls add to the start of a command: `true` without any, and with those of several
//! profiles. One after the other, many times: what else runs on the machine meets all of them.

use std::io;
use std::path::Path;
use std::time::Instant;

use turnwright_workspace::exec::{Environment, Group, Spec, Started};
use turnwright_sandbox::{Jail, Network, Profile, secrets_below};

use crate::table::{Table, median, us};

/// How often each is started.
const ROUNDS: usize = 200;
/// Microseconds that walls may add.
const BUDGET: f64 = 1000.0;

/// All of it.
pub(crate) fn measure() -> io::Result<()> {
    let mut table = Table::begin("the walls around `true`");
    let folder = tempfile::tempdir()?;
    let usual = usual(folder.path())?;
    let loopback = Profile { network: Network::Loopback, ..usual.clone() };
    let little = Profile { read: Some(Vec::new()), ..usual.clone() };
    let reading = Profile { write: Vec::new(), keep: Vec::new(), ..usual.clone() };
    let jails = [
        ("none", None),
        ("as the settings have it", Some(usual)),
        ("for what only reads", Some(reading)),
        ("and little to read", Some(little)),
        ("and a loopback of its own", Some(loopback)),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut all, mut prepare) = (vec![vec![]; jails.len()], vec![vec![]; jails.len()]);
    for _ in 0..ROUNDS {
        for (place, (_, jail)) in jails.iter().enumerate() {
            if let Some(profile) = jail {
                let begun = Instant::now();
                drop(Jail::prepare(profile)?);
                prepare[place].push(us(begun.elapsed()));
            }
            all[place].push(runtime.block_on(run(jail.as_ref(), folder.path()))?);
        }
    }
    let none = median(all[0].clone());
    table.note("none: start to end", none, "µs");
    for (place, (name, _)) in jails.iter().enumerate().skip(1) {
        table.row(name, median(all[place].clone()) - none, "µs", BUDGET);
        table.note("… of that, made beforehand", median(prepare[place].clone()), "µs");
    }
    table.end();
    Ok(())
}

/// The profile of a command in a repository.
#[expect(clippy::disallowed_methods, reason = "a bench sets up its files")]
fn usual(folder: &Path) -> io::Result<Profile> {
    let (base, home) = (folder.canonicalize()?, folder.join("home"));
    for place in ["project/.git/hooks", "project/.vscode", "temp", "home/.ssh", "home/.aws"] {
        std::fs::create_dir_all(base.join(place))?;
    }
    std::fs::write(base.join("project/.git/config"), "[core]\n")?;
    let keep = [".git/hooks", ".git/config", ".vscode"].map(|it| base.join("project").join(it));
    Ok(Profile {
        write: vec![base.join("project"), base.join("temp")],
        keep: keep.into(),
        hide: secrets_below(&home),
        ..Profile::default()
    })
}

/// Microseconds from the start to the end.
async fn run(jail: Option<&Profile>, folder: &Path) -> io::Result<f64> {
    let spec = Spec {
        command: "true".to_owned(),
        workdir: folder.to_owned(),
        environment: Environment::default(),
        takes_input: false,
        extra: Vec::new(),
        jail: jail.cloned(),
    };
    let begun = Instant::now();
    let mut group = Group::start(&spec)?;
    while group.next(&mut |_| {}).await?.is_none() {}
    Ok(us(begun.elapsed()))
}
