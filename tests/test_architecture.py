"""The order of the modules has no cycle, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import rater

ROOT = Path(rater.__file__).parent
# Floor to roof: a module imports only from its own line and those above it.
STAGES = [
    {"errors", "resources", "record", "words", "__init__"},
    {"plan"},
    {"run"},
    {"tune"},
    {"store"},
    {"analysis"},
    {"spec"},
    {"show"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
FORBIDDEN = {
    "plan": {"trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"},
    "record": {"trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"},
    "analysis": {"trio", "psutil", "pyhwloc", "rich", "sqlite3"},
    "spec": {
        *("trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy"),
        *("rater.run", "rater.store", "rater.analysis"),
    },
    "run": {"rich", "sqlite3", "rater.store", "rater.analysis", "rater.show"},
    "tune": {
        *("trio", "psutil", "pyhwloc", "rich", "sqlite3", "numpy", "rater.run"),
        *("rater.store", "rater.analysis", "rater.show", "rater.commands"),
    },
    "store": {"trio", "psutil", "pyhwloc", "rich", "rater.run", "rater.show"},
    "show": {"trio", "psutil", "pyhwloc", "sqlite3", "rater.run", "rater.store"},
}
PYHWLOC_ALLOWED = {"run/machine.py", "run/binding.py"}


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, those under TYPE_CHECKING left out: they import nothing."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files() -> list[Path]:
    found = sorted(ROOT.rglob("*.py"))
    assert len(found) > 20
    return found


def stage_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def test_every_module_imports_only_what_lies_below_it() -> None:
    level = {name: i for i, names in enumerate(STAGES) for name in names}
    wrong = []
    for path in files():
        own = level[stage_of(path)]
        for module in imports(path):
            if module.startswith("rater."):
                other = module.split(".")[1]
                if level.get(other, 0) > own:
                    wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert wrong == []


def test_no_stage_uses_a_library_of_another_stage() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files()
        for module in imports(path)
        for name in FORBIDDEN.get(stage_of(path), ())
        if module == name or module.startswith(f"{name}.")
    ]
    assert wrong == []


def test_pyhwloc_is_imported_in_two_places_only() -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in files()
        if any(module.split(".")[0] == "pyhwloc" for module in imports(path))
    }
    assert users == PYHWLOC_ALLOWED


def test_no_two_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    names = {".".join(("rater", *p.relative_to(ROOT).with_suffix("").parts)): p for p in files()}
    for name, path in names.items():
        graph[name] = {module for module in imports(path) if module in names and module != name}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


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
