//! Limits on a resource that all tenants share, and on the share of one tenant.

use std::collections::BTreeMap;

use super::{Limit, LimitExceeded, zero_on_underflow};

/// A limit on all tenants together and one on each.
#[derive(Clone, Copy, Debug)]
pub struct TenantShare {
    /// The limit on all tenants together.
    pub total: Limit,
    /// The limit on one tenant. Zero: as much as is still free (the dynamic threshold of Choudhury
    /// and Hahne, 1998, with factor 1), so that there is room for one more tenant whatever the
    /// others take.
    pub per_tenant: Limit,
}

impl TenantShare {
    /// A limit on all tenants and one on each.
    pub const fn new(total: Limit, per_tenant: Limit) -> Self {
        Self { total, per_tenant }
    }

    /// A limit of which one tenant may have three quarters, but never all where there is more than
    /// one.
    pub fn three_quarters(name: &'static str, max: u64) -> Self {
        let one = max.saturating_sub(max.div_ceil(4)).max(1);
        Self::new(Limit::new(name, max), Limit::new(name, one))
    }

    /// How much more a tenant may take that uses `tenant_used` of the `total_used`.
    pub fn available(&self, total_used: u64, tenant_used: u64) -> u64 {
        let free = self.total.max.saturating_sub(total_used);
        match self.per_tenant.max {
            0 if tenant_used > 0 => free.saturating_sub(tenant_used),
            0 => free,
            max => free.min(max.saturating_sub(tenant_used)),
        }
    }

    /// Checks that a tenant that uses `tenant_used` of the `total_used` may take `more`.
    ///
    /// # Errors
    /// [`LimitExceeded`] with the limit that is reached.
    pub fn check(&self, total_used: u64, tenant_used: u64, more: u64) -> Result<(), LimitExceeded> {
        self.total.check(total_used + more)?;
        let free = self.total.max.saturating_sub(total_used);
        match self.per_tenant.max {
            0 if tenant_used > 0 && tenant_used + more > free => Err(LimitExceeded {
                name: self.per_tenant.name,
                max: tenant_used.max(free),
                asked: tenant_used + more,
            }),
            0 => Ok(()),
            _ => self.per_tenant.check(tenant_used + more),
        }
    }
}

/// How much of a resource all tenants use, and each of them. `K` identifies a tenant.
#[derive(Debug)]
pub struct TenantUsage<K> {
    total: u64,
    by_tenant: BTreeMap<K, u64>,
}

impl<K> Default for TenantUsage<K> {
    fn default() -> Self {
        Self { total: 0, by_tenant: BTreeMap::new() }
    }
}

impl<K: Ord> TenantUsage<K> {
    /// The amount in use by all tenants.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The amount in use by one tenant; zero if it has none.
    pub fn used_by(&self, tenant: &K) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Counts more of a tenant.
    pub fn add(&mut self, tenant: K, amount: u64) {
        *self.by_tenant.entry(tenant).or_default() += amount;
        self.total += amount;
    }

    /// Counts less of a tenant, which has as much.
    pub fn subtract(&mut self, tenant: &K, amount: u64) {
        self.total = zero_on_underflow(self.total.checked_sub(amount), "shares of all tenants");
        let known = self.by_tenant.get_mut(tenant);
        let tenant_used = known.as_deref().copied().unwrap_or(0);
        let left = zero_on_underflow(tenant_used.checked_sub(amount), "shares of a tenant");
        match known {
            Some(own) if left > 0 => *own = left,
            Some(_) => drop(self.by_tenant.remove(tenant)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(one: u64) -> TenantShare {
        TenantShare::new(Limit::new("all", 100), Limit::new("one", one))
    }

    #[test]
    fn a_tenant_takes_what_is_free_and_leaves_as_much() {
        let share = share(0);
        let refused = |taken, own| share.check(taken, own, 1).err().map(|error| error.name);
        assert_eq!(refused(49, 49), None);
        assert_eq!(refused(50, 50), Some("one"));
        assert_eq!(refused(50, 0), None);
        assert_eq!(refused(99, 0), None);
        assert_eq!(refused(100, 0), Some("all"));
    }

    #[test]
    fn there_is_room_for_just_what_is_let_in() {
        for one in [0, 30, 200] {
            let share = share(one);
            for (taken, own) in [(0, 0), (20, 20), (50, 0), (50, 25), (70, 29), (99, 0), (100, 60)]
            {
                let room = share.available(taken, own);
                let fits = room == 0 || share.check(taken, own, room).is_ok();
                assert!(fits, "{taken} {own} {room}");
                share.check(taken, own, room + 1).unwrap_err();
            }
        }
    }

    #[test]
    fn a_share_of_three_quarters_leaves_something() {
        let one = |max| TenantShare::three_quarters("all", max).per_tenant.max;
        let shares: Vec<u64> = [1, 2, 3, 4, 5, 6, 40, 10_000].map(one).to_vec();
        assert_eq!(shares, [1, 1, 2, 3, 3, 4, 30, 7_500]);
    }

    #[test]
    fn a_tenant_that_has_nothing_is_forgotten() {
        let mut usage = TenantUsage::default();
        usage.add("one", 3);
        usage.add("two", 1);
        usage.subtract(&"one", 3);
        assert_eq!((usage.total(), usage.used_by(&"one"), usage.used_by(&"two")), (1, 0, 1));
        assert_eq!(usage.by_tenant.len(), 1);
    }

    #[test]
    fn a_count_that_would_fall_below_zero_is_said() {
        let mut usage = TenantUsage::default();
        usage.add("one", 3);
        usage.add("two", 1);
        usage.subtract(&"two", 2);
        assert_eq!((usage.total(), usage.used_by(&"one"), usage.used_by(&"two")), (2, 3, 0));
        usage.subtract(&"one", 3);
        assert_eq!((usage.total(), usage.used_by(&"one")), (0, 0));
        let active = crate::condition::active();
        let is_said = |counted: &str| {
            active.iter().any(|found| found.name == "counts_wrong" && found.subject == counted)
        };
        assert!(is_said("shares of a tenant"), "{active:?}");
        assert!(is_said("shares of all tenants"), "{active:?}");
    }

    #[test]
    fn a_fixed_share_is_what_it_says() {
        let share = share(90);
        let refused = |taken, own| share.check(taken, own, 1).err().map(|error| error.name);
        assert_eq!(refused(89, 89), None);
        assert_eq!(refused(90, 90), Some("one"));
        assert_eq!(refused(99, 9), None);
    }
}
