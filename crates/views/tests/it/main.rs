//! Views on real servers.

mod oracle;
