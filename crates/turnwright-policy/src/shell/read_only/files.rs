//! Programs that read files or standard input and print something about them.

use super::Operands::{Files, FilesOrHere, OneFile, Words};
use super::{Program, program};

const LS: &[&str] = &[
    "-aAbBcCdDfFgGhHiklLmnNopqQrRsStuUvxXZ1 -I: -T: -w: --all --almost-all --author --escape",
    "--block-size: --ignore-backups --color? --directory --dired --classify? --file-type --format:",
    "--full-time --group-directories-first --no-group --human-readable --si --dereference",
    "--dereference-command-line --hide: --hyperlink? --indicator-style: --inode --ignore:",
    "--kibibytes --literal --numeric-uid-gid --hide-control-chars --show-control-chars",
    "--quote-name --quoting-style: --reverse --recursive --size --sort: --time: --time-style:",
    "--tabsize: --width: --context --zero --help --version",
];

const HEAD: &[&str] =
    &["-qvz -# -n: -c: --bytes: --lines: --quiet --silent --verbose --zero-terminated"];

const TAIL: &[&str] = &[
    "-fFqvzr -# -n: -c: -s: --bytes: --lines: --follow? --retry --quiet --silent --verbose",
    "--sleep-interval: --zero-terminated",
];

const CUT: &[&str] = &[
    "-nsz -b: -c: -d: -f: --bytes: --characters: --delimiter: --fields: --complement",
    "--only-delimited --output-delimiter: --zero-terminated",
];

/// Without `-l`, which runs a pager.
const DIFF: &[&str] = &[
    "-qscepynrNiEZbwBaTtdHu -# -C: -U: -W: -F: -L: -I: -D: -x: -X< -S: --normal --brief",
    "--report-identical-files --context? --unified? --ed --rcs --side-by-side --width:",
    "--left-column --suppress-common-lines --show-c-function --show-function-line: --label:",
    "--expand-tabs --initial-tab --tabsize: --suppress-blank-empty --recursive --no-dereference",
    "--new-file --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case",
    "--exclude: --exclude-from< --starting-file: --from-file< --to-file< --ignore-case",
    "--ignore-tab-expansion --ignore-trailing-space --ignore-space-change --ignore-all-space",
    "--ignore-blank-lines --ignore-matching-lines: --text --strip-trailing-cr --minimal",
    "--horizon-lines: --speed-large-files --color? --palette:",
];

/// Without `-C`, which compiles a magic file, `-z`, which runs a decompressor, and `-f`, which
/// names a list of files.
const FILE: &[&str] = &[
    "-bhikLnNrs0v -F: -m< -P: -e: --brief --mime --mime-type --mime-encoding --dereference",
    "--no-dereference --keep-going --no-buffer --no-pad --raw --print0 --separator: --extension",
    "--files-from< --magic-file< --parameter: --exclude: --version",
];

const STAT: &[&str] =
    &["-LftxqnlrsF -c: --dereference --file-system --format: --printf: --terse --cached:"];

const DU: &[&str] = &[
    "-0abchHlkLmPsSxDgr -B: -d: -t: -X< -I: --null --all --apparent-size --block-size: --bytes",
    "--total --dereference-args --max-depth: --human-readable --inodes --count-links",
    "--dereference --no-dereference --separate-dirs --si --summarize --threshold: --time?",
    "--time-style: --exclude-from< --exclude: --one-file-system",
];

const DF: &[&str] = &[
    "-ahHiklPTmg -B: -t: -x: --all --block-size: --human-readable --si --inodes --local",
    "--no-sync --output? --portability --total --type: --print-type --exclude-type:",
];

/// Without `-o` and `-R`, which write files.
const TREE: &[&str] = &[
    "-adflxspugDFqNQvtcUrnACSiJXh -L: -P: -I: --noreport --charset: --filelimit: --dirsfirst",
    "--filesfirst --gitignore --matchdirs --ignore-case --du --si --inodes --device --prune",
    "--sort: --timefmt: --metafirst --version",
];

/// Without `-o`, `-T`, `--compress-program`, and `--files0-from`, which reads unknown files.
const SORT: &[&str] = &[
    "-bdfgiMhnRrVcCmsuz -k: -t: -S: --ignore-leading-blanks --dictionary-order --ignore-case",
    "--general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort",
    "--random-sort --random-source< --reverse --sort: --version-sort --check? --key: --merge",
    "--stable --buffer-size: --field-separator: --parallel: --unique --zero-terminated --debug",
];

const UNIQ: &[&str] = &[
    "-cdDiuz -# -f: -s: -w: --count --repeated --all-repeated? --skip-fields: --group? --ignore-case",
    "--skip-chars: --unique --zero-terminated --check-chars:",
];

const OD: &[&str] = &[
    "-abcdfilosxv -A: -j: -N: -S: -t: -w? --address-radix: --endian: --skip-bytes: --read-bytes:",
    "--strings? --format: --output-duplicates --width? --traditional",
];

const SUMS: &[&str] = &[
    "-bctwz -a: -l: --algorithm: --length: --binary --check --tag --text --zero --ignore-missing",
    "--quiet --status --strict --warn --untagged --raw --base64",
];

const NL: &[&str] = &[
    "-p -b: -d: -f: -h: -i: -l: -n: -s: -v: -w: --body-numbering: --section-delimiter:",
    "--footer-numbering: --header-numbering: --line-increment: --join-blank-lines: --number-format:",
    "--no-renumber --number-separator: --starting-line-number: --number-width:",
];

const COLUMN: &[&str] = &[
    "-tenxJLd -s: -o: -c: -N: -l: -R: -T: -W: -H: -O: --table --separator: --output-separator:",
    "--output-width: --fillrows --json --table-columns: --table-right: --table-noheadings",
    "--table-columns-limit: --keep-empty-lines",
];

pub(super) const PROGRAMS: &[Program] = &[
    program("ls dir vdir", LS, FilesOrHere),
    program(
        "cat",
        &[
            "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs",
            "--show-nonprinting",
        ],
        Files,
    ),
    program("head", HEAD, Files),
    program("tail", TAIL, Files),
    program("wc", &["-cmlLw --bytes --chars --lines --words --max-line-length --total:"], Files),
    program("nl", NL, Files),
    program("tac", &["-br -s: --before --regex --separator:"], Files),
    program("rev", &["-0 --zero"], Files),
    program("cut", CUT, Files),
    program("paste", &["-sz -d: --serial --delimiters: --zero-terminated"], Files),
    program(
        "comm",
        &["-123iz --check-order --nocheck-order --output-delimiter: --total --zero-terminated"],
        Files,
    ),
    program("join", &["-iz -a: -e: -j: -o: -t: -v: -1: -2: --ignore-case --header"], Files),
    program("cmp", &["-bls -i: -n: --print-bytes --verbose --quiet --silent --bytes:"], Files),
    program("diff", DIFF, Files),
    program("stat", STAT, Files),
    program("file", FILE, Files),
    program("du", DU, FilesOrHere),
    program("df", DF, Files),
    program("tree", TREE, FilesOrHere),
    program(
        "realpath",
        &[
            "-ezLmPqs --canonicalize-existing --canonicalize-missing --logical --physical --quiet --strip --no-symlinks --zero --relative-to: --relative-base:",
        ],
        Files,
    ),
    program(
        "readlink",
        &[
            "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline --quiet --silent --verbose --zero",
        ],
        Files,
    ),
    program("sort", SORT, Files),
    program("uniq", UNIQ, OneFile),
    program("tr", &["-cCdst --complement --delete --squeeze-repeats --truncate-set1"], Words),
    program("fold", &["-bsc -w: --bytes --spaces --width:"], Files),
    program("fmt", &["-cstu -w: -p: -g: --split-only --uniform-spacing --width: --goal:"], Files),
    program("column", COLUMN, Files),
    program("expand unexpand", &["-ai -t: --initial --all --first-only --tabs:"], Files),
    program("od", OD, Files),
    program("hexdump hd", &["-bcCdovx -e: -f< -n: -s:"], Files),
    program("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum", SUMS, Files),
    program("shasum", &["-bctUqw -a: --algorithm: --check --binary --text"], Files),
    program("base64 base32", &["-dD -w: --decode --wrap: --ignore-garbage"], Files),
    program(
        "strings",
        &["-afow -n: -t: -e: --all --bytes: --radix: --encoding: --print-file-name"],
        Files,
    ),
    program("tsort factor", &[], Files),
];
