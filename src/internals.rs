//! What the benchmarks, the fuzz targets and the tests use of this program. Not an API.

pub use crate::tools::{
    AnyTool, OfferContext, PreparedCall, Registry, RemoteTools, Toolbox, built_in,
};
pub use crate::turn::fuzzing::partial_arguments;
