//! Detects the format of a binary file from its first bytes.

/// A known file format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// The name of the format, as people know it.
    pub name: &'static str,
    /// The MIME type, for images that models accept.
    pub image_mime: Option<&'static str>,
    /// Width and height of an image in pixels.
    pub size: Option<(u32, u32)>,
}

/// Offset, magic bytes at that offset, name of the format.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"GIF8", "GIF"),
    (8, b"WEBP", "WebP"),
    (0, b"\0\0\x01\0", "icon"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (8, b"WAVE", "WAV audio"),
    (0, b"ID3", "MP3 audio"),
    (0, b"OggS", "Ogg media"),
    (0, b"fLaC", "FLAC audio"),
    (4, b"ftyp", "MP4 media"),
    (0, b"\x1aE\xdf\xa3", "Matroska media"),
    (0, b"%PDF-", "PDF"),
    (0, b"PK\x03\x04", "ZIP archive"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\0", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (0, b"Rar!\x1a\x07", "RAR archive"),
    (257, b"ustar", "tar archive"),
    (0, b"\x7fELF", "ELF executable"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O executable"),
    (0, b"\xca\xfe\xba\xbe", "Java class or Mach-O executable"),
    (0, b"MZ\x90\0", "Windows executable"),
    (0, b"\0asm", "WebAssembly"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"wOFF", "WOFF font"),
    (0, b"wOF2", "WOFF2 font"),
    (0, b"OTTO", "OpenType font"),
    (0, b"\0\x01\0\0\0", "TrueType font"),
    (0, b"!<arch>\n", "static library"),
];

/// Detects the format of a file that begins with these bytes.
pub(super) fn detect(bytes: &[u8]) -> Option<FileKind> {
    let (_, _, name) = SIGNATURES
        .iter()
        .copied()
        .find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)))?;
    let (image_mime, size) = match name {
        "PNG" => (Some("image/png"), png_size(bytes)),
        "JPEG" => (Some("image/jpeg"), jpeg_size(bytes)),
        "GIF" => (Some("image/gif"), gif_size(bytes)),
        "WebP" => (Some("image/webp"), webp_size(bytes)),
        _ => (None, None),
    };
    Some(FileKind { name, image_mime, size })
}

/// The MIME type of a picture that begins with these bytes, whether all models accept it or only some.
pub fn picture_mime(bytes: &[u8]) -> Option<&'static str> {
    let brand = bytes.get(8..12).filter(|_| bytes[4..].starts_with(b"ftyp"));
    match brand {
        Some(b"heic" | b"heix" | b"hevc") => Some("image/heic"),
        Some(b"mif1" | b"msf1") => Some("image/heif"),
        Some(b"avif" | b"avis") => Some("image/avif"),
        _ if bytes.starts_with(b"BM") && bytes.get(6..10) == Some(&[0; 4]) => Some("image/bmp"),
        _ => match detect(bytes)? {
            FileKind { name: "TIFF", .. } => Some("image/tiff"),
            kind => kind.image_mime,
        },
    }
}

/// Reads a big-endian number of `count` bytes.
fn read_be(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    Some(bytes.get(at..at + count)?.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Reads a little-endian number of `count` bytes.
fn read_le(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    Some(bytes.get(at..at + count)?.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    (bytes.get(12..16)? == b"IHDR").then_some(())?;
    Some((read_be(bytes, 16, 4)?, read_be(bytes, 20, 4)?))
}

fn gif_size(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((read_le(bytes, 6, 2)?, read_le(bytes, 8, 2)?))
}

fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8X" => Some((read_le(bytes, 24, 3)? + 1, read_le(bytes, 27, 3)? + 1)),
        b"VP8L" => {
            let packed = read_le(bytes, 21, 4)?;
            Some(((packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => Some((read_le(bytes, 26, 2)? & 0x3fff, read_le(bytes, 28, 2)? & 0x3fff)),
        _ => None,
    }
}

/// The size is in the first frame header, which follows segments of any length.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let [0xff, marker] = bytes.get(at..at + 2)? else { return None };
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            return Some((read_be(bytes, at + 7, 2)?, read_be(bytes, at + 5, 2)?));
        }
        at += 2 + usize::try_from(read_be(bytes, at + 2, 2)?).ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type FormatRow<'a> = (&'a [u8], Option<(&'a str, Option<(u32, u32)>)>);

    #[test]
    fn file_formats_are_detected_by_their_first_bytes() {
        let mut tar = vec![0; 300];
        tar[257..262].copy_from_slice(b"ustar");
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\x01\xe0\x02\x80";
        let webp = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
        let webp_lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\xc2\x77\0";
        let size = Some((640, 480));
        let table: &[FormatRow<'_>] = &[
            (png, Some(("PNG", size))),
            (jpeg, Some(("JPEG", size))),
            (b"GIF89a\x80\x02\xe0\x01", Some(("GIF", size))),
            (webp, Some(("WebP", size))),
            (webp_lossless, Some(("WebP", size))),
            (b"\x89PNG\r\n\x1a\n", Some(("PNG", None))),
            (b"\xff\xd8\xff", Some(("JPEG", None))),
            (b"\x7fELF\x02", Some(("ELF executable", None))),
            (b"PK\x03\x04", Some(("ZIP archive", None))),
            (&tar, Some(("tar archive", None))),
            (b"", None),
            (b"plain", None),
        ];
        for (bytes, expected) in table {
            let kind = detect(bytes).map(|kind| (kind.name, kind.size));
            assert_eq!(kind, *expected, "{bytes:?}");
        }
    }
}
