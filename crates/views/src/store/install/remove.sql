-- Removes what the migrations have made.
DROP FUNCTION egret.create_view, egret.drop_view, egret.refresh, egret.request_done, egret.freshness, egret.change_sequence, egret.request_view,
    egret.view_name, egret.view_settings, egret.waiting_changes, egret.changes_lost, egret.view_incarnation, egret.view_place,
    egret.require_live_view, egret.view_is_live, egret.immediate_stamp, egret.view_dependency_versions, egret.refuse_write;
DROP FUNCTION IF EXISTS egret.run_as_views(text, text, text), egret.explain_as_views(text, text, text),
    egret.tell_as_views(text), egret.probe_as_views(text), egret.refuse_leftovers();
DROP TABLE egret.view_change, egret.view_change_set, egret.view_handed_over, egret.view_incarnation, egret.view_request, egret.view_refresh, egret.view_statement, egret.view_table, egret.view_capture, egret.view;
DROP AGGREGATE IF EXISTS egret.any_value(anyelement);
DROP FUNCTION IF EXISTS egret.any_value_step;
