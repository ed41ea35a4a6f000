#!/bin/sh
# Stands for your program: smooths the numbers on standard input, one a line, ROUNDS times.
# usage: smooth.sh ROUNDS SETTINGS < NUMBERS
exec awk -v rounds="$1" -v settings="$2" '
function uptime_s(  line, part) {
  getline line < "/proc/uptime"
  close("/proc/uptime")
  split(line, part, " ")
  return part[1]
}
BEGIN {
  began = uptime_s()
  while ((getline line < settings) > 0)
    if (split(line, part, " = ") == 2) setting[part[1]] = part[2] + 0
}
{ x[NR] = $1 + 0 }
END {
  if (NR < 3 || !("keep" in setting)) {
    print "smooth.sh: too few numbers, or no `keep` in the settings" > "/dev/stderr"
    exit 1
  }
  keep = setting["keep"]
  share = (1 - keep) / 2
  for (round = 0; round < rounds; round++) {
    before = x[1]
    for (i = 2; i < NR; i++) {
      here = x[i]
      x[i] = keep * here + share * (before + x[i + 1])
      before = here
    }
  }
  for (i = 1; i <= NR; i++) {
    sum += x[i]
    step = i > 1 ? x[i] - x[i - 1] : 0
    rough += step * step
  }
  elapsed = uptime_s() - began
  if (elapsed <= 0) elapsed = 0.01
  printf "numbers %d rounds %d\n", NR, rounds
  printf "mean %.12g\n", sum / NR
  printf "roughness %.12g\n", rough / NR
  printf "elapsed %.2f s\n", elapsed
  printf "speed %.4f\n", rounds * (NR - 2) / elapsed / 1e6
}'
