-- The five tables without keys: rows are copied in first and checked and indexed at once after.
-- Units are those of the source: minutes, miles, feet, degrees Fahrenheit, miles per hour.

CREATE TABLE airlines (
    carrier text NOT NULL,
    name text NOT NULL
);

CREATE TABLE airports (
    faa text NOT NULL,
    name text NOT NULL,
    lat double precision NOT NULL,
    lon double precision NOT NULL,
    alt integer NOT NULL,
    tz smallint NOT NULL,
    dst text NOT NULL,
    tzone text
);

CREATE TABLE planes (
    tailnum text NOT NULL,
    year smallint,
    type text NOT NULL,
    manufacturer text NOT NULL,
    model text NOT NULL,
    engines smallint NOT NULL,
    seats smallint NOT NULL,
    speed smallint,
    engine text NOT NULL
);

CREATE TABLE weather (
    origin text NOT NULL,
    year smallint NOT NULL,
    month smallint NOT NULL,
    day smallint NOT NULL,
    hour smallint NOT NULL,
    temp real,
    dewp real,
    humid real,
    wind_dir smallint,
    wind_speed real,
    wind_gust real,
    precip real NOT NULL,
    pressure real,
    visib real NOT NULL,
    time_hour timestamptz NOT NULL
);

CREATE TABLE flights (
    flight_id bigint GENERATED ALWAYS AS IDENTITY,
    year smallint NOT NULL,
    month smallint NOT NULL,
    day smallint NOT NULL,
    dep_time smallint,
    sched_dep_time smallint NOT NULL,
    dep_delay smallint,
    arr_time smallint,
    sched_arr_time smallint NOT NULL,
    arr_delay smallint,
    carrier text NOT NULL,
    flight integer NOT NULL,
    tailnum text,
    origin text NOT NULL,
    dest text NOT NULL,
    air_time smallint,
    distance smallint NOT NULL,
    hour smallint NOT NULL,
    minute smallint NOT NULL,
    time_hour timestamptz NOT NULL,
    plane_tailnum text,
    dest_faa text
);
