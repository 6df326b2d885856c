//! Measures what the sandbox adds to the start of a command: `true` without one and with several profiles.
//! The variants take turns, so that other load on the machine affects all of them alike.

use std::io;
use std::path::Path;
use std::time::Instant;

use turnwright_sandbox::{Network, Sandbox, SandboxProfile};
use turnwright_types::effect::credential_paths;
use turnwright_workspace::exec::{CommandSpec, Environment, ProcessGroup, RunningCommand};

use crate::table::{Table, median, us};

/// How often each variant is started.
const ROUNDS: usize = 200;
/// The budget for what the sandbox adds, in microseconds.
const BUDGET: f64 = 1000.0;

pub(crate) fn measure() -> io::Result<()> {
    let mut table = Table::begin("`true` in the sandbox");
    let folder = tempfile::tempdir()?;
    let usual = usual(folder.path())?;
    let loopback = SandboxProfile { network: Network::Loopback, ..usual.clone() };
    let strict = SandboxProfile { readable: Some(Vec::new()), ..usual.clone() };
    let reading = SandboxProfile { writable: Vec::new(), read_only: Vec::new(), ..usual.clone() };
    let variants = [
        ("none", None),
        ("usual profile", Some(usual)),
        ("nothing writable", Some(reading)),
        ("little readable", Some(strict)),
        ("private loopback", Some(loopback)),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut all, mut prepare) = (vec![vec![]; variants.len()], vec![vec![]; variants.len()]);
    for _ in 0..ROUNDS {
        for (place, (_, sandbox)) in variants.iter().enumerate() {
            if let Some(profile) = sandbox {
                let begun = Instant::now();
                drop(Sandbox::prepare(profile, None)?);
                prepare[place].push(us(begun.elapsed()));
            }
            all[place].push(runtime.block_on(run(sandbox.as_ref(), folder.path()))?);
        }
    }
    let none = median(all[0].clone());
    table.note("none: start to end", none, "µs");
    for (place, (name, _)) in variants.iter().enumerate().skip(1) {
        table.row(name, median(all[place].clone()) - none, "µs", BUDGET);
        table.note("… of that, prepared in the parent", median(prepare[place].clone()), "µs");
    }
    table.end();
    Ok(())
}

/// The profile of a command in a repository.
#[expect(clippy::disallowed_methods, reason = "a bench sets up its files")]
fn usual(folder: &Path) -> io::Result<SandboxProfile> {
    let (base, home) = (folder.canonicalize()?, folder.join("home"));
    for place in ["project/.git/hooks", "project/.vscode", "temp", "home/.ssh", "home/.aws"] {
        std::fs::create_dir_all(base.join(place))?;
    }
    std::fs::write(base.join("project/.git/config"), "[core]\n")?;
    let keep = [".git/hooks", ".git/config", ".vscode"].map(|it| base.join("project").join(it));
    Ok(SandboxProfile {
        writable: vec![base.join("project"), base.join("temp")],
        read_only: keep.into(),
        hidden: credential_paths(&home, &[]),
        ..SandboxProfile::default()
    })
}

/// The time from the start to the end in microseconds.
async fn run(sandbox: Option<&SandboxProfile>, folder: &Path) -> io::Result<f64> {
    let spec = CommandSpec {
        command: "true".to_owned(),
        workdir: folder.to_owned(),
        environment: Environment::default(),
        accepts_input: false,
        extra_variables: Vec::new(),
        sandbox: sandbox.cloned(),
        network: None,
    };
    let begun = Instant::now();
    let mut group = ProcessGroup::start(&spec).await?;
    while group.next_output(&mut |_| {}).await?.is_none() {}
    Ok(us(begun.elapsed()))
}
