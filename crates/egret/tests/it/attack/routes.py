"""What a client that makes requests up sends and checks.

schemathesis loads this file by SCHEMATHESIS_HOOKS.
"""

import schemathesis

# Answers that are as they should be: a limit that is reached, a part that is not there.
REFUSALS = {"overloaded", "part_failed", "limit_exceeded"}


@schemathesis.serializer("application/x-protobuf")
def message(ctx, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.check
def no_server_error(ctx, response, case):
    if response.status_code < 500:
        return
    try:
        code = response.json().get("code")
    except ValueError:
        code = None
    assert code in REFUSALS, f"{response.status_code} {code}: {response.text[:300]}"
