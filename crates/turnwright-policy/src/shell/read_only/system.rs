//! Programs that print something about the machine, the user or a word.

use super::Operands::{Format, None, Words};
use super::{Program, program};

/// Without `-s`, which sets the clock. So does an operand that is not a format.
const DATE: &[&str] = &[
    "-uR -I? -d: -r< --utc --universal --iso-8601? --rfc-3339: --rfc-email --date: --reference<",
    "--debug",
];

const UNAME: &[&str] = &[
    "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version --machine",
    "--processor --hardware-platform --operating-system",
];

pub(super) const PROGRAMS: &[Program] = &[
    program("pwd", &["-LP --logical --physical"], None),
    program("date", DATE, Format),
    program("uname", UNAME, None),
    program("whoami arch tty logname", &[], None),
    program("nproc", &["--all --ignore:"], None),
    program("uptime", &["-ps --pretty --since"], None),
    program("id", &["-agGnruzZ --context --group --groups --name --real --user --zero"], Words),
    program("groups users", &[], Words),
    program("getconf", &["-a"], Words),
    program("locale", &["-akcm --all-locales --charmaps --category-name --keyword-name"], Words),
    program("which", &["-a --all"], Words),
    program("type", &["-afptP"], Words),
    program("whereis", &["-bmsu"], Words),
    program("basename", &["-az -s: --multiple --suffix: --zero"], Words),
    program("dirname", &["-z --zero"], Words),
    program("seq", &["-w -# -f: -s: --format: --separator: --equal-width"], Words),
    program("cal ncal", &["-13mjyswn"], Words),
    program("printenv", &["-0 --null"], None),
    program(
        "free",
        &["-bkmghltw --bytes --kibi --mebi --gibi --human --lohi --total --wide"],
        None,
    ),
    program("lscpu", &["-aJ --all --json"], None),
    program("numfmt", &["--from: --to: --suffix: --padding: --field: --header? --grouping"], Words),
    program("pgrep", &["-aflxnovci -u: -P: --list-name --list-full --full --exact --count"], Words),
];
