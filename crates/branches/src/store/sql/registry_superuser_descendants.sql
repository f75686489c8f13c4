-- Branches that were made of superusers' branches before that was noted: their copies hold the same roles.
WITH RECURSIVE holder (branch) AS (
    SELECT id FROM branch WHERE superuser
    UNION
    SELECT branch.id
      FROM holder
      JOIN template ON template.origin_branch = holder.branch
      JOIN branch ON branch.template = template.id
)
UPDATE branch SET superuser = 1 WHERE id IN (SELECT branch FROM holder);
-- A template's origin may be gone while branches of it are there.
UPDATE branch SET superuser = 1 WHERE template IN (SELECT id FROM template WHERE superuser);
UPDATE template SET superuser = 1 WHERE origin_branch IN (SELECT id FROM branch WHERE superuser);
