# Orders by city, month and product, and the words of the notes: associative arrays and fields.
# `rounds` times through the one file that is given.
BEGIN {
    FS = ","
    for (ARGC = 2; ARGC <= rounds; ARGC++)
        ARGV[ARGC] = ARGV[1]
}

{
    cents = $6 * $7
    total += cents
    month = substr($2, 1, 7)
    by_city[$4] += cents
    by_month[month] += cents
    by_cell[$4 " " month] += $6
    if (cents > best[$5]) {
        best[$5] = cents
        best_id[$5] = $1
    }
    count = split($8, words, " ")
    for (i = 1; i <= count; i++) {
        seen[words[i]]++
        letters += length(words[i])
    }
    if ($8 ~ /^(s[aeiou]|t[^r]).*ou.* [^ ]*l$/)
        matched++
    gsub(/[aeiou]+/, "-", $8)
    rest += length($8)
}

END {
    for (key in by_city) cities++
    for (key in by_cell) { cells++; units += by_cell[key] }
    for (key in best_id) ids = (ids + best_id[key]) % 1000003
    for (key in seen) if (seen[key] == 1) once++
    printf "orders %d cents %.0f\n", NR, total
    printf "cities %d cells %d units %d\n", cities, cells, units
    printf "january %.0f december %.0f\n", by_month["2026-01"], by_month["2026-12"]
    printf "best %d words once %d letters %d matched %d rest %d\n", ids, once, letters, matched, rest
}
