-- A run that others disturbed is judged by CPU time where that may judge.
ALTER TABLE divot_search ADD COLUMN cpu_others_took REAL;  -- share of the copies' time; NULL: elapsed time judges
ALTER TABLE divot_search ADD COLUMN cpu_noise_cost REAL;   -- of the score by CPU time, what noise alone cost
ALTER TABLE divot_search ADD COLUMN not_by_cpu TEXT;       -- why CPU time does not judge a disturbed run
