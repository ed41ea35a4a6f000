"""What a copy finds when it starts: inputs and their page cache, and whether they changed."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.placement.memory_policy import ordinary_nodes
from rater.plan.suite import Benchmark, Generator, InputFile, Size
from rater.plan.topology import Topology
from rater.record.run import MemoryPolicy, Placement
from rater.run.host.memory import drop_page_cache
from rater.run.host.thread_binding import bound_as
from rater.run.programs.child_process import run_tool
from rater.run.programs.compile import (
    cache_errors,
    cache_key,
    cached_digest,
    compile_program,
    file_state_or_empty,
    locked,
    sha256_of,
)
from rater.system.errors import InputError, RunError
from rater.system.files import flush

# -- Whether inputs that all copies share are still what they were when they were made -------------


class InputWatch:
    """Tells whether copies wrote into inputs that they share, by ctimes, which nobody can put back.

    Links move a ctime too: rater makes and removes its own within `linking`. Where a ctime has
    moved otherwise the content is read. A write in the microseconds of another copy's link is not
    seen here, and found by the next run that wants the file.
    """

    def __init__(self) -> None:
        self._known: dict[Path, list[str]] = {}
        self._next_s = 0.0

    @contextmanager
    def linking(self, inputs: Iterable[ReadyInput]) -> Iterator[None]:
        """Take what happens to the ctimes of inputs for rater's own doing."""
        own = [
            one.path
            for one in inputs
            if not one.private
            and self._known.get(one.path) in (None, file_state_or_empty(one.path))
        ]
        yield
        for path in own:
            self._known[path] = file_state_or_empty(path)

    def damaged(self, one: ReadyInput, *, seldom: bool = False) -> bool:
        """Tell whether a shared input is not what it was.

        `seldom`: copies run, and reading it may take a twentieth of the time at most.
        """
        if one.damaged():
            return True
        state = file_state_or_empty(one.path)
        if one.private or self._known.get(one.path) == state:
            return False
        began_s = time.monotonic()
        if seldom and began_s < self._next_s:
            return False
        if one.changed():
            return True
        self._known[one.path] = state
        self._next_s = time.monotonic() + 20 * (time.monotonic() - began_s)
        return False


class ProgramWatch:
    """Tells which of the programs that copies execute were replaced since it was asked last."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._known = {path: self._identity(path) for path in sorted(files)}

    def replaced(self, benchmark: str | None, iteration: int | None) -> list[str]:
        """Return in words those that are other files by now, before a phase."""
        before, self._known = self._known, {path: self._identity(path) for path in self._known}
        where = (benchmark or "here") + ("" if iteration is None else f" (iteration {iteration})")
        return [
            f"{path} was replaced while the run went on: from {where} on copies are of another "
            "program"
            for path, identity in self._known.items()
            if identity != before[path]
        ]

    def _identity(self, path: Path) -> tuple[int, ...]:
        with suppress(OSError):
            found = path.stat()
            return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
        return ()


# -- Page cache that belongs to no lgroup more than to the others ----------------------------------


def spread_over(topology: Topology) -> tuple[int, ...]:
    """Return the nodes to spread page cache over: ordinary memory beside CPUs; () if only one."""
    nodes = ordinary_nodes(topology)
    return nodes if len(nodes) > 1 else ()


@contextmanager
def page_cache_spread(nodes: Sequence[int]) -> Iterator[None]:
    """Interleave over `nodes` (OS numbers) what this thread, and what it starts, reads and writes.

    The kernel takes a page of the page cache by the memory policy of who first reads or
    writes it (`alloc_pages` in mm/mempolicy.c), and it stays there. Where the kernel refuses
    the policy (a container), or for no nodes, everything is as it was.
    """
    spread = Placement.unbound(
        copy=0, memory_policy=MemoryPolicy.INTERLEAVE, memory_nodes=tuple(nodes)
    )
    with ExitStack() as stack:
        with suppress(RunError):
            stack.enter_context(bound_as(spread) if nodes else nullcontext())
        yield


# -- What a copy finds when it starts: its inputs, its own run directory ---------------------------

# Why a hard link may be refused where a copy is not.
_NO_LINK = frozenset(
    (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS)
)
# What more room, or another folder, is a way out of.
_ROOM_HELPS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM))
_EXECUTE = 0o111


class ReadyInput(Struct, frozen=True, kw_only=True):
    """An input file in the cache, which run directories link to."""

    name: str  # relative to the run directory
    path: Path
    size_bytes: int
    mtime_ns: int
    sha256: str = ""  # of its content when it was made
    private: bool = False  # each copy gets its own, which it may write into

    def damaged(self) -> bool:
        """Tell whether somebody wrote into the file since it was made: copies share it.

        Who puts its time back is not noticed here: `InputWatch` does.
        """
        if self.private:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return (found.st_size, found.st_mtime_ns) != (self.size_bytes, self.mtime_ns)

    def changed(self) -> bool:
        """Tell the same by its content, which takes about a second a gigabyte."""
        return self.damaged() or (not self.private and sha256_of(self.path) != self.sha256)


class RunDir(Struct, frozen=True):
    """One copy's own directory for one step."""

    path: Path
    notices: tuple[str, ...]  # inputs that were copied, and why
    is_written: bool  # something was copied into it, which the disk may not have yet


class SetupFiles(Struct, frozen=True):
    """What a suite's set-up left, as it was when nobody else could write there."""

    found: Mapping[str, ReadyInput | str]  # in the cache; a string says what is wrong


def cache_setup_files(folder: Path, names: Iterable[str], cache: Path) -> SetupFiles:
    """Copy files that a suite's set-up left in `folder` into the cache, once per content.

    The folder must be held (`locked`): later another rater may write there. What is as it
    was is not read again. Nothing of the folder stays in the page cache.
    """
    found: dict[str, ReadyInput | str] = {}
    for name in dict.fromkeys(names):
        source = folder / name
        try:
            is_file = source.stat() and source.is_file()
        except OSError as error:
            found[name] = f"the suite's set-up did not leave {name} in {folder} ({error.strerror})"
            continue
        found[name] = _kept(source, cache) if is_file else f"{source} is no regular file"
        if is_file:
            drop_page_cache(source.resolve())  # it may be a link to somewhere else
    # Copies read what was made of it: a set-up of 100 GB would be 100 GB less for them, and
    # all of it on our lgroup where the kernel does not let us spread it.
    drop_page_cache(folder)
    return SetupFiles(found)


def _kept(source: Path, cache: Path) -> ReadyInput:
    digest = cached_digest(source, cache / "digests")
    key = cache_key("made", digest, str(source.stat().st_mode & _EXECUTE))
    return _made_once(cache / "inputs" / key[:32], source.name, lambda to: _copy(source, to))


def ready_inputs(
    benchmark: Benchmark, size: Size, cache: Path, left: SetupFiles | None = None
) -> tuple[ReadyInput, ...]:
    """Make the input files of one size, once: copied or generated into the cache.

    The user's own files are copied there first, so that a benchmark that writes
    into its input cannot reach them. `left` is what the suite's set-up made.
    Raises `InputError`.
    """
    with cache_errors(cache):
        return tuple(
            replace(_ready_input(benchmark, wanted, cache, left), private=wanted.private)
            for wanted in size.inputs
        )


def uncached_bytes(sizes: Iterable[Size], cache: Path) -> int:
    """Return what the user's input files of some sizes will take in the cache.

    What lies there already does not count, nor does what is not made yet.
    """
    found: dict[Path, int] = {}
    for wanted in (wanted for size in sizes for wanted in size.inputs):
        if wanted.path is None:
            continue
        try:
            stated = wanted.path.stat()
        except OSError:  # told when the input is made
            continue
        folder = _folder_of(wanted.path, stated, cache)
        if not (folder / "stamp").exists():
            found[folder] = stated.st_size
    return sum(found.values())


def inputs_digest(inputs: Sequence[ReadyInput]) -> str | None:
    """Return a SHA-256 over names and contents of input files, None when there are none."""
    if not inputs:
        return None
    pairs = sorted((made.name, made.sha256) for made in inputs)
    return cache_key(*(part for pair in pairs for part in pair))


def run_dir_name(benchmark: str, iteration: int, copy: int, step: int = 0) -> str:
    """Return `benchmark.i1.c0007`, with `.s2` for a later step of a copy's queue."""
    name = f"{benchmark}.i{iteration}.c{copy:04}"
    return f"{name}.s{step}" if step else name


def make_run_dir(work: Path, name: str, inputs: Sequence[ReadyInput]) -> RunDir:
    """Make `work/name` with every input hard-linked into it; private ones are copied.

    Others are copied where links fail, which `notices` tell.

    Raises `RunError` when the file system refuses (full, not writable).
    """
    path = work / name
    notices: list[str] = []
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise cannot_be_made(path, error) from error
    try:
        for wanted in inputs:
            target = path / wanted.name
            if target.parent != path:
                target.parent.mkdir(parents=True, exist_ok=True)
            if wanted.private:
                _copy(wanted.path, target)
                continue
            try:
                os.link(wanted.path, target)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                _copy(wanted.path, target)
                notices.append(f"input {wanted.name} is copied, not linked: {error.strerror}")
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise cannot_be_made(path, error) from error
    is_written = bool(notices) or any(wanted.private for wanted in inputs)
    return RunDir(path, tuple(notices), is_written)


def cannot_be_made(path: Path, error: OSError) -> RunError:
    """Say why a run directory cannot be made, and the way out where there is one."""
    text = f"the run directory {path} cannot be made: {error.strerror}"
    if error.errno in _ROOM_HELPS:
        return RunError(f"{text}; make room or set RATER_CACHE to another folder")
    what = error.filename2 or error.filename
    return RunError(f"{text} ({os.fsdecode(what)})" if what else text)


def flush_file_system(folder: Path) -> str | None:
    """Write everything that waits for `folder`'s file system to disk; say why it failed.

    What is not written now falls into a measurement.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return error.strerror
    try:
        return os.strerror(ctypes.get_errno()) if libc.syncfs(handle) else None
    finally:
        os.close(handle)


def remove_run_dir(path: Path) -> str | None:
    """Remove a run directory; return what could not be removed, in words.

    Folders the benchmark made without write permission are opened first. No symbolic link is
    followed, and where one stands in the place of the directory it alone is removed.
    """
    try:
        if path.is_symlink():
            path.unlink()
            return f"{path} was a symbolic link by then: where it led was not removed"
        if not path.exists():
            return None
        try:
            shutil.rmtree(path)
        except PermissionError:
            _open_up(path)
            shutil.rmtree(path)
    except OSError as error:
        return f"{path} could not be removed: {error.strerror or error} ({error.filename})"
    except RecursionError:
        return f"{path} could not be removed: folders nested too deeply; `rm -rf` can"
    return None


def links_work(inputs: Sequence[ReadyInput], work: Path) -> bool:
    """Try whether inputs can be hard-linked into `work`, an existing directory."""
    shared = [made for made in inputs if not made.private]
    try:
        with tempfile.TemporaryDirectory(prefix="link-", dir=work) as scratch:
            for made in shared[:1]:  # all lie in the cache
                os.link(made.path, Path(scratch) / "link")
    except OSError:
        return False
    return True


def _open_up(path: Path) -> None:
    _own(path, None)
    for _, folders, _, handle in os.fwalk(path):
        for name in folders:
            _own(name, handle)


def _own(name: str | Path, inside: int | None) -> None:
    with suppress(NotADirectoryError):  # a link to a folder
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 - no name: the descriptor
        finally:
            os.close(handle)


def _ready_input(
    benchmark: Benchmark, wanted: InputFile, cache: Path, left: SetupFiles | None
) -> ReadyInput:
    what = f"input {wanted.name} of {benchmark.name}"
    if wanted.generator is not None:
        return _generated(what, wanted.name, wanted.generator, cache)
    if wanted.made is not None:
        assert left is not None  # the suite's reader wants a set-up then
        found = left.found[wanted.made]
        if isinstance(found, str):
            raise InputError(f"{what}: {found}")
        return replace(found, name=wanted.name)
    assert wanted.path is not None  # the reader takes one of the three
    return _copied(what, wanted.name, wanted.path, cache)


def _folder_of(source: Path, found: os.stat_result, cache: Path) -> Path:
    state = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode & _EXECUTE)
    return cache / "inputs" / cache_key(str(source), str(state))[:32]


def _copied(what: str, name: str, source: Path, cache: Path) -> ReadyInput:
    try:
        found = source.stat()
    except OSError as error:
        raise InputError(f"{what}: {source}: {error.strerror}") from None

    def copy_source(target: Path) -> None:
        if stat.S_ISFIFO(source.stat().st_mode):
            raise InputError(f"{what}: {source} is a pipe, expected a file")
        _copy(source, target)
        # Copies read what was made of it: the original would only fill this lgroup's memory.
        drop_page_cache(source.resolve())

    return _made_once(_folder_of(source, found, cache), name, copy_source)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    execute = source.stat().st_mode & _EXECUTE
    if execute:
        target.chmod(stat.S_IMODE(target.stat().st_mode) | execute)


def _generated(what: str, name: str, generator: Generator, cache: Path) -> ReadyInput:
    built = compile_program("generator", generator.sources, ("-O2",), ("-lm",), cache)
    key = cache_key("generated", built.sha256 or "", *generator.args)

    def generate(target: Path) -> None:
        args = [arg.replace("{output}", str(target)) for arg in generator.args]
        ended = run_tool([str(built.executable), *args], target.parent)
        if ended.status:
            raise InputError(
                f"{what}: its generator ended with status {ended.status}: "
                f"{' '.join(args)}\n{ended.output}".rstrip()
            )
        if not target.is_file():
            raise InputError(f"{what}: its generator did not write {{output}} ({target})")

    return _made_once(cache / "inputs" / key[:32], name, generate)


def _made_once(folder: Path, name: str, write: Callable[[Path], None]) -> ReadyInput:
    """Return `folder`'s data file, written by `write` unless it is there as it was made.

    Whoever comes second waits for the first. The file is flushed: writing it back
    to disk must not fall into a measurement. It is not dropped: the first copy would
    read it from disk within its time, into the memory of its own lgroup, and be the
    slow one. It stays in the page cache, spread over the lgroups
    (`page_cache_spread`), so that all copies find it, and each lgroup has as much of it.
    What a later run finds here is read only where its ctime has moved, as copies' links do.
    """
    data, stamp = folder / "data", folder / "stamp"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            size, mtime_ns, sha256, *state = stamp.read_text().split()
            ready = ReadyInput(
                name=name, path=data, size_bytes=int(size), mtime_ns=int(mtime_ns), sha256=sha256
            )
            if file_state_or_empty(data) == state:
                return ready
            if not ready.changed():
                _stamp(ready, stamp)
                return ready
        except (FileNotFoundError, ValueError):
            pass
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=folder) as scratch:
            fresh = Path(scratch) / "data"
            write(fresh)
            fresh.chmod(0o444 | fresh.stat().st_mode & _EXECUTE)
            flush(fresh)
            found = fresh.stat()
            ready = ReadyInput(
                name=name,
                path=data,
                size_bytes=found.st_size,
                mtime_ns=found.st_mtime_ns,
                sha256=sha256_of(fresh),
            )
            stamp.unlink(missing_ok=True)
            fresh.replace(data)
        _stamp(ready, stamp)
        return ready


def _stamp(ready: ReadyInput, stamp: Path) -> None:
    known = [str(ready.size_bytes), str(ready.mtime_ns), ready.sha256]
    fresh = stamp.with_name("tmp-stamp")
    fresh.write_text(" ".join([*known, *file_state_or_empty(ready.path)]))
    fresh.replace(stamp)
