-- How often rounds were added to a sweep; ../schema.sql says what all means.

ALTER TABLE sweep ADD COLUMN extended INTEGER NOT NULL DEFAULT 0;
