//! Replacement of blocks by others, all at once.
//!
//! The blocks are durable under their `.new` names when the file with this is given its name: from
//! then on they are what counts, and the next open of the directory finishes what was begun. It is
//! a frame: how many blocks are new (varint) and their ids, how many they replace and theirs.

use egret_base::codec::{DecodeError, Reader, put_varint};

use crate::core::BlockId;
use crate::core::frame::{open_frame, put_frame};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Replacement {
    pub results: Vec<BlockId>,
    pub sources: Vec<BlockId>,
}

impl Replacement {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for ids in [&self.results, &self.sources] {
            put_varint(&mut body, ids.len() as u64);
            ids.iter().for_each(|id| put_varint(&mut body, id.0));
        }
        let mut out = Vec::new();
        put_frame(&mut out, &body);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "a replacement of blocks";
        let body = open_frame(bytes, WHAT)?;
        let mut reader = Reader::new(&body, WHAT);
        let mut replacement = Self::default();
        for ids in [&mut replacement.results, &mut replacement.sources] {
            for _ in 0..reader.varint()? {
                ids.push(BlockId(reader.varint()?));
            }
        }
        match reader.rest() {
            [] => Ok(replacement),
            _ => Err(reader.malformed()),
        }
    }
}
