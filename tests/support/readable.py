"""What makes a stranger read a line twice, found in the syntax trees of the project's own code.

`python -m tests.support.readable [KIND ...] [--in PATH]` lists places, or counts all kinds.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

from msgspec import Struct

from tests.support.places import CHECKOUT

# Words that stand for a noun which the reader has to look up.
PRONOUNS = frozenset(
    re.findall(
        "[a-z]+",
        """
        it its one ones own known found told made here there those these them their mine both
        such what which who whose this that left taken given wanted asked beside
        """,
    )
)
# Of these some are also plain English for a value: wrong as parameters alone.
VALUES = frozenset({"left", "given", "wanted", "asked", "beside", "taken"})
MOST_LINES_OF_A_PRONOUN = 5
NAMELESS = re.compile(
    r"_?(of|text|look|rows|sort|at|made|it|one|those|what|own|words|told|found|here|found_in|made_of)"
)
HALF_SENTENCE = re.compile(
    r"""
    what\ it\ (is|was|has|came|says|does|takes|did|would) | as\ it\ (is|was)\ given
    | what\ (they|these|those)\  | as\ it\ is\b | that\ which | of\ its\ own\ accord | said\ or\ not
    | who(ever)?\ \w+s\ it\b | what\ (is|was)\ (there|told|known|made|found|asked)\b
    | None\ where | None:\ it\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FOLDERS = {path.name for path in (CHECKOUT / "rater").rglob("*") if path.is_dir()} - {"native"}
_FIRST = "|".join(sorted(_FOLDERS | {"rater"} - {"__pycache__"}))
DOTTED = re.compile(rf"\b((?:{_FIRST})(?:\.[a-z_]+){{1,4}})(?:\.[A-Z]\w+)?\b(?!\.?[\w/(])")
FILE = re.compile(r"(?<![\w./~-])((?:[a-z_]+/)+[a-z_]+\.(?:py|c|h|md|toml|js|sql))\b")
OF_OTHERS = ("linux/", "asm/", "mm/", "fs/", "generic/", "include/", "config/", "kernel/")
MOST_FIELDS_BY_POSITION = 4

KINDS = {
    "parameter": "a parameter named by a pronoun",
    "long": f"a pronoun that lives longer than {MOST_LINES_OF_A_PRONOUN} lines",
    "nameless": "a function whose name says nothing alone",
    "half": "half a sentence in a comment or docstring",
    "gone": "a comment or docstring names a module or file that is not there",
    "positional": "a struct made from more than four positions, or from a star",
    "struct": "a struct of more than four fields that can be made by position",
    "letter": "a name of one letter that is in no formula of a docstring",
    "wrapped": "`it` or `one` in a comprehension or lambda that does not end on its line",
    "starred": "a tuple written out behind a star, in a call",
}


class Place(Struct, frozen=True, order=True):
    """A line to mend, with the words that make it one."""

    path: str
    line: int
    what: str

    @property
    def name(self) -> str:
        """The place without its line, which changes with what stands above it."""
        return f"{self.path}: {self.what}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


class Source(Struct, frozen=True):
    """A file of Python."""

    path: str  # below the checkout
    text: str
    tree: ast.Module


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """Read every file of Python below a folder of the checkout."""
    paths = sorted((CHECKOUT / folder).rglob("*.py"))
    texts = {str(path.relative_to(CHECKOUT)): path.read_text() for path in paths}
    return tuple(Source(path, text, ast.parse(text)) for path, text in texts.items())


type Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, *_FUNCTIONS)


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return every node of a tree: each kind of place looks at all of them."""
    return tuple(ast.walk(tree))


@cache
def functions(tree: ast.AST) -> tuple[Function, ...]:
    """Return every function and method, those inside others as well."""
    return tuple(node for node in nodes(tree) if isinstance(node, _FUNCTIONS))


def forget_sources() -> None:
    """Let all trees go: two million nodes, which each later collection of garbage looks through."""
    for cached in (sources, nodes, functions, comments, _classes):
        cached.cache_clear()


def parameters(function: Function | ast.Lambda) -> Iterator[ast.arg]:
    """Yield the parameters of a function but for `*args` and `**options`."""
    yield from function.args.posonlyargs
    yield from function.args.args
    yield from function.args.kwonlyargs


@cache
def comments(source: Source) -> tuple[tuple[int, str], ...]:
    """Return line and text of each comment and docstring."""
    return tuple(_comments(source))


def _comments(source: Source) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in nodes(source.tree):
        if isinstance(node, _WITH_DOCSTRINGS):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def _parameters(source: Source) -> Iterator[Place]:
    for function in functions(source.tree):
        for parameter in parameters(function):
            if parameter.arg in PRONOUNS:
                what = f"{function.name}({parameter.arg})"
                yield Place(source.path, function.lineno, what)


def _long_pronouns(source: Source) -> Iterator[Place]:
    lines = {
        node.lineno
        for node in nodes(source.tree)
        if isinstance(node, ast.Name) and node.id in PRONOUNS - VALUES
    }
    for function in functions(source.tree):
        if lines.isdisjoint(range(function.lineno, (function.end_lineno or 0) + 1)):
            continue
        first: dict[str, int] = {}
        last: Counter[str] = Counter()
        for node in ast.walk(function):
            if not isinstance(node, ast.Name) or node.id not in PRONOUNS - VALUES:
                continue
            if isinstance(node.ctx, ast.Store):
                first[node.id] = min(first.get(node.id, node.lineno), node.lineno)
            else:
                last[node.id] = max(last[node.id], node.lineno)
        for name, line in first.items():
            if last[name] - line > MOST_LINES_OF_A_PRONOUN:
                yield Place(source.path, line, f"{name} in {function.name}")


def _nameless(source: Source) -> Iterator[Place]:
    for function in functions(source.tree):
        if NAMELESS.fullmatch(function.name):
            yield Place(source.path, function.lineno, function.name)


def _half_sentences(source: Source) -> Iterator[Place]:
    for line, text in comments(source):
        if half := HALF_SENTENCE.search(text):
            yield Place(source.path, line, f"{half[0].strip()}: {text.strip().splitlines()[0]}")


@cache
def _modules_and_files() -> tuple[frozenset[str], frozenset[str]]:
    """Return every dotted name of the package, whole or from any folder on, and every file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    files = frozenset(filter(None, listed)) or frozenset(it.path for it in sources("rater"))
    dotted = set()
    for file in files:
        parts = Path(file).with_suffix("").parts
        for start in range(len(parts)):
            for end in range(start + 1, len(parts) + 1):
                dotted.add(".".join(parts[start:end]))
    return frozenset(dotted), files


def _gone(source: Source) -> Iterator[Place]:
    dotted, files = _modules_and_files()
    for line, text in comments(source):
        for match in DOTTED.finditer(text):
            name = match[1]
            if name not in dotted and name.rpartition(".")[0] not in dotted:
                yield Place(source.path, line, name)
        for match in FILE.finditer(text):
            name = match[1]
            if not name.startswith(OF_OTHERS) and not any(
                file == name or file.endswith(f"/{name}") for file in files
            ):
                yield Place(source.path, line, name)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


@cache
def _classes() -> Mapping[str, ast.ClassDef]:
    return {
        node.name: node
        for source in sources("rater")
        for node in nodes(source.tree)
        if isinstance(node, ast.ClassDef)
    }


def _takes_any_number(node: ast.ClassDef) -> bool:
    """Tell whether objects of a class are made from `*parts`, which have no names."""
    return any(
        function.name in ("__init__", "__new__") and function.args.vararg is not None
        for function in node.body
        if isinstance(function, ast.FunctionDef)
    )


def _positional(source: Source) -> Iterator[Place]:
    for node in nodes(source.tree):
        if not isinstance(node, ast.Call) or _called(node) not in _classes():
            continue
        if _takes_any_number(_classes()[_called(node)]):
            continue
        starred = any(isinstance(argument, ast.Starred) for argument in node.args)
        if len(node.args) > MOST_FIELDS_BY_POSITION or (starred and len(node.args) > 1):
            yield Place(source.path, node.lineno, f"{_called(node)}: {len(node.args)} by position")


def _base_names(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]


def _is_struct(node: ast.ClassDef) -> bool:
    bases = _base_names(node)
    return "Struct" in bases or any(
        base in _classes() and base != node.name and _is_struct(_classes()[base]) for base in bases
    )


def _structs(source: Source) -> Iterator[Place]:
    for node in nodes(source.tree):
        if not isinstance(node, ast.ClassDef) or not _is_struct(node):
            continue
        fields = [
            statement
            for statement in node.body
            if isinstance(statement, ast.AnnAssign)
            and "ClassVar" not in ast.unparse(statement.annotation)
        ]
        by_keyword = any(keyword.arg == "kw_only" for keyword in node.keywords)
        if len(fields) > MOST_FIELDS_BY_POSITION and not by_keyword:
            yield Place(source.path, node.lineno, node.name)


def _bound(node: ast.AST) -> str:
    """Return the name that a node binds, or empty."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    return node.arg if isinstance(node, ast.arg) else ""


def _letters(source: Source) -> Iterator[Place]:
    """Yield names of one letter; a formula in the docstring of what is around it allows it."""

    def visit(node: ast.AST, texts: str, inside: str) -> Iterator[Place]:
        for child in ast.iter_child_nodes(node):
            below, name = texts, inside
            if isinstance(child, (ast.ClassDef, *_FUNCTIONS)):
                below, name = f"{texts}\n{ast.get_docstring(child) or ''}", child.name
            if isinstance(node, ast.ClassDef) and isinstance(child, ast.AnnAssign):
                continue  # a field is a stored key
            bound = _bound(child)
            if len(bound) == 1 and bound != "_" and not re.search(rf"\b{bound}\b", below):
                line = child.lineno if isinstance(child, ast.expr | ast.arg) else 0
                yield Place(source.path, line, f"{bound} in {name or 'the module'}")
            yield from visit(child, below, name)

    if any(len(_bound(node)) == 1 for node in nodes(source.tree)):
        yield from visit(source.tree, ast.get_docstring(source.tree) or "", "")


_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _wrapped(source: Source) -> Iterator[Place]:
    for node in nodes(source.tree):
        if not isinstance(node, _SCOPES) or node.lineno == node.end_lineno:
            continue
        if isinstance(node, ast.Lambda):
            bound = {parameter.arg for parameter in parameters(node)}
        else:
            bound = {
                name.id
                for part in node.generators
                for name in ast.walk(part.target)
                if isinstance(name, ast.Name)
            }
        for name in sorted(bound & {"it", "one"}):
            yield Place(source.path, node.lineno, f"{name}: {ast.unparse(node)[:60]}")


def _starred(source: Source) -> Iterator[Place]:
    for node in nodes(source.tree):
        for argument in node.args if isinstance(node, ast.Call) else ():
            if isinstance(argument, ast.Starred) and isinstance(
                argument.value, ast.Tuple | ast.List
            ):
                yield Place(source.path, argument.lineno, ast.unparse(argument)[:60])


_FINDERS = {
    "parameter": _parameters,
    "long": _long_pronouns,
    "nameless": _nameless,
    "half": _half_sentences,
    "gone": _gone,
    "positional": _positional,
    "struct": _structs,
    "letter": _letters,
    "wrapped": _wrapped,
    "starred": _starred,
}


def places(kind: str, folder: str) -> list[Place]:
    """Return the places of a kind below a folder, in the order of files and lines."""
    return sorted(place for source in sources(folder) for place in _FINDERS[kind](source))


def local_names(function: Function) -> set[str]:
    """Return the names that a function binds itself: no parameters, none of comprehensions."""
    bound = set()
    nodes: list[ast.AST] = list(ast.iter_child_nodes(function))
    for node in nodes:  # which grows
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *_SCOPES)
        if not isinstance(node, inner):
            nodes += ast.iter_child_nodes(node)
    return bound


def mean_length_of_names(folder: str) -> float:
    """Return the mean length of bound names, each binding counted, without `_` at their ends."""
    every_node = chain.from_iterable(nodes(source.tree) for source in sources(folder))
    lengths = [len(name) for node in every_node if (name := _bound(node).strip("_"))]
    return sum(lengths) / len(lengths)


def main() -> None:
    """List the places of kinds, or count all kinds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--in", dest="folder", default="rater", help="default: rater")
    asked = parser.parse_args()
    for kind in asked.kinds:
        print(*places(kind, asked.folder), sep="\n")
    if not asked.kinds:
        for kind, about in KINDS.items():
            print(f"{len(places(kind, asked.folder)):5}  {kind:10} {about}")
        print(f"{mean_length_of_names(asked.folder):5.1f}  mean length of a name that is bound")


if __name__ == "__main__":
    main()
