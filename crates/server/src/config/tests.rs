//! Settings that cannot work are refused by name.

use super::*;

fn check_error(change: impl FnOnce(&mut ServerConfig)) -> String {
    let mut config = ServerConfig::default();
    change(&mut config);
    config.check().unwrap_err().to_string()
}

#[test]
fn the_defaults_are_loopback_and_sound() {
    let config = ServerConfig::default();
    assert_eq!(config.check().map_err(|error| error.to_string()), Ok(()));
    assert_eq!(config.socket_address().unwrap().to_string(), "127.0.0.1:7070");
}

#[test]
fn refuses_by_name_what_cannot_work() {
    let message = check_error(|config| config.address = "localhost".to_owned());
    assert!(message.starts_with("server.address: `localhost` is not an IP"), "{message}");
}
