//! The example of RFC 7677, an independent client, and messages that break the rules.

use std::sync::LazyLock;

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use proptest::prelude::*;

use super::*;

const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

static PENCIL: LazyLock<Arc<Verifier>> = LazyLock::new(|| {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    Arc::new(Verifier::derive("pencil", &salt, 4096).unwrap())
});

/// The exchange of RFC 7677, section 3: user `user`, password `pencil`.
fn rfc7677() -> ScramServer {
    ScramServer::new(PENCIL.clone(), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".to_owned())
}

#[test]
fn follows_the_example_of_rfc_7677() {
    let mut exchange = rfc7677();
    assert_eq!(
        exchange.step(CLIENT_FIRST),
        Ok(Outcome::Continue(
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
                .to_owned()
        ))
    );
    assert_eq!(
        exchange.step(CLIENT_FINAL),
        Ok(Outcome::Accepted("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_owned()))
    );
    assert_eq!(exchange.step(CLIENT_FINAL), Err(ScramError::Over));
}

/// Runs the driver's client against our server.
fn outcome(password: &str, verifier: Verifier, binding: ChannelBinding) -> Outcome {
    let mut client = ScramSha256::new(password.as_bytes(), binding);
    let mut server = ScramServer::new(Arc::new(verifier), "server-nonce".to_owned());
    let Outcome::Continue(reply) = server.step(client.message()).unwrap() else {
        panic!("the exchange goes on");
    };
    client.update(reply.as_bytes()).unwrap();
    let outcome = server.step(client.message()).unwrap();
    if let Outcome::Accepted(last) = &outcome {
        client.finish(last.as_bytes()).unwrap();
    }
    outcome
}

#[test]
fn agrees_with_an_independent_client() {
    let verifier = Verifier::derive("secret", b"some salt", 4096).unwrap();
    for binding in [ChannelBinding::unsupported, ChannelBinding::unrequested] {
        let right = outcome("secret", verifier.clone(), binding());
        assert!(matches!(right, Outcome::Accepted(_)), "{right:?}");
        assert_eq!(outcome("wrong", verifier.clone(), binding()), Outcome::Denied);
    }
}

#[test]
fn no_password_fits_a_mock_and_its_salt_is_stable() {
    let mock = Verifier::mock(&[7; 32], "nobody", 4096);
    assert_eq!(mock, Verifier::mock(&[7; 32], "nobody", 4096));
    assert_ne!(mock.salt, Verifier::mock(&[8; 32], "nobody", 4096).salt);
    assert_ne!(mock.salt, Verifier::mock(&[7; 32], "somebody", 4096).salt);
    let binding = ChannelBinding::unsupported();
    assert_eq!(outcome("secret", mock, binding), Outcome::Denied);
}

#[test]
fn verifiers_are_kept_as_postgresql_keeps_them() {
    let verifier = Verifier::derive("pencil", b"salt", 4096).unwrap();
    let text = verifier.to_string();
    assert!(text.starts_with("SCRAM-SHA-256$4096:c2FsdA==$"), "{text}");
    assert_eq!(text.parse(), Ok(verifier.clone()));
    assert_eq!(format!("{verifier:?}"), "Verifier(4096 iterations)");
    assert_eq!("md5abc".parse::<Verifier>(), Err(VerifierError::Text));
    let few = text.replace("4096", "1");
    assert_eq!(few.parse::<Verifier>(), Err(VerifierError::Iterations));
}

#[test]
fn refuses_passwords_that_need_saslprep() {
    for password in ["", "pässword", "tab\t"] {
        assert_eq!(Verifier::derive(password, b"salt", 4096), Err(VerifierError::Password));
    }
    assert_eq!(Verifier::derive("pencil", b"salt", 1000), Err(VerifierError::Iterations));
}

#[test]
fn refuses_first_messages_that_break_the_rules() {
    let check = |message: &[u8], wanted: &str| {
        let error = rfc7677().step(message).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    };
    check(b"p=tls-server-end-point,,n=,r=x", "channel binding");
    check(b"n,a=admin,n=,r=x", "authorization identity");
    check(b"n,,m=x,n=,r=x", "unsupported SCRAM extension");
    check(b"q,,n=,r=x", "unknown channel-binding flag");
    check(b"n,,n=user", "the nonce is missing");
    check(b"n,,n=user,r=", "not printable");
    check(b"n,,r=x", "the user name is missing");
    check(b"n", "a part is missing");
    check(b"\xFF", "not UTF-8");
}

#[test]
fn refuses_second_messages_that_break_the_rules() {
    let check = |message: &str, wanted: &str| {
        let mut exchange = rfc7677();
        exchange.step(CLIENT_FIRST).unwrap();
        let error = exchange.step(message.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        assert_eq!(exchange.step(message.as_bytes()), Err(ScramError::Over));
    };
    let right = std::str::from_utf8(CLIENT_FINAL).unwrap();
    check(&right.replace("c=biws", "c=eSws"), "does not match");
    check(&right.replace("hNlF$k0", "another"), "does not match");
    check(&right.replace(",p=", ",q="), "the proof is missing");
    check(&right.replace("p=dHz", "p=!!!"), "not a hash");
    check(&right.replace("p=dHzbZapWIk4jUhN+", "p="), "not a hash");
}

proptest! {
    #[test]
    fn arbitrary_messages_never_panic_nor_pass(
        first in prop::collection::vec(any::<u8>(), 0..80),
        second in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut exchange = rfc7677();
        let accepted = |outcome| matches!(outcome, Ok(Outcome::Accepted(_)));
        prop_assert!(!accepted(exchange.step(&first)));
        prop_assert!(!accepted(exchange.step(&second)));
    }

    #[test]
    fn a_damaged_second_message_is_never_accepted(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut exchange = rfc7677();
        exchange.step(CLIENT_FIRST).unwrap();
        let mut message = CLIENT_FINAL.to_vec();
        let position = at.index(message.len());
        prop_assume!(message[position] != byte);
        message[position] = byte;
        prop_assert!(!matches!(exchange.step(&message), Ok(Outcome::Accepted(_))));
    }
}
