-- Misses of stores apart from those of loads: a store waits in a buffer, and nothing waits for it.
-- NULL: a trace of an older rater, which did not tell them apart.
ALTER TABLE page_mapping ADD COLUMN store_l1_misses INTEGER;  -- of l1_misses
ALTER TABLE page_mapping ADD COLUMN store_walks INTEGER;      -- of walks
