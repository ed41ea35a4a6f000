"""Commands of a copy as one process under every shell, and set-ups: where they run, what stays."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.schedule import Phase, Step, make_plan
from rater.plan.suite import Benchmark, Command, InputFile, Size, Suite
from rater.record.run import MemoryPolicy, Placement
from rater.run.host import discover as machine
from rater.run.host.memory import drop_page_cache, read_node_memory
from rater.run.host.thread_binding import memory_support
from rater.run.programs import compile
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import build, cached_digest, locked, sha256_of
from rater.run.programs.inputs import (
    ReadyInput,
    cache_setup_files,
    flush_file_system,
    inputs_digest,
    make_run_dir,
    page_cache_spread,
    ready_inputs,
    spread_over,
)
from rater.run.programs.script import (
    CommandLine,
    benchmark_environment,
    command_lines,
    digest_of_programs,
    failed_command,
    set_up_suite,
    setup_folder,
    shown,
    to_argv,
)
from rater.run.workplace import run_dirs as workplace
from rater.run.workplace.run_dirs import CopyEnvironments, Program, RunFolders
from rater.system.errors import InputError, RunError
from tests.support.page_cache import cached_bytes, is_droppable
from tests.support.processes import wait_until_dead
from tests.support.shells import SHELLS, sh
from tests.support.suite_text import parse_suite


class Ended:
    """A script that ran to its end in one of the shells."""

    def __init__(self, shell: list[str], lines: list[CommandLine], folder: Path) -> None:
        argv = to_argv(lines)
        program = shutil.which(shell[0])
        if program is None:
            pytest.skip(f"no {shell[0]} here")
        self.stderr = folder / "stderr"
        with (folder / "stdout").open("wb") as stdout, self.stderr.open("wb") as stderr:
            child = subprocess.Popen(
                [program, *shell[1:], *argv[1:]],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
            _, status, self.usage = os.wait4(child.pid, 0)
            child.returncode = code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else None
        self.signal = -code if code < 0 else None
        self.stdout = (folder / "stdout").read_text()
        self.blamed = failed_command(argv, str(self.stderr), self.exit_code, self.signal)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> list[str]:
    return SHELLS[request.param]


def test_one_plain_command_is_executed_without_a_shell() -> None:
    assert to_argv([CommandLine(words=("/bin/echo", "a b"))]) == ("/bin/echo", "a b")
    assert to_argv([CommandLine(words=("/bin/echo",))], ["/usr/bin/nice"]) == (
        "/usr/bin/nice",
        "/bin/echo",
    )
    assert failed_command(("/bin/echo",), "/nonexistent", 1, None) is None


def test_commands_run_in_order_and_stop_at_the_first_that_fails(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [sh("echo a"), sh("echo b; exit 7"), sh("echo c")], tmp_path)
    assert (done.stdout, done.exit_code) == ("a\nb\n", 7)
    assert done.blamed == "command 2 of 3 (/bin/sh -c 'echo b; exit 7'): exit code 7"


def test_the_last_command_is_told_by_what_the_script_did_not_say(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [sh("echo a"), sh("echo b; exit 3")], tmp_path)
    assert (done.stdout, done.exit_code) == ("a\nb\n", 3)
    assert done.blamed == "command 2 of 2 (/bin/sh -c 'echo b; exit 3'): exit code 3"


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGPIPE])
def test_a_signal_that_ends_a_command_ends_the_script(
    shell: list[str], tmp_path: Path, number: int
) -> None:
    done = Ended(shell, [sh(f"kill -{int(number)} $$"), sh("echo no")], tmp_path)
    assert (done.stdout, done.signal) == ("", number)
    assert done.blamed == f"command 1 of 2 (/bin/sh -c 'kill -{int(number)} $$'): signal {number}"


def test_nobody_is_blamed_for_a_script_that_was_killed_from_outside(tmp_path: Path) -> None:
    done = Ended(["dash"], [sh("exit 0"), sh("kill -9 $$")], tmp_path)
    assert (done.signal, done.blamed) == (signal.SIGKILL, None)


def test_a_program_or_input_that_is_not_there_fails_its_own_command(
    shell: list[str], tmp_path: Path
) -> None:
    done = Ended(shell, [CommandLine(words=("/no/such",)), sh("echo no")], tmp_path)
    assert (done.exit_code, done.blamed) == (127, "command 1 of 2 (/no/such): exit code 127")
    for lines in ([CommandLine(words=("/bin/cat",), stdin="missing"), sh("true")],
                  [sh("true"), CommandLine(words=("/bin/cat",), stdin="missing")]):  # fmt: skip
        done = Ended(shell, lines, tmp_path)
        position = 1 if lines[0].stdin else 2
        assert done.exit_code in (1, 2)
        assert done.blamed is not None
        assert done.blamed.startswith(f"command {position} of 2 (/bin/cat <missing): exit code")


def test_streams_go_to_files_and_words_stay_as_they_are(shell: list[str], tmp_path: Path) -> None:
    odd = ["a b", "it's", "$HOME", "~", "*", "-n", "", "\\", "ä", "x=~", "{a,b}", "line\nbreak"]
    (tmp_path / "in put").write_text("from file\n")
    cat, printf = (str(shutil.which(name)) for name in ("cat", "printf"))
    done = Ended(
        shell,
        [
            CommandLine(words=(cat,), stdin="in put", stdout="o 'ut"),
            CommandLine(words=(printf, "%s\\n", *odd), stdout="words"),
            CommandLine(
                words=("/bin/sh", "-c", "cat; echo more >&2"),
                stdin="o 'ut",
                stdout=None,
                stderr="err",
            ),
        ],
        tmp_path,
    )
    assert (done.exit_code, done.stdout) == (0, "from file\n")
    assert (tmp_path / "words").read_text() == "".join(f"{word}\n" for word in odd)
    assert (tmp_path / "err").read_text() == "more\n"


def test_one_command_with_an_input_needs_no_process_more(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello\n")
    argv = to_argv([CommandLine(words=("/bin/sh", "-c", "read x; echo $x $PPID"), stdin="in")])
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"hello {os.getpid()}\n"


def test_cpu_time_and_faults_of_all_commands_count(shell: list[str], tmp_path: Path) -> None:
    burn = sh("i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done")
    done = Ended(shell, [burn, sh("true")], tmp_path)
    alone = Ended(shell, [sh("true"), sh("true")], tmp_path)
    assert done.usage.ru_utime - alone.usage.ru_utime > 0.02
    assert alone.usage.ru_minflt > 100


def test_sigterm_lets_the_command_clean_up_and_starts_no_other(
    shell: list[str], tmp_path: Path
) -> None:
    # The command tells the whole group, as the supervisor does, and then takes its time.
    tidy = sh("trap 'echo tidied; exit 0' TERM; kill -TERM $PPID; kill -TERM $$")
    done = Ended(shell, [tidy, sh("echo no")], tmp_path)
    assert (done.stdout, done.signal) == ("tidied\n", signal.SIGTERM)
    assert done.blamed is None


def test_a_line_that_a_program_wrote_itself_blames_no_command_that_is_not_there(
    tmp_path: Path,
) -> None:
    said = "rater: command 9 ended with status 1"
    done = Ended(["dash"], [sh("true"), sh(f"echo '{said}' >&2; exit 1")], tmp_path)
    assert done.blamed is None


def test_commands_beyond_what_linux_takes_are_an_error() -> None:
    with pytest.raises(InputError, match="bytes long together, Linux takes at most 131071"):
        to_argv([sh("x" * 70_000), sh("x" * 70_000)])


SUITE = """\
[suite]
format = 1
[benchmarks.p]
command = ["cat", "-u"]
[benchmarks.p.sizes.one]
args = ["x"]
[benchmarks.p.sizes.other]
command = ["true", "-a"]
args = ["y"]
[benchmarks.p.sizes.all]
commands = [
  { args = ["in"], stdout = "out" },
  { command = ["cmp", "in", "out"] },
]
inputs = [{ name = "in", path = "in" }]
"""


def test_a_size_may_have_programs_of_its_own(tmp_path: Path) -> None:
    (wanted,) = parse_suite(SUITE, tmp_path / "s.toml").benchmarks
    cat, true, cmp = (str(shutil.which(name)) for name in ("cat", "true", "cmp"))
    lines = {}
    digests = {}
    for name, size in wanted.sizes.items():
        built = build(wanted, "base", tmp_path, size)
        lines[name] = command_lines(wanted, size, built)
        digests[name] = digest_of_programs(built, lines[name])
    assert lines["one"] == (CommandLine(words=(cat, "-u", "x")),)
    assert lines["other"] == (CommandLine(words=(true, "-a", "y")),)
    assert shown(lines["all"]) == f"{cat} -u in >out && {cmp} in out"
    assert to_argv(lines["all"], ["/usr/bin/nice", "-n 1"])[2].count("/usr/bin/nice '-n 1' ") == 2
    assert len({*digests.values()}) == 3
    gone = replace(wanted, command=("no-such-program",))
    size = wanted.sizes["other"]
    assert command_lines(gone, size, build(gone, "base", tmp_path, size)) == lines["other"]
    with pytest.raises(InputError, match="benchmark p: 'no-such-program' is not in PATH"):
        build(gone, "base", tmp_path, wanted.sizes["all"])
    nope = replace(size, commands=(Command(program=("nope",)),) * 2)
    with pytest.raises(InputError, match="benchmark p: 'nope' is not in PATH"):
        build(wanted, "base", tmp_path, nope)


SIZE = Size(
    name="test",
    commands=(),
    environment=(("C", "size"),),
    reference_s=None,
    memory_bytes=None,
    total_memory_bytes=None,
    disk_bytes=0,
    inputs=(),
    expected=(),
)
BENCHMARK = Benchmark(
    name="p",
    category=None,
    description="",
    sources=(),
    libraries=(),
    flags={},
    command=("true",),
    sizes={"test": SIZE},
    environment=(("B", "bench"), ("C", "bench")),
)


def own_suite(folder: Path, *setup: str) -> Suite:
    path = folder / "own.toml"
    return Suite(
        name="own",
        description="",
        path=path,
        reference_machine=None,
        benchmarks=(BENCHMARK,),
        environment=(("A", "suite"), ("B", "suite")),
        setup=setup,
    )


def placed(copies: int) -> tuple[Placement, ...]:
    """Copies in turn on the first and the last CPU that may be used."""
    cpus = sorted(os.sched_getaffinity(0))
    return tuple(
        Placement(
            copy=copy,
            cpus=(cpu,),
            cpu=cpu,
            core=None,
            llc=None,
            node=None,
            package=None,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )
        for copy, cpu in ((copy, cpus[-(copy % 2)]) for copy in range(copies))
    )


def folders(work: Path, script: str, copies: int, *, keep: bool = False) -> RunFolders:
    work.mkdir(exist_ok=True)
    setup = ("/bin/sh", "-c", script)
    program = Program(
        name="p", argv=("/bin/true",), inputs=(), expected=(), directory=None, setup=setup
    )
    return RunFolders(work, "uuid", {"p": program}, placed(copies), (), keep=keep)


def phase_of(copies: int) -> Phase:
    return make_plan(["p"], copies).phases[0]


def test_each_copy_is_set_up_in_its_run_directory_on_its_cpus(tmp_path: Path) -> None:
    script = 'grep Cpus_allowed_list /proc/self/status > "$RATER_RUN_DIR/cpus"; echo said'
    before = os.sched_getaffinity(0)
    made = folders(tmp_path / "work", script, 5).specs(phase_of(5))
    assert os.sched_getaffinity(0) == before
    for placement in placed(5):
        run_dir = Path(made[placement.copy, 0].directory)
        assert [path.name for path in run_dir.iterdir()] == ["cpus"]
        assert (run_dir / "cpus").read_text().split()[1] == str(placement.cpu)


def test_folders_that_lie_in_each_other_are_made_though_one_of_them_is_there(
    tmp_path: Path,
) -> None:
    program = Program(name="p", argv=("/bin/true",), folders=("out/deep", "out", "out/deep"))
    made = RunFolders(tmp_path, "uuid", {"p": program}, placed(1), (), keep=False).specs(
        phase_of(1)
    )
    assert Path(made[0, 0].directory, "out", "deep").is_dir()


def test_several_copies_are_set_up_at_a_time(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU only")
    os.mkfifo(tmp_path / "meet")
    # Opening a pipe waits for the other end: one after the other they would wait for ever.
    script = f"if [ $RATER_COPY = 0 ]; then echo > {tmp_path}/meet; else cat {tmp_path}/meet; fi"
    made = folders(tmp_path / "work", script, 2).specs(phase_of(2))
    assert len(made) == 2


@contextmanager
def stopping_after(path: Path) -> Iterator[threading.Event]:
    """An event that is set as soon as something lies at `path`."""
    flag, over = threading.Event(), threading.Event()

    def set_flag() -> None:
        while not path.exists() and not over.wait(0.005):
            pass
        flag.set()

    thread = threading.Thread(target=set_flag)
    thread.start()
    yield flag
    over.set()
    thread.join()


def test_set_ups_that_are_not_wanted_any_more_are_killed_and_leave_nothing(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    set_up_folders = folders(
        tmp_path / "work",
        f"sleep 60 & echo $! > {begun}.tmp; mv {begun}.tmp {begun}; wait",
        3,
        keep=True,
    )
    with stopping_after(begun) as flag:
        begin_s = time.monotonic()
        set_up_folders.specs(phase_of(3), flag.is_set)
        assert time.monotonic() - begin_s < 10
    assert list((tmp_path / "work").iterdir()) == []
    wait_until_dead(int(begun.read_text()))
    with stopping_after(begun) as flag:
        set_up_folders.spec(0, 7, Step("p", 1), flag.is_set)
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU makes one set-up at a time")
def test_one_set_up_that_fails_stops_the_others_and_is_kept(tmp_path: Path) -> None:
    script = "test $RATER_COPY = 0 && sleep 60; seq 100; kill -9 $$"
    made = folders(tmp_path / "work", script, 2)
    with pytest.raises(RunError) as caught:
        made.specs(phase_of(2))
    said = str(caught.value).splitlines()
    assert said[0].startswith("set-up of copy 1 of p was killed by SIGKILL: /bin/sh -c")
    assert said[1:21] == [str(number) for number in range(81, 101)]
    (kept,) = (tmp_path / "work").iterdir()
    assert said[21] == f"(its files are in {kept})"
    assert kept.name == "p.i1.c0001"
    assert (kept / "setup.out").exists()


def test_a_set_up_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    set_up_folders = folders(tmp_path / "work", "", 1)
    set_up_folders.programs = {
        "p": Program(
            name="p",
            argv=("/bin/true",),
            inputs=(),
            expected=(),
            directory=None,
            setup=("/no/such",),
        )
    }
    with pytest.raises(RunError, match="set-up of copy 0 of p cannot be started: No such file"):
        set_up_folders.specs(phase_of(1))


def test_the_nearer_environment_wins(tmp_path: Path) -> None:
    suite = own_suite(tmp_path, "true")
    found = dict(benchmark_environment(suite, BENCHMARK, SIZE, tmp_path / "cache"))
    assert found == {
        "A": "suite",
        "B": "bench",
        "C": "size",
        "RATER_SUITE_DIR": str(tmp_path),
        "RATER_SETUP_DIR": str(setup_folder(suite, tmp_path / "cache")),
    }
    assert dict(benchmark_environment(None, BENCHMARK, SIZE, tmp_path)) == {
        "B": "bench",
        "C": "size",
    }


def test_environments_are_made_once_a_copy_and_the_users_wins() -> None:
    programs = {
        name: Program(
            name=name,
            argv=("/bin/true",),
            inputs=(),
            expected=(),
            directory=None,
            environment=variables,
            threads=threads,
        )
        for name, variables, threads in (("a", (), 1), ("b", (), 1), ("c", (("X", "suite"),), 2))
    }
    environments = CopyEnvironments("uuid", placed(2), [("X", "user")])
    made = [environments.make(program, 1) for program in programs.values()]
    a, b, c = (shared for shared, _ in made)
    assert a is b
    assert [environment[b"RATER_COPY"] for _, environment in made] == [b"1"] * 3
    assert (c[b"X"], c[b"RATER_THREADS"], c[b"RATER_COPIES"]) == (b"user", b"2", b"2")
    assert a[b"RATER_THREADS"] == b"1"


def test_each_run_of_a_copy_has_its_own_arguments_where_a_command_has_placeholders(
    tmp_path: Path,
) -> None:
    argv = ("/bin/echo", "{copy} on {cpus} in {iteration}", "{{copy}}", "{}")
    programs = {
        name: Program(name=name, argv=argv, directory="/", has_placeholders=has_placeholders)
        for name, has_placeholders in (("a", True), ("b", False))
    }
    folders = RunFolders(tmp_path, "uuid", programs, placed(2), [], keep=False)
    cpu = max(os.sched_getaffinity(0))
    assert folders.spec(1, 0, Step("a", 3)).argv[1:] == (f"1 on {cpu} in 3", "{copy}", "{}")
    assert folders.spec(1, 0, Step("b", 3)).argv == argv


def test_a_suite_is_set_up_by_one_rater_at_a_time(tmp_path: Path) -> None:
    suite = own_suite(tmp_path, "sh", "-c", 'echo "$RATER_SETUP_DIR" > here')
    folder = setup_folder(suite, tmp_path)
    folder.mkdir(parents=True)
    other = threading.Thread(target=set_up_suite, args=(suite, tmp_path, os.environ))
    with locked(folder):
        other.start()
        other.join(0.2)
        assert not (folder / "here").exists()
    other.join()
    assert (folder / "here").read_text() == f"{folder}\n"


def test_files_are_taken_before_another_rater_may_set_up_again(tmp_path: Path) -> None:
    suite = own_suite(tmp_path, "sh", "-c", "echo $RATER_COPIES > made")
    set_up = [
        set_up_suite(suite, tmp_path, os.environ | {"RATER_COPIES": name}, ["made"])
        for name in "82"
    ]
    size = replace(SIZE, inputs=(made_input(),))
    found = [ready_inputs(BENCHMARK, size, tmp_path, left)[0].path.read_text() for left in set_up]
    assert found == ["8\n", "2\n"]


@pytest.mark.parametrize(
    ("script", "limits", "said"),
    [
        ("sleep 60", Limits(time_s=0.2), "was not done after 0.2 s (--timeout): "),
        (
            "yes",
            Limits(output_bytes=4 << 20),
            "wrote more than 4 MB of output (--output-limit of rater run): ",
        ),
    ],
)
def test_a_set_up_is_held_to_the_limits(
    tmp_path: Path, script: str, limits: Limits, said: str
) -> None:
    with pytest.raises(InputError) as of_suite:
        set_up_suite(own_suite(tmp_path, "sh", "-c", script), tmp_path, os.environ, (), limits)
    assert said in str(of_suite.value)
    made = folders(tmp_path / "work", script, 1)
    made.programs = {"p": replace(made.programs["p"], setup_limits=limits)}
    with pytest.raises(RunError) as of_copy:
        made.specs(phase_of(1))
    assert said in str(of_copy.value)
    (kept,) = (tmp_path / "work").rglob("setup.out")
    assert kept.stat().st_size <= 1 << 20


def test_only_what_was_written_is_flushed_before_copies_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(workplace, "flush_file_system", flushed.append)
    (tmp_path / "data").write_text("data")
    shared = ReadyInput(
        name="in",
        path=tmp_path / "data",
        size_bytes=4,
        mtime_ns=(tmp_path / "data").stat().st_mtime_ns,
    )
    plain = Program(name="p", argv=("/bin/true",), inputs=(shared,), expected=(), directory=None)
    private = replace(plain, inputs=(replace(shared, private=True),))
    set_up = replace(plain, setup=("/bin/true",))
    for number, (program, times) in enumerate([(plain, 0), (private, 1), (set_up, 1)]):
        work = tmp_path / f"work{number}"
        work.mkdir()
        RunFolders(work, "uuid", {"p": program}, placed(2), (), keep=False).specs(phase_of(2))
        assert flushed == [work] * times
        flushed.clear()
    assert flush_file_system(tmp_path) is None
    assert flush_file_system(tmp_path / "none") == "No such file or directory"


def made_input(name: str = "in", text: str = "made") -> InputFile:
    return InputFile(name=name, path=None, generator=None, made=text)


def test_a_file_that_the_set_up_left_is_an_input(tmp_path: Path) -> None:
    folder = tmp_path / "setup"
    folder.mkdir()
    size = replace(SIZE, inputs=(made_input(),))
    cache = tmp_path / "cache"

    def taken() -> tuple[ReadyInput, ...]:
        return ready_inputs(BENCHMARK, size, cache, cache_setup_files(folder, ["made"], cache))

    with pytest.raises(InputError, match="input in of p: the suite's set-up did not leave made in"):
        taken()
    (folder / "made").write_text("one")
    (folder / "made").chmod(0o755)
    (first,) = taken()
    assert first.name == "in"
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o555
    # Another rater's set-up writes there again: what a run has taken stays as it was.
    (folder / "made").write_text("other")
    assert not first.damaged()
    assert first.path.read_text() == "one"
    (second,) = taken()
    assert inputs_digest([first]) != inputs_digest([second])
    (folder / "made").write_text("one")
    assert taken() == (first,)
    # A copy that writes into what all share spoils its own run, not the next one.
    run_dir = make_run_dir(tmp_path / "work", "p", [first])
    (run_dir.path / "in").chmod(0o644)
    (run_dir.path / "in").write_text("spoilt")
    assert first.damaged()
    assert taken()[0].path.read_text() == "one"
    assert (folder / "made").read_text() == "one"
    (folder / "made").unlink()
    (folder / "made").mkdir()
    with pytest.raises(InputError, match="made is no regular file"):
        taken()


def read_bytes() -> int:
    """Return the bytes that this process has read so far, cached or not."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].removeprefix("rchar: "))


def test_nothing_that_a_set_up_left_stays_in_the_page_cache_but_the_input(tmp_path: Path) -> None:
    if not is_droppable(tmp_path):
        pytest.skip("files here live in memory")
    make = "head -c 4000000 /dev/zero | tee made > other; ln -s ../../../elsewhere linked"
    suite = own_suite(tmp_path, "sh", "-c", f"test -e made || {{ {make}; }}")
    (tmp_path / "elsewhere").write_bytes(b"e" * 1_000_000)
    cache, size = tmp_path / "cache", replace(SIZE, inputs=(made_input(),))
    for _ in range(2):
        left = set_up_suite(suite, cache, os.environ, ["made", "linked"])
        assert len([*setup_folder(suite, cache).glob("*")]) == 3
        assert cached_bytes(setup_folder(suite, cache)) == 0
        assert cached_bytes(tmp_path / "elsewhere") == 0
        (made,) = ready_inputs(BENCHMARK, size, cache, left)
    assert cached_bytes(made.path) > 2_000_000
    # A later run finds it cold and leaves it so: nothing was made.
    drop_page_cache(cache)
    set_up_suite(suite, cache, os.environ, ["made", "linked"])
    assert cached_bytes(cache / "setup") == cached_bytes(made.path) == 0


def test_what_a_set_up_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    if not Path("/proc/self/io").exists():
        pytest.skip("this kernel does not count what processes read")
    folder, cache = tmp_path / "setup", tmp_path / "cache"
    folder.mkdir()
    (folder / "made").write_bytes(b"x" * 4_000_000)
    first = cache_setup_files(folder, ["made"], cache)
    before = read_bytes()
    assert cache_setup_files(folder, ["made"], cache) == first
    assert read_bytes() - before < 1_000_000
    # Nor is it believed when the input that was made of it is gone.
    made = first.found["made"]
    assert isinstance(made, ReadyInput)
    made.path.unlink()
    again = cache_setup_files(folder, ["made"], cache).found["made"]
    assert isinstance(again, ReadyInput)
    assert (again.path, again.sha256) == (made.path, made.sha256)
    assert again.path.read_bytes() == b"x" * 4_000_000


def test_a_changed_file_is_read_again_whatever_its_size_and_time(tmp_path: Path) -> None:
    path, records = tmp_path / "made", tmp_path / "records"
    for number in range(10):
        path.write_text(f"{number}")
        os.utime(path, ns=(1, 1))
        assert cached_digest(path, records) == sha256_of(path)
        assert cached_digest(path, records) == sha256_of(path)
    assert len(list(records.iterdir())) == 1
    (tmp_path / "other").write_text("x")
    os.utime(tmp_path / "other", ns=(1, 1))
    (tmp_path / "other").replace(path)
    assert cached_digest(path, records) == sha256_of(path)


def test_a_file_younger_than_the_clock_can_tell_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = tmp_path / "made", tmp_path / "records"
    path.write_text("1")
    before_ns = path.stat().st_ctime_ns - 1  # a server's clock may be ahead of ours
    monkeypatch.setattr(compile, "time_ns", lambda: before_ns)
    assert cached_digest(path, records) == sha256_of(path)
    assert not records.exists()


def test_a_set_up_may_be_spread_over_the_lgroups_and_copies_are_not(tmp_path: Path) -> None:
    nodes = read_node_memory()
    if MemoryPolicy.INTERLEAVE not in memory_support().policies or not nodes:
        pytest.skip("the kernel does not let us interleave memory")
    suite = own_suite(tmp_path, "sh", "-c", "cat /proc/self/numa_maps >> maps")
    maps = setup_folder(suite, tmp_path) / "maps"
    first = min(nodes)
    with page_cache_spread((first,)):
        set_up_suite(suite, tmp_path, os.environ)
    assert {line.split()[1] for line in maps.read_text().splitlines()} == {f"interleave:{first}"}
    maps.unlink()
    with page_cache_spread(()):
        set_up_suite(suite, tmp_path, os.environ)
    assert "interleave" not in maps.read_text()


def test_page_cache_is_spread_over_ordinary_memory_beside_cpus() -> None:
    four = machine.parse_synthetic("pack:2 numa:2 core:2 pu:1")
    assert spread_over(four) == (0, 1, 2, 3)
    zero, one, two, three = four.nodes
    others = (zero, replace(one, allowed=False), replace(two, cpus=()), three)
    assert spread_over(replace(four, nodes=others)) == (0, 3)
    assert spread_over(machine.parse_synthetic("numa:1 core:2 pu:1")) == ()


def test_a_file_of_the_user_that_a_set_up_links_to_is_out_of_reach(tmp_path: Path) -> None:
    folder = tmp_path / "setup"
    folder.mkdir()
    (tmp_path / "mine").write_text("mine")
    (folder / "made").symlink_to(tmp_path / "mine")
    size = replace(SIZE, inputs=(made_input(),))
    left = cache_setup_files(folder, ["made"], tmp_path)
    (ready,) = ready_inputs(BENCHMARK, size, tmp_path, left)
    assert ready.path.read_text() == "mine"
    assert not ready.path.samefile(tmp_path / "mine")
