"""Programs: digests of files, and benchmarks compiled into the cache, or found."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import pwd
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from time import sleep, time_ns

from msgspec import Struct

from rater.plan.command_words import COPY_PLACEHOLDERS, placeholders_in
from rater.plan.suite import Benchmark, Size
from rater.run.programs.child_process import run_tool
from rater.system.errors import InputError
from rater.system.files import (
    UntrustedError,
    inspect_file,
    is_caller,
    make_private_folder,
    replace_file,
)
from rater.system.paths import user_folder
from rater.system.patterns import compile_later
from rater.text.documents import did_you_mean

CACHED = ("build", "digests", "inputs", "setup")  # folders of what can be made again
# Holds the hash of the program beside it; no benchmark can be called so.
_STAMP = "sha256 of the program"
_INCLUDE = compile_later(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".inc", ".inl", ".def")
# What -march=native may look at; frequencies and the like change from boot to boot.
_CPU_FIELDS = {
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),  # x86
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
    *("isa", "uarch", "cpu", "features", "processor 0"),  # riscv, power, s390
}
_INSTALL = (
    "install one (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc; "
    "Arch: pacman -S gcc; Alpine: apk add gcc musl-dev), or name yours in CC"
)
_NO_HEADERS = (
    "the C library's headers are missing: install libc6-dev (Debian, Ubuntu), "
    "glibc-devel (Fedora) or musl-dev (Alpine)"
)


class Compiler(Struct, frozen=True):
    """The user's `cc`."""

    argv: tuple[str, ...]  # $CC may hold arguments
    version: str  # first line of `cc --version`
    identity: str  # all of `cc --version`, and the path behind symbolic links


class BuiltProgram(Struct, frozen=True, kw_only=True):
    """The program of a benchmark, with the compiler and flags that made it."""

    executable: Path  # absolute
    sha256: str | None  # None when it may be executed but not read
    compiler: str | None  # version line; None for an existing command
    flags: str | None  # as a shell would take them, libraries included
    arguments: tuple[str, ...] = ()  # of an existing command, before those of the size


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return $RATER_CACHE, else $XDG_CACHE_HOME/rater, else ~/.cache/rater (absolute).

    Below it: `build/` programs, `inputs/` files made or copied once, `digests/` what
    files held that need not be read again, `work/` run directories, `machine.xml` what
    hwloc said of this machine. All of it may be deleted while no rater runs.
    """
    chosen_folder, default_folder = (
        environment.get("RATER_CACHE"),
        user_folder("CACHE", environment),
    )
    if chosen_folder:
        return Path(chosen_folder).absolute()
    if default_folder is None:
        raise InputError(
            "no home directory (HOME) to keep programs and inputs in; set RATER_CACHE to a folder"
        )
    with suppress(OSError, RuntimeError):  # XDG_CACHE_HOME may be there without a home
        if is_caller(Path.home().stat().st_uid):  # sudo kept it: root's, theirs would be closed
            return Path(pwd.getpwuid(0).pw_dir) / ".cache" / "rater"
    return default_folder


def build(benchmark: Benchmark, tune: str, cache: Path, size: Size | None = None) -> BuiltProgram:
    """Compile a benchmark with the flags of `tune` into `cache`, or find its command.

    Compiled again only when sources, headers beside them, compiler or flags
    changed. A size whose commands all have programs of their own does not need the
    benchmark's: its first one is found then. Raises `InputError` with the compiler's
    message, or the way out.
    """
    if not benchmark.sources:
        command = benchmark.command
        if size is not None and all(each.program for each in size.commands):
            command = size.commands[0].program
        executable = find_command(command[0], f"benchmark {benchmark.name}")
        return BuiltProgram(
            executable=executable,
            sha256=_sha256_or_none(executable),
            compiler=None,
            flags=None,
            arguments=command[1:],
        )
    if tune not in benchmark.flags:
        raise InputError(
            f"benchmark {benchmark.name} has no flags for tune {tune!r}; "
            f"{did_you_mean(tune, benchmark.flags)}"
        )
    return compile_program(
        benchmark.name, benchmark.sources, benchmark.flags[tune], benchmark.libraries, cache
    )


def is_built(benchmark: Benchmark, tune: str, cache: Path) -> bool:
    """Tell whether nothing has to be compiled; a cached program is not read for that."""
    if not benchmark.sources or tune not in benchmark.flags:
        return True
    key = _build_key(
        name=benchmark.name,
        sources=benchmark.sources,
        flags=benchmark.flags[tune],
        libraries=benchmark.libraries,
        compiler=find_compiler(),
    )
    return (cache / "build" / key[:32] / benchmark.name).exists()


def find_command(word: str, where: str = "the command") -> Path:
    """Return the absolute path of a program: a path as it stands, a plain word through PATH.

    Symbolic links stay: programs like busybox look at the name they are called by.
    """
    if "/" not in word:
        program = shutil.which(word)
        if program is None:
            raise InputError(
                f"{where}: {word!r} is not in PATH; install it, or give its path{_fill_hint(word)}"
            )
        return Path(program).absolute()
    path = Path(word).absolute()
    if path.is_dir():
        raise InputError(f"{where}: {path} is a directory, expected a program")
    if not path.exists():
        raise InputError(f"{where}: no such file: {path}{_fill_hint(word)}")
    if not os.access(path, os.X_OK):
        raise InputError(f"{where}: {path} may not be executed: chmod +x it{_noexec_hint(path)}")
    return path


def _fill_hint(program: str) -> str:
    """Return the way out where a placeholder is meant to name the program of each copy."""
    if not placeholders_in((program,), COPY_PLACEHOLDERS):
        return ""
    return f"; arguments alone have placeholders: sh -c 'exec {program}'"


def missing_programs(benchmark: Benchmark, size: Size, *, has_setup: bool = False) -> list[str]:
    """Return what is wrong with the existing programs that one size runs, in words.

    With `has_setup` programs given by a path are believed: the suite's set-up may make them.
    """
    programs = [benchmark.setup[0]] if benchmark.setup else []
    if benchmark.command and not all(command.program for command in size.commands):
        programs.append(benchmark.command[0])
    programs += [command.program[0] for command in size.commands if command.program]
    problems = []
    for word in dict.fromkeys(programs):
        if has_setup and "/" in word:
            continue
        try:
            find_command(word)
        except InputError as error:
            problems.append(str(error).removeprefix("the command: "))
    return problems


def find_compiler(environment: Mapping[str, str] = os.environ) -> Compiler:
    """Return the compiler that $CC names, else `cc`; raises `InputError` when there is none."""
    return _identify_compiler(
        environment.get("CC", "").strip() or "cc", environment.get("PATH", "")
    )


def compile_program(
    name: str, sources: Sequence[Path], flags: Sequence[str], libraries: Sequence[str], cache: Path
) -> BuiltProgram:
    """Compile `sources` to a program called `name`, once per content, compiler and flags.

    Safe against other raters doing the same: who comes second waits for the first.
    """
    compiler = find_compiler()
    options, arguments_behind = shlex.join([*flags, *libraries]), [*map(str, sources), *libraries]
    key = _build_key(name, sources, flags, libraries, compiler)
    folder = cache / "build" / key[:32]
    with cache_errors(cache), locked(folder.parent):
        digest = _intact_digest(folder, name) or _compile_into(
            folder, name, [*compiler.argv, *flags], arguments_behind
        )
    executable = folder / name
    if not os.access(executable, os.X_OK):
        raise InputError(
            f"{executable} may not be executed{_noexec_hint(executable)}; "
            "set RATER_CACHE to a folder where programs may run"
        )
    return BuiltProgram(
        executable=executable, sha256=digest, compiler=compiler.version, flags=options
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def cache_key(*parts: str | bytes) -> str:
    """Return a hash that differs whenever any part, or the split into parts, differs."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other raters, waiting for the one that holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Some network file systems know no locks; then two raters may both do the work.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def cache_errors(cache: Path) -> Iterator[None]:
    """Turn what a file system refuses into an error that names the cache and the way out.

    In a cache that others can write into nothing is run or removed: its folders are made here.
    """
    try:
        for name in (*CACHED, "work"):
            make_private_folder(cache / name)
        yield
    except OSError as error:
        raise InputError(
            f"the cache {cache} cannot be used: {error.strerror} ({error.filename}); "
            "make room or set RATER_CACHE to another folder"
        ) from error


def cpu_identity(cpuinfo: str) -> str:
    """Return the lines of /proc/cpuinfo that say what its first processor can do (pure)."""
    lines = [platform.machine()]
    first = cpuinfo.partition("\n\n")[0].splitlines()
    lines += [line for line in first if line.partition(":")[0].strip() in _CPU_FIELDS]
    return "\n".join(lines)


@lru_cache(maxsize=4)
def _identify_compiler(command: str, path: str) -> Compiler:
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise InputError(f"CC={command!r} is not a command line: {error}") from None
    program = shutil.which(argv[0], path=path)
    if program is None:
        text = (
            "no C compiler: cc is not in PATH" if command == "cc" else f"CC={command!r} not found"
        )
        raise InputError(f"{text}; {_INSTALL}")
    try:
        text = run_tool([program, *argv[1:], "--version"], Path("/")).output
    except OSError as error:
        raise InputError(f"the C compiler {program} does not run: {error.strerror}") from None
    version = text.splitlines()[0] if text else Path(program).name
    # A home may be shared with machines of another architecture, and a cache with it.
    identity = f"{Path(program).resolve()}\n{os.uname().machine}\n{text}"
    return Compiler((program, *argv[1:]), version, identity)


def _build_key(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str],
    libraries: Sequence[str],
    compiler: Compiler,
) -> str:
    parts: list[str | bytes] = [name, compiler.identity, *compiler.argv, "", *flags, "", *libraries]
    try:
        headers = {
            path
            for folder in {source.parent for source in sources}
            for path in folder.iterdir()
            if path.suffix in _HEADERS and path.is_file()
        }
        headers |= _included_headers([*sources, *headers])
        for source in [*sources, *sorted(headers)]:
            parts += [source.name, source.read_bytes()]
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}") from None
    if any("native" in flag for flag in (*flags, *compiler.argv)):
        parts.append(cpu_identity(Path("/proc/cpuinfo").read_text(errors="replace")))
    return cache_key(*parts)


def _included_headers(files: Iterable[Path]) -> set[Path]:
    headers: set[Path] = set()
    unread = list(files)
    seen = {path.resolve() for path in unread}
    while unread:
        file = unread.pop()
        for name in _INCLUDE.findall(file.read_bytes()):
            path = file.parent / os.fsdecode(name)
            if path.is_file() and path.resolve() not in seen:
                seen.add(path.resolve())
                headers.add(path)
                unread.append(path)
    return headers


def _compile_into(
    folder: Path, name: str, compiler_and_flags: Sequence[str], arguments_behind: Sequence[str]
) -> str:
    """Compile a program into a new folder of its own; return its hash, noted beside it."""
    with tempfile.TemporaryDirectory(
        prefix="tmp-", dir=folder.parent, ignore_cleanup_errors=True
    ) as scratch:
        build_folder = Path(scratch, "made")
        build_folder.mkdir(0o700)
        try:
            ended = run_tool(
                [*compiler_and_flags, "-o", str(build_folder / name), *arguments_behind],
                build_folder,
            )
        except OSError as error:
            raise InputError(
                f"the C compiler {compiler_and_flags[0]} does not run: {error.strerror}"
            ) from None
        if ended.status or not (build_folder / name).is_file():
            command_text = shlex.join([*compiler_and_flags, "-o", name, *arguments_behind])
            lines = [
                f"{name}: the compiler failed (status {ended.status}): {command_text}",
                ended.output,
            ]
            if "stdio.h" in ended.output or "stdlib.h" in ended.output:
                lines.append(_NO_HEADERS)
            raise InputError("\n".join(lines))
        (build_folder / name).chmod(0o755)
        digest = sha256_of(build_folder / name)
        replace_file(build_folder / _STAMP, digest.encode(), mode=0o644)
        with suppress(FileNotFoundError):  # what lies there is damaged, or another user's
            folder.rename(Path(scratch, "damaged"))
        build_folder.rename(folder)
    return digest


def _intact_digest(folder: Path, name: str) -> str | None:
    """Return the hash of a program that nobody else can have made or changed, else None."""
    try:
        with inspect_file(folder / name) as program, inspect_file(folder / _STAMP) as stamp:
            if program.writer or stamp.writer:
                return None
            with os.fdopen(program.reopen(), "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            return digest if stamp.read(1000) == digest.encode() else None
    except (FileNotFoundError, NotADirectoryError, UntrustedError):
        return None


def _sha256_or_none(path: Path) -> str | None:
    try:
        return sha256_of(path)
    except OSError:
        return None


def _noexec_hint(path: Path) -> str:
    on_noexec = os.statvfs(path).f_flag & os.ST_NOEXEC
    return " (its file system is mounted noexec)" if on_noexec else ""


# -- Digests of files, which are not read again as long as nothing was written into them -----------

# File systems take times from a clock that lags by one tick of the kernel, at most 10 ms.
_TICK_NS = 20_000_000
# Times in whole seconds (ext3, some NFS servers) or in steps of two (FAT).
_COARSE_NS = 3_000_000_000


def cached_digest(path: Path, records: Path) -> str:
    """Return the SHA-256 of a file's content, as noted in the folder `records` if it is unchanged.

    Unchanged is what has the inode, size, mtime and ctime that it had when it was read: any
    write moves the ctime, which no program can set back. `path` must be the same string each
    time. Raises `OSError`.
    """
    record = records / cache_key(str(path))[:32]
    state = state_of(path)
    try:
        noted = record.read_text().split()
    except FileNotFoundError:
        noted = []
    if noted[:-1] == state:
        return noted[-1]
    is_settled = _is_settled(path)
    digest = sha256_of(path)
    if is_settled and state_of(path) == state:
        records.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=records) as scratch:
            fresh = Path(scratch) / "record"
            fresh.write_text(" ".join([*state, digest]))
            fresh.replace(record)
    return digest


def state_of(path: Path) -> list[str]:
    """Return inode, size, mtime and ctime of a file. Raises `OSError`."""
    status = path.stat()
    return [
        str(number)
        for number in (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    ]


def file_state_or_empty(path: Path) -> list[str]:
    """Return the same, empty where there is no file."""
    try:
        return state_of(path)
    except OSError:
        return []


def _is_settled(path: Path) -> bool:
    """Tell whether a write from now on would get another ctime than the file has.

    A file of this very moment is waited for; of coarse clocks the next run will know.
    """
    changed_ns = path.stat().st_ctime_ns
    age_ns = time_ns() - changed_ns
    if changed_ns % 1_000_000_000 == 0:
        return age_ns > _COARSE_NS
    if 0 <= age_ns < _TICK_NS:
        sleep((_TICK_NS - age_ns) / 1e9)
        return True
    return age_ns >= _TICK_NS
