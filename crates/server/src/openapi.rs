//! The OpenAPI 3.1 document, completed from the routes' own documentation.
//!
//! Handlers document themselves with `#[utoipa::path]`. Here the document gets its head, the
//! security scheme and the error responses; and the requirements of each operation on its caller
//! are derived from it (`access.rs`).

mod bodies;
mod definitions;
mod object;
mod parameters;
mod texts;

use std::collections::HashSet;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;
use utoipa::openapi::OpenApi;
use utoipa::openapi::schema::{Object, ObjectBuilder, SchemaType, Type};

use self::object::{object_at, object_at_map};
use crate::access::{PartPlace, Requirement, Requirements, Transfer};
use crate::error::ServerError;
use crate::http::series::error::{ERROR_TYPES, is_prometheus_path};
use crate::problem::{PROBLEM_JSON, Problem};
use crate::tokens::{ADMIN, Tokens};

/// The name of the security scheme, used in `security(("token" = ["…"]))`.
pub const SECURITY_SCHEME: &str = "token";

/// The finished document, and the requirements that it declares.
pub(crate) struct OpenApiDocument {
    pub(crate) json: Bytes,
    pub(crate) requirements: Requirements,
}

/// Marks an operation whose requests last as long as their clients want.
const LONG_LIVED: &str = "x-egret-lasting";

/// Marks an operation that reads its body piece by piece.
const STREAMED_BODY: &str = "x-egret-piecemeal";

/// Marks an operation with the scope `admin` that an administrator of any tenant may call, for that
/// tenant; every other one takes the operator's.
const TENANT_ADMIN: &str = "x-egret-tenant-admin";

/// Marks an operation whose handler compares the parts of the caller's scopes; of any other one the
/// path names the part, or a scope of all of the area is needed.
const HANDLER_CHECKS_PARTS: &str = "x-egret-parts";

/// Marks an operation that concerns the whole server although its scope is not `admin`.
const OPERATOR_ONLY: &str = "x-egret-operator";

/// Marks an operation whose parameters may come as a form as well.
const ACCEPTS_FORM: &str = "x-egret-form";

impl OpenApiDocument {
    /// Completes what the routes have collected.
    ///
    /// # Errors
    /// [`ServerError::UnknownScope`] when an operation names a scope the token store cannot grant.
    pub(crate) fn complete(
        api: &OpenApi,
        version: &str,
        tokens: &Tokens,
    ) -> Result<Self, ServerError> {
        let mut document = serde_json::to_value(api).expect("an OpenAPI document is JSON");
        document["openapi"] = json!("3.1.0");
        document["info"] = info(version);
        add_components(&mut document);
        let mut requirements = Requirements::default();
        let mut operation_ids = HashSet::new();
        let paths = document["paths"].as_object_mut();
        for (path, item) in paths.into_iter().flatten() {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                let Some(method) = parse_method(method) else {
                    continue;
                };
                let requirement = read_requirement(path, operation);
                if let Requirement::Token { is_host_wide: true, .. } = requirement {
                    operation[OPERATOR_ONLY] = true.into();
                }
                add_error_responses(operation, &requirement);
                parameters::publish_checks(path, operation);
                if is_prometheus_path(path) {
                    document_prometheus_errors(operation);
                }
                assign_unique_id(operation, &method, &mut operation_ids);
                check_scopes(&requirement, &method, path, tokens)?;
                let id = operation["operationId"].as_str().unwrap_or_default();
                let transfer = Transfer {
                    is_long_lived: operation[LONG_LIVED] == true,
                    has_streamed_body: operation[STREAMED_BODY] == true,
                };
                requirements.insert(path, method, id, transfer, requirement);
                sort_extensions(operation);
            }
        }
        definitions::add_definition_schema(&mut document);
        bodies::publish_checks(&mut document, tokens);
        let json = serde_json::to_vec(&document).expect("a JSON value is JSON").into();
        Ok(Self { json, requirements })
    }
}

/// Puts the extensions of an operation at its end, in the order of their names: utoipa has them in
/// another order in each process.
fn sort_extensions(operation: &mut Value) {
    let Some(members) = operation.as_object_mut() else {
        return;
    };
    let (mut extensions, others): (Vec<_>, Vec<_>) =
        std::mem::take(members).into_iter().partition(|(name, _)| name.starts_with("x-"));
    extensions.sort_by(|one, other| one.0.cmp(&other.0));
    members.extend(others.into_iter().chain(extensions));
}

/// The schema of a string with these values.
pub(crate) fn string_enum(texts: &'static [&'static str], description: &str) -> Object {
    ObjectBuilder::new()
        .schema_type(SchemaType::Type(Type::String))
        .enum_values(Some(texts.iter().copied()))
        .description(Some(description))
        .build()
}

fn info(version: &str) -> Value {
    json!({
        "title": "Egret",
        "version": version,
        "description": "One server that runs beside PostgreSQL. Every error is a problem (RFC \
            9457) with a stable `code`; `429` and `503` have the header `Retry-After` if a retry \
            can help.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    })
}

fn add_components(document: &mut Value) {
    let components = object_at(document, "components");
    object_at_map(components, "securitySchemes").insert(
        SECURITY_SCHEME.to_owned(),
        json!({
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "egret_<id>_<secret>, or a JSON Web Token of the configured issuer",
            "description": "A token created by POST /v1/tokens, the admin token of the first \
                start, or, if the server's settings name an OpenID Connect provider, one of its \
                JSON Web Tokens.",
        }),
    );
    let schema = serde_json::to_value(Problem::schema()).expect("a schema is JSON");
    object_at_map(components, "schemas").insert("Problem".to_owned(), schema);
    let responses = object_at_map(components, "responses");
    for (name, description) in [
        ("Invalid", "The request is malformed or out of range."),
        ("Unauthenticated", "The token is missing or not valid."),
        ("Denied", "The token lacks the scope, or does not belong to the operator's tenant."),
        ("TooLarge", "The body is larger than `server.body_bytes_max`."),
        ("ContentType", "The body is not `application/json`."),
        ("Problem", "Any other error."),
    ] {
        let content = json!({PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}});
        let response = json!({"description": description, "content": content});
        responses.insert(name.to_owned(), response);
        let response = json!({"description": description, "content": prometheus_error_content()});
        responses.insert(format!("{PROMETHEUS}{name}"), response);
    }
    object_at_map(components, "schemas").insert(
        PROMETHEUS_ERROR.to_owned(),
        json!({
            "type": "object",
            "description": "An error in Prometheus's format.",
            "required": ["status", "errorType", "error"],
            "properties": {
                "status": {"type": "string", "enum": ["error"]},
                "errorType": {"type": "string", "description": "The kind of the error.", "enum": ERROR_TYPES},
                "error": {"type": "string", "description": "What failed, with which value, and what to do."},
            },
        }),
    );
}

/// Begins the names of responses whose errors are Prometheus's.
const PROMETHEUS: &str = "Prometheus";

/// The name of their schema.
const PROMETHEUS_ERROR: &str = "PrometheusError";

fn prometheus_error_content() -> Value {
    json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{PROMETHEUS_ERROR}")}}})
}

/// Replaces problems by Prometheus's errors, for the routes below `/prometheus`.
fn document_prometheus_errors(operation: &mut Value) {
    let responses = operation["responses"].as_object_mut();
    for (_, response) in responses.into_iter().flatten() {
        if let Some(name) = response["$ref"].as_str().and_then(|text| text.rsplit('/').next()) {
            let reference = format!("#/components/responses/{PROMETHEUS}{name}");
            *response = json!({"$ref": reference});
            continue;
        }
        let contents = response["content"].as_object();
        let is_problem = contents.is_some_and(|contents| {
            let problem = "#/components/schemas/Problem";
            contents.values().any(|content| content["schema"]["$ref"] == problem)
        });
        if is_problem {
            response["content"] = prometheus_error_content();
        }
    }
}

/// A document of the same form, for paths and components that are known only at run time.
pub(crate) fn runtime_document(paths: Map<String, Value>, components: Map<String, Value>) -> Value {
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info(env!("CARGO_PKG_VERSION")),
        "paths": paths,
        "components": components,
    });
    add_components(&mut document);
    document
}

fn parse_method(key: &str) -> Option<Method> {
    // A path's entry may hold things beside operations, such as `parameters`.
    let known = ["get", "put", "post", "delete", "options", "head", "patch"];
    let known = known.contains(&key).then(|| key.to_ascii_uppercase())?;
    known.parse().ok()
}

/// The requirement that an operation's `security` declares: one of its alternatives. `[{}]` is
/// public, and no alternative at all requires an admin of the operator's tenant.
fn read_requirement(path: &str, operation: &Value) -> Requirement {
    let alternatives = operation["security"].as_array();
    let Some(alternatives) = alternatives.filter(|all| !all.is_empty()) else {
        return Requirement::operator();
    };
    let read_scope = |alternative: &Value| {
        let scopes = alternative[SECURITY_SCHEME].as_array();
        let scope = scopes.and_then(|scopes| scopes.first()).and_then(Value::as_str);
        scope.map(str::to_owned)
    };
    let any_of: Vec<String> = alternatives.iter().filter_map(read_scope).collect();
    if any_of.is_empty() {
        let is_public =
            alternatives.iter().all(|schemes| schemes.as_object().is_some_and(Map::is_empty));
        return if is_public { Requirement::Public } else { Requirement::operator() };
    }
    let needs_admin = any_of.iter().all(|scope| scope == ADMIN);
    Requirement::Token {
        part: part_place(path, operation, &any_of),
        is_host_wide: operation[OPERATOR_ONLY] == true
            || (needs_admin && operation[TENANT_ADMIN] != true),
        any_of,
    }
}

/// Where an operation's path names the part of its area.
fn part_place(path: &str, operation: &Value, any_of: &[String]) -> PartPlace {
    let area = any_of.first().and_then(|scope| scope.split_once(':'));
    let area = area.map_or(ADMIN, |(area, _)| area);
    let parameter = match area {
        "queue" => "{queue}",
        "branches" | "views" => "{name}",
        _ => "",
    };
    // The engine of documents compares the names of collections itself.
    if operation[HANDLER_CHECKS_PARTS] == true || area == "documents" {
        return PartPlace::Handler;
    }
    let index = path.split('/').position(|segment| segment == parameter);
    index.filter(|_| !parameter.is_empty()).map_or(PartPlace::Nowhere, PartPlace::Segment)
}

/// A handler that takes several methods has one name; its operations need one each. The first
/// method has the handler's own.
fn assign_unique_id(operation: &mut Value, method: &Method, used_ids: &mut HashSet<String>) {
    let name = operation["operationId"].as_str().unwrap_or_default();
    let name = if operation[ACCEPTS_FORM] == true && *method == Method::POST {
        format!("{name}ByForm")
    } else if used_ids.contains(name) {
        let method = method.as_str();
        format!("{name}By{}{}", &method[..1], method[1..].to_ascii_lowercase())
    } else {
        name.to_owned()
    };
    used_ids.insert(name.clone());
    operation["operationId"] = name.into();
}

fn check_scopes(
    requirement: &Requirement,
    method: &Method,
    path: &str,
    tokens: &Tokens,
) -> Result<(), ServerError> {
    let Requirement::Token { any_of, .. } = requirement else {
        return Ok(());
    };
    match any_of.iter().find(|scope| tokens.parse_scope(scope).is_err()) {
        Some(scope) => Err(ServerError::UnknownScope {
            operation: format!("{method} {path}"),
            scope: scope.clone(),
        }),
        None => Ok(()),
    }
}

fn add_error_responses(operation: &mut Value, requirement: &Requirement) {
    let has_body = operation.get("requestBody").is_some();
    let has_parameters = operation.get("parameters").is_some();
    let responses = object_at(operation, "responses");
    let mut add_response = |status: &str, name: &str| {
        let reference = json!({"$ref": format!("#/components/responses/{name}")});
        responses.entry(status).or_insert(reference);
    };
    if has_body || has_parameters {
        add_response("400", "Invalid");
    }
    if *requirement != Requirement::Public {
        add_response("401", "Unauthenticated");
        add_response("403", "Denied");
    }
    if has_body {
        add_response("413", "TooLarge");
        add_response("415", "ContentType");
    }
    add_response("default", "Problem");
}

#[cfg(test)]
mod tests;
