//! Tokens: narrow scopes, tenants, and what a revoked or expired token still holds.
