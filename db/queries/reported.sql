-- What does a result file of SPEC CPU say of every bracket, and what do its times come to? The last
-- imported one, or :run (.parameter set :run 7).
SELECT
  bracket.phase, bracket.benchmark, bracket.tune, bracket.iteration, spec_result.copies,
  bracket_result.good_copies, spec_result.reported_s, spec_result.reference_s,
  spec_result.ratio AS ratio_in_file, bracket_result.ratio AS ratio_worked_out,
  spec_result.selected, spec_result.valid, spec_result.errors
FROM spec_result
JOIN bracket ON bracket.run_id = spec_result.run_id AND bracket.phase = spec_result.phase
LEFT JOIN bracket_result
  ON bracket_result.run_id = spec_result.run_id AND bracket_result.phase = spec_result.phase
WHERE spec_result.run_id = coalesce(:run, (SELECT max(run_id) FROM spec_file))
ORDER BY bracket.phase;
