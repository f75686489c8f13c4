//! What a verified token may do: from its claims to tenant, scopes and claims of Egret.
//!
//! Whatever the settings do not name a claim for is not taken from a token. A claim that names the
//! tenant must be there and be a valid name; there is no tenant to fall back to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use egret_base::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::config::OidcConfig;
use super::jws::{Algorithm, SignedToken};
use super::refusal::JwtRefusal;
use super::token_type::{self, TokenTypes};
use crate::error::ServerError;
use crate::tokens::{
    ADMIN, DEFAULT_TENANT, SCOPES_MAX, Scope, Token, Tokens, check_claims, check_tenant,
    printable_name,
};

/// Longest leeway that may be set.
const LEEWAY_MAX: Duration = Duration::from_secs(300);

/// Most bytes of the claim `sub`: more than OpenID Connect Core section 2 allows.
const SUBJECT_BYTES_MAX: usize = 1_024;

const MICROS_PER_SECOND: f64 = 1_000_000.0;

/// Where the tenant of a token is found.
#[derive(Clone, Debug)]
enum TenantSource {
    Fixed(String),
    Claim(String),
}

/// The settings that decide on a token, checked.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    issuer: String,
    audience: String,
    algorithms: Vec<Algorithm>,
    token_types: TokenTypes,
    tenant: TenantSource,
    scopes_claim: String,
    scopes_prefix: String,
    roles_claim: Option<String>,
    role_scopes: BTreeMap<String, Vec<String>>,
    claims: Vec<String>,
    allows_operator_admin: bool,
    leeway: Duration,
    lifetime_max: Duration,
}

fn setting_error(setting: &'static str, message: impl Into<String>) -> ServerError {
    ServerError::Setting { setting, message: message.into() }
}

impl Policy {
    /// Reads the settings; `issuer` is that of the settings.
    ///
    /// # Errors
    /// [`ServerError::Setting`] with the first setting that cannot be used.
    pub(super) fn read(
        config: &OidcConfig,
        issuer: String,
        tokens: &Tokens,
    ) -> Result<Self, ServerError> {
        let audience = config.audience.clone().ok_or_else(|| {
            setting_error(
                "oidc.audience",
                "it is empty although oidc.issuer is set: set the audience of Egret's tokens, so that tokens for other services are refused",
            )
        })?;
        let leeway = config.clock_leeway.duration();
        if leeway > LEEWAY_MAX {
            return Err(setting_error("oidc.clock_leeway", "it must be at most 5min"));
        }
        if config.roles_claim.is_none() && !config.role_scopes.is_empty() {
            return Err(setting_error(
                "oidc.roles_claim",
                "it is empty although oidc.role_scopes is set",
            ));
        }
        Ok(Self {
            issuer,
            audience,
            algorithms: read_algorithms(&config.algorithms)?,
            token_types: TokenTypes::read(&config.token_types)?,
            tenant: read_tenant(config)?,
            scopes_claim: config.scopes_claim.clone(),
            scopes_prefix: config.scopes_prefix.clone(),
            roles_claim: config.roles_claim.clone(),
            role_scopes: read_role_scopes(&config.role_scopes, tokens)?,
            claims: split_words(&config.claims, ',').map(str::to_owned).collect(),
            allows_operator_admin: config.admin,
            leeway,
            lifetime_max: config.token_lifetime_max.duration(),
        })
    }

    /// Checks what a token's header says, before its signature is verified.
    ///
    /// # Errors
    /// [`JwtRefusal::Algorithm`], [`JwtRefusal::Type`].
    pub(super) fn check_header(&self, token: &SignedToken<'_>) -> Result<(), JwtRefusal> {
        if !self.algorithms.contains(&token.algorithm) {
            return Err(JwtRefusal::Algorithm);
        }
        self.token_types.check_header(token.token_type.as_deref())
    }

    /// The token of Egret that verified claims amount to; without scopes where none is known.
    ///
    /// # Errors
    /// [`JwtRefusal`]: the claims are not for this server, not for now, or cannot be used.
    pub(super) fn to_token(
        &self,
        claims: &Value,
        now: Timestamp,
        tokens: &Tokens,
    ) -> Result<Token, JwtRefusal> {
        if claims["iss"].as_str() != Some(self.issuer.as_str()) {
            return Err(JwtRefusal::Issuer);
        }
        if !iter_texts(&claims["aud"]).any(|audience| audience == self.audience) {
            return Err(JwtRefusal::Audience);
        }
        token_type::check_claims(claims)?;
        let expires_at = self.check_times(claims, now)?;
        let subject = claims["sub"].as_str().unwrap_or_default();
        if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
            return Err(claim_refusal("`sub` is missing, not a text or too long"));
        }
        let tenant = self.tenant_from(claims)?;
        Ok(Token {
            id: subject_id(&self.issuer, subject),
            name: printable_name(subject),
            scopes: self.scopes_from(claims, &tenant, tokens)?,
            tenant,
            claims: self.claims_from(claims)?,
            created_at: now,
            expires_at: Some(expires_at),
            last_used_at: None,
        })
    }

    /// Returns the moment at which the token ends, leeway included.
    fn check_times(&self, claims: &Value, now: Timestamp) -> Result<Timestamp, JwtRefusal> {
        let latest = now.plus(self.leeway);
        for name in ["nbf", "iat"] {
            if read_numeric_date(claims, name)?.is_some_and(|at| at > latest) {
                return Err(JwtRefusal::NotYetValid);
            }
        }
        let expires_at =
            read_numeric_date(claims, "exp")?.ok_or_else(|| claim_refusal("`exp` is missing"))?;
        let expires_at = expires_at.plus(self.leeway);
        if expires_at <= now {
            return Err(JwtRefusal::Expired { at: expires_at });
        }
        if expires_at > latest.plus(self.lifetime_max) {
            return Err(JwtRefusal::Lifetime);
        }
        Ok(expires_at)
    }

    fn tenant_from(&self, claims: &Value) -> Result<String, JwtRefusal> {
        let name = match &self.tenant {
            TenantSource::Fixed(tenant) => return Ok(tenant.clone()),
            TenantSource::Claim(name) => name,
        };
        let tenant = find_claim(claims, name)
            .and_then(Value::as_str)
            .ok_or_else(|| claim_refusal("the claim of oidc.tenant_claim is not a text"))?;
        check_tenant(tenant)
            .map_err(|_| claim_refusal("the claim of oidc.tenant_claim is not a valid tenant"))?;
        Ok(tenant.to_owned())
    }

    fn scopes_from(
        &self,
        claims: &Value,
        tenant: &str,
        tokens: &Tokens,
    ) -> Result<Vec<String>, JwtRefusal> {
        let claimed_scopes = find_claim(claims, &self.scopes_claim)
            .into_iter()
            .flat_map(iter_texts)
            .flat_map(str::split_ascii_whitespace)
            .filter_map(|word| word.strip_prefix(self.scopes_prefix.as_str()))
            .filter_map(|word| tokens.parse_scope(word).ok())
            .map(|scope| scope.to_string());
        let roles =
            self.roles_claim.as_deref().and_then(|name| find_claim(claims, name)).into_iter();
        let role_scopes = roles
            .flat_map(iter_texts)
            .filter_map(|role| self.role_scopes.get(role))
            .flatten()
            .cloned();
        // What concerns the whole server is for the operator's tenant, as no administrator of
        // another tenant could give it to a token of Egret's.
        let is_allowed = |scope: &String| {
            if tenant == DEFAULT_TENANT {
                scope != ADMIN || self.allows_operator_admin
            } else {
                !Scope::is_host_wide(scope)
            }
        };
        let scopes: BTreeSet<String> =
            claimed_scopes.chain(role_scopes).filter(is_allowed).collect();
        if scopes.len() > SCOPES_MAX {
            return Err(claim_refusal("it has too many scopes"));
        }
        Ok(scopes.into_iter().collect())
    }

    fn claims_from(
        &self,
        claims: &Value,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, JwtRefusal> {
        let mut selected = BTreeMap::new();
        for name in &self.claims {
            let Some(value) = find_claim(claims, name) else {
                continue;
            };
            let numbers = as_items(value)
                .iter()
                .filter(|item| item.is_i64() || item.is_u64())
                .map(ToString::to_string);
            let values: BTreeSet<String> =
                iter_texts(value).map(str::to_owned).chain(numbers).collect();
            if !values.is_empty() {
                selected.insert(name.clone(), values);
            }
        }
        check_claims(&selected)
            .map_err(|_| claim_refusal("a claim of oidc.claims is too long or too large"))?;
        Ok(selected)
    }
}

fn claim_refusal(message: &str) -> JwtRefusal {
    JwtRefusal::Claim(message.to_owned())
}

/// The public id of a subject: all its tokens count as one for quotas and in the audit log.
fn subject_id(issuer: &str, subject: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((issuer.len() as u64).to_be_bytes());
    hash.update(issuer);
    hash.update(subject);
    let hash = hash.finalize();
    let digits: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("oidc:{digits}")
}

/// A claim by its name, or by a JSON Pointer.
fn find_claim<'v>(claims: &'v Value, name: &str) -> Option<&'v Value> {
    if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) }
}

/// What is in an array, or the value itself.
fn as_items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items.as_slice(),
        value => std::slice::from_ref(value),
    }
}

/// The text of a string, or the texts in an array; nothing of other values.
fn iter_texts(value: &Value) -> impl Iterator<Item = &str> {
    as_items(value).iter().filter_map(Value::as_str)
}

/// A `NumericDate` (RFC 7519 section 2). One that is no number makes the token invalid rather than
/// the claim absent.
fn read_numeric_date(claims: &Value, name: &str) -> Result<Option<Timestamp>, JwtRefusal> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let seconds =
        value.as_f64().ok_or_else(|| JwtRefusal::Claim(format!("`{name}` is not a number")))?;
    // The conversion saturates.
    Ok(Some(Timestamp::from_micros((seconds * MICROS_PER_SECOND) as i64)))
}

fn split_words(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let words = text.split(separator).map(str::trim);
    words.filter(|word| !word.is_empty())
}

fn read_algorithms(text: &str) -> Result<Vec<Algorithm>, ServerError> {
    let parse_algorithm = |name: &str| {
        Algorithm::from_name(name).ok_or_else(|| {
            setting_error(
                "oidc.algorithms",
                format!("`{name}` is not one of {}", Algorithm::names()),
            )
        })
    };
    let algorithms = split_words(text, ',').map(parse_algorithm).collect::<Result<Vec<_>, _>>()?;
    if algorithms.is_empty() {
        return Err(setting_error("oidc.algorithms", "it names no algorithm"));
    }
    Ok(algorithms)
}

fn read_tenant(config: &OidcConfig) -> Result<TenantSource, ServerError> {
    match (&config.tenant, &config.tenant_claim) {
        (Some(tenant), None) => match check_tenant(tenant) {
            Ok(()) => Ok(TenantSource::Fixed(tenant.clone())),
            Err(error) => Err(setting_error("oidc.tenant", error.to_string())),
        },
        (None, Some(name)) => Ok(TenantSource::Claim(name.clone())),
        (None, None) => Err(setting_error(
            "oidc.tenant",
            "it and oidc.tenant_claim are empty: set one of them, such as oidc.tenant = \"default\"",
        )),
        (Some(_), Some(_)) => Err(setting_error(
            "oidc.tenant",
            "it and oidc.tenant_claim are both set: only one can decide",
        )),
    }
}

/// Reads `role=scope scope; role=scope`. A role may hold commas and equals signs.
fn read_role_scopes(
    text: &str,
    tokens: &Tokens,
) -> Result<BTreeMap<String, Vec<String>>, ServerError> {
    let setting = "oidc.role_scopes";
    let mut by_role: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in split_words(text, ';') {
        let Some((role, scopes)) = entry.rsplit_once('=') else {
            return Err(setting_error(
                setting,
                format!("`{entry}` is not of the form role=scope scope"),
            ));
        };
        let scopes = scopes
            .split_ascii_whitespace()
            .map(|text| {
                let scope = tokens.parse_scope(text);
                scope.map_err(|error| setting_error(setting, error.to_string()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let known_scopes = by_role.entry(role.trim().to_owned()).or_default();
        known_scopes.extend(scopes.iter().map(ToString::to_string));
    }
    Ok(by_role)
}

#[cfg(test)]
mod tests;
