//! The settings of tokens from an OpenID Connect provider, section `oidc` of `egret.toml`.

use std::path::PathBuf;

use egret_base::settings::ConfigDuration;

egret_base::settings! {
    /// Settings of JSON Web Tokens that an OpenID Connect provider issues.
    pub struct OidcConfig in "oidc" {
        /// Issuer whose JSON Web Tokens are accepted beside Egret's own tokens, exactly as their
        /// claim `iss` has it: an `https` URL, or an `http` one of this machine. Empty: none are
        /// accepted.
        issuer: Option<String> = None,
        /// Audience that the claim `aud` must hold. Required with an issuer.
        audience: Option<String> = None,
        /// URL of the issuer's keys (a JWKS). Empty: `jwks_uri` in
        /// `<issuer>/.well-known/openid-configuration`.
        jwks_url: Option<String> = None,
        /// File with the issuer's keys (a JWKS), instead of a URL. Only root and Egret's user may
        /// be able to change it.
        jwks_file: Option<PathBuf> = None,
        /// PEM file with certificates of authorities that are trusted for the issuer beside those
        /// of the machine.
        ca_file: Option<PathBuf> = None,
        /// Signature algorithms that are accepted, separated by commas.
        algorithms: String = "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,EdDSA".to_owned(),
        /// Token types that are accepted, separated by commas: `at+jwt` (access tokens of RFC
        /// 9068), `JWT`, another value of the header's `typ`, or `none` for tokens without one. In
        /// any case, a token whose claims mark it as an ID token or a refresh token is refused.
        token_types: String = "at+jwt, JWT, none".to_owned(),
        /// Tenant of every token. With an issuer either this or `tenant_claim` is required.
        tenant: Option<String> = None,
        /// Claim that names a token's tenant. A name that begins with `/` is a JSON Pointer, such
        /// as `/organization/id`; this holds for every setting that names claims.
        tenant_claim: Option<String> = None,
        /// Claim with scopes: a string of words separated by spaces, or an array of strings. Scopes
        /// that Egret does not know are ignored.
        scopes_claim: String = "scope".to_owned(),
        /// Prefix that scopes of the claim must have, and that is removed, such as `egret:`. Scopes
        /// without it are ignored.
        scopes_prefix: String = String::new(),
        /// Claim with roles or groups, a string or an array of strings, which `role_scopes` turns
        /// into scopes.
        roles_claim: Option<String> = None,
        /// Scopes by role: `role=scope scope; role=scope`.
        role_scopes: String = String::new(),
        /// Claims that become claims of the token, for collections that restrict documents by
        /// claim; separated by commas.
        claims: String = String::new(),
        /// Whether the scope `admin` counts in tenant `default`, where it includes the whole
        /// server.
        admin: bool = false,
        /// How far the issuer's clock and Egret's may be apart, at most 5 minutes. A token is
        /// accepted, and the streams that it opened last, until this long after its claim `exp`.
        clock_leeway: ConfigDuration = ConfigDuration::secs(60),
        /// Longest time for which a token may still be valid; one that ends later is refused.
        token_lifetime_max: ConfigDuration = ConfigDuration::secs(86_400); positive,
        /// How often the issuer's keys are fetched again.
        refresh_interval: ConfigDuration = ConfigDuration::secs(300); positive,
        /// Shortest time between two fetches of the keys that are caused by tokens with an unknown
        /// key.
        refresh_pause: ConfigDuration = ConfigDuration::secs(10); positive,
        /// How long keys are used if they cannot be fetched again.
        keys_age_max: ConfigDuration = ConfigDuration::secs(86_400); positive,
    }
}
