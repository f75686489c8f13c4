//! The volume mix: what a document refers to is made, then it; it and some of those are changed; it
//! is deleted, then those. Of 22 requests 9 make documents, 4 change some and 9 delete them.

use std::collections::VecDeque;

use anyhow::Result;

use super::client::DocumentsClient;
use crate::memory::touched;

/// Targets of an item that a cycle updates besides the item itself.
const CHANGED: usize = 3;

/// Deleted documents that a client remembers for the check at the end: the last ones.
const GONE_MAX: usize = 1_000;

/// Operations of the mix, by their names in results.
pub(super) const OPERATIONS: &[&str] = &["insert", "update", "delete"];

/// A client has so many documents at a time, where a document refers to no more than 63.
const THERE_READY: usize = 64;

/// What a client has made, and has not deleted yet.
#[derive(Debug, Default)]
pub(super) struct LiveDocuments {
    /// Collection and id of documents that are there.
    pub(super) there: Vec<(&'static str, String)>,
    /// And of such as are gone, the last ones.
    pub(super) gone: VecDeque<(&'static str, String)>,
}

impl LiveDocuments {
    /// Nothing yet, with room for what a client keeps.
    pub(super) fn prepared() -> Self {
        Self {
            there: touched(THERE_READY),
            gone: touched(GONE_MAX + 1).into(),
        }
    }
}

/// Number of references and bytes of documents.
#[derive(Clone, Copy, Debug)]
pub(super) struct DocumentShape {
    pub(super) references: u32,
    pub(super) bytes: u32,
}

impl DocumentShape {
    /// A document that is referred to.
    pub(super) fn thing(self, code: &str, text: char) -> String {
        let head = format!(
            "{{\"code\":\"{code}\",\"group\":{},\"text\":\"",
            group(code)
        );
        self.filled(head, text)
    }

    /// One that refers to others.
    pub(super) fn item(self, code: &str, to: impl Fn(u32) -> String, text: char) -> String {
        let mut head = format!("{{\"code\":\"{code}\",\"group\":{}", group(code));
        for at in 0..self.references {
            head.push_str(&format!(",\"r{at}\":\"{}\"", to(at)));
        }
        head.push_str(",\"text\":\"");
        self.filled(head, text)
    }

    fn filled(self, mut head: String, text: char) -> String {
        let rest = (self.bytes as usize).saturating_sub(head.len() + 2).max(1);
        // What compresses to nothing would be no document.
        let mut state = head
            .bytes()
            .fold(u64::from(u32::from(text)), |state, byte| {
                state.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
            });
        for _ in 0..rest {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            head.push(char::from(b'a' + (state >> 59) as u8 % 26));
        }
        head.push_str("\"}");
        head
    }
}

fn group(code: &str) -> u64 {
    code.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    }) % 1_000
}

/// Runs cycles until the schedule has ended.
///
/// # Errors
/// When the connection is lost.
pub(super) fn run(
    client: &mut DocumentsClient,
    shape: DocumentShape,
    number: u32,
) -> Result<LiveDocuments> {
    let mut left = std::mem::take(&mut client.left);
    for round in 0_u64.. {
        let own = format!("c{number}-{round}");
        if !cycle(client, shape, &own, &mut left)? {
            break;
        }
    }
    Ok(left)
}

/// Runs one cycle; false when the schedule ended before it was complete.
fn cycle(
    client: &mut DocumentsClient,
    shape: DocumentShape,
    own: &str,
    left: &mut LiveDocuments,
) -> Result<bool> {
    let code = |at: u32| format!("{own}-{at}");
    let mut make = |client: &mut DocumentsClient, collection: &'static str, body: &str| {
        let path = format!("documents/{collection}");
        let answered = client.ask("insert", "POST", &path, body, &[201])?;
        if let Some(answered) = answered.as_ref().filter(|answered| answered.status == 201) {
            left.there.push((collection, answered.id.clone()));
        }
        anyhow::Ok(answered.is_some())
    };
    for at in 0..shape.references {
        if !make(client, "things", &shape.thing(&code(at), 'a'))? {
            return Ok(false);
        }
    }
    if !make(client, "items", &shape.item(own, code, 'a'))? {
        return Ok(false);
    }
    let last = left.there.len() - 1;
    let changed = (last.saturating_sub(CHANGED)..=last).rev();
    for place in changed {
        let (collection, id) = &left.there[place];
        let body = match *collection {
            "items" => shape.item(own, code, 'b'),
            _ => shape.thing(&code(place as u32), 'b'),
        };
        let path = format!("documents/{collection}/{id}");
        if client.ask("update", "PUT", &path, &body, &[204])?.is_none() {
            return Ok(false);
        }
    }
    while let Some((collection, id)) = left.there.last() {
        let path = format!("documents/{collection}/{id}");
        let Some(answered) = client.ask("delete", "DELETE", &path, "", &[204])? else {
            return Ok(false);
        };
        let one = left.there.pop();
        left.gone.extend(one.filter(|_| answered.status == 204));
        if left.gone.len() > GONE_MAX {
            left.gone.pop_front();
        }
    }
    Ok(true)
}

/// How many documents are not what was answered: there and gone, or gone and there.
///
/// # Errors
/// When the connection is lost.
pub(super) fn lost(client: &mut DocumentsClient, left: &LiveDocuments) -> Result<u64> {
    let mut lost = 0;
    let there = left.there.iter().map(|one| (one, 200));
    let gone = left.gone.iter().map(|one| (one, 404));
    for ((collection, id), wanted) in there.chain(gone) {
        let answered = client.send("GET", &format!("documents/{collection}/{id}"), "")?;
        lost += u64::from(answered.status != wanted);
    }
    Ok(lost)
}
