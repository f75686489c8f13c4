//! Which client of the proxy is expected next.

/// Forecast of the next client of the proxy: the database and parameters of the last one.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The tenant of that client; `None` for the forecast before the first client.
    pub(crate) tenant: Option<String>,
    /// The database; `None` for the only one that a branch has.
    pub(crate) database: Option<String>,
    /// Startup parameters by name.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Default for Profile {
    /// psql on a UTF-8 terminal.
    fn default() -> Self {
        Self {
            tenant: None,
            database: None,
            parameters: vec![
                ("application_name".to_owned(), "psql".to_owned()),
                ("client_encoding".to_owned(), "UTF8".to_owned()),
            ],
        }
    }
}
