SELECT origin, dest, count(*) AS flights, round(avg(dep_delay)) AS delay FROM flights
GROUP BY origin, dest HAVING count(*) > 100 ORDER BY round(avg(dep_delay)) DESC NULLS LAST, origin, dest LIMIT 5
