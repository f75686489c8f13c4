//! Looks for the document that has an identity.

use super::find::{Count, Find, Found, Page};
use super::{Caller, Documents, Kept, is_seen};
use crate::core::group::Declared;
use crate::core::json::{Refusal, read_document};
use crate::error::DocumentsError;
use crate::model::TenantId;
use crate::store::query::Room;
use crate::store::read::{self, Stored};

impl Documents {
    /// The one document of a collection that has an identity, if there is one: by its name, which is one look into one partition.
    pub(super) async fn find_named(
        &self,
        caller: &Caller,
        (kept, tenant): (&Kept, TenantId),
        declared: &Declared,
        (identity, find): (&str, &Find),
    ) -> Result<Page, DocumentsError> {
        let invalid = |reason: String| DocumentsError::QueryInvalid { reason };
        if !find.filters.is_empty() || find.sort.is_some() || find.cursor.is_some() {
            let reason = "an identity is of one document: conditions, an order and a cursor have no place beside it";
            return Err(invalid(reason.to_owned()));
        }
        let told = |what: String| invalid(format!("the identity is not one: {what}"));
        // An address is bounded by the server.
        let body = read_document(identity.as_bytes(), usize::MAX);
        let body = body.map_err(|refusal| match refusal {
            Refusal::Wrong { violation, .. } => told(violation.to_string()),
            Refusal::TooLarge { .. } => told("it is too long".to_owned()),
        })?;
        let own = &declared.collection.families()[0];
        let identity = own.identity(&body);
        let identity = identity.map_err(|wrong| told(wrong.to_string()))?;
        let alias = own.alias(&identity).0;
        let mut room = Room::new(1, self.inner.options.config.page_bytes_max);
        let asked = (vec![tenant.0], vec![alias]);
        let rows = kept
            .asker
            .page(
                &caller.tenant,
                &read::by_alias_sql(),
                &[&asked.0, &asked.1],
                &mut room,
            )
            .await?;
        let found: Vec<Stored> = read::stored(1, &rows).into_iter().flatten().collect();
        let is_one = |one: &Stored| one.collection == declared.id && is_seen(caller, declared, one);
        let items: Vec<Stored> = found.into_iter().filter(is_one).collect();
        let count = i64::try_from(items.len()).expect("it is one at most");
        let items: Vec<Found> = self
            .shaped(caller, kept, declared, (tenant, items), &find.shape)
            .await?;
        Ok(Page {
            items,
            next: None,
            count: (find.count != Count::None).then_some(count),
        })
    }
}
