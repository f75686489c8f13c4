//! JSON text in the binary format of JSONB.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use egret_postgres::tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// JSON text that was received as JSONB.
pub(super) struct ReceivedJson(pub(super) String);

impl<'a> FromSql<'a> for ReceivedJson {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match raw {
            [1, text @ ..] => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("the server sent JSON in an unknown binary format".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

/// JSON text to be sent as JSONB.
#[derive(Debug)]
pub(super) struct JsonText(pub(super) String);

impl ToSql for JsonText {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The version byte of JSONB's binary format.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }

    to_sql_checked!();
}
