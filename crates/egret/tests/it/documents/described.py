"""What a client that makes requests up has to know beside the published document, and what it looks at beyond its own checks.

schemathesis loads this file by SCHEMATHESIS_HOOKS.
"""

import itertools
import uuid

import jsonschema_rs
import schemathesis
from hypothesis import strategies


def version_7(number):
    number = number & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=number & ~(0b11 << 62) | 0b10 << 62))


# Ids of other versions are refused before anything is looked for.
ids = strategies.integers(min_value=0, max_value=2**128 - 1).map(version_7)
schemathesis.openapi.format("uuid", ids)


# Two conditions together are refused, one that is made up seldom holds, and a key is of one request: each comes with a part of the requests.
HEADERS = ["If-Match", "If-None-Match", "Idempotency-Key", None]
requests = itertools.count()


@schemathesis.hook
def before_call(ctx, case, kwargs):
    kept = HEADERS[next(requests) % len(HEADERS)]
    for header in HEADERS:
        if header is not None and header != kept and case.headers is not None:
            case.headers.pop(header, None)


@schemathesis.serializer("application/x-ndjson")
def lines(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def shape(operation, query):
    """What a document comes as, by what was asked for; the published schema has to allow for all of it."""
    document = "documents." + operation.split("_", 1)[1]
    if "embed" in query or str(query.get("meta")).lower() == "true":
        return document + ".Found"
    return None if "fields" in query else document


@schemathesis.check
def one_document_is_as_asked_for(ctx, response, case):
    operation = case.operation.definition.raw["operationId"]
    if not operation.startswith("get_") or response.status_code != 200:
        return
    component = shape(operation, case.query or {})
    if component is None:
        return
    schemas = case.operation.schema.raw_schema["components"]
    schema = {"$ref": f"#/components/schemas/{component}", "components": schemas}
    jsonschema_rs.Draft202012Validator(schema).validate(response.json())


@schemathesis.check
class EveryOperationSucceeds:
    """A run in which everything is refused looks at nothing."""

    def __init__(self):
        self.asked = set()
        self.answered = set()

    def after_response(self, ctx, response, case):
        self.asked.add(case.operation.label)
        if response.status_code < 300:
            self.answered.add(case.operation.label)

    def after_run(self, ctx):
        refused = sorted(self.asked - self.answered)
        assert not refused, "refused whatever was asked: " + ", ".join(refused)
