//! Signatures of requests to addresses that users configure, so that receivers can tell them from
//! requests of other senders.

/// The header with the signature.
pub const SIGNATURE_HEADER: &str = "egret-signature";

/// Signs bodies with the key of a tenant.
pub trait Signer: Send + Sync {
    /// `t=<seconds>,v1=<HMAC-SHA-256 of "<seconds>.<body>" in hexadecimal>`, as Stripe signs its
    /// webhooks; `at_seconds` since 1970.
    ///
    /// # Errors
    /// A message: there is no key for the tenant.
    fn sign(&self, tenant: &str, at_seconds: u64, body: &[u8]) -> Result<String, String>;
}
