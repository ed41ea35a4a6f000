"""Inputs of copies and their page cache, run directories, and whether shared inputs changed."""

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
from rater.text.values import ending_text

# -- Whether anybody wrote into inputs that all copies share ---------------------------------------


class InputWatch:
    """Detects writes of copies into inputs that they share, by ctimes: nobody can set these back.

    Links move a ctime too: rater makes and removes its own within `linking`. Where a ctime has
    moved otherwise the content is read. A write in the microseconds of another copy's link is not
    seen here, and found by the next run that wants the file.
    """

    def __init__(self) -> None:
        self._known: dict[Path, list[str]] = {}
        self._next_s = 0.0

    @contextmanager
    def linking(self, inputs: Iterable[ReadyInput]) -> Iterator[None]:
        """Attribute to rater itself all changes of the ctimes of inputs within the block."""
        unchanged = [
            shared_input.path
            for shared_input in inputs
            if not shared_input.private
            and self._known.get(shared_input.path) in (None, file_state_or_empty(shared_input.path))
        ]
        yield
        for path in unchanged:
            self._known[path] = file_state_or_empty(path)

    def damaged(self, shared_input: ReadyInput, *, seldom: bool = False) -> bool:
        """Tell whether a shared input was changed or removed.

        With `seldom`, while copies run, reading may take a twentieth of the time at most.
        """
        if shared_input.damaged():
            return True
        state = file_state_or_empty(shared_input.path)
        if shared_input.private or self._known.get(shared_input.path) == state:
            return False
        began_s = time.monotonic()
        if seldom and began_s < self._next_s:
            return False
        if shared_input.changed():
            return True
        self._known[shared_input.path] = state
        self._next_s = time.monotonic() + 20 * (time.monotonic() - began_s)
        return False


class ProgramWatch:
    """Detects programs of copies that were replaced since the last call of `replaced`."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._known = {path: self._identity(path) for path in sorted(files)}

    def replaced(self, benchmark: str | None, iteration: int | None) -> list[str]:
        """Describe the programs that are other files by now; for use before a phase."""
        identity_before, self._known = (
            self._known,
            {path: self._identity(path) for path in self._known},
        )
        phase_name = (benchmark or "here") + (
            "" if iteration is None else f" (iteration {iteration})"
        )
        return [
            f"{path} was replaced while the run went on: from {phase_name} on copies are of "
            "another program"
            for path, identity in self._known.items()
            if identity != identity_before[path]
        ]

    def _identity(self, path: Path) -> tuple[int, ...]:
        with suppress(OSError):
            status = path.stat()
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
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
            status = self.path.stat()
        except OSError:
            return True
        return (status.st_size, status.st_mtime_ns) != (self.size_bytes, self.mtime_ns)

    def changed(self) -> bool:
        """Tell the same by its content, which takes about a second a gigabyte."""
        return self.damaged() or (not self.private and sha256_of(self.path) != self.sha256)


class RunDir(Struct, frozen=True):
    """One copy's own directory for one step."""

    path: Path
    notices: tuple[str, ...]  # inputs that were copied, and why
    is_written: bool  # something was copied into it, which the disk may not have yet


class SetupFiles(Struct, frozen=True):
    """The files that a suite's set-up left, copied while nobody else could write there."""

    found: Mapping[str, ReadyInput | str]  # in the cache; a string says what is wrong


def cache_setup_files(folder: Path, names: Iterable[str], cache: Path) -> SetupFiles:
    """Copy files that a suite's set-up left in `folder` into the cache, once per content.

    The folder must be held (`locked`): later another rater may write there. What is as it
    was is not read again. Nothing of the folder stays in the page cache.
    """
    input_by_name: dict[str, ReadyInput | str] = {}
    for name in dict.fromkeys(names):
        source = folder / name
        try:
            is_file = source.stat() and source.is_file()
        except OSError as error:
            input_by_name[name] = (
                f"the suite's set-up did not leave {name} in {folder} ({error.strerror})"
            )
            continue
        input_by_name[name] = (
            _keep_setup_file(source, cache) if is_file else f"{source} is no regular file"
        )
        if is_file:
            drop_page_cache(source.resolve())  # it may be a link to somewhere else
    # Copies read the files in the cache. Those of the set-up, perhaps 100 GB, would take memory
    # from them, and all on our lgroup when the kernel does not let us spread the page cache.
    drop_page_cache(folder)
    return SetupFiles(input_by_name)


def _keep_setup_file(source: Path, cache: Path) -> ReadyInput:
    digest = cached_digest(source, cache / "digests")
    key = cache_key("made", digest, str(source.stat().st_mode & _EXECUTE))
    return _make_once(
        cache / "inputs" / key[:32], source.name, lambda target: _copy(source, target)
    )


def ready_inputs(
    benchmark: Benchmark, size: Size, cache: Path, setup_files: SetupFiles | None = None
) -> tuple[ReadyInput, ...]:
    """Make the input files of one size, once: copied or generated into the cache.

    The user's own files are copied there first, so that a benchmark that writes
    into its input cannot reach them. `left` is what the suite's set-up made.
    Raises `InputError`.
    """
    with cache_errors(cache):
        return tuple(
            replace(
                _ready_input(benchmark, input_file, cache, setup_files), private=input_file.private
            )
            for input_file in size.inputs
        )


def uncached_bytes(sizes: Iterable[Size], cache: Path) -> int:
    """Return what the user's input files of some sizes will take in the cache.

    What lies there already does not count, nor does what is not made yet.
    """
    bytes_by_folder: dict[Path, int] = {}
    for input_file in (input_file for size in sizes for input_file in size.inputs):
        if input_file.path is None:
            continue
        try:
            status = input_file.path.stat()
        except OSError:  # told when the input is made
            continue
        folder = _cache_folder(input_file.path, status, cache)
        if not (folder / "stamp").exists():
            bytes_by_folder[folder] = status.st_size
    return sum(bytes_by_folder.values())


def inputs_digest(inputs: Sequence[ReadyInput]) -> str | None:
    """Return a SHA-256 over names and contents of input files, None when there are none."""
    if not inputs:
        return None
    pairs = sorted((ready_input.name, ready_input.sha256) for ready_input in inputs)
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
        for ready_input in inputs:
            target = path / ready_input.name
            if target.parent != path:
                target.parent.mkdir(parents=True, exist_ok=True)
            if ready_input.private:
                _copy(ready_input.path, target)
                continue
            try:
                os.link(ready_input.path, target)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                _copy(ready_input.path, target)
                notices.append(f"input {ready_input.name} is copied, not linked: {error.strerror}")
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        raise cannot_be_made(path, error) from error
    is_written = bool(notices) or any(ready_input.private for ready_input in inputs)
    return RunDir(path, tuple(notices), is_written)


def cannot_be_made(path: Path, error: OSError) -> RunError:
    """Say why a run directory cannot be made, and the way out where there is one."""
    text = f"the run directory {path} cannot be made: {error.strerror}"
    if error.errno in _ROOM_HELPS:
        return RunError(f"{text}; make room or set RATER_CACHE to another folder")
    refused_path = error.filename2 or error.filename
    return RunError(f"{text} ({os.fsdecode(refused_path)})" if refused_path else text)


def flush_file_system(folder: Path) -> str | None:
    """Write everything that waits for `folder`'s file system to disk; say why it failed.

    What is not written now falls into a measurement.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return error.strerror
    try:
        return os.strerror(ctypes.get_errno()) if libc.syncfs(descriptor) else None
    finally:
        os.close(descriptor)


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
            _make_removable(path)
            shutil.rmtree(path)
    except OSError as error:
        return f"{path} could not be removed: {error.strerror or error} ({error.filename})"
    except RecursionError:
        return f"{path} could not be removed: folders nested too deeply; `rm -rf` can"
    return None


def links_work(inputs: Sequence[ReadyInput], work: Path) -> bool:
    """Try whether inputs can be hard-linked into `work`, an existing directory."""
    shared = [ready_input for ready_input in inputs if not ready_input.private]
    try:
        with tempfile.TemporaryDirectory(prefix="link-", dir=work) as scratch:
            for ready_input in shared[:1]:  # all lie in the cache
                os.link(ready_input.path, Path(scratch) / "link")
    except OSError:
        return False
    return True


def _make_removable(path: Path) -> None:
    _open_to_owner(path, None)
    for _, folders, _, folder_fd in os.fwalk(path):
        for folder in folders:
            _open_to_owner(folder, folder_fd)


def _open_to_owner(folder: str | Path, folder_fd: int | None) -> None:
    with suppress(NotADirectoryError):  # a link to a folder
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
        try:
            os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 - no name: the descriptor
        finally:
            os.close(descriptor)


def _ready_input(
    benchmark: Benchmark, input_file: InputFile, cache: Path, setup_files: SetupFiles | None
) -> ReadyInput:
    input_text = f"input {input_file.name} of {benchmark.name}"
    if input_file.generator is not None:
        return _generate(input_text, input_file.name, input_file.generator, cache)
    if input_file.made is not None:
        assert setup_files is not None  # the suite's reader wants a set-up then
        setup_file = setup_files.found[input_file.made]
        if isinstance(setup_file, str):
            raise InputError(f"{input_text}: {setup_file}")
        return replace(setup_file, name=input_file.name)
    assert input_file.path is not None  # the reader takes one of the three
    return _copy_into_cache(input_text, input_file.name, input_file.path, cache)


def _cache_folder(source: Path, status: os.stat_result, cache: Path) -> Path:
    state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode & _EXECUTE)
    return cache / "inputs" / cache_key(str(source), str(state))[:32]


def _copy_into_cache(input_text: str, name: str, source: Path, cache: Path) -> ReadyInput:
    try:
        status = source.stat()
    except OSError as error:
        raise InputError(f"{input_text}: {source}: {error.strerror}") from None

    def copy_source(target: Path) -> None:
        if stat.S_ISFIFO(source.stat().st_mode):
            raise InputError(f"{input_text}: {source} is a pipe, expected a file")
        _copy(source, target)
        # Copies read the file in the cache: the original would only fill this lgroup's memory.
        drop_page_cache(source.resolve())

    return _make_once(_cache_folder(source, status, cache), name, copy_source)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    execute_bits = source.stat().st_mode & _EXECUTE
    if execute_bits:
        target.chmod(stat.S_IMODE(target.stat().st_mode) | execute_bits)


def _generate(input_text: str, name: str, generator: Generator, cache: Path) -> ReadyInput:
    program = compile_program("generator", generator.sources, ("-O2",), ("-lm",), cache)
    key = cache_key("generated", program.sha256 or "", *generator.args)

    def generate(target: Path) -> None:
        arguments = [argument.replace("{output}", str(target)) for argument in generator.args]
        ended = run_tool([str(program.executable), *arguments], target.parent)
        if ended.status:
            raise InputError(
                f"{input_text}: its generator {ending_text(ended.status)}: "
                f"{' '.join(arguments)}\n{ended.output}".rstrip()
            )
        if not target.is_file():
            raise InputError(f"{input_text}: its generator did not write {{output}} ({target})")

    return _make_once(cache / "inputs" / key[:32], name, generate)


def _make_once(folder: Path, name: str, write: Callable[[Path], None]) -> ReadyInput:
    """Return `folder`'s data file, written by `write` unless it is there and unchanged.

    A second rater waits for the first. The file is flushed: writing it back
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
            size_text, mtime_text, sha256, *state = stamp.read_text().split()
            ready = ReadyInput(
                name=name,
                path=data,
                size_bytes=int(size_text),
                mtime_ns=int(mtime_text),
                sha256=sha256,
            )
            if file_state_or_empty(data) == state:
                return ready
            if not ready.changed():
                _write_stamp(ready, stamp)
                return ready
        except (FileNotFoundError, ValueError):
            pass
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=folder) as scratch:
            new_file = Path(scratch) / "data"
            write(new_file)
            new_file.chmod(0o444 | new_file.stat().st_mode & _EXECUTE)
            flush(new_file)
            status = new_file.stat()
            ready = ReadyInput(
                name=name,
                path=data,
                size_bytes=status.st_size,
                mtime_ns=status.st_mtime_ns,
                sha256=sha256_of(new_file),
            )
            stamp.unlink(missing_ok=True)
            new_file.replace(data)
        _write_stamp(ready, stamp)
        return ready


def _write_stamp(ready: ReadyInput, stamp: Path) -> None:
    stamp_fields = [str(ready.size_bytes), str(ready.mtime_ns), ready.sha256]
    new_stamp = stamp.with_name("tmp-stamp")
    new_stamp.write_text(" ".join([*stamp_fields, *file_state_or_empty(ready.path)]))
    new_stamp.replace(stamp)
