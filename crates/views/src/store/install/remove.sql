-- Removes what the migrations have made.
DROP FUNCTION IF EXISTS egret.waiting_changes;
DROP TABLE egret.view_refresh, egret.view_table, egret.view_capture, egret.view;
DROP AGGREGATE IF EXISTS egret.any_value(anyelement);
DROP FUNCTION IF EXISTS egret.any_value_step;
