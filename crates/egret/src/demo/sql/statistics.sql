-- The planner should know the data before the first query, not after the first autovacuum.
ANALYZE airlines, airports, planes, weather, flights;
