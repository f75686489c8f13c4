//! What becomes of single writes.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const OWN: AliasId = AliasId(Uuid::from_u128(1));
const OTHER: AliasId = AliasId(Uuid::from_u128(2));

fn id(number: u64) -> DocumentId {
    DocumentId::stored(Uuid::from_u64_pair(number, 0xabcd_ef01_2345_6789))
}

fn present() -> Present {
    Present {
        collection: CollectionId(1),
        id: id(7),
        version: 3,
        targets: vec![10],
        names: vec![OWN],
    }
}

fn wanted<'a>(names: &'a [AliasId], targets: &'a [Option<i64>]) -> Wanted<'a> {
    Wanted {
        names,
        taken: &[],
        targets,
        is_same: false,
        is_mutable: false,
    }
}

#[test]
fn an_etag_is_read_as_it_is_written_and_is_of_one_document_only() {
    let etag = Etag::new(id(7), 3);
    assert_eq!(etag.to_string(), "\"3-23456789\"");
    assert_eq!(Etag::parse(&etag.to_string()), Some(etag));
    for wrong in [
        "3-23456789",
        "\"3\"",
        "\"+3-23456789\"",
        "W/\"3-23456789\"",
        "\"3-2345678\"",
        "\"3-2345678g\"",
    ] {
        assert_eq!(Etag::parse(wrong), None, "{wrong}");
    }
    let again = DocumentId::stored(Uuid::from_u64_pair(8, 0x8bcd_ef01_2345_6780));
    assert_ne!(Etag::new(again, 3), etag);
}

#[test]
fn what_is_not_there_is_made_if_all_that_it_refers_to_is() {
    let always = Condition::Always;
    let verdict = |targets: &[Option<i64>]| put(None, &wanted(&[OWN], targets), &always, false);
    assert_eq!(verdict(&[]), Verdict::Create(vec![]));
    assert_eq!(
        verdict(&[Some(9), Some(4), Some(9)]),
        Verdict::Create(vec![4, 9])
    );
    assert_eq!(
        verdict(&[None, Some(4), None]),
        Verdict::Unresolved(vec![0, 2])
    );
}

#[test]
fn what_is_there_is_changed_or_stays() {
    let there = present();
    let always = Condition::Always;
    let names = [OWN];
    let other = wanted(&names, &[Some(11)]);
    assert_eq!(
        put(Some(&there), &other, &always, false),
        Verdict::Change(vec![11])
    );
    let same = Wanted {
        is_same: true,
        ..other
    };
    assert_eq!(put(Some(&there), &same, &always, false), Verdict::Unchanged);
}

#[test]
fn an_identity_does_not_change() {
    let there = present();
    let other = wanted(&[OTHER], &[]);
    let verdict = put(Some(&there), &other, &Condition::Always, true);
    assert_eq!(verdict, Verdict::Immutable);
}

#[test]
fn a_name_in_an_abstract_collection_is_of_one_document() {
    let names = [OWN, OTHER];
    let taken = [None, Some(99)];
    let wanted = Wanted {
        taken: &taken,
        ..wanted(&names, &[])
    };
    assert_eq!(
        put(None, &wanted, &Condition::Always, false),
        Verdict::Taken { name: 1 }
    );
    let there = Present {
        names: names.to_vec(),
        ..present()
    };
    let own = [Some(there.id.number()); 2];
    let wanted = Wanted {
        taken: &own,
        ..wanted
    };
    assert_eq!(
        put(Some(&there), &wanted, &Condition::Always, false),
        Verdict::Change(vec![])
    );
}

#[test]
fn conditions_are_those_of_http() {
    let there = present();
    let at = Etag::new(there.id, there.version);
    let older = Etag::new(there.id, 2);
    let holds = |condition: Condition| (condition.holds(Some(at)), condition.holds(None));
    assert_eq!(holds(Condition::Always), (true, true));
    assert_eq!(holds(Condition::IfThere), (true, false));
    assert_eq!(holds(Condition::IfNotThere), (false, true));
    assert_eq!(holds(Condition::IfAt(vec![older, at])), (true, false));
    assert_eq!(holds(Condition::IfAt(vec![older])), (false, false));
    assert_eq!(holds(Condition::IfNotAt(vec![at])), (false, true));
    let mismatch = Verdict::Mismatch { at: Some(at) };
    assert_eq!(
        remove(Some(&there), &Condition::IfAt(vec![older])),
        mismatch
    );
    assert_eq!(
        put(
            Some(&there),
            &wanted(&[OWN], &[None]),
            &Condition::IfNotThere,
            false
        ),
        mismatch
    );
    assert_eq!(
        remove(Some(&there), &Condition::IfAt(vec![at])),
        Verdict::Remove
    );
    assert_eq!(remove(None, &Condition::Always), Verdict::NotFound);
    assert_eq!(
        put(None, &wanted(&[OWN], &[]), &Condition::Always, true),
        Verdict::NotFound
    );
}

proptest! {
    /// What is read of a text is written as that text, and what is written is read.
    #[test]
    fn any_text_is_an_etag_or_none(text in any::<String>(), near in r#""?[0-9+ ]{0,12}-?[0-9a-fA-F+ ]{0,9}"?"#, version in any::<i32>(), second in any::<u64>()) {
        for text in [text, near] {
            if let Some(etag) = Etag::parse(&text) {
                prop_assert_eq!(Etag::parse(&etag.to_string()), Some(etag));
            }
        }
        let etag = Etag::new(DocumentId::stored(Uuid::from_u64_pair(7, second)), version.saturating_abs());
        prop_assert_eq!(Etag::parse(&etag.to_string()), Some(etag));
    }
}
