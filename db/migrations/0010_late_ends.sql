-- Ends of copies that were stamped late: rater itself had not run (stopped, without a CPU, or the
-- whole machine paused) for longer than 0.1 s and 1 % of the copy's time. The true end lies up to so
-- long before finish_ns. Such a copy is 'failed': it may have ended well, its time is not known.
ALTER TABLE copy ADD COLUMN late_ns INTEGER;  -- NULL: stamped in time
