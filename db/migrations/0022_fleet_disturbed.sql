-- Of the score of a host's run, what work of others cost. NULL: not known, or an older rater.
ALTER TABLE fleet_run ADD COLUMN others_cost REAL;
