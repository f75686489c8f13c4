-- Keys and indexes over rows that are all there: one sort and one check each instead of one per row.

ALTER TABLE airlines ADD PRIMARY KEY (carrier);
ALTER TABLE airports ADD PRIMARY KEY (faa);
ALTER TABLE planes ADD PRIMARY KEY (tailnum);
ALTER TABLE weather ADD PRIMARY KEY (origin, time_hour);
ALTER TABLE flights ADD PRIMARY KEY (flight_id);

CREATE INDEX flights_carrier ON flights (carrier);
CREATE INDEX flights_plane_tailnum ON flights (plane_tailnum);
CREATE INDEX flights_origin_time_hour ON flights (origin, time_hour);
CREATE INDEX flights_dest_faa ON flights (dest_faa);

ALTER TABLE weather ADD FOREIGN KEY (origin) REFERENCES airports;
ALTER TABLE flights ADD FOREIGN KEY (carrier) REFERENCES airlines;
ALTER TABLE flights ADD FOREIGN KEY (plane_tailnum) REFERENCES planes;
ALTER TABLE flights ADD FOREIGN KEY (origin) REFERENCES airports;
ALTER TABLE flights ADD FOREIGN KEY (dest_faa) REFERENCES airports;
