//! Parsing of a setting's value from text, and formatting as text.

use std::path::PathBuf;

/// A type that can be the value of a setting.
pub trait Value: Sized {
    /// Description of valid texts, in a few words, for documentation and errors.
    fn form() -> String;

    /// Reads the value.
    ///
    /// # Errors
    /// A message that says what is wrong with the text.
    fn read(text: &str) -> Result<Self, String>;

    /// Writes the value so that [`Value::read`] gives it back.
    fn show(&self) -> String;

    /// Whether it is a number, a size (in bytes) or a duration (in milliseconds), and below
    /// `least`.
    fn is_below(&self, least: u64) -> bool {
        let _ = least;
        false
    }
}

/// Which values of its type a setting may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Every value of the type.
    Any,
    /// Every value except zero.
    Positive,
    /// Values that are at least this bound.
    AtLeast(u64),
}

impl Range {
    /// Describes the allowed values: [`Value::form`] of the type with the lower bound.
    pub fn form<V: Value>(self) -> String {
        let form = V::form();
        let least = match self {
            Self::Any => return form,
            Self::Positive => 1,
            Self::AtLeast(least) => least,
        };
        if form.contains("from 0 to") {
            return form.replace("from 0 to", &format!("from {least} to"));
        }
        format!("{form}; above {}", least.saturating_sub(1))
    }

    /// Reads a value and checks that it is within the range.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn read<V: Value>(self, text: &str) -> Result<V, String> {
        let value = V::read(text)?;
        let is_below = match self {
            Self::Any => false,
            Self::Positive => value.is_below(1),
            Self::AtLeast(least) => value.is_below(least),
        };
        if is_below {
            return Err(format!("`{text}` is not {}", self.form::<V>()));
        }
        Ok(value)
    }
}

macro_rules! value_by_parse {
    ($($kind:ty => $form:literal $(counted by $count:ident)?),* $(,)?) => {$(
        impl Value for $kind {
            fn form() -> String {
                $form.to_owned()
            }

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("`{text}` is not {}", $form))
            }

            fn show(&self) -> String {
                self.to_string()
            }

            $(fn is_below(&self, least: u64) -> bool {
                $count::from(*self) < least
            })?
        }
    )*};
}

value_by_parse! {
    bool => "true or false",
    String => "text",
    u16 => "a whole number from 0 to 65535" counted by u64,
    u32 => "a whole number from 0 to 4294967295" counted by u64,
    u64 => "a whole number" counted by u64,
}

impl Value for PathBuf {
    fn form() -> String {
        "a path".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a path cannot be empty".to_owned());
        }
        Ok(PathBuf::from(text))
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl<T: Value> Value for Option<T> {
    fn form() -> String {
        format!("{}, or empty for none", T::form())
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(None);
        }
        T::read(text).map(Some)
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }

    fn is_below(&self, least: u64) -> bool {
        self.as_ref().is_some_and(|value| value.is_below(least))
    }
}

/// A number of bytes, written `512`, `64kB`, `16MB`, `20GB` (powers of 1024, as PostgreSQL does).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// A size of `count` mebibytes.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// A size of `count` gibibytes.
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// To be shown: whole megabytes, rounded down, where it has some.
    pub const fn rounded_down(self) -> Self {
        if self.0 < MIB {
            return self;
        }
        Self(self.0 / MIB * MIB)
    }

    /// To be shown: whole megabytes, rounded up, where it has some.
    pub const fn rounded_up(self) -> Self {
        if self.0 < MIB {
            return self;
        }
        Self(self.0.div_ceil(MIB).saturating_mul(MIB))
    }
}

const MIB: u64 = 1 << 20;

const SIZE_UNITS: [(&str, u32); 5] = [("TB", 40), ("GB", 30), ("MB", 20), ("kB", 10), ("B", 0)];

impl Value for ByteSize {
    fn form() -> String {
        "a size such as 512kB, 16MB or 20GB".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = trimmed.split_at(digits);
        let unit = unit.trim().to_ascii_lowercase();
        let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
        let shift = match unit {
            "" => 0,
            "k" => 10,
            "m" => 20,
            "g" => 30,
            "t" => 40,
            _ => return Err(format!("`{text}` is not {}", Self::form())),
        };
        let number: u64 =
            number.parse().map_err(|_| format!("`{text}` is not {}", Self::form()))?;
        number
            .checked_mul(1 << shift)
            .map(ByteSize)
            .ok_or_else(|| format!("`{text}` is larger than any file system"))
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn is_below(&self, least: u64) -> bool {
        self.0 < least
    }
}

impl std::fmt::Display for ByteSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (unit, shift) in SIZE_UNITS {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A length of time in milliseconds, written `250ms`, `30s`, `15min`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ConfigDuration(pub u64);

impl ConfigDuration {
    /// A duration of `count` milliseconds.
    pub const fn ms(count: u64) -> Self {
        Self(count)
    }

    /// A duration of `count` seconds.
    pub const fn secs(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// As a standard duration.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

/// The longest span of settings, flags and requests, about 292 years: as many nanoseconds as 64
/// bits count with a sign. A few of them can be added to a time in milliseconds.
const SPAN_MS_MAX: u64 = i64::MAX.unsigned_abs() / 1_000_000;

const SPAN_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

impl Value for ConfigDuration {
    fn form() -> String {
        "a duration such as 250ms, 30s, 15min, 2h or 7d".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = trimmed.split_at(digits);
        let unit = match unit.trim() {
            "m" => "min",
            other => other,
        };
        let factor = SPAN_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
        let number: Option<u64> = number.parse().ok();
        match (number, factor) {
            (Some(number), Some(factor)) => number
                .checked_mul(factor)
                .filter(|ms| *ms <= SPAN_MS_MAX)
                .map(ConfigDuration)
                .ok_or_else(|| {
                    let days_max = SPAN_MS_MAX / 86_400_000;
                    format!("`{text}` is too long a duration: at most {days_max}d")
                }),
            (Some(0), None) if unit.is_empty() => Ok(ConfigDuration(0)),
            _ => Err(format!("`{text}` is not {}", Self::form())),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }

    fn is_below(&self, least: u64) -> bool {
        self.0 < least
    }
}

impl std::fmt::Display for ConfigDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (unit, ms) in SPAN_UNITS {
            if self.0 >= ms && self.0.is_multiple_of(ms) {
                return write!(f, "{}{unit}", self.0 / ms);
            }
        }
        write!(f, "0s")
    }
}

#[cfg(test)]
mod tests;
