//! What is published of declared collections is so: a client that makes requests up from it is answered as it says.

use std::path::Path;
use std::process::Command;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Door, beside};
use crate::clients::installed;
use crate::place::{Place, text};

/// Few values name documents, so that those that are made up often refer to some that are there.
const COLLECTIONS: &str = r##"{"collections": [
    {"collection": "places", "abstract": true, "identity": ["/code"]},
    {"collection": "airports", "identity": ["/faa"], "identity_mutable": true, "query": ["/name", "/altitude", "/open"],
        "history": {"versions": 3, "deleted": true}, "extends": [{"collection": "places", "identity": {"/faa": "/code"}}],
        "schema": {"type": "object", "required": ["faa"], "additionalProperties": false, "properties": {
            "faa": {"type": "string", "enum": ["EWR", "JFK", "LAX"]}, "name": {"type": ["string", "null"], "maxLength": 40},
            "altitude": {"type": "number", "minimum": -500, "maximum": 9000}, "open": {"type": "boolean"}}}},
    {"collection": "planes", "identity": ["/tail"], "query": ["/seats"],
        "schema": {"type": "object", "required": ["tail"], "properties": {
            "tail": {"enum": ["N1", "N2"], "type": "string"}, "seats": {"type": "integer"}}}},
    {"collection": "flights", "identity": ["/carrier", "/number"], "query": ["/origin", "/delay", "/day"], "history": {"versions": 2},
        "references": [
            {"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}},
            {"name": "plane", "to": "planes", "paths": {"/plane/tail": "/tail"}},
            {"name": "stops", "to": "places", "paths": {"/stops/*/place": "/code"}}],
        "schema": {"type": "object", "required": ["carrier", "number", "origin"], "properties": {
            "carrier": {"type": "string", "enum": ["B6", "UA"]}, "number": {"type": "integer", "minimum": 1, "maximum": 20},
            "origin": {"$ref": "#/$defs/code"}, "delay": {"type": ["number", "null"]}, "day": {"type": "string", "format": "date"},
            "plane": {"type": "object", "properties": {"tail": {"type": "string", "enum": ["N1", "N2"]}}},
            "stops": {"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {"place": {"$ref": "#/$defs/code"}}}}},
            "$defs": {"code": {"type": "string", "enum": ["EWR", "JFK", "LAX"]}}}}]}"##;

/// What the client is told beside the document: the same requests each time, as far as ids allow for that, and nothing remembered.
const SETTINGS: &str = r#"
seed = 1
[cache]
enabled = false
[generation]
max-examples = 20
database = "none"
"#;

/// Seconds that the client may take.
const SECONDS_MAX: &str = "400";
