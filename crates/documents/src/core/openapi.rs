//! OpenAPI 3.1 description of declared collections: paths, and schemas of documents.
//!
//! The rest of the OpenAPI document is the server's: it has the schema `Problem` and the security
//! scheme `token`, to which this refers. Clients that generate requests compare this description
//! with the server's behaviour, so it lists every status, header and body of the responses.
//! `parameters`, `schemas` and `responses` have the building blocks of operations.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::core::collection::Collection;
use crate::core::definition::History;
use crate::core::schema::Schema;
use crate::model::CollectionName;

mod answers;
mod parameters;
mod schemas;

use answers::{JSON, NDJSON, empty_response, json_response, responses, write_response};
use parameters::parameter_ref;

/// Tag under which all operations are listed.
const TAG: &str = "documents";

/// Database and limits that the description mentions.
#[derive(Clone, Copy, Debug)]
pub struct OpenApiContext<'a> {
    /// Name of the collections' database.
    pub database: &'a str,
    /// Documents of a page, at most.
    pub page_max: u32,
    /// Documents of a page if a request sets no limit.
    pub page_default: u32,
    /// Operations of a batch, at most.
    pub batch_max: u32,
}

/// Description of collections, to be merged into an OpenAPI document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenApiFragment {
    /// Path items by path.
    pub paths: Map<String, Value>,
    /// Referenced components: `schemas`, `parameters` and `responses` by name. The names begin with
    /// `documents.`, as no others do.
    pub components: Map<String, Value>,
}

/// The collections that are not abstract.
struct ConcreteCollections<'a> {
    context: &'a OpenApiContext<'a>,
    collections: Vec<(&'a Collection, &'a Arc<Schema>)>,
}

impl<'a> ConcreteCollections<'a> {
    /// Collections whose documents a reference to this name can target: the collection itself, or
    /// those that extend it if it is abstract.
    fn targets_of(&self, name: &CollectionName) -> impl Iterator<Item = &'a CollectionName> {
        let all = self.collections.iter().map(|(collection, _)| *collection);
        let named = all.filter(move |collection| {
            let mut families = collection.identity_scopes().iter();
            families.any(|family| family.collection == *name)
        });
        named.map(Collection::name)
    }

    /// Collections whose documents may refer to those of one.
    fn referrers_of(&self, to: &Collection) -> Vec<&'a CollectionName> {
        let refers = |collection: &Collection| {
            collection.references().any(|(_, target, _)| {
                let mut families = to.identity_scopes().iter();
                families.any(|family| family.collection == *target)
            })
        };
        let all = self.collections.iter().map(|(collection, _)| *collection);
        let referring = all.filter(|collection| refers(collection));
        referring.map(Collection::name).collect()
    }
}

/// Describes collections. Abstract ones have no documents of their own and are left out.
pub fn describe<'a>(
    context: &'a OpenApiContext<'a>,
    collections: impl IntoIterator<Item = &'a Collection>,
) -> OpenApiFragment {
    let collections = collections.into_iter();
    let concrete = ConcreteCollections {
        context,
        collections: collections
            .filter_map(|collection| Some((collection, collection.schema()?)))
            .collect(),
    };
    let mut fragment = OpenApiFragment::default();
    if concrete.collections.is_empty() {
        return fragment;
    }
    for (collection, _) in &concrete.collections {
        fragment.paths.extend(collection_paths(&concrete, collection));
    }
    fragment.paths.extend(shared_paths());
    let components = [
        ("schemas", schemas::all_schemas(&concrete)),
        ("parameters", parameters::all(context)),
        ("responses", answers::problem_responses()),
    ];
    let components = components.map(|(name, each)| (name.to_owned(), Value::Object(each)));
    fragment.components.extend(components);
    fragment
}

/// Path items of a collection.
fn collection_paths(
    concrete: &ConcreteCollections<'_>,
    collection: &Collection,
) -> Vec<(String, Value)> {
    let name = collection.name();
    let documents = format!("/v1/documents/{name}");
    let document = format!("{documents}/{{id}}");
    let bulk = format!("/v1/collections/{name}");
    let mut paths = vec![
        (documents, json!({"post": upsert(collection), "get": list(collection)})),
        (
            document.clone(),
            with_id_parameter(json!({
                "get": get(collection), "put": put(name), "patch": patch(name), "delete": delete(collection),
            })),
        ),
        (
            format!("{document}/referrers"),
            with_id_parameter(json!({"get": referrers(concrete, collection)})),
        ),
        (format!("{bulk}/import"), json!({"post": import(name)})),
        (format!("{bulk}/export"), json!({"get": export(name)})),
    ];
    let history = collection.definition().history;
    if history != History::default() {
        paths.push((
            format!("{document}/versions"),
            with_id_parameter(json!({"get": versions(name)})),
        ));
        paths.push((
            format!("{document}/restore"),
            with_id_parameter(json!({"post": restore(name)})),
        ));
    }
    if history.deleted {
        paths.push((format!("{bulk}/deleted"), json!({"get": deleted(name)})));
    }
    paths
}

/// A path item with the document's id as parameter.
fn with_id_parameter(mut item: Value) -> Value {
    item["parameters"] = json!([parameter_ref(parameters::ID)]);
    item
}

/// An operation on documents of a collection; `action` is the right that its caller needs.
fn operation(verb: &str, name: &CollectionName, action: &str, summary: &str) -> Value {
    json!({
        "operationId": format!("{verb}_{name}"),
        "tags": [TAG],
        "summary": summary,
        "security": [{"token": [format!("documents:{action}")]}],
    })
}

/// A required request body.
fn body(media_type: &str, schema: Value) -> Value {
    json!({"required": true, "content": {media_type: {"schema": schema}}})
}

/// References to shared parameters, with `database`, which every operation takes.
fn parameter_refs(names: &[&str]) -> Vec<Value> {
    let all = names.iter().copied().chain([parameters::DATABASE]);
    all.map(parameter_ref).collect()
}

/// Parameters of every write of a single document.
const WRITE_PARAMETERS: &[&str] = &[
    parameters::IF_MATCH,
    parameters::IF_NONE_MATCH,
    parameters::IDEMPOTENCY_KEY,
    parameters::DURABILITY,
];

/// Error statuses of a write with a body.
const WRITE_PROBLEMS: &[&str] = &["400", "404", "409", "412", "413", "415"];

/// Error statuses of a read.
const READ_PROBLEMS: &[&str] = &["400", "404"];

fn upsert(collection: &Collection) -> Value {
    let name = collection.name();
    let identity = &collection.definition().identity;
    let identity: Vec<String> = identity.iter().map(|part| format!("`{}`", part.path)).collect();
    let summary = format!("Create or replace a document of {name} by its identity");
    let mut upsert = operation("upsert", name, "write", &summary);
    let mut description = format!(
        "The identity is {}. A document with the same identity is replaced; an unchanged one is not written.",
        identity.join(", ")
    );
    for group in &collection.definition().equal {
        let paths: Vec<String> = group.iter().map(|path| format!("`{path}`")).collect();
        description += &format!(" The values at {} must be equal.", paths.join(", "));
    }
    for group in &collection.definition().unique {
        let paths: Vec<String> = group.iter().map(|path| format!("`{path}`")).collect();
        description += &format!(
            " No two elements of an array may have the same values at {}.",
            paths.join(", ")
        );
    }
    upsert["description"] = json!(description);
    upsert["parameters"] = json!(parameter_refs(WRITE_PARAMETERS));
    upsert["requestBody"] = body(JSON, schemas::schema_ref(&schemas::document_schema_name(name)));
    let response = |description: &str| {
        let mut answer = write_response(name, description);
        answer["headers"]["Location"] = answers::location();
        answer
    };
    let successes = [
        ("200", response("The document existed, and now has the content that was sent.")),
        ("201", response("The document was created.")),
    ];
    upsert["responses"] = responses(successes, WRITE_PROBLEMS);
    upsert
}

fn list(collection: &Collection) -> Value {
    let name = collection.name();
    let mut list = operation(
        "list",
        name,
        "read",
        &format!("List documents of {name}, or find them by conditions"),
    );
    let query = &collection.definition().query;
    let paths: Vec<String> = query.iter().map(|one| format!("`{}`", one.path)).collect();
    list["description"] = if paths.is_empty() {
        json!("Documents are listed in the order of their creation.")
    } else {
        json!(format!(
            "Documents can be found and sorted by {}. Without `sort` they are listed in the \
             order of their creation; with `sort`, documents without a value are last.",
            paths.join(", ")
        ))
    };
    let mut taken = vec![parameters::identity_parameter(&collection.definition().identity)];
    taken.extend(parameters::query_parameters(query));
    taken.extend(parameters::embed_parameter(collection));
    taken.extend(parameter_refs(&[
        parameters::FIELDS,
        parameters::COUNT,
        parameters::CURSOR,
        parameters::LIMIT,
    ]));
    list["parameters"] = json!(taken);
    let page = json_response(
        "A page of documents.",
        schemas::counted_page(schemas::schema_ref(&schemas::found_schema_name(name))),
    );
    list["responses"] = responses([("200", page)], READ_PROBLEMS);
    list
}

fn get(collection: &Collection) -> Value {
    let name = collection.name();
    let mut get = operation("get", name, "read", &format!("Get a document of {name}"));
    get["description"] = json!(
        "The document is returned as it was sent, with numbers normalized. `fields` reduces it \
         to these paths. With `embed` or `meta` it is wrapped in an object that also has the \
         embedded documents or the metadata."
    );
    let mut listed: Vec<Value> = parameters::embed_parameter(collection).into_iter().collect();
    listed.extend(parameter_refs(&[
        parameters::FIELDS,
        parameters::META,
        parameters::IF_NONE_MATCH,
    ]));
    get["parameters"] = json!(listed);
    let variants = [
        schemas::document_schema_name(name),
        schemas::found_schema_name(name),
        schemas::PART.to_owned(),
    ];
    let shapes = variants.map(|shape| schemas::schema_ref(&shape));
    let mut found = json_response("The document.", json!({"anyOf": shapes}));
    found["headers"] = answers::etag();
    // Embedded documents change independently: no version of the document covers them.
    found["headers"]["ETag"]["required"] = json!(false);
    found["headers"]["ETag"]["description"] =
        json!("The document's version. The header is absent if other documents are embedded.");
    let not_modified = empty_response("The document's version matches `If-None-Match`.");
    get["responses"] = responses([("200", found), ("304", not_modified)], READ_PROBLEMS);
    get
}

fn put(name: &CollectionName) -> Value {
    let mut put = operation("put", name, "write", &format!("Replace a document of {name}"));
    put["parameters"] = json!(parameter_refs(WRITE_PARAMETERS));
    put["requestBody"] = body(JSON, schemas::schema_ref(&schemas::document_schema_name(name)));
    put["responses"] = responses(
        [("204", empty_response("The document has the content that was sent."))],
        WRITE_PROBLEMS,
    );
    put
}

fn patch(name: &CollectionName) -> Value {
    let mut patch = operation("patch", name, "write", &format!("Patch a document of {name}"));
    patch["description"] = json!(
        "The body is a merge patch (RFC 7386) or a JSON patch (RFC 6902). If another write is \
         committed first, the patch is applied to the result of that write. The token must also \
         have the right to read the document."
    );
    patch["parameters"] = json!(parameter_refs(WRITE_PARAMETERS));
    patch["requestBody"] = json!({"required": true, "content": {
        "application/merge-patch+json": {"schema": {"type": "object"}},
        "application/json-patch+json": {"schema": schemas::schema_ref(schemas::JSON_PATCH)},
    }});
    patch["responses"] =
        responses([("204", empty_response("The document was patched."))], WRITE_PROBLEMS);
    patch
}

fn delete(collection: &Collection) -> Value {
    let name = collection.name();
    let mut delete = operation("delete", name, "write", &format!("Delete a document of {name}"));
    delete["parameters"] = json!(parameter_refs(WRITE_PARAMETERS));
    let mut gone = json!({"description": "The document was deleted."});
    if collection.definition().history.deleted {
        let restored = json!({"operationId": format!("restore_{name}"), "parameters": {"id": "$request.path.id"}});
        gone["links"] = json!({"restore": restored});
    }
    delete["responses"] = responses([("204", gone)], &["400", "404", "409", "412"]);
    delete
}

fn referrers(concrete: &ConcreteCollections<'_>, collection: &Collection) -> Value {
    let name = collection.name();
    let summary = format!("List the documents that refer to a document of {name}");
    let mut referrers = operation("referrers", name, "read", &summary);
    referrers["description"] =
        json!("The list has documents of all collections, in the order of their creation.");
    referrers["parameters"] = json!(parameter_refs(&[parameters::CURSOR, parameters::LIMIT]));
    let page = schemas::page(schemas::referring_schema(&concrete.referrers_of(collection)));
    let page = json_response("A page of documents, each with its `collection`.", page);
    referrers["responses"] = responses([("200", page)], READ_PROBLEMS);
    referrers
}

fn versions(name: &CollectionName) -> Value {
    let mut versions = operation(
        "versions",
        name,
        "read",
        &format!("List earlier versions of a document of {name}"),
    );
    versions["description"] = json!(
        "The list has as many earlier versions as the collection keeps, the latest first. It is \
         also available for a deleted document."
    );
    versions["parameters"] = json!(parameter_refs(&[parameters::CURSOR, parameters::LIMIT]));
    let page = json_response("A page of versions.", schemas::schema_ref(schemas::VERSIONS));
    versions["responses"] = responses([("200", page)], READ_PROBLEMS);
    versions
}

fn restore(name: &CollectionName) -> Value {
    let mut restore = operation("restore", name, "write", &format!("Restore a document of {name}"));
    restore["description"] = json!(
        "A deleted document is restored with its id, if all documents that it refers to exist. \
         An existing document gets the content of an earlier version."
    );
    restore["parameters"] =
        json!(parameter_refs(&[parameters::VERSION, parameters::IDEMPOTENCY_KEY]));
    let successes = [
        (
            "200",
            write_response(name, "The document existed, and now has the content of that version."),
        ),
        ("201", write_response(name, "The deleted document was restored.")),
    ];
    restore["responses"] = responses(successes, &["400", "404", "409", "412", "413"]);
    restore
}

fn deleted(name: &CollectionName) -> Value {
    let summary = format!("List deleted documents of {name}");
    let mut deleted = operation("deleted", name, "read", &summary);
    deleted["description"] = json!(
        "The list has the deleted documents that can be restored, in the order of their creation."
    );
    deleted["parameters"] = json!(parameter_refs(&[parameters::CURSOR, parameters::LIMIT]));
    let page = json_response(
        "A page of documents in their last version.",
        schemas::schema_ref(schemas::VERSIONS),
    );
    deleted["responses"] = responses([("200", page)], READ_PROBLEMS);
    deleted
}

fn import(name: &CollectionName) -> Value {
    let mut import = operation("import", name, "write", &format!("Import {name}"));
    import["description"] = json!(
        "Each line is a document. It replaces the document with the same identity, or is \
         created. A rejected line does not affect the others, and lines that are sent again change \
         nothing."
    );
    import["parameters"] = json!(parameter_refs(&[parameters::DURABILITY]));
    let lines = json!({"type": "string", "description": "One document per line."});
    import["requestBody"] = body(NDJSON, lines);
    let result = json_response("The outcome of the lines.", schemas::schema_ref(schemas::IMPORTED));
    import["responses"] = responses([("200", result)], &["400", "404", "413", "415"]);
    import
}

fn export(name: &CollectionName) -> Value {
    let mut export = operation("export", name, "read", &format!("Export {name}"));
    export["description"] = json!(
        "All documents are returned from one snapshot, in the order of their creation, one per \
         line. If an error occurs, the last line is incomplete."
    );
    export["parameters"] = json!(parameter_refs(&[parameters::META]));
    let lines = json!({"description": "The documents.", "content": {NDJSON: {"schema": {"type": "string"}}}});
    export["responses"] = responses([("200", lines)], READ_PROBLEMS);
    export
}

/// Operations that are not specific to one collection.
fn shared_paths() -> [(String, Value); 2] {
    let batch = json!({
        "operationId": "batch",
        "tags": [TAG],
        "summary": "Write several documents",
        "description": "The operations may concern any collections. With `atomic`, all or none are done, and each may refer to documents that others create. Otherwise each is done separately, in the given order where one depends on another.",
        "security": [{"token": ["documents:write"]}],
        "parameters": parameter_refs(&[parameters::IDEMPOTENCY_KEY, parameters::DURABILITY]),
        "requestBody": body(JSON, schemas::schema_ref(schemas::BATCH)),
        "responses": responses(
            [("200", json_response("The outcome of each operation.", schemas::schema_ref(schemas::BATCHED)))],
            WRITE_PROBLEMS,
        ),
    });
    let changes = json!({
        "operationId": "changes",
        "tags": [TAG],
        "summary": "List changes of documents",
        "description": "Changes are listed in the order of their commits: a client that continues after the `position` of each response misses none. `/v1/document-changes/events` sends the same changes as they happen.",
        "security": [{"token": ["documents:read"]}],
        "parameters": parameter_refs(&[parameters::COLLECTION, parameters::AFTER, parameters::LIMIT]),
        "responses": responses(
            [("200", json_response("Changes.", schemas::schema_ref(schemas::CHANGES)))],
            &["400", "404", "410"],
        ),
    });
    [
        ("/v1/batch".to_owned(), json!({"post": batch})),
        ("/v1/document-changes".to_owned(), json!({"get": changes})),
    ]
}

#[cfg(test)]
mod tests;
