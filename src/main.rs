//! The binary; all code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    turnwright::run()
}
