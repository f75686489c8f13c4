//! Settings, files and documents of a provider that cannot be used.

use egret_base::settings::ConfigDuration;
use egret_server::OidcConfig;
use serde_json::json;

use super::issuer::{Issuer, SigningKey};
use super::{OidcTestServer, options};
use crate::test_server::TestServerSetup;

/// Where a discovery document leads is refused unless it is the issuer itself or a public address.
#[tokio::test]
async fn a_discovery_document_leads_to_no_other_service_of_this_machine() {
    for (fields, reason) in [
        (json!({"issuer": "http://127.0.0.1:1"}), "`issuer` is not oidc.issuer"),
        (json!({"jwks_uri": "http://keys.example/"}), "`jwks_uri` is not an https URL"),
        (json!({"jwks_uri": "https://127.0.0.1:1/"}), "127.0.0.1 is not a public address"),
    ] {
        let guarded = OidcTestServer::open().await;
        guarded.issuer.describe(fields);
        guarded.test_server.server.oidc().unwrap().refresh();
        guarded.await_fetches(2).await;
        assert!(guarded.test_server.log().contains(reason), "{}", guarded.test_server.log());
        guarded.stop_with_failures().await;
    }
}

#[tokio::test]
async fn settings_and_files_that_cannot_work_are_refused_by_name() {
    let issuer = Issuer::start(&[]).await;
    let site = TestServerSetup::new();
    let file = site.path("keys.json");
    let keys = json!({"keys": [SigningKey::new("file").public()]});
    std::fs::write(&file, keys.to_string()).unwrap();
    let refused = |change: &dyn Fn(&mut OidcConfig)| {
        let built = site.builder().oidc(options(&issuer, change)).build();
        built.err().map_or(String::new(), |error| error.to_string())
    };
    type Change = Box<dyn Fn(&mut OidcConfig)>;
    let table: [(&str, Change); 6] = [
        ("oidc.audience: ", Box::new(|config| config.audience = None)),
        ("oidc.issuer: ", Box::new(|config| config.issuer = None)),
        (
            "oidc.issuer: ",
            Box::new(|config| {
                config.issuer = Some("http://issuer.example".to_owned());
            }),
        ),
        (
            "oidc.jwks_url: ",
            Box::new(|config| {
                config.jwks_url = Some("http://10.0.0.1/keys".to_owned());
            }),
        ),
        ("oidc.refresh_pause: ", Box::new(|config| config.refresh_pause = ConfigDuration::ms(999))),
        ("oidc.ca_file /absent", Box::new(|config| config.ca_file = Some("/absent".into()))),
    ];
    for (beginning, change) in table {
        let error = refused(&change);
        assert!(error.starts_with(beginning), "{beginning}: {error}");
    }
    let by_file = |config: &mut OidcConfig| config.jwks_file = Some(file.clone());
    assert_eq!(refused(&by_file), "");
    std::fs::write(&file, "{}").unwrap();
    assert!(refused(&by_file).starts_with("oidc.jwks_file "));
    std::fs::write(&file, keys.to_string()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&file, mode).unwrap();
    let error = refused(&by_file);
    assert!(error.contains("can be written by other users"), "{error}");
}
