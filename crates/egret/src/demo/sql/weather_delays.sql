SELECT flights.origin,
       CASE WHEN visib < 2 THEN 'fog' WHEN precip > 0 THEN 'rain' WHEN wind_speed > 20 THEN 'wind' ELSE 'fair' END AS weather,
       count(*) AS flights, round(avg(dep_delay), 2) AS delay, count(*) FILTER (WHERE dep_delay > 60) AS late
FROM flights JOIN weather ON weather.origin = flights.origin AND weather.time_hour = flights.time_hour
GROUP BY 1, 2
