//! What comments and the lists of words are like.

use super::*;
use crate::schedule::seeded_random;

#[test]
fn comments_are_pieces_of_sentences_and_the_same_for_the_same_seed() {
    let piece = |seed| {
        let mut random = seeded_random(seed, 0);
        let pool = Pool::new(&mut random);
        pool.draw_piece(&mut random, 19, 78).to_owned()
    };
    assert_eq!(piece(1), piece(1));
    assert_ne!(piece(1), piece(2));
    assert!((19..=78).contains(&piece(3).len()));
}

#[test]
fn a_hundredth_of_comments_of_orders_is_of_special_requests() {
    let mut random = seeded_random(1, 0);
    let pool = Pool::new(&mut random);
    let is_special = |comment: &str| {
        let found = comment.split_once("special");
        found.is_some_and(|(_, behind)| behind.contains("requests"))
    };
    let all = 20_000;
    let special = (0..all).filter(|_| is_special(pool.draw_piece(&mut random, 19, 78)));
    let share = special.count() as f64 / f64::from(all);
    assert!((0.003..0.03).contains(&share), "{share}");
}

#[test]
fn words_are_as_many_as_in_the_specification() {
    assert_eq!(COLOURS.split_whitespace().count(), 92);
    let kinds = |words: &[&[&str]]| words.iter().map(|words| words.len()).product::<usize>();
    assert_eq!((kinds(&TYPES), kinds(&CONTAINERS)), (150, 40));
}
