//! The queue between tenants: quotas, floods, chains.
