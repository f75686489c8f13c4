-- The rows of change set $2 of view $1 that come after place $3, of $4 at most so many as have $5 bytes, and one at least.
SELECT sized.weight, sized.content
FROM (
    SELECT page.place, page.weight, page.content,
           sum(octet_length(page.content)) OVER (ORDER BY page.place) - octet_length(page.content) AS before
    FROM (
        SELECT change.place, change.weight, change.content::text AS content
        FROM egret.view_change AS change
        WHERE change.view = $1 AND change.sequence = $2 AND change.place > $3
        ORDER BY change.place
        LIMIT $4
    ) AS page
) AS sized
WHERE sized.before < $5
ORDER BY sized.place
