SELECT jsonb_strip_nulls(jsonb_build_object(
    'date', make_date(year, month, day), 'carrier', carrier, 'flight', flight, 'hour', hour, 'tailnum', coalesce(tailnum, 'unknown'),
    'origin', origin, 'dest', dest, 'dep_delay', dep_delay, 'arr_delay', arr_delay, 'distance', distance))::text
FROM flights
