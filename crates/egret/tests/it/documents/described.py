"""How a client that makes requests up comes to meaningful ones, and what it looks at beyond its own checks.

schemathesis loads this file by SCHEMATHESIS_HOOKS.
"""

import itertools
import json
import uuid
from collections import defaultdict

import jsonschema_rs
import schemathesis
from hypothesis import strategies

# Of each collection: documents that are there and that are gone, as keys, and what was taken as one.
there = defaultdict(dict)
gone = defaultdict(dict)
taken = {}

# Two conditions together are refused, one that is made up seldom holds, and a key is of one request: each comes with a part of the requests.
HEADERS = ["If-Match", "If-None-Match", "Idempotency-Key", None]
requests = itertools.count()


def collection(case):
    """`airports` of `/v1/documents/airports/{id}`."""
    return case.operation.path.split("/")[3]


def version_7(number):
    number = number & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=number & ~(0b11 << 62) | 0b10 << 62))


# Ids of other versions are refused before anything is looked for.
ids = strategies.integers(min_value=0, max_value=2**128 - 1).map(version_7)
schemathesis.openapi.format("uuid", ids)


@schemathesis.hook
def before_call(ctx, case, kwargs):
    phase = case.meta.phase if case.meta else None
    tried = getattr(phase.data, "parameter", None) if phase else None
    if tried == "Authorization":
        return
    number = next(requests)
    kept = tried if tried in HEADERS else HEADERS[number % len(HEADERS)]
    for header in HEADERS:
        if header is not None and header != kept and case.headers:
            case.headers.pop(header, None)
    # An identity is asked for alone, and seldom one that is made up is there.
    if tried != "identity" and case.query:
        case.query.pop("identity", None)
    # Steps that follow from each other are about one document.
    is_alone = phase is not None and phase.name.value != "stateful"
    if is_alone and tried not in ("id", "version") and number % 5 and case.path_parameters:
        case.path_parameters["id"] = known(case, number)
    references = [one["schema"]["items"]["enum"] for one in case.operation.definition.raw["parameters"] if one.get("name") == "embed"]
    if is_alone and tried is None and references and number % 2:
        case.query = {**(case.query or {}), "embed": ",".join(references[0])}


def known(case, number):
    """A document that there is something to be done with, if there is one."""
    documents = there[collection(case)]
    if case.operation.path.endswith("/restore"):
        if number % 2:
            documents = gone[collection(case)]
        else:
            case.query = {**(case.query or {}), "version": 1}
    return list(documents)[number % len(documents)] if documents else case.path_parameters["id"]


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    """Lines that are made up, and one that was taken as a document before."""
    text = value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")
    document = taken.get(collection(ctx.case))
    return text if document is None else text + b"\n" + json.dumps(document).encode()


def component(case):
    """The schema of one document, by what was asked for: the one that is published has to allow for all of it."""
    query = case.query or {}
    if "embed" in query or str(query.get("meta")).lower() == "true":
        return f"documents.{collection(case)}.Found"
    return "documents.Part" if "fields" in query else f"documents.{collection(case)}"


@schemathesis.check
def one_document_is_as_asked_for(ctx, response, case):
    if case.operation.label.startswith("GET") and case.operation.path.endswith("/{id}") and response.status_code == 200:
        schemas = case.operation.schema.raw_schema["components"]
        schema = {"$ref": f"#/components/schemas/{component(case)}", "components": schemas}
        jsonschema_rs.Draft202012Validator(schema).validate(response.json())
        # What is embedded changes by itself.
        assert ("etag" in response.headers) == ("embed" not in (case.query or {}))


@schemathesis.check
class EveryOperationSucceeds:
    """A run in which everything is refused looks at nothing."""

    def __init__(self):
        self.asked = set()
        self.answered = set()

    def after_response(self, ctx, response, case):
        self.asked.add(case.operation.label)
        if response.status_code >= 300:
            return
        self.answered.add(case.operation.label)
        name = collection(case) if "/v1/documents/" in case.operation.path else None
        if name and case.method == "POST":
            written = response.json()["id"]
            there[name][written] = gone[name].pop(written, None)
            taken.setdefault(name, case.body)
        elif name and case.method == "DELETE":
            written = case.path_parameters["id"]
            gone[name][written] = there[name].pop(written, None)

    def after_run(self, ctx):
        refused = sorted(self.asked - self.answered)
        assert not refused, "refused whatever was asked: " + ", ".join(refused)
