//! How values of domain types become JSON of the database. Their serde forms are declared here with
//! `serde(remote)`, so the domain types have none of their own: a field that is renamed there does
//! not compile here, and its stored name is then kept with `serde(rename)`. Only `Entry`, which is of this
//! crate, has its stored form itself.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use turnwright_types::ids::{CallId, MessageId, TerminalId};

/// A type with a stored form.
pub(crate) trait Stored: Sized {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Serializes a reference to a value, or deserializes a value, in its stored form.
pub(crate) struct AsStored<T>(pub(crate) T);

impl<T: Stored> Serialize for AsStored<&T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

/// Parses a value in its stored form.
pub(crate) fn from_str<T: Stored>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str::<AsStored<T>>(text).map(|stored| stored.0)
}

/// Interprets JSON as a value in its stored form.
pub(crate) fn from_value<T: Stored>(value: serde_json::Value) -> serde_json::Result<T> {
    serde_json::from_value::<AsStored<T>>(value).map(|stored| stored.0)
}

impl<'de, T: Stored> Deserialize<'de> for AsStored<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(AsStored)
    }
}

/// For fields with `serde(with = "json")`.
pub(crate) fn serialize<T: Stored, S: Serializer>(
    value: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.write(serializer)
}

pub(crate) fn deserialize<'de, T: Stored, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::read(deserializer)
}

impl<T: Stored> Stored for Vec<T> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(AsStored))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::<AsStored<T>>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|item| item.0).collect())
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(AsStored).serialize(serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<AsStored<T>>::deserialize(deserializer)?.map(|stored| stored.0))
    }
}

impl<T: Stored> Stored for Arc<T> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::write(self, serializer)
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Arc::new)
    }
}

/// Implements [`Stored`] with declarations of `serde(remote)`.
macro_rules! stored_as {
    ($($domain:ty => $row:ty),+ $(,)?) => {$(
        impl $crate::rows::json::Stored for $domain {
            fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$row>::serialize(self, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$row>::deserialize(deserializer)
            }
        }
    )+};
}
pub(super) use stored_as;

macro_rules! stored_ids {
    ($($id:ty),+) => {$(
        impl Stored for $id {
            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }
    )+};
}
stored_ids!(CallId, MessageId, TerminalId);
