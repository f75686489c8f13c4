ALTER TABLE template ADD COLUMN superuser INTEGER NOT NULL DEFAULT 0;
-- What is known of earlier ones: their branches may be gone.
UPDATE template SET superuser = 1 WHERE origin_branch IN (SELECT id FROM branch WHERE superuser);
