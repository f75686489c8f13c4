-- The reader takes steps of indexes, whatever the server knows of a table that is empty one moment and large the next. The
-- estimates of skip scans are far too high, and would have each look compiled.
SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; SET max_parallel_workers_per_gather = 0
