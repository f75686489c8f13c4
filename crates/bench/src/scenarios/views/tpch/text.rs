//! Words of the TPC-H tables, and the sentences that their comments are cut from.
//!
//! The sets of words that the queries choose by (colours, types, containers, segments and so on)
//! are whole, as the specification lists them. Of the words of sentences there are those that are
//! frequent there, about as frequent: the queries ask only for `special` before `requests`.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

/// Bytes of sentences. A comment is a piece of them from anywhere.
const POOL_BYTES: usize = 1 << 20;

/// Words of the name of a part; each has five.
pub(super) const COLOURS: &str = "almond antique aquamarine azure beige bisque black blanched blue blush brown burlywood \
    burnished chartreuse chiffon chocolate coral cornflower cornsilk cream cyan dark deep dim dodger drab firebrick \
    floral forest frosted gainsboro ghost goldenrod green grey honeydew hot indian ivory khaki lace lavender lawn lemon \
    light lime linen magenta maroon medium metallic midnight mint misty moccasin navajo navy olive orange orchid pale \
    papaya peach peru pink plum powder puff purple red rose rosy royal saddle salmon sandy seashell sienna sky slate \
    smoke snow spring steel tan thistle tomato turquoise violet wheat white yellow";

/// The three words of the type of a part.
pub(super) const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];

/// The two words of the container of a part.
pub(super) const CONTAINERS: [&[&str]; 2] = [
    &["SM", "LG", "MED", "JUMBO", "WRAP"],
    &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"],
];

/// What customers deal in.
pub(super) const SEGMENTS: [&str; 5] =
    ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];

/// How urgent orders are.
pub(super) const PRIORITIES: [&str; 5] =
    ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];

/// What is to be done with an item.
pub(super) const INSTRUCTIONS: [&str; 4] =
    ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];

pub(super) const SHIP_MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];

/// Regions, in the order of their keys.
pub(super) const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// Nations with the keys of their regions, in the order of their own.
pub(super) const NATIONS: [(&str, u32); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

/// Words with how often they come.
type Words = &'static [(&'static str, u32)];

const NOUNS: Words = &[
    ("packages", 40),
    ("requests", 40),
    ("accounts", 40),
    ("deposits", 40),
    ("foxes", 20),
    ("ideas", 20),
    ("theodolites", 20),
    ("pinto beans", 20),
    ("instructions", 20),
    ("dependencies", 10),
    ("excuses", 10),
    ("platelets", 10),
    ("asymptotes", 10),
    ("courts", 5),
    ("dolphins", 5),
    ("patterns", 15),
];

const VERBS: Words = &[
    ("sleep", 20),
    ("wake", 20),
    ("are", 20),
    ("cajole", 20),
    ("haggle", 20),
    ("nag", 10),
    ("use", 10),
    ("boost", 10),
    ("affix", 5),
    ("detect", 5),
    ("integrate", 5),
];

const ADJECTIVES: Words = &[
    ("regular", 50),
    ("final", 40),
    ("ironic", 40),
    ("even", 30),
    ("special", 20),
    ("pending", 20),
    ("unusual", 20),
    ("express", 20),
    ("bold", 20),
    ("silent", 10),
    ("furious", 10),
];

const ADVERBS: Words = &[
    ("furiously", 50),
    ("slyly", 50),
    ("carefully", 50),
    ("blithely", 40),
    ("quickly", 30),
    ("fluffily", 20),
    ("quietly", 10),
];

const PREPOSITIONS: Words = &[
    ("about", 50),
    ("above", 50),
    ("according to", 50),
    ("across", 50),
    ("after", 50),
    ("against", 40),
    ("along", 40),
    ("among", 30),
    ("around", 30),
    ("at", 10),
];

const SENTENCE_ENDS: Words = &[(".", 50), (";", 1), (":", 1), ("?", 1), ("!", 1), ("--", 1)];

/// What a sentence is made of: `n` stands for things, `v` for what they do, `p` for where.
const SENTENCES: Words = &[("nv", 3), ("nvp", 3), ("nvn", 3), ("npvn", 1), ("npvp", 1)];

/// Things: `n` is a noun, `j` an adjective, `d` an adverb.
const NOUN_PHRASES: Words = &[("n", 10), ("jn", 20), ("jjn", 10), ("djn", 50)];

/// What they do: `v` is a verb, `d` an adverb.
const VERB_PHRASES: Words = &[("v", 30), ("vd", 40)];

/// Sentences that comments are cut from.
pub(super) struct Pool(String);

impl Pool {
    pub(super) fn new(random: &mut Xoshiro256PlusPlus) -> Self {
        let mut pool = String::with_capacity(POOL_BYTES + 200);
        while pool.len() < POOL_BYTES {
            push_sentence(&mut pool, random);
        }
        Self(pool)
    }

    /// A piece of so many bytes, from `bytes_min` to `bytes_max`.
    pub(super) fn draw_piece(
        &self,
        random: &mut Xoshiro256PlusPlus,
        bytes_min: usize,
        bytes_max: usize,
    ) -> &str {
        let bytes = random.random_range(bytes_min..=bytes_max);
        let begin = random.random_range(0..self.0.len() - bytes);
        // All of it is ASCII.
        &self.0[begin..begin + bytes]
    }
}

fn push_sentence(buffer: &mut String, random: &mut Xoshiro256PlusPlus) {
    for part in draw_word(SENTENCES, random).chars() {
        match part {
            'n' => push_words(buffer, NOUN_PHRASES, NOUNS, random),
            'v' => push_words(buffer, VERB_PHRASES, VERBS, random),
            _ => {
                buffer.push_str(draw_word(PREPOSITIONS, random));
                buffer.push_str(" the ");
                push_words(buffer, NOUN_PHRASES, NOUNS, random);
            }
        }
    }
    // Right behind the last word.
    buffer.pop();
    buffer.push_str(draw_word(SENTENCE_ENDS, random));
    buffer.push(' ');
}

/// Words by one of some patterns, each with a space behind it.
fn push_words(
    buffer: &mut String,
    patterns: Words,
    main_words: Words,
    random: &mut Xoshiro256PlusPlus,
) {
    let pattern = draw_word(patterns, random);
    for (index, letter) in pattern.chars().enumerate() {
        let candidates = match letter {
            'j' => ADJECTIVES,
            'd' => ADVERBS,
            _ => main_words,
        };
        buffer.push_str(draw_word(candidates, random));
        // Two adjectives have a comma between them.
        if letter == 'j' && pattern[index + 1..].starts_with('j') {
            buffer.push(',');
        }
        buffer.push(' ');
    }
}

fn draw_word(words: Words, random: &mut Xoshiro256PlusPlus) -> &'static str {
    let total_weight = words.iter().map(|(_, weight)| weight).sum();
    let mut remaining = random.random_range(0..total_weight);
    for (word, weight) in words {
        if remaining < *weight {
            return word;
        }
        remaining -= weight;
    }
    unreachable!("a number below the sum of all weights is below that of some")
}

#[cfg(test)]
mod tests;
