-- The CPU time of the run that was not traced: savings are shares of it, not of time under load.
ALTER TABLE page_trace ADD COLUMN native_cpu_s REAL;
