SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace('egret'))
     + (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace('egret'))
