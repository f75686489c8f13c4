-- The plans of the statements of a refresh, where they were asked for.
ALTER TABLE egret.view_refresh ADD COLUMN plans text;
