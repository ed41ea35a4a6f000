"""How fast documents and result files are read, searched and shown."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.bench import Bench, Called
from benchmarks.starting import Figures

_BYTES = 100_000_000
_COPIES = 128
_BENCHMARKS = ("400.perlbench", "401.bzip2", "403.gcc", "429.mcf", "445.gobmk", "456.hmmer")
_WORKLOADS = 3
_RUNS = (1000, 10_000)


def runs_of_many(bench: Bench) -> Figures:
    """A run of 143 copies, of 1024, and of 27 iterations: import, search, report."""
    for copies, iterations, calls in ((143, 3, 3), (1024, 3, 1), (128, 27, 1)):
        size = copies * 29 * iterations
        database = _database(bench, size)
        document = bench.folder / f"{size}.json"
        document.write_text(_document(copies, iterations))
        imported = [_renewed(bench, database, "import", str(document)) for _ in range(calls)]
        if size != 89088:
            yield f"import-{size}", _least(imported)
        if size == 12441:
            yield "import-12441-by-hand", min(_by_hand(document, database) for _ in range(3))
            _renewed(bench, database, "import", str(document))
        # Once: findings are kept with the run, and the next call only reads them.
        searched = bench.rater("divots", "last", "--json", RATER_DB=database)
        yield f"divots-{size}", searched.cpu_s
        if size == 100224:
            yield "divots-100224-memory", searched.peak_bytes / 1e6
        else:
            page = bench.folder / "page.html"
            words = ("report", "last", "-o", str(page))
            yield f"report-{size}", _least([bench.rater(*words, RATER_DB=database)])
            if size == 89088:
                yield "report-89088-size", page.stat().st_size / 1e6


def a_million(bench: Bench) -> Figures:
    """A million observations, written beside rater: more than a document may have."""
    database = _database(bench, 10**6)
    document = bench.folder / "small.json"
    document.write_text(_document(1024, 1))
    _renewed(bench, database, "import", str(document))
    with closing(sqlite3.connect(database)) as db, db:
        _repeat_iterations(db, 34)
    searched = bench.rater("divots", "last", "--json", RATER_DB=database)
    yield "divots-1M", searched.cpu_s
    yield "divots-1M-memory", searched.peak_bytes / 1e6


def thousands(bench: Bench) -> Figures:
    """Two points of 1,000 and of 10,000 runs compared, and the runs listed."""
    database = _database(bench, 1)
    busy = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done"
    words = ("--copies", "2", "--iterations", "2", "--quiet", "--", "sh", "-c", busy)
    _renewed(bench, database, "run", *words)
    for runs in _RUNS:
        with closing(sqlite3.connect(database)) as db, db:
            _repeat_run(db, runs)
        called = bench.rater("compare", "tag:point=a", "tag:point=b", RATER_DB=database)
        yield f"compare-{runs}", called.cpu_s
        yield f"compare-{runs}-memory", called.peak_bytes / 1e6
        lists = [bench.rater("list", RATER_DB=database).cpu_s for _ in range(3)]
        yield f"list-{runs}", min(lists)


def log_reading(bench: Bench) -> Figures:
    """Import 100 MB of log into a new database."""
    log = bench.folder / "spec.log"
    copies = write_log(log)
    done = _renewed(bench, _database(bench, 0), "import", "spec", str(log), "--json")
    (run,) = json.loads(done.out)["runs"]
    if run["copy_times"] != copies or run["problem_count"] or run["disagreements"]:
        raise SystemExit(f"{run['copy_times']} of {copies} copy times read")
    log.unlink()
    yield "import-log", done.cpu_s


def _repeat_iterations(db: sqlite3.Connection, iterations: int) -> None:
    """Give a run of one iteration this many, each with noise of its own."""
    numbers = (
        "(WITH RECURSIVE it (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM it "
        f"WHERE n < {iterations - 1}) SELECT n FROM it)"
    )
    changed = {
        "phase": "phase + 29 * n",
        "step": "step + 29 * n",
        "iteration": "iteration + n",
        "elapsed_ns": "elapsed_ns + abs(random()) % (elapsed_ns / 100)",
        "start_ns": "NULL",
        "finish_ns": "NULL",
    }
    for table in ("bracket", "copy"):
        names = [row[0] for row in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]
        values = ", ".join(changed.get(name, name) for name in names)
        db.execute(f"INSERT INTO {table} SELECT {values} FROM {table}, {numbers}")


def _repeat_run(db: sqlite3.Connection, runs: int) -> None:
    """Make so many runs of the first one, with other times, in two points: every second in each."""
    (stored,) = db.execute("SELECT max(id) FROM run").fetchone()
    numbers = (
        f"(WITH RECURSIVE it (n) AS (VALUES ({stored + 1}) UNION ALL SELECT n + 1 FROM it "
        f"WHERE n < {runs}) SELECT n FROM it)"
    )
    later_ns = "n * 7919 % 1009 * 400"
    changed = {
        "run": {
            "id": "n",
            "uuid": "lower(hex(randomblob(16)))",
            "started_at": "strftime('%Y-%m-%dT%H:%M:%SZ', started_at, '+' || n || ' minutes')",
        },
        "copy": {
            "elapsed_ns": f"elapsed_ns + {later_ns}",
            "finish_ns": f"finish_ns + {later_ns}",
        },
        "bracket": {"finish_ns": f"finish_ns + {later_ns}"},
    }
    of_runs = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%run_id%'"
    tables = [name for (name,) in db.execute(of_runs)]
    for table in ("run", *tables):
        key = "id" if table == "run" else "run_id"
        values = {key: "n", **changed.get(table, {})}
        info = db.execute("SELECT name FROM pragma_table_info(?)", (table,))
        names = [name for (name,) in info if name != "id" or table == "run"]
        if table != "tag" and key in names:
            shown = ", ".join(values.get(name, f"one.{name}") for name in names)
            db.execute(
                f"INSERT INTO {table} ({', '.join(names)}) "
                f"SELECT {shown} FROM {table} AS one, {numbers} WHERE one.{key} = 1"
            )
    db.execute(
        "INSERT OR IGNORE INTO tag SELECT id, 'point', CASE id % 2 WHEN 1 THEN 'a' ELSE 'b' END "
        "FROM run"
    )


def _database(bench: Bench, size: int) -> str:
    return str(bench.folder / f"of-{size}.db")


def _renewed(bench: Bench, database: str, *words: str) -> Called:
    for path in Path(database).parent.glob(f"{Path(database).name}*"):
        path.unlink()
    return bench.rater(*words, RATER_DB=database)


def _least(calls: Sequence[Called]) -> float:
    return min(call.cpu_s for call in calls)


def _document(copies: int, iterations: int) -> str:
    """Return observations of 29 benchmarks; lgroup 1 is 3 % slower in each third of them."""
    chance = random.Random(7)
    copy_factors = [1 + 0.004 * chance.gauss() for _ in range(copies)]
    rows = []
    for benchmark in range(29):
        for iteration in range(iterations):
            for copy in range(copies):
                slow = 1.03 if copy // 32 == 1 and benchmark % 3 == 0 else 1
                time_s = (
                    (100 + 10 * benchmark)
                    * copy_factors[copy]
                    * slow
                    * (1 + 0.003 * chance.gauss())
                )
                rows.append(
                    {"benchmark": f"b{benchmark:02}", "iteration": iteration, "copy": copy}
                    | {"cpu": copy, "node": copy // 32, "start_s": 500.0 * iteration}
                    | {"elapsed_s": time_s, "cpu_s": time_s * 0.995, "status": "ok"}
                )
    run = {"uuid": "u", "mode": "homogeneous", "copies": copies}
    return json.dumps({"rater": 1, "run": run, "observations": rows})


def _by_hand(document: Path, database: str) -> float:
    """Return how long a script takes that only reads the document and keeps its rows."""
    Path(database).unlink()
    began = time.process_time()
    rows = json.loads(document.read_text())["observations"]
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(f"CREATE TABLE copy ({', '.join(rows[0])})")
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO copy VALUES ({marks})", map(tuple, map(dict.values, rows)))
    return time.process_time() - began


def write_log(path: Path) -> int:
    """Write a log of homogeneous runs, `_BYTES` long; return how many times of copies it has."""
    iteration = 0
    with path.open("w", encoding="ascii") as out:
        out.write('runspec v6674 started at Fri Jul 14 14:44:55 2017 on "host"\n')
        while out.tell() < _BYTES:
            iteration += 1
            for benchmark in _BENCHMARKS:
                out.write(_bracket(benchmark, iteration))
    return iteration * len(_BENCHMARKS) * _COPIES


def _bracket(benchmark: str, iteration: int) -> str:
    folder = f"/opt/cpu2006/benchspec/CPU2006/{benchmark}/run/run_base_ref_gcc"
    lines = [f"  Running {benchmark} ref base gcc default ({_COPIES} copies)", "Commands to run:"]
    for copy in range(_COPIES):
        lines += [f"    -b {copy}", f"    -C {folder}.{copy:04}"]
    lines.append(f"    -o ref.out -e ref.err numactl -l -C $BIND {folder}.0000/exe (timed)")
    lines += [
        f"Workload elapsed time ({copy}:{workload}) = {100 + copy / 8:.6f} seconds"
        for workload in range(1, _WORKLOADS + 1)
        for copy in range(_COPIES)
    ]
    for copy in range(_COPIES):
        lines.append(
            f"Copy {copy} of {benchmark} (base ref) run {iteration} finished at "
            f"Fri Jul 14 14:52:21 2017.  Total elapsed time: {_WORKLOADS * (100 + copy / 8):.6f}"
        )
    lines += [
        f"comparing files in '{folder}.{copy:04}'\n"
        "comparing 'ref.out' with abstol=1e-07, binary=, calctol=0, cw=, floatcompare=, obiwan="
        for copy in range(_COPIES)
    ]
    whole_s = _WORKLOADS * (100 + (_COPIES - 1) / 8)
    lines += [
        "Benchmark Times:",
        f"  Start:    Fri Jul 14 14:45:44 2017 ({1500061544 + 400 * iteration})",
        "  Elapsed:  00:06:00 (360)",
        f"  Reported: {int(whole_s)} {round(whole_s % 1 * 1e9)} {whole_s:.6f}",
        f" Success {benchmark} base ref ratio={_COPIES * 9770 / whole_s:.2f}, "
        f"runtime={whole_s:.6f}, power=0.00w, temp=0.00 deg, humidity=0.00%",
    ]
    return "\n".join(lines) + "\n"
