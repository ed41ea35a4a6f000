-- What `rater sweep --until` is asked of: copies an hour, or joules a copy.
ALTER TABLE sweep ADD COLUMN until_of TEXT NOT NULL DEFAULT 'time'
  CHECK (until_of IN ('time', 'energy'));

-- Resident memory of a copy and the processes below it, looked at once a second (hugetlb pages
-- included, which max_rss_bytes is without): mean and highest of so many looks; NULL: not looked at.
ALTER TABLE copy ADD COLUMN mean_rss_bytes INTEGER;
ALTER TABLE copy ADD COLUMN peak_rss_bytes INTEGER;
ALTER TABLE copy ADD COLUMN rss_looks INTEGER;
