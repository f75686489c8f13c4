-- What each table and each column that is not obvious means.

COMMENT ON TABLE airlines IS 'Airlines by their two-letter carrier code.';

COMMENT ON TABLE airports IS 'Airports by their FAA code.';
COMMENT ON COLUMN airports.alt IS 'Altitude in feet.';
COMMENT ON COLUMN airports.tz IS 'Time zone: offset from UTC in hours.';
COMMENT ON COLUMN airports.dst IS 'Daylight saving: A as in the United States, U unknown, N none.';
COMMENT ON COLUMN airports.tzone IS 'Time zone by its IANA name.';

COMMENT ON TABLE planes IS 'Planes by their tail number, from the register of the FAA.';
COMMENT ON COLUMN planes.year IS 'Year of manufacture.';
COMMENT ON COLUMN planes.speed IS 'Average cruising speed in miles per hour.';

COMMENT ON TABLE weather IS 'Hourly weather at the three airports of New York.';
COMMENT ON COLUMN weather.temp IS 'Temperature in degrees Fahrenheit.';
COMMENT ON COLUMN weather.dewp IS 'Dew point in degrees Fahrenheit.';
COMMENT ON COLUMN weather.humid IS 'Relative humidity in percent.';
COMMENT ON COLUMN weather.wind_dir IS 'Wind direction in degrees.';
COMMENT ON COLUMN weather.wind_speed IS 'Wind speed in miles per hour.';
COMMENT ON COLUMN weather.wind_gust IS 'Speed of gusts in miles per hour.';
COMMENT ON COLUMN weather.precip IS 'Precipitation in inches.';
COMMENT ON COLUMN weather.pressure IS 'Sea level pressure in millibars.';
COMMENT ON COLUMN weather.visib IS 'Visibility in miles.';

COMMENT ON COLUMN flights.dep_time IS 'Departure, local time as HHMM; null when the flight was cancelled.';
COMMENT ON COLUMN flights.sched_dep_time IS 'Scheduled departure, local time as HHMM.';
COMMENT ON COLUMN flights.dep_delay IS 'Departure delay in minutes; negative when early.';
COMMENT ON COLUMN flights.arr_time IS 'Arrival, local time as HHMM.';
COMMENT ON COLUMN flights.sched_arr_time IS 'Scheduled arrival, local time as HHMM.';
COMMENT ON COLUMN flights.arr_delay IS 'Arrival delay in minutes; negative when early.';
COMMENT ON COLUMN flights.tailnum IS 'Tail number as reported; null when none was.';
COMMENT ON COLUMN flights.plane_tailnum IS 'The plane, where planes has it: null for 52,606 flights.';
COMMENT ON COLUMN flights.dest IS 'FAA code of the destination as reported.';
COMMENT ON COLUMN flights.dest_faa IS 'The destination, where airports has it: null for 7,602 flights.';
COMMENT ON COLUMN flights.air_time IS 'Time in the air in minutes.';
COMMENT ON COLUMN flights.distance IS 'Distance in miles.';
COMMENT ON COLUMN flights.time_hour IS 'Hour of the scheduled departure.';
