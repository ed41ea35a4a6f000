"""What a copy finds when it starts: its inputs, its own run directory."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rater.errors import InputError, RunError
from rater.plan.suite import Benchmark, Generator, InputFile, Size
from rater.run.build import cache_errors, compile_program, key_of, sha256_of
from rater.run.child import run_tool
from rater.run.pagecache import drop_cached

# Why a hard link may be refused where a copy is not.
_NO_LINK = frozenset(
    (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS)
)


@dataclass(frozen=True, slots=True)
class ReadyInput:
    """An input file that run directories link to: in the cache, or made by a suite's set-up."""

    name: str  # relative to the run directory
    path: Path
    size_bytes: int
    mtime_ns: int
    sha256: str = ""  # of its content when it was made
    private: bool = False  # each copy gets its own, which it may write into

    def damaged(self) -> bool:
        """Tell whether somebody wrote into the file since it was made: copies share it."""
        if self.private:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return (found.st_size, found.st_mtime_ns) != (self.size_bytes, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class RunDir:
    """One copy's own directory for one step."""

    path: Path
    stdout: Path  # files for the copy's output, not made yet
    stderr: Path
    notices: tuple[str, ...]  # inputs that were copied, and why

    def remove(self) -> str | None:
        """Remove it with all that the copy left in it; return what could not be removed."""
        return remove_run_dir(self.path)


def ready_inputs(
    benchmark: Benchmark, size: Size, cache: Path, setup_folder: Path | None = None
) -> tuple[ReadyInput, ...]:
    """Make the input files of one size, once: copied or generated into the cache.

    The user's own files are copied there first, so that a benchmark that writes
    into its input cannot reach them. `setup_folder` is where the suite's set-up
    left what it made. Raises `InputError`.
    """
    with cache_errors(cache):
        return tuple(
            replace(_ready_input(benchmark, wanted, cache, setup_folder), private=wanted.private)
            for wanted in size.inputs
        )


def digest_of(inputs: Sequence[ReadyInput]) -> str | None:
    """Return a SHA-256 over names and contents of input files, None when there are none."""
    if not inputs:
        return None
    pairs = sorted((made.name, made.sha256) for made in inputs)
    return key_of(*(part for pair in pairs for part in pair))


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
        for wanted in inputs:
            target = path / wanted.name
            if target.parent != path:
                target.parent.mkdir(parents=True, exist_ok=True)
            if wanted.private:
                shutil.copyfile(wanted.path, target)
                continue
            try:
                os.link(wanted.path, target)
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                shutil.copyfile(wanted.path, target)
                notices.append(f"input {wanted.name} is copied, not linked: {error.strerror}")
    except OSError as error:
        if error.errno != errno.EEXIST:
            shutil.rmtree(path, ignore_errors=True)
        raise RunError(
            f"the run directory {path} cannot be made: {error.strerror}; "
            "make room or set RATER_CACHE to another folder"
        ) from error
    return RunDir(path, path / "stdout", path / "stderr", tuple(notices))


def remove_run_dir(path: Path) -> str | None:
    """Remove a run directory; return what could not be removed, in words.

    Folders the benchmark made without write permission are opened first.
    """

    try:
        try:
            shutil.rmtree(path)
        except PermissionError:
            _open_up(path)
            shutil.rmtree(path)
    except OSError as error:
        return f"{path} could not be removed: {error.strerror} ({error.filename})"
    except RecursionError:
        return f"{path} could not be removed: folders nested too deeply; `rm -rf` can"
    return None


def links_work(inputs: Sequence[ReadyInput], work: Path) -> bool:
    """Try whether inputs can be hard-linked into `work`, an existing directory."""
    shared = [made for made in inputs if not made.private]
    try:
        with tempfile.TemporaryDirectory(prefix="link-", dir=work) as scratch:
            # A set-up's folder may lie elsewhere than the cache of inputs: one of each.
            for place, made in {made.path.stat().st_dev: made for made in shared}.items():
                os.link(made.path, Path(scratch) / f"link-{place}")
    except OSError:
        return False
    return True


def _open_up(path: Path) -> None:
    """Give ourselves write permission for every folder below `path`."""
    folders = [path]
    while folders:
        folder = folders.pop()
        folder.chmod(0o700)
        with os.scandir(folder) as entries:
            folders += [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]


def _ready_input(
    benchmark: Benchmark, wanted: InputFile, cache: Path, setup_folder: Path | None
) -> ReadyInput:
    what = f"input {wanted.name} of {benchmark.name}"
    if wanted.generator is not None:
        return _generated(what, wanted.name, wanted.generator, cache)
    if wanted.made is not None:
        assert setup_folder is not None  # the suite's reader wants a set-up then
        return _left_by_setup(what, wanted, setup_folder, cache)
    assert wanted.path is not None  # the reader takes one of the three
    return _copied(what, wanted.name, wanted.path, cache)


def _left_by_setup(what: str, wanted: InputFile, folder: Path, cache: Path) -> ReadyInput:
    source = folder / (wanted.made or "")
    try:
        real = source.resolve(strict=True)
    except OSError as error:
        raise InputError(
            f"{what}: the suite's set-up did not leave {wanted.made} in {folder} ({error.strerror})"
        ) from None
    if not real.is_file():
        raise InputError(f"{what}: {source} is no regular file")
    if not real.is_relative_to(folder.resolve()):
        # A link to a file of the user's, which copies must not reach.
        return _copied(what, wanted.name, real, cache)
    # Written back to disk now: that must not fall into a measurement.
    _flush(real)
    found = real.stat()
    return ReadyInput(wanted.name, real, found.st_size, found.st_mtime_ns, sha256_of(real))


def _copied(what: str, name: str, source: Path, cache: Path) -> ReadyInput:
    try:
        found = source.stat()
    except OSError as error:
        raise InputError(f"{what}: {source}: {error.strerror}") from None
    key = key_of(str(source), str((found.st_ino, found.st_size, found.st_mtime_ns)))

    def copy_source(target: Path) -> None:
        if stat.S_ISFIFO(source.stat().st_mode):
            raise InputError(f"{what}: {source} is a pipe, expected a file")
        shutil.copyfile(source, target)
        # Copies read what was made of it: the original would only fill this lgroup's memory.
        drop_cached(source.resolve())

    return _made_once(cache / "inputs" / key[:32], name, copy_source)


def _generated(what: str, name: str, generator: Generator, cache: Path) -> ReadyInput:
    built = compile_program("generator", generator.sources, ("-O2",), ("-lm",), cache)
    key = key_of("generated", built.sha256 or "", *generator.args)

    def generate(target: Path) -> None:
        args = [arg.replace("{output}", str(target)) for arg in generator.args]
        ended = run_tool([str(built.executable), *args], target.parent)
        if ended.status:
            raise InputError(
                f"{what}: its generator ended with status {ended.status}: "
                f"{' '.join(args)}\n{ended.said}".rstrip()
            )
        if not target.is_file():
            raise InputError(f"{what}: its generator did not write {{output}} ({target})")

    return _made_once(cache / "inputs" / key[:32], name, generate)


def _made_once(folder: Path, name: str, write: Callable[[Path], None]) -> ReadyInput:
    """Return `folder`'s data file, written by `write` unless it is there as it was made.

    Whoever comes second waits for the first. The file is flushed: writing it back
    to disk must not fall into a measurement.
    """
    data, stamp = folder / "data", folder / "stamp"
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        try:
            size, mtime_ns, sha256 = stamp.read_text().split()
            ready = ReadyInput(name, data, int(size), int(mtime_ns), sha256)
            if not ready.damaged():
                return ready
        except (FileNotFoundError, ValueError):
            pass
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=folder) as scratch:
            fresh = Path(scratch) / "data"
            write(fresh)
            fresh.chmod(0o444)
            _flush(fresh)
            found = fresh.stat()
            stamped = Path(scratch) / "stamp"
            sha256 = sha256_of(fresh)
            stamped.write_text(f"{found.st_size} {found.st_mtime_ns} {sha256}\n")
            fresh.replace(data)
            stamped.replace(stamp)
        return ReadyInput(name, data, found.st_size, found.st_mtime_ns, sha256)


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


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
