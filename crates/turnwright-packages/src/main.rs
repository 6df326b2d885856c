//! Makes the packages of a release from programs that are already built.

#![expect(clippy::disallowed_methods, reason = "a tool of the project and no part of the program")]

mod archive;
mod command_line;
mod debian;
mod homebrew;
mod licenses;
mod npm;
mod platform;
mod registry;
mod release;
mod wheel;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};

use release::{Release, read_program};

/// Makes the packages of a release from programs that are already built
#[derive(Debug, Parser)]
#[command(name = "turnwright-packages", version)]
enum Arguments {
    /// Make all packages
    Make(MakeArguments),
    /// Print the licences of everything that the program contains
    Licenses,
}

#[derive(Debug, Args)]
struct MakeArguments {
    /// A program and the Rust target that it was built for; repeatable
    #[arg(long, value_name = "TARGET=PATH", required = true, value_parser = target_and_path)]
    program: Vec<(String, PathBuf)>,
    /// Address of the project, such as https://example.com/turnwright
    #[arg(long, value_name = "URL")]
    repository: String,
    /// Folder for the packages
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    out: PathBuf,
}

fn target_and_path(text: &str) -> Result<(String, PathBuf), String> {
    let (target, path) = text.split_once('=').ok_or("expected TARGET=PATH")?;
    Ok((target.to_owned(), path.into()))
}

fn main() -> Result<(), Box<dyn Error>> {
    match Arguments::parse() {
        Arguments::Make(arguments) => make(arguments),
        Arguments::Licenses => {
            std::io::stdout().write_all(licenses::text(Path::new("."))?.as_bytes())?;
            Ok(())
        }
    }
}

fn make(arguments: MakeArguments) -> Result<(), Box<dyn Error>> {
    let programs = arguments.program.iter().map(|(target, path)| read_program(target, path));
    let release = Release {
        programs: programs.collect::<Result<_, _>>()?,
        repository: arguments.repository.trim_end_matches('/').to_owned(),
        out: arguments.out,
    };
    let archives = release.archives()?;
    npm::make(&release)?;
    wheel::make(&release)?;
    debian::make(&release)?;
    homebrew::make(&release, &archives)?;
    registry::make(&release, &archives)?;
    Ok(())
}
