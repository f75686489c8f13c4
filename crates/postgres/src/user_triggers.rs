//! Triggers and rules of users on objects of Egret, or that call them. PostgreSQL drops them
//! silently with these objects: a removal compares the lists before and after, and is refused if it
//! would drop one.

use tokio_postgres::types::Oid;
use tokio_postgres::{Error, GenericClient};

/// All triggers and rules of a database that are not Egret's.
#[derive(Debug)]
pub struct UserTriggers(Vec<UserTrigger>);

/// A trigger or a rule of a user.
#[derive(Debug)]
pub struct UserTrigger {
    /// The catalogue that it is in, and its oid there.
    address: (Oid, Oid),
    /// Description of the object, as the catalogue has it.
    pub object: String,
    /// The statement that drops it.
    pub command: String,
}

impl UserTriggers {
    /// Lists the triggers and rules that exist now.
    pub async fn list(client: &impl GenericClient) -> Result<Self, Error> {
        let rows = client.query(include_str!("user_triggers.sql"), &[]).await?;
        let trigger = |row: &tokio_postgres::Row| UserTrigger {
            address: (row.get("class"), row.get("oid")),
            object: row.get("object"),
            command: row.get("command"),
        };
        Ok(Self(rows.iter().map(trigger).collect()))
    }

    /// The listed triggers that no longer exist.
    pub async fn find_missing(
        self,
        client: &impl GenericClient,
    ) -> Result<Vec<UserTrigger>, Error> {
        let remaining = Self::list(client).await?;
        let remains = |trigger: &UserTrigger| {
            remaining.0.iter().any(|other| other.address == trigger.address)
        };
        Ok(self.0.into_iter().filter(|one| !remains(one)).collect())
    }
}

impl std::fmt::Display for UserTrigger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.object, self.command)
    }
}
