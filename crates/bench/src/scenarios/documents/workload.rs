//! The volume mix: what a document refers to is made, then it; it and some of those are changed; it
//! is deleted, then those. Of 22 requests 9 make documents, 4 change some and 9 delete them.

use std::collections::VecDeque;

use anyhow::Result;

use super::client::DocumentsClient;
use crate::memory::prefaulted_vec;

/// Targets of an item that a cycle updates besides the item itself.
const UPDATED_PER_CYCLE: usize = 3;

/// Deleted documents that a client remembers for the check at the end: the last ones.
const DELETED_MAX: usize = 1_000;

/// Operations of the mix, by their names in results.
pub(super) const OPERATIONS: &[&str] = &["insert", "update", "delete"];

/// A client has so many documents at a time, where a document refers to no more than 63.
const LIVE_CAPACITY: usize = 64;

/// What a client has made, and has not deleted yet.
#[derive(Debug, Default)]
pub(super) struct LiveDocuments {
    /// Collection and id of documents that are there.
    pub(super) live: Vec<(&'static str, String)>,
    /// And of such as are gone, the last ones.
    pub(super) deleted: VecDeque<(&'static str, String)>,
}

impl LiveDocuments {
    /// Nothing yet, with room for what a client keeps.
    pub(super) fn preallocated() -> Self {
        Self {
            live: prefaulted_vec(LIVE_CAPACITY),
            deleted: prefaulted_vec(DELETED_MAX + 1).into(),
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
        let head = format!("{{\"code\":\"{code}\",\"group\":{},\"text\":\"", group_of(code));
        self.pad_to_size(head, text)
    }

    /// One that refers to others.
    pub(super) fn item(
        self,
        code: &str,
        target_code: impl Fn(u32) -> String,
        text: char,
    ) -> String {
        let mut head = format!("{{\"code\":\"{code}\",\"group\":{}", group_of(code));
        for index in 0..self.references {
            head.push_str(&format!(",\"r{index}\":\"{}\"", target_code(index)));
        }
        head.push_str(",\"text\":\"");
        self.pad_to_size(head, text)
    }

    fn pad_to_size(self, mut head: String, text: char) -> String {
        let padding = (self.bytes as usize).saturating_sub(head.len() + 2).max(1);
        // What compresses to nothing would be no document.
        let mut state = head.bytes().fold(u64::from(u32::from(text)), |state, byte| {
            state.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
        });
        for _ in 0..padding {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            head.push(char::from(b'a' + (state >> 59) as u8 % 26));
        }
        head.push_str("\"}");
        head
    }
}

fn group_of(code: &str) -> u64 {
    code.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 1_000
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
    let mut documents = std::mem::take(&mut client.live_documents);
    for round in 0_u64.. {
        let code_prefix = format!("c{number}-{round}");
        if !run_cycle(client, shape, &code_prefix, &mut documents)? {
            break;
        }
    }
    Ok(documents)
}

/// Runs one cycle; false when the schedule ended before it was complete.
fn run_cycle(
    client: &mut DocumentsClient,
    shape: DocumentShape,
    code_prefix: &str,
    left: &mut LiveDocuments,
) -> Result<bool> {
    let code = |index: u32| format!("{code_prefix}-{index}");
    let mut make = |client: &mut DocumentsClient, collection: &'static str, body: &str| {
        let path = format!("documents/{collection}");
        let reply = client.send_when_due("insert", "POST", &path, body, &[201])?;
        if let Some(answered) = reply.as_ref().filter(|answered| answered.status == 201) {
            left.live.push((collection, answered.id.clone()));
        }
        anyhow::Ok(reply.is_some())
    };
    for at in 0..shape.references {
        if !make(client, "things", &shape.thing(&code(at), 'a'))? {
            return Ok(false);
        }
    }
    if !make(client, "items", &shape.item(code_prefix, code, 'a'))? {
        return Ok(false);
    }
    let last = left.live.len() - 1;
    let changed_indexes = (last.saturating_sub(UPDATED_PER_CYCLE)..=last).rev();
    for place in changed_indexes {
        let (collection, id) = &left.live[place];
        let body = match *collection {
            "items" => shape.item(code_prefix, code, 'b'),
            _ => shape.thing(&code(place as u32), 'b'),
        };
        let path = format!("documents/{collection}/{id}");
        if client.send_when_due("update", "PUT", &path, &body, &[204])?.is_none() {
            return Ok(false);
        }
    }
    while let Some((collection, id)) = left.live.last() {
        let path = format!("documents/{collection}/{id}");
        let Some(answered) = client.send_when_due("delete", "DELETE", &path, "", &[204])? else {
            return Ok(false);
        };
        let deleted = left.live.pop();
        left.deleted.extend(deleted.filter(|_| answered.status == 204));
        if left.deleted.len() > DELETED_MAX {
            left.deleted.pop_front();
        }
    }
    Ok(true)
}

/// How many documents are not what was answered: there and gone, or gone and there.
///
/// # Errors
/// When the connection is lost.
pub(super) fn count_lost(client: &mut DocumentsClient, left: &LiveDocuments) -> Result<u64> {
    let mut lost_count = 0;
    let live = left.live.iter().map(|document| (document, 200));
    let deleted = left.deleted.iter().map(|one| (one, 404));
    for ((collection, id), expected_status) in live.chain(deleted) {
        let reply = client.send("GET", &format!("documents/{collection}/{id}"), "")?;
        lost_count += u64::from(reply.status != expected_status);
    }
    Ok(lost_count)
}
