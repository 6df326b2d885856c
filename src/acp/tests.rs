//! What is served and what is not.
