SELECT md5(string_agg(line, E'\n' ORDER BY line))
FROM (
    SELECT format('relation %s %s %s %s %s', c.oid::regclass, relkind, relowner::regrole, relacl, reloptions) AS line
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname <> 'information_schema' AND nspname !~ '^pg_'
  UNION ALL
    SELECT format('column %s %s %s %s %s %s', attrelid::regclass, attname, atttypid::regtype, atttypmod, attnotnull,
                  (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum))
    FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
    WHERE attnum > 0 AND NOT attisdropped AND nspname <> 'information_schema' AND nspname !~ '^pg_'
  UNION ALL
    SELECT format('constraint %s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
  UNION ALL
    SELECT format('index %s', pg_get_indexdef(indexrelid)) FROM pg_index
  UNION ALL
    SELECT format('routine %s %s', p.oid::regprocedure, md5(prosrc)) FROM pg_proc p
  UNION ALL
    SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger
  UNION ALL
    SELECT format('type %s %s', oid::regtype, typowner::regrole) FROM pg_type
  UNION ALL
    SELECT format('schema %s %s %s', nspname, nspowner::regrole, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'
  UNION ALL
    SELECT format('view %s %s', c.oid::regclass, pg_get_viewdef(c.oid)) FROM pg_class c
    JOIN pg_namespace n ON n.oid = relnamespace
    WHERE relkind IN ('v', 'm') AND nspname <> 'information_schema' AND nspname !~ '^pg_'
) AS lines
