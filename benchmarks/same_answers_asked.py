"""What `benchmarks.same_answers` asks both checkouts, about runs, machines, suites and layouts."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.same_answers_runs import SHARED

type Kind = Literal["json", "text", "data", "page", "run"]

SPEC = SHARED / "spec-samples"
CASES = SHARED / "divot-cases/cases"
MACHINES = ("nodes=4x24", "'pack:2 numa:4 core:8 pu:2'", "'pack:2 numa:1 core:10 pu:2'")
LAYOUTS = (
    *("balanced", "compact", "cores", "distrib", "fill", "none", "os", "scatter"),
    *("list:0,8,1,9", "expr:E:N:8:1:2", "expr:M:scatter:8"),
)
PLANNED = (
    *("--copies nodes", "--copies cores", "--copies 7", "--copies 1000", "--smt 1", "--kind fast"),
    *("--kind slow --copies 3", "--reserve 2", "--bind core", "--bind llc", "--bind node"),
    *("--bind package", "--bind none", "--mem bind --copies 4", "--mem bind:nodes=0 --copies 4"),
    *("--mem interleave", "--mem preferred", "--mem weighted", "--mem none", "--no-oversubscribe"),
    *("--mode rotated --copies 5", "--mode steady --window 10", "--stagger 10 --copies 9"),
    *("--mode rotated --increment 3 --copies 6 --iterations 2", "--size ref --preflight strict"),
)
# Of every run; {0} is its number.
JSON_OF_RUN = (
    *("show {0} --copies --cpus --proof", "divots {0}", "divots {0} --fresh", "plot {0}"),
    *("export {0}", "export {0} --format json"),
)
TEXT_OF_RUN = ("show {0} --copies --cpus --proof", "divots {0}", "plot {0}")
DATA_OF_RUN = ("export {0} --format csv",)
# Of a run that is not the hundredth of its kind.
MORE_OF_RUN = (
    *("show {0}", "show {0} --copies --drop 1", "show {0} --copies --baseline-iteration 1"),
    *("divots {0} --fresh --threshold-group 5 --threshold-copy 10", "rerun {0} --dry-run"),
    "divots {0} --fail-on any:5%",
)
# Run by both; what is compared is what they store, measured values apart. {0}: the folder of runs.
LIVE = (
    ("run {0}/own.toml --copies 3 --iterations 2 --tag live=yes --env X=1", ""),
    ("run {0}/own.toml/told,several --copies 2 --mode rotated --iterations 2 --layout compact", ""),
    ("run --speccmds {0}/kit/429.mcf.cmd --iterations 2 --discard 1", ""),
    ("run mini/rays --size test --copies 2 --mode staggered --stagger 5 --proof once", ""),
    ("run --copies 2 --output-limit 1000", " -- sh -c 'head -c 5000 /dev/zero; exec sleep 9'"),
    ("run --copies 2 --timeout 0.3 --grace 0.2 --bind none", " -- sh -c 'exec sleep $RATER_COPY'"),
    ("sweep --axis copies=1,2 --axis env:X=,1 --rounds 2 --seed 5", " -- sh -c 'exit $RATER_COPY'"),
    ("rerun 1 --tag again=yes", ""),
)


@dataclass(frozen=True, slots=True)
class Question:
    """One command, and how what it prints is compared."""

    words: tuple[str, ...]
    kind: Kind

    @property
    def name(self) -> str:
        return shlex.join(self.words)


def questions(keep: Path) -> list[Question]:
    """Return all questions in the order they are asked in; the last ones change databases."""
    with closing(sqlite3.connect(keep / "runs.db")) as db:
        return [
            *_about_runs(db),
            *_about_points(db),
            *_about_machines(),
            *_about_files(keep),
            *_about_storing(),
            *_ask("run", *(f"{it.format(keep)} --db live.db{command}" for it, command in LIVE)),
        ]


def _ask(kind: Kind, *lines: str) -> Iterator[Question]:
    for line in lines:
        before, dashes, command = line.partition(" -- ")
        asked = f"{before} --json{dashes}{command}" if kind == "json" else line
        yield Question((*shlex.split(asked),), kind)


def _both(*lines: str) -> Iterator[Question]:
    for line in lines:
        yield from _ask("json", line)
        yield from _ask("text", line)


def _about_runs(db: sqlite3.Connection) -> Iterator[Question]:
    """Ask about every run; of a sweep's, about its first two."""
    yield from _both("list", "show", "show 9999", "show tag:kind=plain", "divots 1 2 3", "plot")
    made = [run for (run,) in db.execute("SELECT id FROM run WHERE source = 'run' ORDER BY id")]
    swept = [run for (run,) in db.execute("SELECT run_id FROM sweep_run ORDER BY 1")]
    imported = [run for (run,) in db.execute("SELECT id FROM run WHERE source = 'import'")]
    single = [run for run in made if run not in swept[2:]]
    for run in single + imported:
        yield from _ask("json", *(it.format(run) for it in JSON_OF_RUN))
        yield from _ask("text", *(it.format(run) for it in TEXT_OF_RUN))
        yield from _ask("data", *(it.format(run) for it in DATA_OF_RUN))
    for run in single + imported[::4]:
        yield from _both(*(it.format(run) for it in MORE_OF_RUN))
    for run in single[::4] + imported[::6]:
        yield from _ask("page", f"report {run} -o -")
    slow = db.execute(
        "SELECT DISTINCT run_id FROM divot JOIN run ON id = run_id AND source = 'run'"
    )
    yield from _both(*(f"divots --confirm {run} --dry-run" for (run,) in slow), "scale 1")
    yield from _both("show 6", "show 7", "show 2 --copies --baseline 1 --drop 1")
    yield from _both("plot 8 --benchmark lu", "plot 2 --iteration 2", "report 5 -o page.html")
    yield from _ask("text", "plot 1 -o runs.svg", "plot 6 --machine -o machine.png")
    yield from _ask("text", "plot 3 --timeline -o timeline.svg")


def _about_points(db: sqlite3.Connection) -> Iterator[Question]:
    """Ask about several runs at once, tags and sweeps."""
    alike = db.execute(
        "SELECT group_concat(id, ' ') FROM run WHERE source = 'import' "
        "GROUP BY host_id, copies HAVING count(*) > 1 ORDER BY min(id)"
    )
    sets = ["1 2", "1 3", "2 5", "1 2 3 5", "6 7", "9 10 11", "12 13", "14 15", "21 22", "1,2 3"]
    for runs in sets + [it for (it,) in alike]:
        yield from _both(f"compare {runs}")
        yield from _ask("json", f"divots {runs}", f"scale {runs}")
    yield from _both(
        *("compare tag:build=a tag:build=b", "compare 14,15,16 17,18,19 --within 5%"),
        *("compare tag:build=b tag:build=a --fail-on worse:1%", "compare 1 2 --fail-on worse"),
        *("compare tag:build=a tag:build=b --baseline tag:build=b", "compare 1 9999", "compare 1"),
        *("scale tag:build=a tag:build=b", "scale sweep:1 sweep:2", "scale 11 1 4 9"),
        *("divots 14 15 16 17 18 19", "sweep --list", "sweep --example", "compare sweep:9"),
    )
    last_points = ("copies=2 layout=scatter", "copies=4 env:X=1", "copies=2")
    for sweep, point in enumerate(last_points, 1):
        yield from _both(f"sweep --show {sweep}", f"compare sweep:{sweep}", f"scale sweep:{sweep}")
        for value in point.split():
            yield from _both(f"compare sweep:{sweep} --by {value.partition('=')[0]}")
        yield from _both(f"compare sweep:{sweep} --baseline '{point}' --within 2%")
        yield from _ask("page", f"report sweep:{sweep} -o -")
    yield from _ask("page", *(f"report {it} -o -" for it in ("1 2 3", "1 6", "sweep:1 4")))
    yield from _ask("page", "report tag:build=a tag:build=b -o -")
    yield from _ask("text", "compare sweep:1 -o compare.svg", "scale sweep:2 -o scale.pdf")


def _about_machines() -> Iterator[Question]:
    """Ask about this machine and about described ones, and what would run where on them."""
    files = [str(it) for it in sorted((SHARED / "topologies").glob("*.xml"))]
    yield from _both("topo", "topo nothing.xml", "settings", "settings thp", "settings nothing")
    yield from _both("plan", "plan mini --copies 2 --mode rotated", "plan -- ./none --flag")
    for place, machine in enumerate((*files, *MACHINES)):
        on = f"plan --topology {machine}"
        yield from _both(f"topo {machine}", f"{on} --copies nodes -- ./none")
        yield from _ask(
            "json", *(f"{on} --layout {it} -- ./none" for it in LAYOUTS[place % 2 :: 2])
        )
        yield from _ask("json", *(f"{on} {it} mini/lu,vm,rays" for it in PLANNED[place % 3 :: 3]))
        yield from _ask("text", *(f"{on} {it} memory/lu,latency" for it in PLANNED[place % 8 :: 8]))
    yield from _both(
        *("run --dry-run", "run mini/lu --copies 2 --dry-run --size ref", "run none --dry-run"),
        *(
            "run --dry-run --copies 3 --mode steady --window 9 -- sleep 1",
            "run memory --dry-run --size test",
        ),
        "sweep mini/lu --axis copies=1,2 --axis layout=compact,os --dry-run --seed 3",
        "sweep --axis copies=1,2 --axis env:X=,1 --dry-run --seed 4 -- sleep 1",
        "restore",
    )


def _about_files(keep: Path) -> Iterator[Question]:
    """Ask about layouts, suites and SPEC CPU's configurations and command files."""
    yield from _both("layouts", "layouts list", "layouts show nothing", "suites", "suites list")
    yield from _ask("data", *(f"layouts show {it}" for it in LAYOUTS))
    for suite in ("mini", "memory", "system", f"{keep}/own.toml", "mini/lu", "nothing"):
        yield from _both(f"suites show {suite}")
    for suite in ("mini/vm,rays", "memory/lu --tune peak", f"{keep}/own.toml", "./mine.toml"):
        yield from _ask("text", "suites new mine") if "mine" in suite else ()
        yield from _both(f"suites check {suite}")
    yield from _both("suites build mini/vm", f"run --speccmds {keep}/kit/429.mcf.cmd --dry-run")
    on = ("nodes=4x16", MACHINES[2], str(SHARED / "topologies/opteron6276-8n-64c.xml"))
    for config in sorted([*(SPEC / "configs").glob("*"), *SPEC.glob("*.rsf")]):
        yield from _both(f"lint-bind {config}", f"lint-bind {config} --copies 12 --ignore idle")
        for machine in on:
            yield from _both(f"lint-bind {config} --topology {machine}")
            yield from _ask("data", f"lint-bind {config} --topology {machine}")
    for commands in sorted((SPEC / "speccmds").glob("*.cmd")):
        yield from _both(f"plan --speccmds {commands} --topology nodes=2x4")


def _about_storing() -> Iterator[Question]:
    """Ask to store runs in a database beside the copy, and last to remove some of the copy's."""
    spec = [str(it) for it in sorted([*SPEC.glob("*.rsf"), *SPEC.glob("*.log")])]
    spec += [f"{it} --topology nodes=4x16" for it in spec[:1]]
    cases = [CASES / f"{it}.json" for it in ("paper-fig1", "paper-table4", "s7-0006", "s7-0015")]
    lines = [f"import spec {it}" for it in spec] + [f"import {it}" for it in cases]
    lines += ["import nothing.json", "list"]
    for run in range(1, 10):
        lines += [f"show {run} --copies", f"divots {run}", f"export {run}"]
    yield from _ask("json", *(f"{line} --db other.db" for line in lines))
    yield from _ask("text", *(f"{line} --db texts.db" for line in lines))
    yield from _both(
        "rm 2", "list", "rm sweep:3", "sweep --list", "rm 9999", "show 2", "divots 1 3"
    )
