//! A page comes back, and damaged bytes are none or another one.

use egret_log::simulated::SplitMix64;

use super::*;

fn written() -> (Vec<Labels>, Vec<u8>) {
    let mut page = PageBuilder::default();
    let mut all = Vec::new();
    for series in 0..50 {
        let instance = format!("host-{series}");
        let labels = Labels::new([("__name__", "up"), ("instance", &*instance), ("job", "node")]);
        let shared = Column {
            count: 480,
            first_ms: 1_760_000_000_000,
            last_ms: 1_760_000_000_000 + 479 * 15_000,
            body: Body::At(Extent { offset: 24, length: 200 }),
        };
        let own =
            Column { count: 1, first_ms: series, last_ms: series, body: Body::Inline(vec![0, 1]) };
        let (shared, own) = (page.add_column(&shared), page.add_column(&own));
        assert_eq!(shared, 0, "a column that is there is used again");
        let chunks = [
            PageChunk {
                column: shared,
                kind: ChunkKind::Numbers,
                body: Body::At(Extent { offset: 300 + series as u64 * 10, length: 10 }),
            },
            PageChunk {
                column: own,
                kind: ChunkKind::Histograms,
                body: Body::Inline(vec![series as u8; 9]),
            },
        ];
        page.push(&labels, &chunks);
        all.push(labels);
    }
    (all, page.take_page())
}

#[test]
fn a_page_comes_back() {
    let (all, bytes) = written();
    let page = SeriesPage::decode(&bytes).expect("it was written so");
    assert_eq!(page.len(), 50);
    for (place, labels) in all.iter().enumerate() {
        assert_eq!(page.labels(place), *labels);
        assert_eq!(page.hash(place), labels_hash(labels));
        assert_eq!(page.label(place, "instance"), labels.get("instance"));
        assert_eq!(page.label(place, "nothing"), "");
        let chunks: Vec<_> = page.chunks(place).collect();
        assert_eq!(
            chunks[0].0.body,
            Body::At(Extent { offset: 300 + place as u64 * 10, length: 10 })
        );
        assert_eq!(chunks[0].1.count, 480);
        assert_eq!(chunks[1].0.body, Body::Inline(vec![place as u8; 9]));
        assert_eq!((chunks[1].1.first_ms, chunks[1].1.last_ms), (place as i64, place as i64));
    }
}

#[test]
fn a_damaged_page_is_refused_or_another_one() {
    let (_, bytes) = written();
    let mut chance = SplitMix64::new(8);
    for _ in 0..5000 {
        let mut damaged = bytes.clone();
        chance.damage(&mut damaged);
        if let Ok(page) = SeriesPage::decode(&damaged) {
            for place in 0..page.len() {
                _ = page.labels(place);
                page.chunks(place).for_each(|(chunk, _)| assert!(chunk.column < 200));
            }
        }
    }
}

#[test]
fn the_hash_of_labels_is_the_same_for_ever() {
    let labels = Labels::new([("__name__", "up"), ("job", "node")]);
    assert_eq!(labels_hash(&labels), 14_889_277_594_315_998_319);
}
