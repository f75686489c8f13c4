-- Views with change sets of which tasks are to be made.
SELECT kept.id, kept.schema::text, kept.name::text, kept.queue, handed.sequence AS handed_over
FROM egret.view_handed_over AS handed
JOIN egret.view AS kept ON kept.id = handed.view
WHERE kept.queue IS NOT NULL AND kept.sequence > handed.sequence
ORDER BY kept.id
