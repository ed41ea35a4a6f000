"""Files of SPEC, broken by a seeded hand: what the fuzz test and the campaign feed readers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.raw_files import pack

RSF = """\
spec.cpu2006.hw_cpu_name: Some CPU
spec.cpu2006.notes_plat_sysinfo_010:  running on here Thu May 16 00:56:35 2019
# =============== do not edit below this point ===================
spec.cpu2006.basemean: 20.000000
spec.cpu2006.metric: CINT2006
spec.cpu2006.size: ref
spec.cpu2006.time: 1557939394
{config}spec.cpu2006.results.400_perlbench.base.000.benchmark: 400.perlbench
spec.cpu2006.results.400_perlbench.base.000.clcopies: 2
spec.cpu2006.results.400_perlbench.base.000.copytime000: 999.5
spec.cpu2006.results.400_perlbench.base.000.copytime001: 1000
spec.cpu2006.results.400_perlbench.base.000.dp: 6
spec.cpu2006.results.400_perlbench.base.000.errors000: copy 1 non-zero return code \
(exit code=0, signal=11)
spec.cpu2006.results.400_perlbench.base.000.rate: 1
spec.cpu2006.results.400_perlbench.base.000.ratio: 20.000000
spec.cpu2006.results.400_perlbench.base.000.reference: 10000
spec.cpu2006.results.400_perlbench.base.000.reported_nsec: 0
spec.cpu2006.results.400_perlbench.base.000.reported_sec: 1000
spec.cpu2006.results.400_perlbench.base.000.reported_time: 1000.000000
spec.cpu2006.results.400_perlbench.base.000.selected: 1
spec.cpu2006.results.400_perlbench.base.000.submit: 1
spec.cpu2006.results.400_perlbench.base.000.valid: S
spec.cpu2006.results.400_perlbench.base.001.copytime000: 12
spec.cpu2006.results.400_perlbench.base.001.time_avg: 12
spec.cpu2006.results.400_perlbench.base.001.runmode: rrrate
spec.cpu2006.results.400_perlbench.base.ratio_avg: 20
"""
LOG = """\
runspec v6674 started at Fri Jul 14 14:44:55 2017 on "host"
  Running 400.perlbench ref base gcc default (2 copies)
Commands to run:
    -b 0
    -C /opt/spec/run/run_base_ref_gcc.0000
    -b numactl -m 0 --physcpubind=2
    -C /opt/spec/run/run_base_ref_gcc.0001
    -o a.out -e a.err numactl -l -C $BIND ../run/perlbench (timed)
Specinvoke: /opt/spec/bin/specinvoke -d /opt/spec
400.perlbench: copy 1 non-zero return code (exit code=0, signal=11)
*** Miscompare of a.out; for details see
    /opt/spec/run/run_base_ref_gcc.0001/a.out.mis
Workload elapsed time (0:1) = 500.5 seconds
Workload elapsed time (1:1) = 500 seconds
Workload elapsed time (0:2) = 499 seconds
Workload elapsed time (1:2) = 500 seconds
Copy 0 of 400.perlbench (base ref) run 1 \
finished at Fri Jul 14 14:52:21 2017.  Total elapsed time: 999.5
Copy 1 of 400.perlbench (base ref) run 1 \
finished at Fri Jul 14 14:52:22 2017.  Total elapsed time: 1000
Benchmark Times:
  Start:    Fri Jul 14 14:45:44 2017 (1500061544)
  Stop:     Fri Jul 14 15:02:30 2017 (1500062550)
  Elapsed:  00:16:46 (1006)
  Reported: 1000 0 1000.000000
 Success 400.perlbench base ref ratio=20.00, runtime=1000.000000, power=0.00w, temp=0.00 deg
  Running (#2) 500.perlbench_r refrate (ref) peak oct12a (2 copies) [2016-10-12 22:18:24]
Workload elapsed time (copy 0 workload 1) = 3.5 seconds
Copy 0 of 500.perlbench_r (peak refrate) run 2 \
finished at 2019-04-06 20:08:02.  Total elapsed time: 3.5
copy 1 finished @ Fri Jul 14 14:52:21 2017.  Total elapsed time: 3
  Rate Start:   2019-04-06 20:08:02 (1554561482.24092)
  Run Reported: 00:00:00 (0 574111 0.000574)
 Error 500.perlbench_r peak refrate ratio=-0.00, runtime=0.000574, copies=2, threads=1, errorcode=RE
"""
CONFIG = """\
%define cores 4
%if %{cores} > 2
copies = %{cores}
%else
copies = 1
%endif
bind0 = numactl -m 0 --physcpubind=0
bind1 = /usr/bin/numactl --physcpubind=1 -m 1
bind = 0, 8,16-17
submit = MYMASK=`printf '0x%x' \\$((1<<\\$SPECCOPYNUM))`; /usr/bin/taskset \\$MYMASK $command
default=base=default=default:
submit = echo "$command" > run.sh ; $BIND bash run.sh
intrate,fprate=peak:
submit0 <<EOT
let "N=$SPECCOPYNUM/2"; numactl -lC $N \\
  -- $command
EOT
"""
_WORDS = (
    *(b"spec.cpu2017.", b"results.", b"copytime", b"999999999999999999999", b"-1", b"nan", b"inf"),
    *(b"1e400", b"--", b": ", b".", b"000", b"\r\n", b"\n", b"\x00", b"\xff\xfe", b"\xc3\xa9"),
    *(b"Copy 9999999 of ", b" run 99999999999", b"$BIND", b"$((1<<99999))", b"0-99999999"),
    *(b"%if ", b"%endif\n", b"<<EOT\n", b"\\\n", b"'", b'"', b"(", b")" * 50, b"numactl -C "),
    *(b"rawconfig000: @", b"rawconfig001: &8AAA", b"valid: VE\n", b"Workload elapsed time ("),
)


def broken(data: bytes, chance: random.Random) -> bytes:
    """Return the file with one to eight things done to it."""
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 5, 20, 200)))
        mutation = chance.randrange(10)
        lines = data.split(b"\n") if mutation in (5, 6, 7) else []
        if mutation == 0:
            data = data[:at]
        elif mutation == 1:
            data = data[:at] + data[end:]
        elif mutation == 2:
            data = data[:at] + bytes(chance.randrange(256) for _ in range(end - at)) + data[end:]
        elif mutation == 3:
            data = data[:at] + chance.choice(_WORDS) + data[at:]
        elif mutation == 4:
            data = data[:at] + data[at:end] * chance.choice((2, 3, 50)) + data[end:]
        elif mutation == 5:
            place = chance.randrange(len(lines))
            lines[place : place + 1] = [lines[place]] * chance.choice((0, 2, 3))
            data = b"\n".join(lines)
        elif mutation == 6:
            one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
            data = b"\n".join(lines)
        elif mutation == 7:  # wrapped, as logs are
            width = chance.choice((20, 40, 79, 132))
            data = b"\n".join(
                line[number : number + width]
                for line in lines
                for number in range(0, max(1, len(line)), width)
            )
        elif mutation == 8:
            data = data.replace(b"\n", chance.choice((b"\r\n", b"\r", b" ")))
        else:
            data = (
                data[:at]
                + chance.choice((b"x", b"9", b" ")) * chance.choice((300, 5000))
                + data[at:]
            )
    return data


def originals(folder: Path | None = None) -> list[bytes]:
    """Return whole inputs: our own, and pieces of real ones where there are any."""
    packed = "".join(
        f"spec.cpu2006.rawconfig{number:03}: {piece}\n" for number, piece in enumerate(pack(CONFIG))
    )
    texts = [RSF.format(config=packed).encode(), LOG.encode(), CONFIG.encode()]
    if folder is not None and folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix in (".rsf", ".log", ".cfg", ".inc"):
                data = path.read_bytes()
                texts += [data[:9000], data[len(data) // 2 :][:9000], data[-9000:]]
    return texts


def inputs(seed: int, count: int, whole: Sequence[bytes]) -> Iterator[bytes]:
    """Yield broken inputs; the same seed makes the same ones."""
    for number in range(count):
        chance = random.Random(f"{seed}:{number}")
        yield broken(chance.choice(whole), chance)
