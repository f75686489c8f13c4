//! The key from which branch passwords are derived.
//!
//! A branch's password is HMAC-SHA-256 of its id under a key that only Egret can read: it stays the
//! same over reset and restart and is stored nowhere.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use egret_base::Entropy;
use egret_postgres::cluster::write_private;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{BranchesError, io_error};
use crate::model::BranchId;

/// The key, 32 random bytes.
pub struct Secret([u8; 32]);

impl Secret {
    /// Reads the key, making it on the first start with mode 0600.
    ///
    /// # Errors
    /// [`BranchesError::Io`] when it cannot be read or written, or is not a key.
    pub fn open(path: &Path, entropy: &dyn Entropy) -> Result<Self, BranchesError> {
        if !path.exists() {
            let mut key = [0; 32];
            entropy.fill(&mut key);
            write_private(path, &URL_SAFE_NO_PAD.encode(key))?;
        }
        let text = fs::read_to_string(path).map_err(io_error("read", path))?;
        let key = URL_SAFE_NO_PAD.decode(text.trim()).ok();
        let key = key.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| {
            let broken = std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it does not hold a key: remove it, and a new key and new passwords are made",
            );
            io_error("read", path)(broken)
        })?;
        Ok(Self(key))
    }

    /// The password of a branch's role.
    pub fn password(&self, id: BranchId) -> String {
        URL_SAFE_NO_PAD.encode(self.derive("password", id))
    }

    /// The salt of that password's verifier.
    pub fn salt(&self, id: BranchId) -> Vec<u8> {
        self.derive("salt", id)[..16].to_vec()
    }

    /// What verifiers of branches that do not exist are derived from.
    pub(crate) fn decoy_key(&self) -> [u8; 32] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(b"egret/decoy");
        mac.finalize().into_bytes().into()
    }

    fn derive(&self, purpose: &str, id: BranchId) -> Vec<u8> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("egret/branch/{purpose}/{id}").as_bytes());
        mac.finalize().into_bytes().to_vec()
    }
}
