//! Signatures of what is sent to addresses that users name, so that receivers can tell it from what
//! others send.

/// The header with the signature.
pub const SIGNATURE_HEADER: &str = "egret-signature";

/// Signs bodies with the key of a tenant.
pub trait Signer: Send + Sync {
    /// `t=<seconds>,v1=<HMAC-SHA-256 of "<seconds>.<body>" in hexadecimal>`, as Stripe signs its
    /// webhooks; `at_seconds` since 1970.
    ///
    /// # Errors
    /// Why there is no key.
    fn sign(&self, tenant: &str, at_seconds: u64, body: &[u8]) -> Result<String, String>;
}
