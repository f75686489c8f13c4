//! What OpenAPI 3.1 says of declared collections: the paths of each, and the schemas of its documents.
//!
//! The rest of the document is the server's: it has the schema `Problem` and the security scheme `token`, to which this refers. A client that
//! makes requests up holds what is said here against what the server does, so every status, header and body that it answers with is here.
//! `parameters`, `schemas` and `answers` have what operations are put together from.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::core::collection::Collection;
use crate::core::definition::History;
use crate::core::schema::Schema;
use crate::model::CollectionName;

mod answers;
mod parameters;
mod schemas;

use answers::{JSON, NDJSON, answers, done, json_of, written};
use parameters::shared;

/// What all operations are listed under.
const TAG: &str = "documents";

/// Where the collections are, and what requests may ask for there.
#[derive(Clone, Copy, Debug)]
pub struct Served<'a> {
    /// Their database.
    pub database: &'a str,
    /// Documents of a page, at most.
    pub page_max: u32,
    /// Documents of a page where nobody says how many.
    pub page_usual: u32,
    /// Operations of a batch, at most.
    pub batch_max: u32,
}

/// What is said of collections, to be added to an OpenAPI document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// Path items by path.
    pub paths: Map<String, Value>,
    /// What they refer to: `schemas`, `parameters` and `responses` by name. The names begin with `documents.`, as no others do.
    pub components: Map<String, Value>,
}

/// The collections that have documents of their own.
struct All<'a> {
    served: &'a Served<'a>,
    each: Vec<(&'a Collection, &'a Arc<Schema>)>,
}

impl<'a> All<'a> {
    /// The collections whose documents are referred to under a name: it alone, or those that belong to it where it is abstract.
    fn named(&self, name: &CollectionName) -> impl Iterator<Item = &'a CollectionName> {
        let all = self.each.iter().map(|(collection, _)| *collection);
        let named = all.filter(move |collection| {
            let mut families = collection.families().iter();
            families.any(|family| family.collection == *name)
        });
        named.map(Collection::name)
    }

    /// The collections whose documents may refer to those of one.
    fn referring(&self, to: &Collection) -> Vec<&'a CollectionName> {
        let may = |collection: &Collection| {
            collection.references().any(|(_, target, _)| {
                let mut families = to.families().iter();
                families.any(|family| family.collection == *target)
            })
        };
        let all = self.each.iter().map(|(collection, _)| *collection);
        let referring = all.filter(|collection| may(collection));
        referring.map(Collection::name).collect()
    }
}

/// Describes collections. What is abstract has no documents of its own, and is left out.
pub fn describe<'a>(
    served: &'a Served<'a>,
    collections: impl IntoIterator<Item = &'a Collection>,
) -> Described {
    let collections = collections.into_iter();
    let all = All {
        served,
        each: collections
            .filter_map(|collection| Some((collection, collection.schema()?)))
            .collect(),
    };
    let mut described = Described::default();
    if all.each.is_empty() {
        return described;
    }
    for (collection, _) in &all.each {
        described.paths.extend(paths_of(&all, collection));
    }
    described.paths.extend(paths_of_all());
    let components = [
        ("schemas", schemas::all(&all)),
        ("parameters", parameters::all(served)),
        ("responses", answers::problems()),
    ];
    let components = components.map(|(name, each)| (name.to_owned(), Value::Object(each)));
    described.components.extend(components);
    described
}

/// The paths of a collection.
fn paths_of(all: &All<'_>, collection: &Collection) -> Vec<(String, Value)> {
    let name = collection.name();
    let documents = format!("/v1/documents/{name}");
    let document = format!("{documents}/{{id}}");
    let bulk = format!("/v1/collections/{name}");
    let mut paths = vec![
        (
            documents,
            json!({"post": upsert(collection), "get": list(collection)}),
        ),
        (
            document.clone(),
            at_id(json!({
                "get": get(collection), "put": put(name), "patch": patch(name), "delete": delete(collection),
            })),
        ),
        (
            format!("{document}/referrers"),
            at_id(json!({"get": referrers(all, collection)})),
        ),
        (format!("{bulk}/import"), json!({"post": import(name)})),
        (format!("{bulk}/export"), json!({"get": export(name)})),
    ];
    let history = collection.definition().history;
    if history != History::default() {
        paths.push((
            format!("{document}/versions"),
            at_id(json!({"get": versions(name)})),
        ));
        paths.push((
            format!("{document}/restore"),
            at_id(json!({"post": restore(name)})),
        ));
    }
    if history.deleted {
        paths.push((format!("{bulk}/deleted"), json!({"get": deleted(name)})));
    }
    paths
}

/// A path item of a document.
fn at_id(mut item: Value) -> Value {
    item["parameters"] = json!([shared(parameters::ID)]);
    item
}

/// An operation on documents of a collection; `action`: what its caller may do there.
fn operation(verb: &str, name: &CollectionName, action: &str, summary: &str) -> Value {
    json!({
        "operationId": format!("{verb}_{name}"),
        "tags": [TAG],
        "summary": summary,
        "security": [{"token": [format!("documents:{action}")]}],
    })
}

/// What a body is.
fn body(media_type: &str, schema: Value) -> Value {
    json!({"required": true, "content": {media_type: {"schema": schema}}})
}

/// Shared parameters, and `database`, which each operation takes.
fn with(names: &[&str]) -> Vec<Value> {
    let all = names.iter().copied().chain([parameters::DATABASE]);
    all.map(shared).collect()
}

/// What holds of every write that is about one document.
const OF_WRITE: &[&str] = &[
    parameters::IF_MATCH,
    parameters::IF_NONE_MATCH,
    parameters::IDEMPOTENCY_KEY,
    parameters::DURABILITY,
];

/// What may be wrong with a write that has a body.
const WRITE_PROBLEMS: &[&str] = &["400", "404", "409", "412", "413", "415"];

/// What may be wrong with a question.
const READ_PROBLEMS: &[&str] = &["400", "404"];

fn upsert(collection: &Collection) -> Value {
    let name = collection.name();
    let identity = &collection.definition().identity;
    let identity = identity.iter().map(|part| format!("`{}`", part.path));
    let identity: Vec<String> = identity.collect();
    let summary = format!("Write one of {name} by its identity");
    let mut upsert = operation("upsert", name, "write", &summary);
    upsert["description"] = json!(format!(
        "The identity is {}. A document with the same identity is replaced; an unchanged one is not written.",
        identity.join(", ")
    ));
    upsert["parameters"] = json!(with(OF_WRITE));
    upsert["requestBody"] = body(JSON, schemas::to(&schemas::document(name)));
    let answer = |description: &str| {
        let mut answer = written(name, description);
        answer["headers"]["Location"] = answers::location();
        answer
    };
    let good = [
        ("200", answer("It was there, and is as it was sent.")),
        ("201", answer("It is new.")),
    ];
    upsert["responses"] = answers(good, WRITE_PROBLEMS);
    upsert
}

fn list(collection: &Collection) -> Value {
    let name = collection.name();
    let mut list = operation("list", name, "read", &format!("List or find {name}"));
    let query = &collection.definition().query;
    let paths: Vec<String> = query.iter().map(|one| format!("`{}`", one.path)).collect();
    list["description"] = match paths.is_empty() {
        true => json!("In the order in which they were made."),
        false => json!(format!(
            "By {}. Without a sort they come in the order in which they were made; with one, those without a value come last.",
            paths.join(", ")
        )),
    };
    let mut taken = vec![parameters::identity(&collection.definition().identity)];
    taken.extend(parameters::of_query(query));
    taken.extend(parameters::embed(collection));
    taken.extend(with(&[
        parameters::FIELDS,
        parameters::COUNT,
        parameters::CURSOR,
        parameters::LIMIT,
    ]));
    list["parameters"] = json!(taken);
    let page = json_of(
        "A page of documents.",
        schemas::counted(schemas::to(&schemas::found(name))),
    );
    list["responses"] = answers([("200", page)], READ_PROBLEMS);
    list
}

fn get(collection: &Collection) -> Value {
    let name = collection.name();
    let mut get = operation("get", name, "read", &format!("Read one of {name}"));
    get["description"] = json!(
        "As it was sent, numbers in their normal form; with `fields` these paths of it alone. With `embed` or `meta` it comes within an object that has these as well."
    );
    let mut taken: Vec<Value> = parameters::embed(collection).into_iter().collect();
    taken.extend(with(&[
        parameters::FIELDS,
        parameters::META,
        parameters::IF_NONE_MATCH,
    ]));
    get["parameters"] = json!(taken);
    let shapes = [
        schemas::document(name),
        schemas::found(name),
        schemas::PART.to_owned(),
    ];
    let shapes = shapes.map(|shape| schemas::to(&shape));
    let mut found = json_of("The document.", json!({"anyOf": shapes}));
    found["headers"] = answers::etag();
    // What is embedded changes by itself: no version of the document stands for it.
    found["headers"]["ETag"]["required"] = json!(false);
    found["headers"]["ETag"]["description"] =
        json!("The document's version; none where something is embedded.");
    let known = done("It is as `If-None-Match` says it is known.");
    get["responses"] = answers([("200", found), ("304", known)], READ_PROBLEMS);
    get
}

fn put(name: &CollectionName) -> Value {
    let mut put = operation("put", name, "write", &format!("Replace one of {name}"));
    put["parameters"] = json!(with(OF_WRITE));
    put["requestBody"] = body(JSON, schemas::to(&schemas::document(name)));
    put["responses"] = answers([("204", done("It is as it was sent."))], WRITE_PROBLEMS);
    put
}

fn patch(name: &CollectionName) -> Value {
    let mut patch = operation("patch", name, "write", &format!("Change one of {name}"));
    patch["description"] = json!(
        "A merge patch (RFC 7386) or a JSON patch (RFC 6902). Where another write comes between, the patch is applied to what that one wrote. Whoever changes a document has to be allowed to read it."
    );
    patch["parameters"] = json!(with(OF_WRITE));
    patch["requestBody"] = json!({"required": true, "content": {
        "application/merge-patch+json": {"schema": {"type": "object"}},
        "application/json-patch+json": {"schema": schemas::to(schemas::JSON_PATCH)},
    }});
    patch["responses"] = answers([("204", done("It is changed."))], WRITE_PROBLEMS);
    patch
}

fn delete(collection: &Collection) -> Value {
    let name = collection.name();
    let mut delete = operation("delete", name, "write", &format!("Delete one of {name}"));
    delete["parameters"] = json!(with(OF_WRITE));
    let mut gone = json!({"description": "It is not there any more."});
    if collection.definition().history.deleted {
        let restored = json!({"operationId": format!("restore_{name}"), "parameters": {"id": "$request.path.id"}});
        gone["links"] = json!({"restore": restored});
    }
    delete["responses"] = answers([("204", gone)], &["400", "404", "409", "412"]);
    delete
}

fn referrers(all: &All<'_>, collection: &Collection) -> Value {
    let name = collection.name();
    let summary = format!("List who refers to one of {name}");
    let mut referrers = operation("referrers", name, "read", &summary);
    referrers["description"] =
        json!("Documents of all collections, in the order in which they were made.");
    referrers["parameters"] = json!(with(&[parameters::CURSOR, parameters::LIMIT]));
    let page = schemas::page(schemas::referring(&all.referring(collection)));
    let page = json_of("A page of documents, each with its `collection`.", page);
    referrers["responses"] = answers([("200", page)], READ_PROBLEMS);
    referrers
}

fn versions(name: &CollectionName) -> Value {
    let mut versions = operation(
        "versions",
        name,
        "read",
        &format!("List what one of {name} was"),
    );
    versions["description"] = json!(
        "As many earlier versions as the collection keeps, the last first; of one that was deleted as well."
    );
    versions["parameters"] = json!(with(&[parameters::CURSOR, parameters::LIMIT]));
    let page = json_of("A page of versions.", schemas::to(schemas::VERSIONS));
    versions["responses"] = answers([("200", page)], READ_PROBLEMS);
    versions
}

fn restore(name: &CollectionName) -> Value {
    let mut restore = operation("restore", name, "write", &format!("Restore one of {name}"));
    restore["description"] = json!(
        "One that was deleted comes back with its id, if all that it refers to is there; one that is there becomes again what it was."
    );
    restore["parameters"] = json!(with(&[parameters::VERSION, parameters::IDEMPOTENCY_KEY]));
    let good = [
        (
            "200",
            written(name, "It was there, and is what it was at that version."),
        ),
        ("201", written(name, "It is there again.")),
    ];
    restore["responses"] = answers(good, &["400", "404", "409", "412", "413"]);
    restore
}

fn deleted(name: &CollectionName) -> Value {
    let summary = format!("List those of {name} that were deleted");
    let mut deleted = operation("deleted", name, "read", &summary);
    deleted["description"] =
        json!("Those that can be restored, in the order in which they were made.");
    deleted["parameters"] = json!(with(&[parameters::CURSOR, parameters::LIMIT]));
    let page = json_of(
        "A page of documents as they were at last.",
        schemas::to(schemas::VERSIONS),
    );
    deleted["responses"] = answers([("200", page)], READ_PROBLEMS);
    deleted
}

fn import(name: &CollectionName) -> Value {
    let mut import = operation("import", name, "write", &format!("Import {name}"));
    import["description"] = json!(
        "Each line is a document: it takes the place of the one with its identity, or is a new one. A line that is refused keeps no other from being done, and lines that come again change nothing."
    );
    import["parameters"] = json!(with(&[parameters::DURABILITY]));
    let lines = json!({"type": "string", "description": "A document on each line."});
    import["requestBody"] = body(NDJSON, lines);
    let told = json_of("What became of the lines.", schemas::to(schemas::IMPORTED));
    import["responses"] = answers([("200", told)], &["400", "404", "413", "415"]);
    import
}

fn export(name: &CollectionName) -> Value {
    let mut export = operation("export", name, "read", &format!("Export {name}"));
    export["description"] = json!(
        "All of them as they are at one moment, in the order in which they were made, a line for each. The last line is not finished where something went wrong."
    );
    export["parameters"] = json!(with(&[parameters::META]));
    let lines = json!({"description": "The documents.", "content": {NDJSON: {"schema": {"type": "string"}}}});
    export["responses"] = answers([("200", lines)], READ_PROBLEMS);
    export
}

/// What is not of one collection.
fn paths_of_all() -> [(String, Value); 2] {
    let batch = json!({
        "operationId": "batch",
        "tags": [TAG],
        "summary": "Write several documents",
        "description": "Over any collections: all or none (`atomic`), where each may refer to what another one makes; or each for itself, in this order where one needs another.",
        "security": [{"token": ["documents:write"]}],
        "parameters": with(&[parameters::IDEMPOTENCY_KEY, parameters::DURABILITY]),
        "requestBody": body(JSON, schemas::to(schemas::BATCH)),
        "responses": answers(
            [("200", json_of("What became of each.", schemas::to(schemas::BATCHED)))],
            WRITE_PROBLEMS,
        ),
    });
    let changes = json!({
        "operationId": "changes",
        "tags": [TAG],
        "summary": "List what became of documents",
        "description": "In the order in which it was committed: whoever goes on after the `position` of each answer misses nothing. `/v1/document-changes/events` tells the same as it happens.",
        "security": [{"token": ["documents:read"]}],
        "parameters": with(&[parameters::COLLECTION, parameters::AFTER, parameters::LIMIT]),
        "responses": answers(
            [("200", json_of("Changes.", schemas::to(schemas::CHANGES)))],
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
