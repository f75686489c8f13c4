//! Variables that Kubernetes and Docker put into every container beside a service named `egret…`.
//!
//! A Service `egret` of a namespace gives each of its pods `EGRET_SERVICE_HOST`,
//! `EGRET_SERVICE_PORT`, `EGRET_PORT=tcp://10.96.0.12:7070`, `EGRET_PORT_7070_TCP_ADDR` and more; a
//! Service `egret-server` gives `EGRET_SERVER_PORT=tcp://…`, which is the name of a setting. The
//! form is that of "Service environment variables" in the documentation of Kubernetes, which copies
//! Docker's links.

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Whether a variable describes a service rather than a setting.
pub(super) fn is_injected(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix("EGRET_") else {
        return false;
    };
    // As if the service's own name began with `EGRET`, and perhaps went on.
    let rest = format!("_{rest}");
    rest.ends_with("_SERVICE_HOST")
        || is_service_port(&rest)
        || is_port_number(&rest)
        || (rest.ends_with("_PORT") && is_address(value))
}

/// `…_SERVICE_PORT`, or that of a named port: `…_SERVICE_PORT_HTTP`.
fn is_service_port(rest: &str) -> bool {
    rest.ends_with("_SERVICE_PORT") || rest.contains("_SERVICE_PORT_")
}

/// `…_PORT_7070_TCP`, with `_ADDR`, `_PORT` or `_PROTO` perhaps.
fn is_port_number(rest: &str) -> bool {
    let Some((_, rest)) = rest
        .rsplit_once("_PORT_")
        .filter(|(_, rest)| rest.starts_with(|first: char| first.is_ascii_digit()))
        .or_else(|| {
            // `…_PORT_7070_TCP_PORT` holds the word twice.
            rest.split_once("_PORT_")
        })
    else {
        return false;
    };
    let mut parts = rest.split('_');
    let number = parts.next().unwrap_or_default();
    let protocol = parts.next().unwrap_or_default();
    let is_known = matches!(parts.next(), None | Some("ADDR" | "PORT" | "PROTO"));
    number.parse::<u16>().is_ok() && PROTOCOLS.contains(&protocol) && is_known
}

/// Whether a value has the form `tcp://10.96.0.12:7070`.
fn is_address(value: &str) -> bool {
    PROTOCOLS.iter().any(|protocol| {
        value
            .strip_prefix(&protocol.to_ascii_lowercase())
            .is_some_and(|rest| rest.starts_with("://"))
    })
}

#[cfg(test)]
mod tests;
