//! The tools as the model meets them.
