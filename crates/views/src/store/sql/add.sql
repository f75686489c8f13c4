-- Remembers a view with the settings that the values of expressions may depend on: $9, or those of this session.
INSERT INTO egret.view (schema, name, query, definition, owner, mode, schedule, indexes, settings, inlined, stamp, depends_on)
VALUES ($1, $2, $3, $4, coalesce($5, current_user), $6, $7, $8, coalesce($9, egret.view_settings(), ''), $10, $11, $12)
ON CONFLICT (schema, name) DO NOTHING
RETURNING id
