//! What a message of the server is about.

use super::mentions_egret;

#[test]
fn what_a_message_is_about_is_read_in_other_languages_too() {
    for message in [
        "relation \"egret.view\" does not exist",
        "Relation »egret.view« existiert nicht",
        "no existe la relación «egret.view»",
        "la relation « egret.view » n'existe pas",
        "function egret.enqueue(unknown) does not exist",
        "関数egret.enqueue(unknown)は存在しません",
    ] {
        assert!(mentions_egret(message, true), "{message}");
    }
    for message in [
        "schema \"egret\" does not exist",
        "Schema »egret« existiert nicht",
        "le schéma « egret » n'existe pas",
    ] {
        assert!(mentions_egret(message, false), "{message}");
    }
    for message in [
        "relation \"egret\" does not exist",
        "relation \"my_egret.view\" does not exist",
        "relation \"public.egret.view\" does not exist",
    ] {
        assert!(!mentions_egret(message, true), "{message}");
    }
    for message in ["schema \"egrets\" does not exist", "schema \"egret.view\" does not exist"] {
        assert!(!mentions_egret(message, false), "{message}");
    }
}
