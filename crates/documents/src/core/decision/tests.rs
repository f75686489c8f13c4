//! Decisions on single writes.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;

const OWN: AliasId = AliasId(Uuid::from_u128(1));
const OTHER: AliasId = AliasId(Uuid::from_u128(2));

fn id(number: u64) -> DocumentId {
    DocumentId::from_stored(Uuid::from_u64_pair(number, 0xabcd_ef01_2345_6789))
}

fn current() -> CurrentDocument {
    CurrentDocument {
        collection: CollectionId(1),
        id: id(7),
        version: 3,
        targets: vec![DocumentNumber(10)],
        aliases: vec![OWN],
    }
}

fn desired<'a>(
    aliases: &'a [AliasId],
    targets: &'a [Option<DocumentNumber>],
) -> DesiredDocument<'a> {
    DesiredDocument {
        new_id: Some(id(70)),
        aliases,
        alias_owners: &[],
        targets,
        has_same_body: false,
        is_mutable: false,
    }
}

#[test]
fn the_text_of_a_precondition_in_stored_fingerprints_never_changes() {
    let etags = vec![Etag::new(id(7), 3), Etag::new(id(8), 12)];
    let (first, second) =
        ("Etag { version: 3, id_suffix: 591751049 }", "Etag { version: 12, id_suffix: 591751049 }");
    let table = [
        (Condition::Always, "Always".to_owned()),
        (Condition::IfThere, "IfThere".to_owned()),
        (Condition::IfNotThere, "IfNotThere".to_owned()),
        (Condition::IfAt(vec![]), "IfAt([])".to_owned()),
        (Condition::IfAt(etags.clone()), format!("IfAt([{first}, {second}])")),
        (Condition::IfNotAt(etags), format!("IfNotAt([{first}, {second}])")),
    ];
    for (condition, text) in table {
        assert_eq!(condition.to_string(), text);
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
    let again = DocumentId::from_stored(Uuid::from_u64_pair(8, 0x8bcd_ef01_2345_6780));
    assert_ne!(Etag::new(again, 3), etag);
}

#[test]
fn missing_documents_are_created_if_all_targets_exist() {
    let always = Condition::Always;
    let decision = |targets: &[Option<i64>]| {
        let targets: Vec<_> = targets.iter().map(|one| one.map(DocumentNumber)).collect();
        decide_put(None, &desired(&[OWN], &targets), &always)
    };
    let created = |targets: &[i64]| {
        Ok(PlannedWrite::Create {
            id: id(70),
            targets: targets.iter().copied().map(DocumentNumber).collect(),
        })
    };
    assert_eq!(decision(&[]), created(&[]));
    assert_eq!(decision(&[Some(9), Some(4), Some(9)]), created(&[4, 9]));
    assert_eq!(decision(&[None, Some(4), None]), Err(WriteRejection::Unresolved(vec![0, 2])));
}

#[test]
fn existing_documents_are_changed_or_unchanged() {
    let current = current();
    let always = Condition::Always;
    let targets = [Some(DocumentNumber(11))];
    let other = DesiredDocument { new_id: None, ..desired(&[OWN], &targets) };
    assert_eq!(
        decide_put(Some(&current), &other, &always),
        Ok(PlannedWrite::Change { targets: vec![DocumentNumber(11)] })
    );
    let same = DesiredDocument { has_same_body: true, ..other };
    assert_eq!(decide_put(Some(&current), &same, &always), Ok(PlannedWrite::Unchanged));
}

#[test]
fn an_identity_does_not_change() {
    let other = DesiredDocument { new_id: None, ..desired(&[OTHER], &[]) };
    assert_eq!(
        decide_put(Some(&current()), &other, &Condition::Always),
        Err(WriteRejection::Immutable)
    );
}

#[test]
fn an_alias_in_an_abstract_collection_is_of_one_document() {
    let aliases = [OWN, OTHER];
    let owners = [None, Some(DocumentNumber(99))];
    let wanted = DesiredDocument { alias_owners: &owners, ..desired(&aliases, &[]) };
    assert_eq!(
        decide_put(None, &wanted, &Condition::Always),
        Err(WriteRejection::AliasTaken { alias: 1 })
    );
    let current = CurrentDocument { aliases: aliases.to_vec(), ..current() };
    let owners = [Some(current.id.number()); 2];
    let wanted = DesiredDocument { alias_owners: &owners, ..wanted };
    assert_eq!(
        decide_put(Some(&current), &wanted, &Condition::Always),
        Ok(PlannedWrite::Change { targets: vec![] })
    );
}

#[test]
fn conditions_are_those_of_http() {
    let current = current();
    let at = current.etag();
    let older = Etag::new(current.id, 2);
    let holds = |condition: Condition| (condition.holds(Some(at)), condition.holds(None));
    assert_eq!(holds(Condition::Always), (true, true));
    assert_eq!(holds(Condition::IfThere), (true, false));
    assert_eq!(holds(Condition::IfNotThere), (false, true));
    assert_eq!(holds(Condition::IfAt(vec![older, at])), (true, false));
    assert_eq!(holds(Condition::IfAt(vec![older])), (false, false));
    assert_eq!(holds(Condition::IfNotAt(vec![at])), (false, true));
    let mismatch = Err(WriteRejection::Mismatch { at: Some(at) });
    assert_eq!(decide_removal(Some(&current), &Condition::IfAt(vec![older])), mismatch);
    assert_eq!(
        decide_put(Some(&current), &desired(&[OWN], &[None]), &Condition::IfNotThere),
        mismatch
    );
    assert_eq!(
        decide_removal(Some(&current), &Condition::IfAt(vec![at])),
        Ok(PlannedWrite::Remove)
    );
    let not_found = Err(WriteRejection::NotFound);
    assert_eq!(decide_removal(None, &Condition::Always), not_found);
    let by_id = DesiredDocument { new_id: None, ..desired(&[OWN], &[]) };
    assert_eq!(decide_put(None, &by_id, &Condition::Always), not_found);
}

proptest! {
    /// A tag that was parsed is written as the same text, and one that was written is parsed.
    #[test]
    fn any_text_is_an_etag_or_none(text in any::<String>(), near in r#""?[0-9+ ]{0,12}-?[0-9a-fA-F+ ]{0,9}"?"#, version in any::<i32>(), second in any::<u64>()) {
        for text in [text, near] {
            if let Some(etag) = Etag::parse(&text) {
                prop_assert_eq!(Etag::parse(&etag.to_string()), Some(etag));
            }
        }
        let etag = Etag::new(DocumentId::from_stored(Uuid::from_u64_pair(7, second)), version.saturating_abs());
        prop_assert_eq!(Etag::parse(&etag.to_string()), Some(etag));
    }
}
