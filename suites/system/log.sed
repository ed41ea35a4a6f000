# Takes log lines apart and puts them together in another order; prints a few of the results.
s/^([0-9]+)-([0-9]+)-([0-9]+)T([^.]*)\.([0-9]+) /\3.\2.\1 \4,\5 /
s/ web-0*([0-9]+) ([a-z]+)\[([0-9]+)\]: / \2@\1 (\3) /
s/10\.([0-9]+)\.([0-9]+)\.([0-9]+)/\3.\2.\1.in-addr/g
/"GET /{
    s/"GET ([^?"]*)\?([^=]*)=([0-9]+) HTTP\/1\.1"/<\1 \2:\3>/
    y/abcdefghijklm/nopqrstuvwxyz/
}
/slow query/{
    s/select ([^,]*), ([^ ]*) from/select \2, \1 from/
    h
}
/session opened/{
    G
    s/\n/ | /
}
/[13579]77[ >]/p
