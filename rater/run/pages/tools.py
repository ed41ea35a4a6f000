"""The programs of a traced run, compiled into the cache: a valgrind tool and what reads it."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rater.errors import InputError
from rater.run.programs.child_process import run_tool
from rater.run.programs.compile import compile_program, sha256_of

TOOL = "rater"  # valgrind's name of it: --tool=rater
_SOURCES = Path(__file__).parent / "native"
_INSTALL = (
    "install valgrind with its headers (Debian, Ubuntu: apt install valgrind; Fedora: dnf install "
    "valgrind-devel; Arch: pacman -S valgrind; SUSE: zypper install valgrind-devel)"
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_VERSION = re.compile(r"valgrind-(\d+)\.(\d+)")
_OLDEST = (3, 15)
# As valgrind's own Makefile.all.am has them: a static program at an address of its own.
_TOOL_FLAGS = (
    *("-O2", "-std=gnu99", "-fno-strict-aliasing", "-fno-builtin", "-fno-stack-protector"),
    *("-fomit-frame-pointer", "-fno-pie", "-static", "-no-pie", "-nodefaultlibs"),
    *("-nostartfiles", "-u", "_start", "-Wl,--build-id=none"),
)
_LOAD_ADDRESS = {"amd64": "0x58000000", "arm64": "0x58000000"}


@dataclass(frozen=True, slots=True)
class Valgrind:
    """An installed valgrind that tools can be built for."""

    program: Path
    version: str  # 3.19.0
    headers: Path
    libraries: Path  # libcoregrind-amd64-linux.a and others
    parts: Path  # what it loads when it runs: vgpreload_core and others
    architecture: str  # amd64


@dataclass(frozen=True, slots=True)
class TraceTools:
    """What a traced run needs, ready to be executed."""

    valgrind: Valgrind
    tool: Path
    analyser: Path

    @property
    def engine(self) -> str:
        """What traces, for people."""
        return f"valgrind {self.valgrind.version}"

    @contextmanager
    def library_folder(self) -> Iterator[Path]:
        """Make the folder that VALGRIND_LIB names: the tool among valgrind's own parts."""
        with TemporaryDirectory(prefix="rater-valgrind-") as name:
            folder = Path(name)
            for part in self.valgrind.parts.iterdir():
                (folder / part.name).symlink_to(part)
            (folder / f"{TOOL}-{self.valgrind.architecture}-linux").symlink_to(self.tool)
            yield folder


def find_valgrind(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Valgrind:
    """Return the valgrind in PATH with headers and libraries for tools.

    Raises `InputError` that says what is missing and how to get it. `root` is for tests.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise InputError(
            f"rater pages traces programs on {', '.join(_ARCHITECTURES)}, "
            f"this machine is {platform.machine()}"
        )
    found = shutil.which("valgrind", path=environment.get("PATH"))
    if found is None:
        raise InputError(f"rater pages traces programs with valgrind, not in PATH: {_INSTALL}")
    program = Path(found).resolve()
    version = run_tool([found, "--version"], Path("/")).output
    match = _VERSION.search(version)
    if match is None or (int(match[1]), int(match[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InputError(f"{found} says {version[:60]!r}: rater pages wants valgrind {oldest} on")
    prefix = program.parent.parent
    core, tool = f"libcoregrind-{architecture}-linux.a", f"none-{architecture}-linux"
    prefixes = dict.fromkeys((prefix, root / "usr", root / "usr/local"))
    lib = ("lib/*/valgrind", "lib/valgrind", "lib64/valgrind", "libexec/valgrind")
    headers = _with("pub_tool_tooliface.h", prefixes, ("include/valgrind",))
    libraries = _with(core, prefixes, lib)
    parts = _with(tool, prefixes, lib)
    for what, where in (
        ("the headers for tools", headers),
        (core, libraries),
        (f"its own tool {tool}", parts),
    ):
        if where is None:
            raise InputError(f"{found} is there, but {what} not: {_INSTALL}")
    assert headers is not None and libraries is not None and parts is not None
    return Valgrind(
        Path(found),
        version.strip().removeprefix("valgrind-"),
        headers,
        libraries,
        parts,
        architecture,
    )


def build_tools(valgrind: Valgrind, cache: Path) -> TraceTools:
    """Compile what a traced run needs, once a valgrind, compiler and version of rater.

    Raises `InputError` with the compiler's message.
    """
    a = valgrind.architecture
    libraries = [
        str(valgrind.libraries / f"{name}-{a}-linux.a")
        for name in ("libcoregrind", "libvex", "libgcc-sup")
    ]
    present = [it for it in libraries if Path(it).exists()]
    flags = (
        *_TOOL_FLAGS,
        f"-Wl,-Ttext-segment={_LOAD_ADDRESS[a]}",
        *(f"-D{it}=1" for it in (f"VGA_{a}", "VGO_linux", f"VGP_{a}_linux")),
        f"-DVGPV_{a}_linux_vanilla=1",
        f"-I{valgrind.headers}",
        # Its libraries are linked in: others are another program.
        f'-DLIBRARIES="{sha256_of(Path(present[0]))[:16]}"',
    )
    tool = compile_program(
        "rater-tracer", [_SOURCES / "tracer.c"], flags, [*present[:2], "-lgcc", *present[2:]], cache
    )
    return TraceTools(
        valgrind,
        tool.executable,
        native_program("analyse", cache, ("-pthread",)),
    )


def cost_program(cache: Path) -> Path:
    """Compile the program that measures what TLB misses and page faults cost."""
    return native_program("cost", cache)


def native_program(name: str, cache: Path, flags: Sequence[str] = ()) -> Path:
    """Compile one of the C programs of this folder that need no valgrind."""
    source = _SOURCES / f"{name}.c"
    return compile_program(f"rater-{name}", [source], ("-O2", *flags), (), cache).executable


def _with(name: str, prefixes: Mapping[Path, None], folders: Sequence[str]) -> Path | None:
    """Return the first folder that has a file."""
    found = (
        folder
        for prefix in prefixes
        for pattern in folders
        for folder in sorted(prefix.glob(pattern))
        if (folder / name).exists()
    )
    return next(found, None)
