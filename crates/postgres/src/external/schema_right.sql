SELECT current_user::text,
       current_database()::text,
       has_database_privilege(current_database(), 'CREATE'),
       to_regnamespace('egret') IS NOT NULL,
       coalesce((SELECT pg_has_role(nspowner, 'MEMBER') FROM pg_namespace WHERE nspname = 'egret'), false)
