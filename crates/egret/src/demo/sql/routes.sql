SELECT r.origin, a.name AS destination, r.flights
FROM (SELECT origin, dest, count(*) AS flights FROM flights GROUP BY origin, dest) AS r
JOIN airports AS a ON a.faa = r.dest
