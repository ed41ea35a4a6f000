"""The house: which folder stands on which, how large rooms are, where heavy libraries belong."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rater
from tests.support.places import CHECKOUT

ROOT = Path(rater.__file__).parent
# Floor to roof: a folder imports only from itself and from those above it in this list.
FOLDERS = """
    .
    text
    command_line
    record
    plan/pages
    plan/request
    plan/topology
    plan/suite
    plan/placement
    plan/pools
    plan/schedule
    plan/counters
    plan/sweep
    plan/fleet
    plan
    settings
    run/host
    run/programs
    run/copies
    run/counters
    run/observe
    run/page_sizes
    run/check
    run/workplace
    run/supervise
    run/selftest
    run/pages
    run/fleet
    store/exchange
    store
    store/merge
    store/fleet
    speccpu
    speccpu/config
    speccpu/results
    speccpu/export
    speccpu/kit
    speccpu/lint
    analysis/stats
    analysis/placement
    analysis/page_sizes
    analysis/counters
    analysis/results
    analysis/conditions
    analysis/doctor
    analysis/compare
    analysis/scaling
    analysis/divots/data
    analysis/divots/model
    analysis/divots
    analysis/selftest
    analysis/fleet
    analysis/pages
    analysis/models
    show/console
    show/live
    show/divots
    show/results
    show/plans
    show/doctor
    show/compare
    show/scaling
    show/speccpu
    show/charts
    show/pages
    show/models
    show/html
    show/fleet
    workflow
    workflow/page_sizes
    workflow/speccpu
    workflow/results
    workflow/doctor
    workflow/run
    workflow/sweep
    workflow/models
    workflow/suites
    workflow/selftest
    workflow/fleet
    commands
    commands/fleet
    workflow/pages
    commands/lab
    commands/shell
""".split()  # noqa: SIM905 - a list to read
ROOF = {"api", "cli", "__main__"}  # files of the top folder that stand on all others

MOST_FILES, MOST_LINES, MOST_CLASS_LINES = 17, 400, 250
LARGER = {  # path: why it is larger
    "plan/request/request.py:Request": "the one table of the options of a run",
}
# Names that still stand for several things: this set only shrinks.
TWINS: set[str] = set()

FORBIDDEN = {
    "plan": {"trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"},
    "record": {"trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"},
    "text": {"trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"},
    "analysis": {"trio", "psutil", "pyhwloc", "rich", "sqlite3"},
    "speccpu": {
        *("trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"),
        *("rater.run", "rater.store", "rater.analysis"),
    },
    "run": {"rich", "sqlite3", "rater.store", "rater.analysis", "rater.show"},
    "settings": {
        *("trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy", "rater.run"),
        *("rater.store", "rater.analysis", "rater.show", "rater.commands"),
    },
    "store": {"trio", "psutil", "pyhwloc", "rich", "rater.run", "rater.show"},
    "show": {"trio", "psutil", "pyhwloc", "sqlite3", "rater.run", "rater.store"},
}
PYHWLOC_ALLOWED = {"run/host/discover.py", "run/host/thread_binding.py"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every file of the package, by its path below it."""
    found = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")
    }
    assert len(found) > 200
    return found


@cache
def imports(path: str) -> frozenset[str]:
    """Every module and name a file imports, those for type checkers too."""

    def named() -> Iterator[str]:
        for node in ast.walk(trees()[path]):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)

    return frozenset(named())


def modules() -> dict[str, str]:
    """Module name to path."""
    return {
        ".".join(("rater", *Path(path).with_suffix("").parts)): path
        for path in trees()
        if not path.endswith("__init__.py")
    }


def folder_of(path: str) -> str:
    return str(Path(path).parent)


def test_every_folder_stands_in_the_order_of_folders() -> None:
    folders = {folder_of(path) for path in modules().values()}
    assert sorted(folders - set(FOLDERS)) == []
    assert sorted(set(FOLDERS) - folders) == []


def test_a_folder_imports_only_from_those_above_it_in_the_list() -> None:
    level = {folder: i for i, folder in enumerate(FOLDERS)}
    known = modules()
    wrong = [
        f"{path} imports {module}"
        for path in known.values()
        if Path(path).stem not in ROOF
        for module in imports(path) & known.keys()
        if Path(known[module]).stem in ROOF
        or level[folder_of(known[module])] > level[folder_of(path)]
    ]
    assert sorted(wrong) == []


def test_no_two_modules_import_each_other() -> None:
    known = modules()
    graph = {name: imports(path) & known.keys() - {name} for name, path in known.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_no_stage_uses_a_library_of_another_stage() -> None:
    wrong = [
        f"{path} imports {module}"
        for path in trees()
        for module in imports(path)
        for name in FORBIDDEN.get(Path(path).parts[0], ())
        if module == name or module.startswith(f"{name}.")
    ]
    assert wrong == []


def test_pyhwloc_is_imported_in_two_places_only() -> None:
    users = {
        path
        for path in trees()
        if any(module.split(".")[0] == "pyhwloc" for module in imports(path))
    }
    assert users == PYHWLOC_ALLOWED


def test_rooms_are_small() -> None:
    files = Counter(folder_of(path) for path in modules().values())
    large = {folder: n for folder, n in files.items() if n > MOST_FILES}
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in trees()}
    large |= {path: n for path, n in lines.items() if n > MOST_LINES}
    large |= {
        f"{path}:{node.name}": n
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and (n := (node.end_lineno or 0) - node.lineno + 1) > MOST_CLASS_LINES
    }
    assert {name: n for name, n in large.items() if name not in LARGER} == {}
    assert sorted(LARGER.keys() - large.keys()) == [], "no longer larger"


def test_one_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path)
    several = {name: found for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in TWINS} == {}
    assert sorted(TWINS - several.keys()) == [], "no longer several"


def test_every_folder_is_packaged() -> None:
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    packages = config["options"]["packages"].split()
    folders = {".".join(("rater", *Path(path).parent.parts)) for path in trees()}
    assert sorted(packages) == sorted(folders | {"rater.suites", "rater.layouts", "rater.db"})
    data = {
        path
        for package, patterns in config["options.package_data"].items()
        for pattern in re.split(r"[,\s]+", patterns.strip())
        for path in (CHECKOUT / package.replace(".", "/")).glob(pattern)
    }
    beside = {it for it in (CHECKOUT / "rater").rglob("*") if it.is_file()} - data
    assert {it.suffix for it in beside} - {".pyc"} == {".py"}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from rater.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'trio', 'psutil', 'pyhwloc', 'rich', 'sqlite3', 'numpy', 'ctypes'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_no_test_imports_another_test() -> None:
    """What two of them need stands in `tests/support`."""
    wrong = [
        f"{path.relative_to(CHECKOUT)}:{node.lineno}"
        for path in (CHECKOUT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("tests.")
        and not (node.module or "").startswith("tests.support")
    ]
    assert wrong == []
