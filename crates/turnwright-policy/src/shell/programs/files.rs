//! Programs that read, write, move and delete files.

use std::path::PathBuf;

use crate::shell::OperandUse::{Changes, Copies, Links, Moves, Reads, Takes};
use crate::shell::Word;
use crate::shell::args::Operands::{Files, FilesOrHere, OneFile, Words};
use crate::shell::args::UnknownArgs::NameFiles;
use crate::shell::args::{self, Args, FilesRead, add_path, operands};
use crate::shell::prefix::Grant;

use super::{ANYTHING, Program, is_in, program};
use crate::shell::harm::{self, Danger, Target, has_option, is_everything};

const LS: &[&str] = &[include_str!("options/ls.txt")];

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
const DIFF: &[&str] = &[include_str!("options/diff.txt")];

/// Without `-C`, which compiles a magic file, `-z`, which runs a decompressor, and `-f`, which
/// names a list of files.
const FILE: &[&str] = &[include_str!("options/file.txt")];

const STAT: &[&str] =
    &["-LftxqnlrsF -c: --dereference --file-system --format: --printf: --terse --cached:"];

const DF: &[&str] = &[
    "-ahHiklPTmg -B: -t: -x: --all --block-size: --human-readable --si --inodes --local",
    "--no-sync --output? --portability --total --type: --print-type --exclude-type:",
];

/// Without `-o` and `-R`, which write files.
const TREE: &[&str] = &[include_str!("options/tree.txt")];

/// Without `-o`, `-T`, `--compress-program`, and `--files0-from`, which reads unknown files.
const SORT: &[&str] = &[include_str!("options/sort.txt")];

const UNIQ: &[&str] = &[
    "-cdDiuz -# -f: -s: -w: --count --repeated --all-repeated? --skip-fields: --group? \
     --ignore-case",
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

const STRINGS: &[&str] =
    &["-afow -n: -t: -e: --all --bytes: --radix: --encoding: --print-file-name"];

const FOR_GOOD: Danger = Danger::Always("overwrites files beyond recovery");

const PERMISSIONS: Program = program("").targets(harm::chmod_targets).operand_use(Changes);
const DISK: Program = program("").targets(harm::mkfs_targets);
const VOLUME: &str = "destroys a volume or a snapshot with all its data";
const USER: &str = "deletes all files of a user";
const ARCHIVE: Program = program("")
    .options_outside_grant(
        "IFCP --to-command --checkpoint-action --use-compress-program --info-script \
     --new-volume-script --rsh-command --rmt-command --absolute-names --directory",
    )
    .operand_use(Reads);
const PAGER: Program =
    program("").options_outside_grant("PHoO --pager --html --preprocessor --log-file --LOG-FILE");

pub(super) const PROGRAMS: &[Program] = &[
    program("ls").reads(LS, FilesOrHere).unknown_args(NameFiles),
    program("dir vdir").reads(LS, FilesOrHere),
    program("cat")
        .reads(
            &[
                "-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank \
                 --show-tabs",
                "--show-nonprinting",
            ],
            Files,
        )
        .unknown_args(NameFiles),
    program("head").reads(HEAD, Files).unknown_args(NameFiles),
    program("tail").reads(TAIL, Files).unknown_args(NameFiles),
    program("wc")
        .reads(&["-cmlLw --bytes --chars --lines --words --max-line-length --total:"], Files)
        .unknown_args(NameFiles),
    program("zcat gzcat bzcat xzcat zstdcat tsort factor").reads(&[], Files),
    program("nl").reads(&[include_str!("options/nl.txt")], Files).unknown_args(NameFiles),
    program("tac").reads(&["-br -s: --before --regex --separator:"], Files),
    program("rev").reads(&["-0 --zero"], Files),
    program("cut").reads(CUT, Files),
    program("paste").reads(&["-sz -d: --serial --delimiters: --zero-terminated"], Files),
    program("comm").reads(
        &["-123iz --check-order --nocheck-order --output-delimiter: --total --zero-terminated"],
        Files,
    ),
    program("join").reads(&["-iz -a: -e: -j: -o: -t: -v: -1: -2: --ignore-case --header"], Files),
    program("cmp")
        .reads(&["-bls -i: -n: --print-bytes --verbose --quiet --silent --bytes:"], Files),
    program("diff").reads(DIFF, Files).options_outside_grant("l --paginate"),
    program("stat").reads(STAT, Files).unknown_args(NameFiles),
    program("file").reads(FILE, Files).options_outside_grant("CzZ --compile --uncompress"),
    program("du").reads(&[include_str!("options/du.txt")], FilesOrHere).unknown_args(NameFiles),
    program("df").reads(DF, Files),
    program("tree").reads_if(tree).options_outside_grant("oR"),
    program("realpath").reads(
        &["-ezLmPqs --canonicalize-existing --canonicalize-missing --logical --physical --quiet \
           --strip --no-symlinks --zero --relative-to: --relative-base:"],
        Files,
    ),
    program("readlink").reads(
        &["-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing --no-newline \
           --quiet --silent --verbose --zero"],
        Files,
    ),
    program("sort").reads(SORT, Files).targets(harm::sort_targets).options_outside_grant(
        "oT --output --compress-program --temporary-directory --files0-from",
    ),
    program("shuf").targets(harm::sort_targets).grant(Grant::Exact),
    program("uniq").reads(UNIQ, OneFile).operand_use(Copies),
    program("tr").reads(&["-cCdst --complement --delete --squeeze-repeats --truncate-set1"], Words),
    program("fold").reads(&["-bsc -w: --bytes --spaces --width:"], Files),
    program("fmt")
        .reads(&["-cstu -w: -p: -g: --split-only --uniform-spacing --width: --goal:"], Files),
    program("column").reads(&[include_str!("options/column.txt")], Files),
    program("expand unexpand").reads(&["-ai -t: --initial --all --first-only --tabs:"], Files),
    program("od").reads(OD, Files),
    program("hexdump hd").reads(&["-bcCdovx -e: -f< -n: -s:"], Files),
    program("md5sum sha1sum sha256sum").reads(SUMS, Files).unknown_args(NameFiles),
    program("sha224sum sha384sum sha512sum b2sum cksum sum").reads(SUMS, Files),
    program("shasum").reads(&["-bctUqw -a: --algorithm: --check --binary --text"], Files),
    program("base64 base32")
        .reads(&["-dD -w: --decode --wrap: --ignore-garbage"], Files)
        .options_outside_grant("o"),
    program("strings").reads_if(strings),
    program("xxd").reads_if(xxd).options_outside_grant("r"),
    PAGER.with_names("more"),
    PAGER.with_names("less man").grantable_prefixes(&[]),
    program("mkdir touch").operand_use(Changes).grant(Grant::Name),
    program("rm")
        .dangers(&[
            Danger::UnknownArgs("deletes files that are not known in advance"),
            Danger::Check(rm),
        ])
        .targets(harm::rm_targets)
        .operand_use(Takes)
        .grantable_prefixes(&[]),
    program("srm").targets(harm::rm_targets).operand_use(Takes),
    program("rimraf trash trash-put").targets(harm::rimraf_targets).operand_use(Takes),
    program("mv").targets(harm::mv_targets).operand_use(Moves).grantable_prefixes(&[]),
    program("cp install").targets(harm::cp_targets).operand_use(Copies).grantable_prefixes(&[]),
    program("move ren rename").operand_use(Moves).grant(Grant::Exact),
    program("copy xcopy robocopy").operand_use(Copies).grant(Grant::Exact),
    program("gzip gunzip bzip2 bunzip2 xz unxz zstd unlink patch")
        .operand_use(Changes)
        .grant(Grant::Exact),
    program("7z 7za 7zz pax ar").operand_use(Reads).grant(Grant::Exact),
    ANYTHING.with_names("ln").operand_use(Links),
    PERMISSIONS.with_names("chmod chown").grantable_prefixes(&[]),
    PERMISSIONS.with_names("chgrp setfacl chcon chattr"),
    program("dd").dangers(&[Danger::Check(dd)]).targets(harm::dd_targets).grantable_prefixes(&[]),
    DISK.with_names("shred").dangers(&[FOR_GOOD]).operand_use(Changes),
    program("truncate")
        .targets(harm::tee_targets)
        .dangers(&[Danger::Always("truncates files")])
        .operand_use(Changes),
    program("dcfldd").targets(harm::dd_targets),
    program("tee").targets(harm::tee_targets).operand_use(Changes).grantable_prefixes(&[]),
    program("sponge").targets(harm::tee_targets).operand_use(Changes),
    DISK.with_names("blkdiscard mkdosfs mkntfs mkswap mke2fs mkfs badblocks"),
    program("wipefs fdisk sfdisk sgdisk parted gdisk cfdisk").targets(partitioned),
    program("lvremove vgremove pvremove").ruins(&[Danger::Always(VOLUME)]),
    program("zpool zfs cryptsetup nvme diskutil tmutil mdadm hdparm").ruins(&[
        Danger::Word(
            "destroy labelclear luksFormat luksErase erase format sanitize eraseDisk eraseVolume \
             zeroDisk randomDisk secureErase partitionDisk deleteContainer deleteVolume rollback \
             delete reformat eraseCD deleteVolumeGroup deleteSnapshot deletelocalsnapshots \
             thinlocalsnapshots",
            VOLUME,
        ),
        Danger::Prefix("--zero-superblock", VOLUME),
        Danger::Prefix("--security-erase", VOLUME),
    ]),
    program("btrfs").ruins(&[Danger::InOrder("subvolume delete", VOLUME)]),
    program("zip").targets(harm::zip_targets).operand_use(Reads),
    program("userdel deluser")
        .ruins(&[Danger::Option("r --remove", USER), Danger::Prefix("--remove-", USER)]),
    ARCHIVE.with_names("tar").reads_if(listed_by_tar).grantable_prefixes(&[]),
    ARCHIVE.with_names("gtar bsdtar"),
    program("unzip").reads_if(listed_by_unzip),
    ANYTHING.with_names("ed emacs ex nano nvim vi vim"),
];

/// `@file` names a file with further arguments.
fn strings(words: &[Word]) -> FilesRead {
    let are_plain =
        words.iter().all(|word| !word.text.starts_with('@') && !args::may_be_option(word));
    are_plain.then(|| Files.files(STRINGS, words))?
}

/// `tar tzf a.tgz`: lists an archive. A name with a colon is one of another machine.
fn listed_by_tar(words: &[Word]) -> FilesRead {
    let [letters, archive, members @ ..] = words else { return None };
    let letters = letters.text.trim_start_matches('-');
    let is_list = letters.contains('t') && letters.ends_with('f');
    let lists = is_list && letters.bytes().all(|letter| b"tvzjJf".contains(&letter));
    (lists && !archive.text.contains(':') && are_names(archive, members))
        .then(|| vec![PathBuf::from(&archive.text)])
}

/// `unzip -l a.zip`: lists an archive.
fn listed_by_unzip(words: &[Word]) -> FilesRead {
    let [option, archive, members @ ..] = words else { return None };
    let is_list = ["-l", "-v", "-lv", "-Z", "-Z1"].contains(&option.text.as_str());
    (is_list && are_names(archive, members)).then(|| vec![PathBuf::from(&archive.text)])
}

/// Returns true if an archive is one file, and what follows are no options.
fn are_names(archive: &Word, members: &[Word]) -> bool {
    let is_plain = |word: &Word| !word.is_glob && !word.text.starts_with('-');
    is_plain(archive) && !archive.text.contains(['*', '?', '[']) && members.iter().all(is_plain)
}

fn tree(words: &[Word]) -> FilesRead {
    (!words.iter().any(hides_options)).then(|| FilesOrHere.files(TREE, words))?
}

/// `tree`: true if letters follow one that takes a value. `tree` takes them for options and the
/// next word for the value.
fn hides_options(word: &Word) -> bool {
    let letters = word.text.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    let following = letters.and_then(|letters| letters.split_once(['L', 'P', 'I']));
    following.is_some_and(|(_, rest)| rest.bytes().any(|byte| !byte.is_ascii_digit()))
}

/// `xxd`. It has no groups of letters, `-ps` is one option, and it writes to the word after the
/// file.
fn xxd(words: &[Word]) -> FilesRead {
    const WITHOUT_VALUE: &str = "-a -b -e -E -i -p -ps -plain -u -C -d";
    let mut reads = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.is_glob {
            return None;
        } else if is_in("-c -g -l -s -o", &word.text) {
            words.next().filter(|word| is_offset(&word.text))?;
        } else if !word.text.starts_with('-') || word.text == "-" {
            add_path(&mut reads, &word.text);
            return words.next().is_none().then_some(reads);
        } else if !is_in(WITHOUT_VALUE, &word.text) {
            let value = word.text.strip_prefix(['-'])?.strip_prefix(['c', 'g', 'l', 's', 'o'])?;
            is_offset(value).then_some(())?;
        }
    }
    Some(reads)
}

/// True for `64`, `-16`, `0x1f`.
fn is_offset(text: &str) -> bool {
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = number.strip_prefix("0x").unwrap_or(number);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn rm(words: Args<'_>) -> Option<&'static str> {
    let is_deep = has_option(words, "r R --recursive");
    let mut named = operands(words).map(|word| word.text.as_str());
    named.find_map(|path| {
        if path.split('/').any(|part| part == ".git") && is_deep {
            Some("deletes the history of the repository")
        } else if is_everything(path) && (is_deep || path.contains('*')) {
            Some("deletes everything in a folder")
        } else {
            (is_deep && path.starts_with(['~', '$']))
                .then_some("deletes files that may be outside of the project")
        }
    })
}

/// Programs that show partitions with some options.
fn partitioned(words: Args<'_>) -> Vec<Target<'_>> {
    if has_option(words, "l p --list --print") { Vec::new() } else { harm::mkfs_targets(words) }
}

fn dd(words: Args<'_>) -> Option<&'static str> {
    let mut written = words.iter().filter_map(|word| word.text.strip_prefix("of="));
    written.any(|path| !path.starts_with("/dev/null")).then_some("overwrites a file")
}
