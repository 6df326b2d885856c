//! The vocabulary of turnwright: plain data types that all other crates share. Nothing
//! but [`file_id`], [`private_file`] and [`secret`] looks at files.
//!
//! [`message`] is a conversation as the model sees it, [`update`] everything that a client can be told,
//! [`effect`] everything that a tool call may do to the outside world, [`client`] the traits through
//! which a turn reaches the user's editor, [`redact`] removes API keys from text, and
//! [`line_diff`] compares texts line by line, [`look_alike`] names that look the same, [`hash`] hashes, [`lists`] adds
//! to lists, [`text`] takes parts of texts, [`error_text`] puts errors into plain words, and [`work_settings`] is how a
//! session works.

pub mod bounded_read;
pub mod hash;
pub mod ids;
pub mod error_text;
pub mod message;
pub mod refusal;
pub mod effect;
pub mod update;
pub mod client;
pub mod shell_script;
pub mod work_settings;
pub mod file_change;
pub mod file_id;
pub mod file_link;
pub mod git_layout;
pub mod look_alike;
pub mod timestamp;
pub mod token_meter;
pub mod redact;
pub mod secret;
pub mod line_diff;
pub mod lists;
pub mod patience;
pub mod plain_path;
pub mod private_file;
pub mod text;
