//! How to connect to a branch through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use egret_branches::Branches;
use egret_branches::model::{BranchName, Credentials};
use http::{HeaderMap, StatusCode, Uri, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::database;
use crate::access::Caller;
use crate::extract::{Json, Path, Query};
use crate::problem::Problem;
use crate::proxy::{Proxy, database_name};

/// The address at which clients reach the proxy.
#[derive(Clone)]
pub struct ProxyAddress(Arc<dyn Fn() -> Option<SocketAddr> + Send + Sync>);

impl ProxyAddress {
    /// The address of a proxy, which is known once it has started.
    pub fn from_proxy(proxy: Arc<Proxy>) -> Self {
        Self(Arc::new(move || proxy.address()))
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectionParams {
    /// The database; it may be omitted if the branch has only one.
    database: Option<String>,
}

/// The connection parameters of a branch. They stay the same over reset and restart.
#[derive(Serialize, ToSchema)]
pub(super) struct Connection {
    /// The proxy's host.
    #[schema(example = "127.0.0.1")]
    host: String,
    /// The proxy's port.
    #[schema(example = 7432)]
    port: u16,
    /// The database and the branch, as the proxy expects them.
    #[schema(example = "flights@pr-42")]
    database: String,
    /// The role.
    #[schema(example = "egret_branch")]
    user: String,
    /// Its password.
    password: String,
    /// All parameters as a connection URL for libpq.
    #[schema(example = "postgresql://egret_branch:secret@127.0.0.1:7432/flights@pr-42")]
    url: String,
}

/// Get the connection parameters of a branch
///
/// The response has the password of the branch's role. A suspended branch is resumed, to list its
/// databases.
#[utoipa::path(get, path = "/v1/branches/{name}/connection", operation_id = "getBranchConnection",
    tag = "branches", security(("token" = ["branches:write"])),
    params(("name" = String, Path, description = "The branch's name."), ConnectionParams),
    responses(
        (status = 200, description = "The connection.", body = Connection),
        (status = 400, description = "The branch has several databases, and the request names none.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No branch has this name, or the branch has no such database.", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The branch cannot be started: it is being created, reset or destroyed, or has failed.",
            body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The tenant has used up its share of the volume.", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "There is no room for the branch's server, the proxy does \
            not listen yet, or Egret is stopping.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn get_connection(
    State((branches, proxy)): State<(Branches, ProxyAddress)>,
    caller: Caller,
    Path(name): Path<BranchName>,
    Query(params): Query<ConnectionParams>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Connection>, Problem> {
    let credentials = branches.credentials(caller.tenant(), &name)?;
    let address = (proxy.0)().ok_or_else(not_listening_problem)?;
    let database =
        database::choose_existing_database(&branches, caller.tenant(), &name, params.database)
            .await?;
    let database = database_name(&database, &name, caller.tenant());
    let host = public_host(address, &uri, &headers);
    Ok(Json(build_connection(host, address.port(), database, credentials)))
}

fn not_listening_problem() -> Problem {
    let detail = "the proxy does not listen yet: try again in a moment".to_owned();
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "proxy_not_listening", detail, true)
}

/// The proxy's address; where it listens on all, the host under which the caller reached this
/// server.
fn public_host(address: SocketAddr, uri: &Uri, headers: &HeaderMap) -> String {
    if !address.ip().is_unspecified() {
        return address.ip().to_string();
    }
    let header = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = header.and_then(|text| text.parse::<http::uri::Authority>().ok());
    let requested_host = authority.as_ref().map(|authority| authority.host()).or(uri.host());
    let unbracketed = requested_host.map(|host| host.trim_start_matches('[').trim_end_matches(']'));
    unbracketed.unwrap_or("localhost").to_owned()
}

fn build_connection(
    host: String,
    port: u16,
    database: String,
    credentials: Credentials,
) -> Connection {
    let Credentials { user, password } = credentials;
    let url_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let url = format!(
        "postgresql://{}:{}@{url_host}:{port}/{}",
        percent_encode(&user),
        percent_encode(&password),
        // Allowed in a path (RFC 3986), and some drivers do not decode it.
        percent_encode(&database).replace("%40", "@")
    );
    Connection { host, port, database, user, password, url }
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn percent_encode(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
