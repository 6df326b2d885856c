//! Detects the format of a binary file from its first bytes, and reads pictures in base64, in all forms that clients
//! and servers send. Does no I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use memchr::memmem;

use super::disk::MAX_IMAGE_BYTES;
use super::text::decode_head;
use turnwright_types::message::Media;

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

/// It says what to do, because nothing reads it.
const OLD_OFFICE_FILE: &str = "Office file of the time before .docx, or with a password: to read it, convert it, for \
                               example with `soffice --headless --convert-to`";

/// The same for the pictures of an iPhone or a Mac, which few models take.
const HEIF_PICTURE: &str = "HEIC or AVIF picture: to see it, convert it with `magick` or `sips`";

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
    (4, b"ftyphe", HEIF_PICTURE),
    (4, b"ftypmif1", HEIF_PICTURE),
    (4, b"ftypavi", HEIF_PICTURE),
    (4, b"ftyp", "MP4 media"),
    (0, b"\x1aE\xdf\xa3", "Matroska media"),
    (0, b"%PDF-", "PDF"),
    (0, b"PK\x03\x04", "ZIP archive"),
    (0, b"\xd0\xcf\x11\xe0", OLD_OFFICE_FILE),
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

/// Returns true if a file that begins with these bytes may be a document of which the text can be read: a PDF, or the
/// archive that the files of office programs are.
pub fn may_be_document(head: &[u8]) -> bool {
    // Some programs write a byte order mark or empty lines before a PDF.
    let start = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    start.starts_with(b"%PDF-") || head.starts_with(b"PK\x03\x04")
}

/// Returns true if this is a PDF, as opposed to a text that only begins like one.
pub fn is_pdf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"%PDF-") && memmem::find(bytes, b"endobj").is_some()
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

/// The characters of base64 at the beginning of a picture that suffice to detect its format.
const SIGNATURE_CHARS: usize = 64;

/// Why a text is not a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureFault {
    #[error("its data is not base64")]
    NotBase64,
    #[error("its data is in no known format, such as PNG, JPEG, GIF or WebP")]
    UnknownFormat,
}

/// Reads a picture. Its type is detected from its bytes, because labels are often wrong.
///
/// # Errors
/// The provider would refuse every later request that contains such data.
pub fn read_picture(data: String) -> Result<Media, PictureFault> {
    let data = usual_base64(data).ok_or(PictureFault::NotBase64)?;
    let head = data.get(..data.len().min(SIGNATURE_CHARS)).unwrap_or_default();
    let known = BASE64.decode(head).ok().and_then(|bytes| picture_mime(&bytes));
    let mime = known.ok_or(PictureFault::UnknownFormat)?.to_owned();
    Ok(Media { mime, data })
}

/// Returns a PDF file as a part of a request; `None` if it is too large.
pub fn pdf_part(bytes: &[u8]) -> Option<Media> {
    let is_small = bytes.len() as u64 <= MAX_IMAGE_BYTES;
    is_small.then(|| Media { mime: Media::PDF.to_owned(), data: BASE64.encode(bytes) })
}

/// Reads a PDF file in base64; `None` if it is another file, or too large.
pub fn read_pdf(data: String) -> Option<Media> {
    let is_pdf = data.starts_with("JVBERi0");
    if !is_pdf || data.len() as u64 > MAX_IMAGE_BYTES / 3 * 4 {
        return None;
    }
    Some(Media { mime: Media::PDF.to_owned(), data: usual_base64(data)? })
}

/// Reads the text of a file in base64; `None` if the file is not text.
pub fn blob_text(data: &str) -> Option<String> {
    let bytes = BASE64.decode(usual_base64(data.to_owned())?).ok()?;
    decode_head(&bytes, false)
}

/// Base64 in its usual form, from a text that may be wrapped, unpadded, URL-safe or a data URL.
pub fn usual_base64(data: String) -> Option<String> {
    if is_usual(&data) {
        return Some(data);
    }
    let text = match data.trim_start().strip_prefix("data:") {
        Some(url) => url.split_once(',').filter(|(head, _)| head.ends_with(";base64"))?.1,
        None => &data,
    };
    let digits: String = text.trim_end().trim_end_matches('=').split_whitespace().collect();
    let padding = digits.len().next_multiple_of(4) - digits.len();
    let usual = digits.replace('-', "+").replace('_', "/") + &"=".repeat(padding);
    Some(usual).filter(|usual| is_usual(usual))
}

fn is_usual(data: &str) -> bool {
    let digits = data.trim_end_matches('=');
    let is_padded = data.len().is_multiple_of(4) && data.len() - digits.len() <= 2;
    !digits.is_empty()
        && is_padded
        && digits.bytes().all(|digit| digit.is_ascii_alphanumeric() || b"+/".contains(&digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    type FormatRow<'a> = (&'a [u8], Option<(&'a str, Option<(u32, u32)>)>);

    #[test]
    fn a_pdf_file_is_a_part_of_a_request_unless_it_is_too_large() {
        let part = pdf_part(b"%PDF-1.7\n").unwrap();
        assert_eq!((part.mime.as_str(), part.data.as_str()), ("application/pdf", "JVBERi0xLjcK"));
        assert_eq!(read_pdf("JVBERi0x\nLjcK".to_owned()), Some(part));
        assert_eq!(read_pdf("JVBERi0x?".to_owned()), None);
        assert_eq!(read_pdf("UEsDBAoA".to_owned()), None);
        assert_eq!(read_pdf("JVBERi0x".repeat(1_000_000)), None);
        assert_eq!(pdf_part(&vec![b'x'; 6 * 1024 * 1024]), None);
    }

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
            (b"\0\0\0\x24ftypheic\0\0\0\0", Some((HEIF_PICTURE, None))),
            (b"\0\0\0\x1cftypavif\0\0\0\0", Some((HEIF_PICTURE, None))),
            (b"\0\0\0\x20ftypisom\0\0\x02\0", Some(("MP4 media", None))),
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

    #[test]
    fn base64_is_read_in_each_form() {
        for (given, expected) in [
            ("+/8A", Some("+/8A")),
            ("-_8A", Some("+/8A")),
            ("+/8", Some("+/8=")),
            ("+w", Some("+w==")),
            ("+/8=", Some("+/8=")),
            ("+/\r\n8A\n", Some("+/8A")),
            ("+/8=\n", Some("+/8=")),
            ("data:image/png;base64,+/8", Some("+/8=")),
            (" data:;base64,-_8", Some("+/8=")),
            ("data:image/svg+xml,%3Csvg", None),
            ("data:image/png", None),
            ("+", None),
            ("+/8A+", None),
            ("+=8A", None),
            ("+/8A====", Some("+/8A")),
            ("ä/8A", None),
            ("", None),
            ("====", None),
        ] {
            assert_eq!(usual_base64(given.to_owned()).as_deref(), expected, "{given:?}");
        }
    }

    #[test]
    fn the_bytes_show_the_type() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0", Some("image/bmp")),
            (b"II*\0\x08\0\0\0", Some("image/tiff")),
            (b"\0\0\0\x18ftypheic\0\0\0\0", Some("image/heic")),
            (b"\0\0\0\x18ftypmif1\0\0\0\0", Some("image/heif")),
            (b"\0\0\0\x1cftypavif\0\0\0\0", Some("image/avif")),
            (b"\0\0\0\x18ftypisom\0\0\0\0", None),
            (b"BMW is a maker of cars", None),
            (b"<svg/>", None),
        ] {
            let read = read_picture(BASE64.encode(bytes));
            assert_eq!(read.ok().map(|picture| picture.mime).as_deref(), expected, "{bytes:?}");
        }
        assert_eq!(read_picture("#".to_owned()), Err(PictureFault::NotBase64));
        assert_eq!(read_picture("AAAA".to_owned()), Err(PictureFault::UnknownFormat));
    }
}
