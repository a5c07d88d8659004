//! placeholder
pub fn cases() {}
