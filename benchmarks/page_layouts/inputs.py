"""Programs that people have, each with something to do that needs some memory."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PYTHON = """
d = {}
for i in range(300000):
    d['k%d' % i] = [i, str(i * 7)]
b = bytearray(40 << 20)
b[::4096] = b'x' * len(b[::4096])
print(sum(len(v[1]) + v[0] for v in d.values()), len(d), sum(b[::4096]))
"""
_SQL = """
CREATE TABLE t(a INTEGER, b TEXT, c REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO t SELECT i * 7919 % 1000003, 'row' || i || hex(i * 104729), i / 3.0 FROM n;
CREATE INDEX x ON t(b);
SELECT count(*), sum(a), max(b), round(sum(c), 3) FROM t;
"""
_PERL = (
    'my %h; for my $i (1..300000) { $h{"key$i"} = [$i, "v" . $i * 3]; } my $s = 0; '
    'for my $k (sort keys %h) { $s += $h{$k}[0]; } print "$s ", scalar(keys %h), "\\n";'
)
_TCL = """
for {set i 0} {$i < 200000} {incr i} { dict set d key$i [list $i [expr {$i * 3}]] }
set s 0
dict for {k v} $d { incr s [lindex $v 0] }
puts "$s [dict size $d]"
"""
_NODE = (
    "const m = new Map(); for (let i = 0; i < 300000; i++) m.set('k' + i, [i, String(i * 7)]); "
    "const b = Buffer.alloc(40 << 20, 7); let s = 0; for (const v of m.values()) s += v[0]; "
    "console.log(s, m.size, b[12345])"
)
_JAVA = """
public class Fill {
    public static void main(String[] words) {
        java.util.HashMap<String, Integer> map = new java.util.HashMap<>();
        for (int i = 0; i < 300000; i++) map.put("key" + i, i);
        long sum = 0;
        for (int value : map.values()) sum += value;
        System.out.println(sum + " " + map.size());
    }
}
"""


@dataclass(frozen=True)
class Work:
    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    how: str = ""  # in front of the share: spread:


def programs(place: Path) -> Iterator[Work]:
    """Yield what is installed here; inputs go to a folder."""
    _texts(place)
    cc1 = subprocess.run(
        ["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=False
    ).stdout.strip()
    every = [
        Work("python3", ("/usr/bin/python3", "p.py"), {"PYTHONHASHSEED": "0"}),
        Work("cc1", (cc1, "-quiet", "-O2", "big.c", "-o", "-")),
        Work("sqlite3", ("sqlite3", ":memory:", ".read p.sql")),
        Work("perl", ("perl", "p.pl"), {"PERL_HASH_SEED": "0"}),
        Work("sort", ("sort", "-S", "100M", "--parallel=2", "big.txt"), {"LC_ALL": "C"}),
        Work("xz", ("xz", "-4", "-T1", "-c", "-k", "big.txt"), how="spread:"),
        Work("xz -T2", ("xz", "-3", "-T2", "--block-size=4MiB", "-ck", "big.txt"), how="spread:"),
        Work("bzip2", ("bzip2", "-9", "-c", "-k", "big.txt")),
        Work("zstd", ("zstd", "-12", "-q", "-c", "-k", "big.txt"), how="spread:"),
        Work("tclsh", ("tclsh", "p.tcl")),
        Work("bc", ("bc", "-q", "b.bc"), how="spread:"),
        Work("jq", ("jq", "[.[] | .a] | add", "big.json"), how="spread:"),
        Work("git", ("git", "hash-object", "big.txt"), how="spread:"),
        # A message in memory: `dgst` has 0.3 MB of data.
        Work("openssl", ("openssl", "cms", "-data_create", "-binary", "-in", "big.txt")),
        Work("node", ("node", "p.js")),
        Work("java", ("java", "-Xmx256m", "-XX:+UseSerialGC", "Fill.java"), how="spread:"),
    ]
    for work in every:
        if work.command[0] and shutil.which(work.command[0]):
            yield work


def _texts(place: Path) -> None:
    draw = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(5000)]
    lines = (
        f"{' '.join(draw.choices(words, k=8))} {draw.randint(0, 10**9)}\n" for _ in range(150000)
    )
    (place / "big.txt").write_text("".join(lines))
    (place / "big.c").write_text(
        "".join(
            f"int f{i}(int *a, int n, int k) {{ int s = {i}; for (int i = 0; i < n; i++) "
            f"{{ if (a[i] % 7 == k) s += a[i] * {i % 13 + 1}; else s ^= a[i] << (k % {i % 5 + 2}); "
            f"a[i] = s; }} return s * n; }}\n"
            for i in range(800)
        )
    )
    (place / "big.json").write_text(
        "[" + ",".join(f'{{"a": {i}, "b": "row {i}"}}' for i in range(60000)) + "]"
    )
    (place / "p.py").write_text(_PYTHON)
    (place / "p.sql").write_text(_SQL)
    (place / "p.pl").write_text(_PERL)
    (place / "p.js").write_text(_NODE)
    (place / "p.tcl").write_text(_TCL)
    (place / "Fill.java").write_text(_JAVA)
    (place / "b.bc").write_text("scale = 1200\n4 * a(1)\nquit\n".replace("a(1)", "sqrt(2)"))
