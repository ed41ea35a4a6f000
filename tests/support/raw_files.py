"""Small result files in SPEC's formats, written for tests."""

from __future__ import annotations

import base64
import sqlite3
import textwrap
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

HEAD = """\
spec.cpu2006.metric: CINT2006
spec.cpu2006.size: ref
spec.cpu2006.time: 1557939394
spec.cpu2006.basemean: 20.000000
"""


def bracket(
    iteration: int = 0,
    *,
    times: tuple[float, ...] = (400.0, 500.0),
    reported: float = 500.0,
    ratio: float = 20.0,
    selected: int = 1,
    benchmark: str = "400_perlbench",
    tune: str = "base",
    suite: str = "cpu2006",
    copies: str = "clcopies",
    more: str = "",
) -> str:
    """Two copies with a reference of 5000 s: 2 x 5000 / 500 is 20."""
    at = f"spec.{suite}.results.{benchmark}.{tune}.{iteration:03}"
    lines = [
        f"{at}.benchmark: {benchmark.replace('_', '.', 1)}",
        f"{at}.{copies}: {len(times)}",
        *(f"{at}.copytime{copy:03}: {seconds:.6f}" for copy, seconds in enumerate(times)),
        f"{at}.reported_time: {reported:.6f}",
        f"{at}.reference: 5000",
        f"{at}.ratio: {ratio:.6f}",
        f"{at}.selected: {selected}",
        f"{at}.valid: S",
        *(f"{at}.{line}" for line in more.splitlines()),
    ]
    return "\n".join(lines) + "\n"


# Two copies of two workloads; 2 x 9770 / 1000 is 19.54.
OLD = """\
runspec v6674 started at Fri Jul 14 14:44:55 2017 on "host"
  Running 400.perlbench ref base gcc default (2 copies)
Commands to run:
    -b 0
    -C /opt/spec/run/run_base_ref_gcc.0013
    -b 8
    -C /opt/spec/run/run_base_ref_gcc.0014
    -o a.out -e a.err numactl -l -C $BIND ../run_base_ref_gcc.0013/perlbench -I./lib (timed)
Specinvoke: /opt/spec/bin/specinvoke -d /opt/spec/run/run_base_ref_gcc.0013 -f speccmds.cmd
Workload elapsed time (1:1) = 500.5 seconds
Workload elapsed time (0:1) = 500.25 seconds
Workload elapsed time (0:2) = 499.125 seconds
Workload elapsed time (1:2) = 499.5 seconds
Copy 0 of 400.perlbench (base ref) run 1 \
finished at Fri Jul 14 15:02:20 2017.  Total elapsed time: 999.375
Copy 1 of 400.perlbench (base ref) run 1 \
finished at Fri Jul 14 15:02:21 2017.  Total elapsed time: 1000
comparing files in '/opt/spec/run/run_base_ref_gcc.0013'
Benchmark Times:
  Start:    Fri Jul 14 14:45:44 2017 (1500061544)
  Stop:     Fri Jul 14 15:02:30 2017 (1500062550)
  Elapsed:  00:16:46 (1006)
  Reported: 1000 125000000 1000.125
 Success 400.perlbench base ref ratio=19.54, runtime=1000.125000, \
power=0.00w, temp=0.00 deg, humidity=0.00%
"""


NEW = """\
runcpu v5825 started at 2019-04-06 20:07:46 on "node7"
  Running (#2) 505.mcf_r refrate (ref) peak oct12a-rate (2 copies) [2016-10-12 22:18:24]
Commands to run (specinvoke command file):
    -N C
    -b numactl -m 1 --physcpubind=4
    -C /opt/run/run_peak_refrate_oct12a.0000
    -b numactl -m 1 --physcpubind=5
    -C /opt/run/run_peak_refrate_oct12a.0001
    -o a.out -e a.err echo "../mcf_r in" > run.sh ; $BIND bash run.sh (timed)
505.mcf_r: copy 1 non-zero return code (exit code=127, signal=0)
Workload elapsed time (copy 0 workload 1) = 30.5 seconds
Copy 0 of 505.mcf_r (peak refrate) run 2 finished at 2019-04-06 20:08:02.  Total elapsed time: 30.5
Workload elapsed time (copy 1 workload 1) = 0.25 seconds
Copy 1 of 505.mcf_r (peak refrate) run 2 finished at 2019-04-06 20:08:02.  Total elapsed time: 0.25
Benchmark Times:
  Run Start:    2019-04-06 20:08:02 (1554561482)
  Rate Start:   2019-04-06 20:08:02 (1554561482.25)
  Rate End:     2019-04-06 20:08:32 (1554561512.75)
  Run Stop:     2019-04-06 20:08:33 (1554561513)
  Run Elapsed:  00:00:31 (31)
  Run Reported: 00:00:30 (30 500000000 30.500000)
 Error 505.mcf_r peak refrate ratio=105.97, runtime=30.500000, copies=2, threads=1, \
power=0.00W, temp=0.00 degC, humidity=0.00%, errorcode=RE
"""


def ask(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def flat(text: str) -> str:
    """Return prose without its line breaks."""
    return " ".join(text.split())


def pack(text: str) -> list[str]:
    """Return the pieces, in order, of a configuration as SPEC CPU packs it with zlib."""
    data = zlib.compress(text.encode(), 9)
    return textwrap.wrap("@" + base64.b64encode(data).decode("ascii"), 76)


def configured(config: str) -> str:
    """Return a raw file of two copies, base and peak, with a configuration inside."""
    pieces = "".join(
        f"spec.cpu2006.rawconfig{number:03}: {piece}\n" for number, piece in enumerate(pack(config))
    )
    peak = bracket(tune="peak", times=(250.0, 200.0), reported=250, ratio=40)
    return HEAD + pieces + bracket(more="submit: 1") + peak


def write(folder: Path, text: str, name: str = "result.rsf") -> Path:
    path = folder / name
    path.write_text(text, encoding="latin-1")
    return path


# What SPEC's tools leave of two copies, 6 s apart: the listing of the paper.
RECORD = """\
timer ticks over every 1000 ns
running commands in speccmds.cmd 1 times
runs started at\t1159389713, 120105000, Wed Sep 27 20:41:53 2006
run 1 started at\t1159389713, 120121000, Wed Sep 27 20:41:53 2006
child started: 0,\t1159389713, 120131000, pid=21001, 'taskset -c 2 ../x/perlbench_base.x a.pl'
child started: 1,\t1159389719, 120466000, pid=21002, 'taskset -c 3 ../x/perlbench_base.x a.pl'
child finished: 0,\t1159389726, 70680000, sec=12, nsec=950549000, pid=21001, rc=0
child finished: 1,\t1159389732, 90804000, sec=12, nsec=970338000, pid=21002, rc=0
run 1 finished at:\t1159389732, 90823000, Wed Sep 27 20:42:12 2006
runs elapsed time:\t18, 970737000, 18.970737000
"""
