//! Reads pictures in base64, in all forms that clients and servers send. Does no I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use turnwright_types::message::Media;

use super::file_kind::picture_mime;

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
