//! Kinds of tokens by their header and by their claims.

use serde_json::json;

use super::*;
use crate::oidc::OidcConfig;

fn accepted(setting: &str, token_type: Option<&str>) -> bool {
    let types = TokenTypes::read(setting).unwrap();
    types.check_header(token_type).is_ok()
}

#[test]
fn only_kinds_of_the_setting_are_accepted() {
    let default = OidcConfig::default().token_types;
    for (token_type, by_default, by_rfc_9068) in [
        (Some("at+jwt"), true, true),
        (Some("AT+JWT"), true, true),
        (Some("application/at+jwt"), true, true),
        (Some("JWT"), true, false),
        (Some("jwt"), true, false),
        (None, true, false),
        (Some("none"), false, false),
        (Some(""), false, false),
        (Some("logout+jwt"), false, false),
        (Some("secevent+jwt"), false, false),
        (Some("dpop+jwt"), false, false),
        (Some("id+jwt"), false, false),
    ] {
        assert_eq!(accepted(&default, token_type), by_default, "{token_type:?}");
        assert_eq!(accepted("at+jwt", token_type), by_rfc_9068, "{token_type:?}");
    }
    assert!(TokenTypes::read(" , ").is_err());
}

#[test]
fn claims_tell_an_id_token_from_an_access_token() {
    for (claims, is_accepted) in [
        (json!({}), true),
        (json!({"typ": "Bearer", "nonce": "n"}), true),
        (json!({"token_use": "access"}), true),
        (json!({"typ": "ID"}), false),
        (json!({"typ": "Refresh"}), false),
        (json!({"typ": "Offline"}), false),
        (json!({"typ": "Logout"}), false),
        (json!({"token_use": "id"}), false),
        (json!({"nonce": "n"}), false),
        (json!({"at_hash": "h"}), false),
        (json!({"c_hash": "h"}), false),
    ] {
        assert_eq!(check_claims(&claims).is_ok(), is_accepted, "{claims}");
    }
}
