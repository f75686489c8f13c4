//! Parsing and checks of definitions.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::Violation;

/// Flights and what they refer to: the definitions that the tests of other modules begin with.
pub(crate) fn flights() -> Value {
    json!({"collections": [
        {
            "collection": "flights",
            "identity": ["/date", "/carrier", "/number", "/hour"],
            "references": [
                {"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}},
                {"name": "plane", "to": "planes", "paths": {"/plane/maker": "/maker", "/plane/tail": "/tail"}},
                {"name": "stops", "to": "airports", "paths": {"/stops/*/airport": "/faa"}},
            ],
            "query": ["/origin", "/delay"],
            "extends": [{"collection": "journeys", "identity": {"/flight": "/id"}}],
            "schema": {
                "type": "object",
                "required": ["date", "carrier", "number", "hour", "flight", "origin"],
                "properties": {
                    "date": {"type": "string", "format": "date"},
                    "carrier": {"type": "string"},
                    "number": {"type": "integer"},
                    "hour": {"type": "integer"},
                    "flight": {"type": "string"},
                    "origin": {"type": "string"},
                    "delay": {"type": ["number", "null"]},
                    "plane": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"maker": {"type": "string"}, "tail": {"type": ["string", "null"]}}}]},
                    "stops": {"type": "array", "items": {"type": "object", "properties": {"airport": {"type": ["string", "null"]}}}},
                },
            },
        },
        {"collection": "airports", "identity": ["/faa"], "schema": {"required": ["faa"], "properties": {"faa": {"type": "string"}}}},
        {
            "collection": "planes", "identity": ["/tail", "/maker"], "identity_mutable": true,
            "schema": {"required": ["tail", "maker"], "properties": {"tail": {"type": "string"}, "maker": {"type": "string"}}},
        },
        {"collection": "journeys", "abstract": true, "identity": ["/id"]},
    ]})
}

pub(super) fn given(file: &Value) -> Vec<LocatedDefinition> {
    parse(file.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// The definitions of a valid file.
pub(crate) fn definitions(file: &Value) -> Definitions {
    Definitions::default().with(given(file)).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn lines(error: DocumentsError) -> String {
    let DocumentsError::DefinitionInvalid { violations } = error else {
        panic!("{error}");
    };
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    lines.join("\n")
}

pub(super) fn refused(file: Value, expected: Expect) {
    expected.assert_eq(&lines(parse(file.to_string().as_bytes()).expect_err("it is refused")));
}

pub(super) fn unfit(file: Value, expected: Expect) {
    let error = Definitions::default().with(given(&file)).expect_err("they do not fit");
    expected.assert_eq(&lines(error));
}

fn name(text: &str) -> CollectionName {
    text.parse().unwrap()
}

#[test]
fn a_file_has_one_definition_or_several() {
    let file = flights();
    let all = given(&file);
    let pointers: Vec<&str> = all.iter().map(|one| one.pointer.as_str()).collect();
    assert_eq!(pointers, ["/collections/0", "/collections/1", "/collections/2", "/collections/3"]);
    let airports = &file["collections"][1];
    let one = given(airports);
    assert_eq!(one[0].pointer, "");
    assert_eq!(one[0].definition, all[1].definition);
    assert_eq!(one[0].definition.source, *airports);
    assert_eq!(parse_stored(airports.clone()).unwrap(), all[1].definition);
    assert_eq!(given(&json!({"collections": []})), []);
    let flights = definitions(&file);
    let flights = flights.get(&name("flights")).unwrap();
    assert_eq!(flights.identity[2].scalar, Some(Scalar::Integer));
    assert_eq!(flights.query[1].scalar, Scalar::Number);
    assert!(!flights.identity_mutable && !flights.is_abstract);
}

/// The definition of airports with further members.
fn with(key: &str, value: Value) -> Value {
    let mut changed = flights()["collections"][1].clone();
    changed[key] = value;
    changed
}

fn without(key: &str) -> Value {
    let mut changed = flights()["collections"][1].clone();
    changed.as_object_mut().unwrap().remove(key);
    changed
}

#[test]
fn a_file_of_another_shape_is_refused() {
    let airports = flights()["collections"][1].clone();
    refused(json!([]), expect!["invalid type: sequence, expected an object"]);
    refused(
        json!({"collections": {}}),
        expect!["/collections: invalid type: map, expected a sequence"],
    );
    refused(
        json!({"collections": [], "more": 1}),
        expect!["/more: unknown field `more`, expected `collections`"],
    );
    refused(
        json!({"collections": [airports, 7, {"collection": "a"}]}),
        expect![[r#"
            /collections/1: invalid type: integer `7`, expected an object
            /collections/2: missing field `identity`"#]],
    );
    let twice = r#"{"collection":"a","collection":"b"}"#;
    expect!["/collection: this property occurs twice, at byte 18"]
        .assert_eq(&lines(parse(twice.as_bytes()).unwrap_err()));
    let large = vec![b' '; declared::DEFINITIONS_BYTES_MAX + 1];
    assert!(matches!(parse(&large), Err(DocumentsError::PayloadTooLarge { .. })));
}

#[test]
fn a_definition_of_another_shape_is_refused() {
    refused(
        with("schem", json!({})),
        expect![
            "/schem: unknown field `schem`, expected one of `collection`, `abstract`, `identity`, `identity_mutable`, `references`, `equal`, `unique`, `query`, `extends`, `history`, `retention_days`, `claims`, `schema`"
        ],
    );
    refused(
        with("collection", json!("Airports")),
        expect![
            "/collection: `Airports` is not a valid name: use 1 to 63 of a-z, 0-9, `_` and `-`, and begin with a letter"
        ],
    );
    refused(
        with("identity", json!("/faa")),
        expect![[r#"/identity: invalid type: string "/faa", expected a sequence"#]],
    );
    refused(
        with("identity", json!(["/faa", "tail"])),
        expect![
            "/identity/1: `tail` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array"
        ],
    );
    refused(
        with("references", json!([{"name": "a", "to": "b"}])),
        expect!["/references/0: missing field `paths`"],
    );
    refused(
        with("references", json!([{"name": "a", "to": "b", "paths": {"faa": "/a"}}])),
        expect![
            "/references/0/paths/faa: `faa` is not a path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array"
        ],
    );
    refused(
        with("references", json!([{"name": "a", "to": "b", "paths": {"/faa": 1}, "x": 1}])),
        expect!["/references/0/paths/~1faa: invalid type: integer `1`, expected a string"],
    );
    refused(
        with("identity_mutable", json!("yes")),
        expect![[r#"/identity_mutable: invalid type: string "yes", expected a boolean"#]],
    );
    refused(without("collection"), expect!["missing field `collection`"]);
    refused(without("identity"), expect!["missing field `identity`"]);
    refused(
        without("schema"),
        expect![[r#"a collection needs a `schema`, or `"abstract": true`"#]],
    );
}

#[test]
fn the_schema_bears_every_path() {
    let schema = json!({
        "required": ["id", "nested", "list"],
        "properties": {
            "id": {"type": "string"}, "either": {"type": ["string", "integer"]}, "optional": {"type": "string"},
            "nested": {"type": "object", "properties": {"id": {"type": "string"}}}, "list": {"type": "array", "items": {"type": "object"}},
        },
    });
    refused(
        json!({"collection": "a", "identity": ["/id", "/optional", "/nested", "/nested/id", "/list", "/unknown"], "schema": schema}),
        expect![[r#"
            /identity/1: the schema does not require `/optional`: list it in `required`
            /identity/2: by the schema `/nested` is an object: a part of an identity must be exactly one of string, integer, number and boolean
            /identity/3: the schema does not require `/nested/id`: list it in `required`
            /identity/4: by the schema `/list` is an array: a part of an identity must be exactly one of string, integer, number and boolean
            /identity/5: the schema does not require `/unknown`: list it in `required`"#]],
    );
    refused(
        json!({"collection": "a", "identity": ["/id"], "query": ["/either", "/list", "/unknown", "/nested/id"], "schema": schema}),
        expect![[r#"
            /query/0: by the schema `/either` is a string or an integer: a query path must be exactly one of string, integer, number and boolean, and may be null
            /query/1: by the schema `/list` is an array: a query path must be exactly one of string, integer, number and boolean, and may be null
            /query/2: by the schema `/unknown` is anything: a query path must be exactly one of string, integer, number and boolean, and may be null"#]],
    );
    refused(
        json!({"collection": "a", "identity": ["/id"], "schema": schema, "references": [
            {"name": "a", "to": "b", "paths": {"/nested": "/x", "/unknown": "/y"}},
            {"name": "b", "to": "b", "paths": {"/list/*/a": "/x", "/list/*/b": "/x", "/id": "/y"}},
            {"name": "c", "to": "b", "paths": {}},
        ]}),
        expect![[r#"
            /references/0/paths: by the schema `/nested` is an object: a path of a reference must be a string, number or boolean
            /references/0/paths: by the schema `/unknown` is anything: a path of a reference must be a string, number or boolean
            /references/1/paths: the paths of a reference must be the same up to their last `*`, so that they concern the same element
            /references/1/paths: `/x` occurs twice
            /references/1/paths: by the schema `/list/*/a` is anything: a path of a reference must be a string, number or boolean
            /references/1/paths: by the schema `/list/*/b` is anything: a path of a reference must be a string, number or boolean
            /references/2/paths: a reference needs at least one path"#]],
    );
    refused(
        json!({"collection": "a", "identity": ["/id"], "schema": schema, "extends": [
            {"collection": "b", "identity": {"/optional": "/x", "/list/*": "/y"}},
        ]}),
        expect![[r#"
            /extends/0/identity: `/list/*` can have several values: only references may have `*`
            /extends/0/identity: the schema does not require `/optional`: list it in `required`"#]],
    );
}

#[test]
fn nothing_is_there_twice_and_everything_is_counted() {
    refused(
        json!({"collection": "a", "identity": ["/id", "/id", "/l/*"], "query": ["/id", "/id", "/l/*"], "schema": {},
            "references": [{"name": "a", "to": "b", "paths": {}}, {"name": "a", "to": "b", "paths": {}}],
            "extends": [{"collection": "b", "identity": {}}, {"collection": "b", "identity": {}}]}),
        expect![[r#"
            /identity/1: `/id` occurs twice
            /identity/2: `/l/*` can have several values: only references may have `*`
            /query/1: `/id` occurs twice
            /query/2: `/l/*` can have several values: only references may have `*`
            /references/1/name: `a` occurs twice
            /extends/1/collection: `b` occurs twice"#]],
    );
    let paths: Vec<String> = (0..257).map(|number| format!("/p{number}")).collect();
    let references: Vec<Value> = (0..65)
        .map(|number| json!({"name": format!("r{number}"), "to": "b", "paths": {}}))
        .collect();
    let extends: Vec<Value> =
        (0..9).map(|number| json!({"collection": format!("s{number}"), "identity": {}})).collect();
    refused(
        json!({"collection": "a", "identity": paths, "query": paths, "references": references, "extends": extends, "schema": {}}),
        expect![[r#"
            /identity: there are 257, more than the maximum of 64 (`identity_paths_max`)
            /query: there are 257, more than the maximum of 256 (`query_paths_max`)
            /references: there are 65, more than the maximum of 64 (`references_max`)
            /extends: there are 9, more than the maximum of 8 (`extends_max`)"#]],
    );
    refused(
        json!({"collection": "a", "identity": [], "schema": {}}),
        expect!["/identity: an identity needs at least one path"],
    );
}

#[test]
fn abstract_definitions_have_only_an_identity() {
    refused(
        json!({"collection": "a", "abstract": true, "identity": ["/id"], "identity_mutable": true, "references": [], "query": [], "schema": {}}),
        expect![[r#"
            /identity_mutable: an abstract collection cannot have `identity_mutable`: set it in the collections that extend it
            /references: an abstract collection cannot have `references`: set it in the collections that extend it
            /query: an abstract collection cannot have `query`: set it in the collections that extend it
            /schema: an abstract collection cannot have `schema`: set it in the collections that extend it"#]],
    );
    refused(
        json!({"collection": "a", "abstract": true, "identity": ["/id"], "extends": [{"collection": "b", "identity": {"/x": "/id"}}]}),
        expect!["/extends/0/identity: `/x` is not a path of this collection's identity"],
    );
}

#[test]
fn the_schema_is_refused_at_its_place() {
    refused(
        json!({"collections": [{"collection": "a", "identity": ["/id"], "schema": {"properties": {"x": {"$ref": "http://a/b"}}}}]}),
        expect![
            "/collections/0/schema/properties/x/$ref: `http://a/b` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema"
        ],
    );
}

#[test]
fn definitions_fit_together() {
    let mut file = flights();
    file["collections"][0]["references"] = json!([
        {"name": "a", "to": "nowhere", "paths": {"/origin": "/faa"}},
        {"name": "b", "to": "airports", "paths": {"/origin": "/iata"}},
        {"name": "c", "to": "planes", "paths": {"/origin": "/tail"}},
        {"name": "d", "to": "airports", "paths": {"/number": "/faa"}},
        {"name": "e", "to": "journeys", "paths": {"/number": "/id"}},
        {"name": "f", "to": "airports", "paths": {"/origin": "/faa", "/carrier": "/more"}},
        {"name": "g", "to": "flights", "paths": {"/date": "/date", "/carrier": "/carrier", "/number": "/number", "/delay": "/hour"}},
    ]);
    file["collections"][0]["extends"] = json!([
        {"collection": "nowhere", "identity": {"/flight": "/id"}},
        {"collection": "airports", "identity": {"/flight": "/faa"}},
        {"collection": "journeys", "identity": {"/flight": "/name"}},
    ]);
    unfit(
        file,
        expect![[r#"
            /collections/0/references/0/to: there is no collection `nowhere`
            /collections/0/references/1/paths: the identity of `airports` is `/faa`: map exactly these paths
            /collections/0/references/2/paths: the identity of `planes` is `/tail`, `/maker`: map exactly these paths
            /collections/0/references/3/paths/~1number: `/number` is an integer, but `/faa` of `airports` is a string
            /collections/0/references/5/paths: the identity of `airports` is `/faa`: map exactly these paths
            /collections/0/references/6/paths/~1delay: `/delay` is a number, but `/hour` of `flights` is an integer
            /collections/0/extends/0/collection: there is no collection `nowhere`
            /collections/0/extends/1/collection: collection `airports` is not abstract: only abstract collections can be extended
            /collections/0/extends/2/identity: the identity of `journeys` is `/id`: map exactly these paths"#]],
    );
    let airports = flights()["collections"][1].clone();
    unfit(
        json!({"collections": [airports, airports]}),
        expect!["/collections/1/collection: collection `airports` occurs twice"],
    );
}

#[test]
fn cyclic_extensions_are_rejected() {
    let one = |name: &str, extends: &str| json!({"collection": name, "abstract": true, "identity": ["/id"], "extends": [{"collection": extends, "identity": {"/id": "/id"}}]});
    unfit(
        json!({"collections": [one("a", "b"), one("b", "c"), one("c", "a")]}),
        expect![[r#"
        /collections/0/extends: `a` would extend itself
        /collections/1/extends: `b` would extend itself
        /collections/2/extends: `c` would extend itself"#]],
    );
    unfit(one("a", "a"), expect!["/extends: `a` would extend itself"]);
    let top = json!({"collection": "top", "abstract": true, "identity": ["/id"]});
    let two = json!({"collection": "two", "abstract": true, "identity": ["/x", "/y"], "extends": [
        {"collection": "left", "identity": {"/x": "/id"}}, {"collection": "right", "identity": {"/y": "/id"}},
    ]});
    unfit(
        json!({"collections": [top, one("left", "top"), one("right", "top"), two]}),
        expect!["/collections/3/extends: it would extend `top` with two different identities"],
    );
    let chain: Vec<Value> =
        (0..9).map(|number| one(&format!("s{number}"), &format!("s{}", number + 1))).collect();
    let mut all = chain;
    all.push(json!({"collection": "s9", "abstract": true, "identity": ["/id"]}));
    unfit(
        json!({"collections": all}),
        expect![
            "/collections/0/extends: it would extend more than 8 abstract collections (`extends_max`)"
        ],
    );
}

#[test]
fn supers_are_reached_through_others() {
    let file = json!({"collections": [
        {"collection": "things", "abstract": true, "identity": ["/name"]},
        {"collection": "journeys", "abstract": true, "identity": ["/from", "/id"], "extends": [{"collection": "things", "identity": {"/id": "/name"}}]},
        {"collection": "named", "abstract": true, "identity": ["/n"], "extends": [{"collection": "things", "identity": {"/n": "/name"}}]},
        {
            "collection": "trains", "identity": ["/train"],
            "extends": [{"collection": "journeys", "identity": {"/train": "/id", "/start": "/from"}}, {"collection": "named", "identity": {"/train": "/n"}}],
            "schema": {"required": ["train", "start"], "properties": {"train": {"type": "integer"}, "start": {"type": "string"}}},
        },
    ]});
    let all = definitions(&file);
    let trains = all.get(&name("trains")).unwrap();
    let supers: Vec<String> = all
        .abstract_scopes(trains)
        .unwrap()
        .iter()
        .map(|one| format!("{} {:?}", one.collection, one.paths))
        .collect();
    expect![[r#"
        journeys [Path(/start), Path(/train)]
        things [Path(/train)]
        named [Path(/train)]"#]]
    .assert_eq(&supers.join("\n"));
}

#[test]
fn existing_definitions_are_checked_against_new_ones() {
    let all = definitions(&flights());
    let changed = json!({"collection": "airports", "identity": ["/code"], "schema": {"required": ["code"], "properties": {"code": {"type": "integer"}}}});
    expect![[r#"
        existing collection `flights`, at `/references/0/paths`: the identity of `airports` is `/code`: map exactly these paths
        existing collection `flights`, at `/references/2/paths`: the identity of `airports` is `/code`: map exactly these paths"#]].assert_eq(&lines(all.with(given(&changed)).unwrap_err()));
    let changed = json!({"collection": "airports", "identity": ["/faa"], "schema": {"required": ["faa"], "properties": {"faa": {"type": "integer"}}}});
    expect![[r#"
        existing collection `flights`, at `/references/0/paths/~1origin`: `/origin` is a string, but `/faa` of `airports` is an integer
        existing collection `flights`, at `/references/2/paths/~1stops~1*~1airport`: `/stops/*/airport` is a string, but `/faa` of `airports` is an integer"#]].assert_eq(&lines(all.with(given(&changed)).unwrap_err()));
    expect![[r#"
        existing collection `flights`, at `/references/0/to`: there is no collection `airports`
        existing collection `flights`, at `/references/2/to`: there is no collection `airports`"#]]
    .assert_eq(&lines(all.without(&name("airports")).unwrap_err()));
    expect!["existing collection `flights`, at `/extends/0/collection`: there is no collection `journeys`"].assert_eq(&lines(all.without(&name("journeys")).unwrap_err()));
    let left = all.without(&name("flights")).unwrap();
    assert_eq!(left.iter().count(), 3);
    assert_eq!(left.without(&name("airports")).unwrap().iter().count(), 2);
    // Nothing of an inconsistent file was accepted.
    assert_eq!(all, definitions(&flights()));
}

/// Puts a value at a place in another one, which is chosen by numbers.
fn spoil(value: &mut Value, way: &[usize], with: &Value) {
    let next = match (way.split_first(), value) {
        (Some((at, rest)), Value::Object(all)) if !all.is_empty() => {
            let at = at % all.len();
            all.values_mut().nth(at).map(|next| (next, rest))
        }
        (Some((at, rest)), Value::Array(all)) if !all.is_empty() => {
            let at = at % all.len();
            all.get_mut(at).map(|next| (next, rest))
        }
        (_, value) => {
            *value = with.clone();
            return;
        }
    };
    if let Some((next, rest)) = next {
        spoil(next, rest, with);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A damaged definition is rejected; one that is accepted nevertheless is read again from its
    /// stored form.
    #[test]
    fn a_spoilt_definition_is_refused_or_holds(
        way in prop::collection::vec(any::<usize>(), 1..8),
        with in prop::sample::select(vec![
            json!(null), json!(-1), json!(1e300), json!(true), json!(""), json!("/"), json!("/a"), json!("/*"), json!("flights"), json!("airports"),
            json!([]), json!({}), json!(["/faa"]), json!({"$ref": "#"}), json!({"$ref": "#/properties/x"}), json!({"type": "string", "pattern": "(a+)+$"}),
            json!("A name"), json!([[]]), json!({"/origin": "/faa"}),
        ]),
        cut in any::<usize>(),
    ) {
        let mut file = flights();
        spoil(&mut file, &way, &with);
        let text = file.to_string();
        let mut end = cut % text.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        prop_assert!(parse(&text.as_bytes()[..end]).is_err());
        let Ok(given) = parse(text.as_bytes()) else { return Ok(()) };
        for one in &given {
            prop_assert_eq!(&parse_stored(one.definition.source.clone()).unwrap(), &one.definition);
        }
        if let Ok(all) = Definitions::default().with(given) {
            for definition in all.iter() {
                prop_assert!(crate::core::collection::Collection::compile(&all, definition).is_ok());
            }
        }
    }
}
