"""Everything psycopg does that a proxy could get wrong; prints one line for each thing done."""

import os
import threading

import psycopg

conninfo = os.environ["CONNINFO"]

with psycopg.connect(conninfo, autocommit=True) as session:
    row = session.execute("select %s::int + 1, %s::text, %s::bytea", (41, "ü", b"\x00\xff")).fetchone()
    assert row == (42, "ü", b"\x00\xff"), row
    for number in range(10):
        assert session.execute("select %s::int", (number,), prepare=True).fetchone() == (number,)
    assert session.execute("select count(*) from pg_prepared_statements").fetchone()[0] >= 1
    print("prepared statements")

    with session.pipeline():
        cursors = [session.execute("select %s::int", (number,)) for number in range(100)]
        assert [cursor.fetchone()[0] for cursor in cursors] == list(range(100))
    print("pipeline")

    session.execute("create table item (id int, body text)")
    with session.cursor().copy("copy item from stdin") as copy:
        for number in range(50_000):
            copy.write_row((number, "x" * 100))
    with session.cursor().copy("copy item to stdout") as copy:
        assert sum(1 for _ in copy.rows()) == 50_000
    try:
        with session.cursor().copy("copy item from stdin") as copy:
            copy.write(b"not a number\tx\n")
    except psycopg.errors.InvalidTextRepresentation:
        pass
    print("copy")

    big = session.execute("select repeat('x', 50000000)").fetchone()[0]
    assert len(big) == 50_000_000
    assert len(session.execute("select generate_series(1, 300000)").fetchall()) == 300_000
    with session.transaction(), session.cursor(name="walk") as walk:
        walk.execute("select generate_series(1, 10000)")
        assert sum(1 for _ in walk) == 10_000
    print("big results")

    try:
        session.execute("select * from nowhere")
    except psycopg.errors.UndefinedTable as error:
        assert error.diag.statement_position == "15", error.diag.statement_position
    print("errors")

with psycopg.connect(conninfo, autocommit=True) as listener:
    listener.execute("listen news")
    with psycopg.connect(conninfo, autocommit=True) as speaker:
        speaker.execute("notify news, 'rain'")
    for note in listener.notifies(stop_after=1):
        assert (note.channel, note.payload) == ("news", "rain"), note
    print("notifications")

with psycopg.connect(conninfo + " application_name=sleeper", autocommit=True) as sleeper:
    with psycopg.connect(conninfo, autocommit=True) as watcher:

        def cancel():
            running = (
                "select 1 from pg_stat_activity"
                " where application_name = 'sleeper' and wait_event = 'PgSleep'"
            )
            while watcher.execute(running).fetchone() is None:
                pass
            sleeper.cancel_safe()

        other = threading.Thread(target=cancel)
        other.start()
        try:
            sleeper.execute("select pg_sleep(600)")
        except psycopg.errors.QueryCanceled:
            print("cancel")
        other.join()
    assert sleeper.execute("select 1").fetchone() == (1,)

for wrong, state in [("password=wrong", "28P01"), ("dbname=app@pr-43", "28P01"), ("dbname=app", "3D000")]:
    try:
        psycopg.connect(conninfo + " " + wrong)
    except psycopg.OperationalError as error:
        assert {"28P01": "password authentication failed", "3D000": "branch"}[state] in str(error), error
print("refusals")

# A libpq of 18 or newer asks for 3.2 and is talked down to 3.0.
if psycopg.pq.version() >= 180000:
    with psycopg.connect(conninfo + " max_protocol_version=latest") as session:
        assert session.execute("select 1").fetchone() == (1,)
print("version")
