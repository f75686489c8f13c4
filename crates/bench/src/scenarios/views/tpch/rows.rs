//! Rows of the TPC-H tables as the text form of `COPY`, by the rules of the specification, section
//! 4.2.
//!
//! What a row is follows from the seed, its table and its key: an order with its lines can be made
//! again at any time, and those that are inserted later are made alike.

use std::fmt::Write;

use jiff::ToSpan;
use jiff::civil::date;
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::text::{
    COLOURS, CONTAINERS, INSTRUCTIONS, NATIONS, PRIORITIES, Pool, REGIONS, SEGMENTS, SHIP_MODES,
    TYPES,
};
use crate::schedule::seeded_random;

/// The days from 1992-01-01 to 1998-12-31.
const DAY_COUNT: usize = 2_557;

/// Orders are of so many days from the first on: the last of them is 151 days before the end.
const ORDER_DAY_COUNT: usize = DAY_COUNT - 151;

/// 1995-06-17, which the specification calls the current date, counted from the first.
const CURRENT_DAY: usize = 1_263;

/// Suppliers of a part.
pub(super) const SUPPLIERS_PER_PART: u32 = 4;

/// How many rows there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) suppliers: u32,
    pub(super) parts: u32,
    pub(super) customers: u32,
    pub(super) orders: u32,
    clerks: u32,
    /// Number of suppliers that customers complain about; as many are recommended.
    remarkable: u32,
}

impl Sizes {
    /// With this scale factor.
    pub(super) fn from_scale(scale: f64) -> Self {
        let scaled = |rows: f64| (rows * scale).round().max(1.0) as u32;
        Self {
            suppliers: scaled(10_000.0),
            parts: scaled(200_000.0),
            customers: scaled(150_000.0),
            orders: scaled(1_500_000.0),
            clerks: scaled(1_000.0),
            remarkable: scaled(5.0),
        }
    }
}

pub(super) struct Rows {
    pub(super) sizes: Sizes,
    seed: u64,
    text_pool: Pool,
    colours: Vec<&'static str>,
    /// As PostgreSQL reads them.
    days: Vec<String>,
}

/// A line of an order before it is written.
struct OrderLine {
    part: u32,
    supplier: u32,
    quantity: u64,
    price_cents: u64,
    discount_percent: u64,
    tax_percent: u64,
    shipped: usize,
    committed: usize,
    received: usize,
}

impl Rows {
    /// For a scale factor and a seed.
    pub(super) fn new(scale: f64, seed: u64) -> Self {
        let first = date(1992, 1, 1);
        let days = (0..DAY_COUNT as i64).map(|day| (first + day.days()).to_string());
        Self {
            sizes: Sizes::from_scale(scale),
            seed,
            text_pool: Pool::new(&mut seeded_random(seed, 0)),
            colours: COLOURS.split_whitespace().collect(),
            days: days.collect(),
        }
    }

    pub(super) fn regions_and_nations(&self) -> [String; 2] {
        let mut random = self.random(1, 0);
        let (mut regions, mut nations) = (String::new(), String::new());
        for (key, name) in REGIONS.iter().enumerate() {
            let comment = self.text_pool.draw_piece(&mut random, 31, 115);
            write_row(&mut regions, format_args!("{key}\t{name}\t{comment}"));
        }
        for (key, (name, region)) in NATIONS.iter().enumerate() {
            let comment = self.text_pool.draw_piece(&mut random, 31, 114);
            write_row(&mut nations, format_args!("{key}\t{name}\t{region}\t{comment}"));
        }
        [regions, nations]
    }

    /// A supplier, keys being from 1 on.
    pub(super) fn write_supplier(&self, key: u32, buffer: &mut String) {
        let random = &mut self.random(2, key.into());
        let (nation, balance) = (random.random_range(0..25), draw_balance(random));
        let (address, phone) = (draw_address(random), draw_phone(random, nation));
        let comment = self.text_pool.draw_piece(random, 25, 75);
        // Spread over all.
        let step = (self.sizes.suppliers / (2 * self.sizes.remarkable)).max(1);
        let remark = match (key % step, (key / step) % 2) {
            (0, 0) => "Customer Complaints ",
            (0, _) => "Customer Recommends ",
            _ => "",
        };
        write_row(
            buffer,
            format_args!(
                "{key}\tSupplier#{key:09}\t{address}\t{nation}\t{phone}\t{balance}\t{remark}{comment}"
            ),
        );
    }

    pub(super) fn write_part(&self, key: u32, buffer: &mut String) {
        let random = &mut self.random(3, key.into());
        let name = self.part_name(random);
        let maker = random.random_range(1..=5);
        let brand = maker * 10 + random.random_range(1..=5);
        let kind = TYPES.map(|words| pick_word(words, random)).join(" ");
        let size = random.random_range(1..=50);
        let container = CONTAINERS.map(|words| pick_word(words, random)).join(" ");
        let price = format_money(retail_cents(key) as i64);
        let comment = self.text_pool.draw_piece(random, 5, 22);
        write_row(
            buffer,
            format_args!(
                "{key}\t{name}\tManufacturer#{maker}\tBrand#{brand}\t{kind}\t{size}\t{container}\t{price}\t{comment}"
            ),
        );
    }

    /// Five colours, none of them twice.
    fn part_name(&self, random: &mut Xoshiro256PlusPlus) -> String {
        let mut name: Vec<&str> = Vec::with_capacity(5);
        while name.len() < 5 {
            let colour = pick_word(&self.colours, random);
            if !name.contains(&colour) {
                name.push(colour);
            }
        }
        name.join(" ")
    }

    /// A part at each of its suppliers.
    pub(super) fn write_part_suppliers(&self, part: u32, buffer: &mut String) {
        let random = &mut self.random(4, part.into());
        for number in 0..SUPPLIERS_PER_PART {
            let supplier = self.supplier_of(part, number);
            let available = random.random_range(1..=9_999);
            let cost = format_money(random.random_range(100..=100_000));
            let comment = self.text_pool.draw_piece(random, 49, 198);
            write_row(buffer, format_args!("{part}\t{supplier}\t{available}\t{cost}\t{comment}"));
        }
    }

    /// The key of one of a part's suppliers. With fewer than 240 of them the shift from part to
    /// part begins anew sooner than in the specification, as two of the four could be the same.
    fn supplier_of(&self, part: u32, number: u32) -> u32 {
        let supplier_count = self.sizes.suppliers;
        let shift = ((part - 1) / supplier_count) % (supplier_count / 12).max(1);
        (part + number * (supplier_count / SUPPLIERS_PER_PART + shift)) % supplier_count + 1
    }

    pub(super) fn write_customer(&self, key: u32, buffer: &mut String) {
        let random = &mut self.random(5, key.into());
        let (nation, balance) = (random.random_range(0..25), draw_balance(random));
        let (address, phone) = (draw_address(random), draw_phone(random, nation));
        let segment = pick_word(&SEGMENTS, random);
        let comment = self.text_pool.draw_piece(random, 29, 116);
        write_row(
            buffer,
            format_args!(
                "{key}\tCustomer#{key:09}\t{address}\t{nation}\t{phone}\t{balance}\t{segment}\t{comment}"
            ),
        );
    }

    /// An order with its lines.
    pub(super) fn write_order(&self, key: u64, order: &mut String, lines: &mut String) {
        let random = &mut self.random(6, key);
        let customer = self.draw_customer(random);
        let day = random.random_range(0..ORDER_DAY_COUNT);
        let (mut total_cents, mut open_lines) = (0, 0);
        let count = random.random_range(1..=7);
        for number in 1..=count {
            let line = self.draw_line(day, random);
            open_lines += u32::from(line.shipped > CURRENT_DAY);
            total_cents += line.charge_cents();
            self.write_line(key, number, &line, random, lines);
        }
        let status = match open_lines {
            0 => "F",
            open if open == count => "O",
            _ => "P",
        };
        let (total, day) = (format_money(total_cents as i64), &self.days[day]);
        let priority = pick_word(&PRIORITIES, random);
        let clerk = random.random_range(1..=self.sizes.clerks);
        let comment = self.text_pool.draw_piece(random, 19, 78);
        write_row(
            order,
            format_args!(
                "{key}\t{customer}\t{status}\t{total}\t{day}\t{priority}\tClerk#{clerk:09}\t0\t{comment}"
            ),
        );
    }

    /// Two of three customers have orders.
    fn draw_customer(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        loop {
            let customer = random.random_range(1..=self.sizes.customers);
            if customer % 3 != 0 {
                return customer;
            }
        }
    }

    fn draw_line(&self, day: usize, random: &mut Xoshiro256PlusPlus) -> OrderLine {
        let part = random.random_range(1..=self.sizes.parts);
        let supplier = self.supplier_of(part, random.random_range(0..SUPPLIERS_PER_PART));
        let quantity = random.random_range(1..=50);
        let shipped = day + random.random_range(1..=121);
        OrderLine {
            part,
            supplier,
            quantity,
            price_cents: quantity * retail_cents(part),
            discount_percent: random.random_range(0..=10),
            tax_percent: random.random_range(0..=8),
            shipped,
            committed: day + random.random_range(30..=90),
            received: shipped + random.random_range(1..=30),
        }
    }

    fn write_line(
        &self,
        order: u64,
        number: u32,
        line: &OrderLine,
        random: &mut Xoshiro256PlusPlus,
        buffer: &mut String,
    ) {
        let OrderLine { part, supplier, quantity, .. } = line;
        let price = format_money(line.price_cents as i64);
        let (discount, tax) = (line.discount_percent, line.tax_percent);
        let returned =
            if line.received <= CURRENT_DAY { pick_word(&["R", "A"], random) } else { "N" };
        let status = if line.shipped > CURRENT_DAY { "O" } else { "F" };
        let [shipped, committed, received] =
            [line.shipped, line.committed, line.received].map(|day| &self.days[day]);
        let (instruction, mode) =
            (pick_word(&INSTRUCTIONS, random), pick_word(&SHIP_MODES, random));
        let comment = self.text_pool.draw_piece(random, 10, 43);
        write_row(
            buffer,
            format_args!(
                "{order}\t{part}\t{supplier}\t{number}\t{quantity}\t{price}\t0.{discount:02}\t0.{tax:02}\t{returned}\t{status}\t\
                 {shipped}\t{committed}\t{received}\t{instruction}\t{mode}\t{comment}"
            ),
        );
    }

    /// Of a row: by table and key.
    fn random(&self, table: u64, key: u64) -> Xoshiro256PlusPlus {
        seeded_random(self.seed.wrapping_add(table << 32), key)
    }
}

impl OrderLine {
    /// With discount and tax, rounded.
    fn charge_cents(&self) -> u64 {
        let charge = self.price_cents * (100 - self.discount_percent) * (100 + self.tax_percent);
        (charge + 5_000) / 10_000
    }
}

/// The key of the n-th order of those that are there in the beginning, from 0 on: of 32 keys, 8 are
/// taken.
pub(super) fn initial_key(n: u64) -> u64 {
    n / 8 * 32 + n % 8 + 1
}

/// The key of the n-th order of those that are inserted later: one that was left free.
pub(super) fn inserted_key(n: u64) -> u64 {
    n / 24 * 32 + 8 + n % 24 + 1
}

/// The price of a part, in cents.
fn retail_cents(part: u32) -> u64 {
    let part = u64::from(part);
    90_000 + (part / 10) % 20_001 + 100 * (part % 1_000)
}

fn write_row(buffer: &mut String, columns: std::fmt::Arguments<'_>) {
    // A string takes all that is written to it.
    let _ = writeln!(buffer, "{columns}");
}

fn format_money(cents: i64) -> String {
    let sign = if cents < 0 { "-" } else { "" };
    let cents = cents.unsigned_abs();
    format!("{sign}{}.{:02}", cents / 100, cents % 100)
}

/// What a customer or supplier has.
fn draw_balance(random: &mut Xoshiro256PlusPlus) -> String {
    format_money(random.random_range(-99_999..=999_999))
}

fn draw_phone(random: &mut Xoshiro256PlusPlus, nation: u32) -> String {
    let [area, office, end] =
        [100..=999, 100..=999, 1_000..=9_999].map(|range| random.random_range::<u32, _>(range));
    format!("{}-{area}-{office}-{end}", nation + 10)
}

/// 10 to 40 letters and digits.
fn draw_address(random: &mut Xoshiro256PlusPlus) -> String {
    const LETTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ, ";
    let letters = random.random_range(10..=40);
    let letters = (0..letters).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())]));
    letters.collect()
}

fn pick_word<'a>(words: &[&'a str], random: &mut Xoshiro256PlusPlus) -> &'a str {
    words[random.random_range(0..words.len())]
}

#[cfg(test)]
mod tests;
