-- For the loading transaction only: where its names stand, and memory for the sorts of its indexes.
SET LOCAL search_path = public;
SET LOCAL maintenance_work_mem = '128MB';
