-- The PostgreSQL views that users read refuse writes: without this, PostgreSQL passes a write on to the table with the rows.
CREATE FUNCTION egret.refuse_write() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'cannot % view %.%: Egret keeps it equal to the result of its query',
        CASE TG_OP WHEN 'INSERT' THEN 'insert into' WHEN 'DELETE' THEN 'delete from' ELSE 'update' END,
        quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
        USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Write to the tables that the query of the view reads.';
END
$$;
COMMENT ON FUNCTION egret.refuse_write IS 'Refuses writes to the views that Egret keeps fresh.';
