//! Every test that needs the whole program.

mod tidy;
