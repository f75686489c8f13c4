SELECT carrier || f.flight AS flight, f.origin || '-' || dest AS route, arr_delay, distance,
       p.year AS built, w.wind_speed, w.visib, w.precip
FROM flights AS f
LEFT JOIN planes AS p ON p.tailnum = plane_tailnum
LEFT JOIN weather AS w ON w.origin = f.origin AND w.time_hour = f.time_hour
WHERE flight_id = $1
