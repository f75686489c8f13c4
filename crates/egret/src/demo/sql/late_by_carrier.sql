SELECT carrier, month, count(*) AS flights, avg(dep_delay) AS delay FROM flights GROUP BY carrier, month
