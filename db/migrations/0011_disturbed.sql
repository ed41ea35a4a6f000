-- What disturbed a run, as shares of its score: from them it is told whether it can be judged.
ALTER TABLE divot_search ADD COLUMN others_cost REAL; -- of others' work; NULL: not recorded
ALTER TABLE divot_search ADD COLUMN noise_cost REAL;  -- of noise alone; NULL: copies do not wait for each other
