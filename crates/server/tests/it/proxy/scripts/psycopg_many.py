"""Fifty sessions at once, each with a statement that waits until all fifty are there."""

import os
import threading

import psycopg

SESSIONS = 50
conninfo = os.environ["CONNINFO"]
together = threading.Barrier(SESSIONS)
sums = []


def work(number):
    with psycopg.connect(conninfo, autocommit=True) as session:
        together.wait()
        query = "select sum(i * %s) from generate_series(1, 1000) i"
        sums.append(session.execute(query, (number,)).fetchone()[0])
        together.wait()


threads = [threading.Thread(target=work, args=(number,)) for number in range(SESSIONS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(sums) == [500_500 * number for number in range(SESSIONS)], sums
print(len(sums))
