//! `ToSql` and `FromSql` for the model's integer newtypes.

use std::error::Error;

use bytes::BytesMut;
use egret_postgres::tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::model::{CollectionId, DocumentNumber, Epoch, FeedPosition, TenantId};

/// Stores a newtype like the number in it.
macro_rules! stored_as {
    ($($name:ident($inner:ty)),+) => {$(
        impl ToSql for $name {
            fn to_sql(
                &self,
                kind: &Type,
                out: &mut BytesMut,
            ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
                self.0.to_sql(kind, out)
            }

            fn accepts(kind: &Type) -> bool {
                <$inner as ToSql>::accepts(kind)
            }

            to_sql_checked!();
        }

        impl<'a> FromSql<'a> for $name {
            fn from_sql(
                kind: &Type,
                raw: &'a [u8],
            ) -> Result<Self, Box<dyn Error + Sync + Send>> {
                <$inner as FromSql>::from_sql(kind, raw).map(Self)
            }

            fn accepts(kind: &Type) -> bool {
                <$inner as FromSql>::accepts(kind)
            }
        }
    )+};
}

stored_as!(TenantId(i32), CollectionId(i32), DocumentNumber(i64), Epoch(i64), FeedPosition(i64));
