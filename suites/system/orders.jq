# Orders as objects: paths, conditions, strings, arrays, a few of them printed.
(.ordered.quantity * .ordered.cents) as $cents
| (.note | split(" ")) as $words
| {
    id,
    month: (.day | split("-") | .[1] | tonumber),
    where: (.customer.city | ascii_upcase),
    sold: "\(.ordered.quantity) \(.ordered.product)",
    cents: (if .ordered.quantity > 10 then $cents - ($cents / 10 | floor) else $cents end),
    words: ($words | map(select(length > 3)) | sort),
    letters: ($words | map(length) | add)
  }
| select((.id + .cents + .letters) % 97 == 0)
