-- Flights whose plane or destination the other files lack; 2,512 of them report no plane at all.
SELECT
    count(*) FILTER (WHERE plane_tailnum IS NULL) AS without_plane,
    count(*) FILTER (WHERE dest_faa IS NULL) AS without_airport
FROM flights
