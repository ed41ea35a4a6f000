-- Where a copy's time went beside its CPU time. NULL: not known, or an older rater.
-- Runnable without a CPU, all threads together, and the CPU time of the threads it is known of.
ALTER TABLE copy ADD COLUMN run_delay_ns INTEGER;
ALTER TABLE copy ADD COLUMN run_delay_cpu_ns INTEGER;
-- Stopped by a signal or a debugger: a second for each look that saw it so.
ALTER TABLE copy ADD COLUMN stopped_ns INTEGER;
