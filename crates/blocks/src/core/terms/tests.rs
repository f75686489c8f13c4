//! Pages of values come back, and damaged bytes are none or another one.

use egret_log::simulated::SplitMix64;

use super::*;

fn written() -> (Vec<String>, Vec<u8>) {
    let values: Vec<String> =
        (0..200).map(|at| format!("host-{at:04}.example.{}", "é".repeat(at % 4))).collect();
    let mut page = TermsBuilder::default();
    for (at, value) in values.iter().enumerate() {
        let list = match at % 2 {
            0 => PostingsRef::Inline(&[0, 1, 2]),
            _ => PostingsRef::At(Extent { offset: at as u64 * 1000, length: at as u32 }),
        };
        page.push(value, &Term { series: at as u32, postings: list });
    }
    let (first, bytes) = page.take_page().expect("it has values");
    assert_eq!(first, values[0]);
    assert!(page.take_page().is_none());
    (values, bytes)
}

#[test]
fn a_page_comes_back() {
    let (values, bytes) = written();
    let mut terms = Terms::new(&bytes);
    for (at, expected) in values.iter().enumerate() {
        let (value, term) = terms.next_term().expect("it was written so").expect("there are more");
        assert_eq!((value, term.series as usize), (&**expected, at));
        match at % 2 {
            0 => assert_eq!(term.postings, PostingsRef::Inline(&[0, 1, 2])),
            _ => assert_eq!(
                term.postings,
                PostingsRef::At(Extent { offset: at as u64 * 1000, length: at as u32 })
            ),
        }
    }
    assert!(terms.next_term().expect("it was written so").is_none());
}

#[test]
fn a_damaged_page_is_refused_or_another_one() {
    let (_, bytes) = written();
    let mut chance = SplitMix64::new(8);
    for _ in 0..3000 {
        let mut damaged = bytes.clone();
        chance.damage(&mut damaged);
        let mut terms = Terms::new(&damaged);
        while let Ok(Some((value, _))) = terms.next_term() {
            assert!(value.len() <= damaged.len() * 2);
        }
    }
}
