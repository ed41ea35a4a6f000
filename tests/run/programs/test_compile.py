import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.suite import Benchmark
from rater.run.host.admission import (
    AvailableResources,
    MemoryDemand,
    available,
    cgroup_headroom,
    estimate_needs,
    huge_pages_left_bytes,
    misfit,
)
from rater.run.programs import compile as build_module
from rater.run.programs.child_process import LimitExceeded, Limits, run_alone, run_tool
from rater.run.programs.compile import (
    build,
    cache_root,
    compile_program,
    cpu_identity,
    find_command,
    find_compiler,
)
from rater.run.programs.inputs import (
    InputWatch,
    ReadyInput,
    cannot_be_made,
    inputs_digest,
    links_work,
    make_run_dir,
    ready_inputs,
    remove_run_dir,
    run_dir_name,
    uncached_bytes,
)
from rater.run.programs.script import command_lines
from rater.system.errors import InputError, RunError
from tests.support.places import CHECKOUT
from tests.support.processes import wait_until_dead
from tests.support.strangers import STRANGER, needs_root
from tests.support.suite_text import parse_suite

PROGRAM = """\
#include <stdio.h>
#include "answer.h"
int main(void) { printf("%d\\n", ANSWER); return 0; }
"""

GENERATOR = """\
#include <stdio.h>
int main(int argc, char **argv) {
  FILE *log = fopen(argv[3], "a"), *f = fopen(argv[2], "w");
  fprintf(log, "made\\n");
  for (int i = 0; i < 1000; i++) fprintf(f, "%s\\n", argv[1]);
  return fclose(f) || argc != 4;
}
"""


def benchmark(folder: Path, size: str = "", lines: str = 'sources = ["p.c"]') -> Benchmark:
    text = f"[suite]\nformat = 1\n[benchmarks.p]\n{lines}\n[benchmarks.p.sizes.test]\n{size}\n"
    return parse_suite(text, folder / "own.toml").benchmarks[0]


@pytest.fixture
def program_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "p.c").write_text(PROGRAM)
    (folder / "answer.h").write_text("#define ANSWER 42\n")
    (folder / "gen.c").write_text(GENERATOR)
    return folder


def output_of(executable: Path) -> str:
    return subprocess.run([executable], check=True, capture_output=True, text=True).stdout


def test_a_benchmark_is_compiled_with_its_flags_once(program_folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    built = build(benchmark(program_folder), "base", cache)
    assert built.executable.name == "p"
    assert output_of(built.executable) == "42\n"
    assert built.flags == "-O2"
    assert built.compiler == find_compiler().version
    made = built.executable.stat().st_mtime_ns
    assert build(benchmark(program_folder), "base", cache) == built
    assert built.executable.stat().st_mtime_ns == made
    assert build(benchmark(program_folder), "peak", cache).executable != built.executable
    assert sorted(p.name for p in (cache / "build").iterdir() if p.name.startswith("tmp")) == []


def test_a_changed_header_or_source_is_built_again(program_folder: Path, tmp_path: Path) -> None:
    first = build(benchmark(program_folder), "base", tmp_path)
    (program_folder / "answer.h").write_text("#define ANSWER 43\n")
    second = build(benchmark(program_folder), "base", tmp_path)
    assert output_of(second.executable) == "43\n"
    assert output_of(first.executable) == "42\n"
    assert first.sha256 != second.sha256


def test_a_damaged_program_in_the_cache_is_built_again(
    program_folder: Path, tmp_path: Path
) -> None:
    first = build(benchmark(program_folder), "base", tmp_path)
    first.executable.write_bytes(b"")
    second = build(benchmark(program_folder), "base", tmp_path)
    assert output_of(second.executable) == "42\n"
    assert second == first


@pytest.mark.parametrize("name", ["sha256", "made", "stamp", "-x"])
def test_no_name_of_a_benchmark_is_in_the_way_of_the_cache(
    program_folder: Path, tmp_path: Path, name: str
) -> None:
    named = replace(benchmark(program_folder), name=name)
    first = build(named, "base", tmp_path)
    assert output_of(first.executable) == "42\n"
    made = first.executable.stat().st_mtime_ns
    assert build(named, "base", tmp_path) == first
    assert first.executable.stat().st_mtime_ns == made


def test_two_raters_that_build_at_once_both_get_a_whole_program(
    program_folder: Path, tmp_path: Path
) -> None:
    source = f"""
import sys; from pathlib import Path; sys.path.insert(0, {str(CHECKOUT)!r})
from tests.run.programs.test_compile import benchmark; from rater.run.programs.compile import build
cache = Path({str(tmp_path)!r}) / "cache"
print(build(benchmark(Path({str(program_folder)!r})), "base", cache).executable)
"""
    raters = [
        subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = {rater.communicate()[0].strip() for rater in raters}
    assert [rater.returncode for rater in raters] == [0, 0]
    assert len(said) == 1
    assert output_of(Path(said.pop())) == "42\n"
    assert len(list((tmp_path / "cache" / "build").iterdir())) == 1


def test_a_compile_error_shows_what_the_compiler_said(program_folder: Path, tmp_path: Path) -> None:
    (program_folder / "p.c").write_text("int main(void) { return oops; }\n")
    with pytest.raises(InputError) as caught:
        build(benchmark(program_folder), "base", tmp_path)
    assert "p: the compiler failed (status 1)" in str(caught.value)
    assert f"{program_folder}/p.c:1" in str(caught.value)
    assert "oops" in str(caught.value)
    assert list((tmp_path / "build").iterdir()) == []


def test_without_a_compiler_the_package_to_install_is_named() -> None:
    with pytest.raises(InputError, match="apt install gcc libc6-dev"):
        find_compiler({"PATH": "/nonexistent"})
    with pytest.raises(InputError, match="CC='nocc -m64' not found"):
        find_compiler({"PATH": os.environ["PATH"], "CC": "nocc -m64"})
    with pytest.raises(InputError, match="is not a command line"):
        find_compiler({"PATH": os.environ["PATH"], "CC": "cc 'oops"})


def test_the_compiler_of_the_user_may_have_arguments(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = build(benchmark(program_folder), "base", tmp_path)
    (program_folder / "p.c").write_text(PROGRAM.replace("ANSWER)", "MINE)"))
    monkeypatch.setenv("CC", "cc -DMINE=7")
    other = build(benchmark(program_folder), "base", tmp_path)
    assert other.compiler == plain.compiler
    assert output_of(other.executable) == "7\n"


def test_an_unknown_tune_is_an_error_with_the_known_ones(
    program_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no flags for tune 'baes'; did you mean base"):
        build(benchmark(program_folder), "baes", tmp_path)


def test_a_native_build_belongs_to_one_kind_of_cpu(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_cpu(_cpuinfo: str) -> str:
        return "another"

    portable, native = (
        build(benchmark(program_folder), tune, tmp_path) for tune in ("base", "peak")
    )
    monkeypatch.setattr(build_module, "cpu_identity", other_cpu)
    assert build(benchmark(program_folder), "base", tmp_path).executable == portable.executable
    assert build(benchmark(program_folder), "peak", tmp_path).executable != native.executable


def test_what_changes_from_boot_to_boot_is_not_the_kind_of_cpu() -> None:
    text = "processor\t: 0\nmodel name\t: Zen\ncpu MHz\t\t: {}\nflags\t\t: avx2\n\nprocessor\t: 1\n"
    assert cpu_identity(text.format(1000)) == cpu_identity(text.format(2000))
    assert cpu_identity(text) != cpu_identity(text.replace("avx2", "avx512f"))


def test_a_command_is_found_and_hashed(program_folder: Path, tmp_path: Path) -> None:
    script = program_folder / "run.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    wanted = benchmark(program_folder, 'args = ["z"]', lines='command = ["./run.sh", "-x"]')
    built = build(wanted, "any", tmp_path)
    assert command_lines(wanted, wanted.sizes["test"], built)[0].words == (str(script), "-x", "z")
    assert (built.compiler, built.flags) == (None, None)
    assert built.sha256 == build_module.sha256_of(script)
    assert find_command("sh").name == "sh"


def test_a_command_that_cannot_be_executed_is_the_users_error(program_folder: Path) -> None:
    (program_folder / "plain").write_text("x")
    for word, said in [
        ("no-such-command-at-all", "not in PATH"),
        (f"{program_folder}/nothing", "no such file"),
        (f"{program_folder}/plain", "may not be executed"),
        (str(program_folder), "is a directory"),
    ]:
        with pytest.raises(InputError, match=said):
            find_command(word)


@pytest.mark.parametrize("word", ["./prog{copy}", "prog{node}"])
def test_a_program_of_each_copy_is_refused_with_the_way_out(word: str) -> None:
    with pytest.raises(InputError) as caught:
        find_command(word)
    assert str(caught.value).endswith(f"; arguments alone have placeholders: sh -c 'exec {word}'")


def test_the_cache_is_where_the_user_wants_it() -> None:
    assert cache_root({"RATER_CACHE": "/c", "XDG_CACHE_HOME": "/x"}) == Path("/c")
    assert cache_root({"RATER_CACHE": "c"}) == Path.cwd() / "c"
    assert cache_root({"XDG_CACHE_HOME": "/x"}) == Path("/x/rater")
    assert cache_root({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "rater"


def test_a_cache_that_cannot_be_written_is_the_users_error(
    program_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set RATER_CACHE"):
        build(benchmark(program_folder), "base", tmp_path / "file")


def generated(folder: Path, tmp_path: Path, word: str = "x") -> Benchmark:
    return benchmark(
        folder,
        'inputs = [{ name = "in/a.txt", generator = { sources = ["gen.c"], '
        f'args = ["{word}", "{{output}}", "{tmp_path}/log"] }} }}]',
    )


def test_an_input_is_generated_once_even_for_two_at_once(
    program_folder: Path, tmp_path: Path
) -> None:
    wanted = generated(program_folder, tmp_path)
    size = wanted.sizes["test"]
    cache = tmp_path / "cache"
    ready_inputs(generated(program_folder, tmp_path, "warm up"), size, cache)
    (tmp_path / "log").unlink()
    remove_run_dir(cache / "inputs")
    with ThreadPoolExecutor(2) as pool:
        # Two descriptors of one directory exclude each other like two processes.
        first, second = pool.map(lambda _: ready_inputs(wanted, size, cache), range(2))
    assert first == second
    assert (tmp_path / "log").read_text() == "made\n"
    assert first[0].path.read_text() == "x\n" * 1000
    assert stat.S_IMODE(first[0].path.stat().st_mode) == 0o444


def test_an_input_somebody_wrote_into_is_made_again(program_folder: Path, tmp_path: Path) -> None:
    wanted = generated(program_folder, tmp_path)
    (ready,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert not ready.damaged()
    ready.path.chmod(0o644)
    with ready.path.open("a") as file:
        file.write("more")
    assert ready.damaged()
    (again,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert again.path.read_text() == "x\n" * 1000


def poison(file: Path) -> None:
    """Write as many other bytes into a file, and put its time back."""
    before = file.stat()
    file.chmod(0o644)
    file.write_text("y\n" * 1000)
    file.chmod(0o444)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_an_input_whose_time_was_put_back_is_made_again_for_the_next_run(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = generated(program_folder, tmp_path)
    (ready,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    poison(ready.path)
    (again,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert again.path.read_text() == "x\n" * 1000
    # Links of run directories move its ctime: it is read once, and then known again.
    (tmp_path / "link").hardlink_to(again.path)
    read: list[Path] = []

    def unchanged(ready: ReadyInput) -> bool:
        read.append(ready.path)
        return False

    monkeypatch.setattr(ReadyInput, "changed", unchanged)
    for _ in range(3):
        assert ready_inputs(wanted, wanted.sizes["test"], tmp_path) == (again,)
    assert read == [again.path]


def test_within_a_run_only_what_rater_did_not_do_to_an_input_has_it_read(
    program_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = generated(program_folder, tmp_path)
    (ready,) = inputs = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    watch = InputWatch()
    read: list[Path] = []
    changed = ReadyInput.changed

    def noted(ready: ReadyInput) -> bool:
        read.append(ready.path)
        return changed(ready)

    monkeypatch.setattr(ReadyInput, "changed", noted)
    for name in ("a", "b"):
        with watch.linking(inputs):
            make_run_dir(tmp_path / "work", name, inputs)
    assert not watch.damaged(ready)
    with watch.linking(inputs):
        remove_run_dir(tmp_path / "work" / "a")
    assert not watch.damaged(ready)
    assert read == []
    (tmp_path / "work/b/in/a.txt").unlink()  # as a copy may do
    assert not watch.damaged(ready)
    assert not watch.damaged(ready)
    assert len(read) == 1
    poison(ready.path)
    with watch.linking(inputs):
        make_run_dir(tmp_path / "work", "c", inputs)
    assert watch.damaged(ready)
    assert watch.damaged(ready)


def test_a_generator_that_fails_says_why(program_folder: Path, tmp_path: Path) -> None:
    (program_folder / "gen.c").write_text(
        '#include <stdio.h>\nint main(void) { puts("no!"); return 3; }'
    )
    wanted = generated(program_folder, tmp_path)
    with pytest.raises(InputError) as caught:
        ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert "input in/a.txt of p: its generator ended with status 3" in str(caught.value)
    assert str(caught.value).endswith("no!")
    (program_folder / "gen.c").write_text("int main(void) { return 0; }")
    with pytest.raises(InputError, match="did not write"):
        ready_inputs(wanted, wanted.sizes["test"], tmp_path)


def test_the_users_own_input_file_is_out_of_a_benchmarks_reach(
    program_folder: Path, tmp_path: Path
) -> None:
    (program_folder / "a.txt").write_text("mine")
    wanted = benchmark(program_folder, 'inputs = [{ name = "b.txt", path = "a.txt" }]')
    inputs = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    run_dir = make_run_dir(tmp_path / "work", "p", inputs)
    (run_dir.path / "b.txt").chmod(0o600)
    (run_dir.path / "b.txt").write_text("spoilt")
    assert (program_folder / "a.txt").read_text() == "mine"
    (program_folder / "a.txt").write_text("changed")
    (again,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert again.path.read_text() == "changed"


def test_a_private_input_is_a_copy_of_its_own_for_each_copy(
    program_folder: Path, tmp_path: Path
) -> None:
    (program_folder / "conf.ini").write_text("speed = 1\n")
    wanted = benchmark(
        program_folder, 'inputs = [{ name = "c/x.ini", path = "conf.ini", copy = true }]'
    )
    inputs = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    first, second = (make_run_dir(tmp_path / "work", name, inputs) for name in ("a", "b"))
    (first.path / "c" / "x.ini").write_text("mine")
    assert (second.path / "c" / "x.ini").read_text() == "speed = 1\n"
    assert first.notices == ()
    assert not inputs[0].damaged()
    assert ready_inputs(wanted, wanted.sizes["test"], tmp_path) == inputs


def test_names_and_contents_of_inputs_have_one_digest(program_folder: Path, tmp_path: Path) -> None:
    def digest(names: str, content: str) -> str | None:
        (program_folder / "a").write_text(content)
        (program_folder / "b").write_text("b")
        listed = ", ".join(
            f'{{ name = "{number}", path = "{number[-1]}" }}' for number in names.split()
        )
        wanted = benchmark(program_folder, f"inputs = [{listed}]")
        return inputs_digest(ready_inputs(wanted, wanted.sizes["test"], tmp_path))

    assert digest("", "x") is None
    first = digest("a b", "x")
    assert first == digest("b a", "x")
    assert len({first, digest("a b", "y"), digest("n/a b", "x"), digest("a", "x")}) == 4


def test_an_input_of_an_older_cache_is_made_again_with_its_digest(
    program_folder: Path, tmp_path: Path
) -> None:
    (program_folder / "a").write_text("content")
    wanted = benchmark(program_folder, 'inputs = [{ name = "a", path = "a" }]')
    (made,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    stamp = made.path.with_name("stamp")
    stamp.write_text(" ".join(stamp.read_text().split()[:2]))
    (again,) = ready_inputs(wanted, wanted.sizes["test"], tmp_path)
    assert again.sha256 == made.sha256 == build_module.sha256_of(program_folder / "a")


def ready(path: Path, name: str) -> ReadyInput:
    path.write_text("data")
    return ReadyInput(name=name, path=path, size_bytes=4, mtime_ns=path.stat().st_mtime_ns)


def test_a_run_directory_holds_links_to_the_inputs(tmp_path: Path) -> None:
    source = ready(tmp_path / "data", "in/a.txt")
    run_dir = make_run_dir(tmp_path / "work" / "uuid", run_dir_name("p", 1, 7), [source])
    assert run_dir.path == tmp_path / "work" / "uuid" / "p.i1.c0007"
    assert (run_dir.path / "in" / "a.txt").samefile(source.path)
    assert run_dir.notices == ()
    assert links_work([source], tmp_path)
    assert remove_run_dir(run_dir.path) is None
    assert not run_dir.path.exists()
    assert source.path.read_text() == "data"


def test_an_input_on_another_file_system_is_copied_and_said_so(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    source = ready(shm / f"rater-test-{os.getpid()}", "a.txt")
    try:
        run_dir = make_run_dir(tmp_path, "p", [source])
        assert not links_work([source], tmp_path)
    finally:
        source.path.unlink()
    assert (run_dir.path / "a.txt").read_text() == "data"
    assert run_dir.notices == ("input a.txt is copied, not linked: Invalid cross-device link",)


def test_a_run_directory_is_never_used_twice(tmp_path: Path) -> None:
    make_run_dir(tmp_path, "p", [])
    (tmp_path / "p" / "result").write_text("kept")
    with pytest.raises(RunError, match="cannot be made: File exists"):
        make_run_dir(tmp_path, "p", [])
    assert (tmp_path / "p" / "result").exists()


def test_names_that_clash_are_told_and_no_room_is_asked_for(tmp_path: Path) -> None:
    inputs = [ready(tmp_path / "x", "in"), ready(tmp_path / "y", "in/a")]
    with pytest.raises(RunError) as caught:
        make_run_dir(tmp_path, "p", inputs)
    assert str(caught.value).endswith(f"cannot be made: File exists ({tmp_path}/p/in)")
    assert not (tmp_path / "p").exists()
    with pytest.raises(RunError, match="cannot be made: File name too long") as caught:
        make_run_dir(tmp_path, "p" * 300, inputs)
    assert "RATER_CACHE" not in str(caught.value)
    full = cannot_be_made(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    assert str(full).endswith("device; make room or set RATER_CACHE to another folder")


def test_an_input_that_may_be_executed_still_may(program_folder: Path, tmp_path: Path) -> None:
    script = program_folder / "go.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    listed = '{ name = "go", path = "go.sh" }, { name = "mine", path = "go.sh", copy = true }'
    wanted = benchmark(program_folder, f"inputs = [{listed}]")
    size = wanted.sizes["test"]
    (plain, _) = ready_inputs(wanted, size, tmp_path)
    script.chmod(0o755)
    inputs = ready_inputs(wanted, size, tmp_path)
    assert plain.path != inputs[0].path
    run_dir = make_run_dir(tmp_path, "p", inputs)
    assert stat.S_IMODE((run_dir.path / "go").stat().st_mode) == 0o555
    assert output_of(run_dir.path / "mine") == "ran\n"
    assert run_dir.is_written
    assert not make_run_dir(tmp_path, "q", inputs[:1]).is_written


def test_what_the_cache_will_take_is_known_before_it_is_copied(
    program_folder: Path, tmp_path: Path
) -> None:
    (program_folder / "a").write_text("four")
    listed = '{ name = "a", path = "a" }, { name = "b", path = "a", copy = true }'
    size = benchmark(program_folder, f"inputs = [{listed}]").sizes["test"]
    assert uncached_bytes([size, size], tmp_path) == 4
    ready_inputs(benchmark(program_folder), size, tmp_path)
    assert uncached_bytes([size], tmp_path) == 0


def test_steps_of_a_queue_have_directories_of_their_own() -> None:
    assert run_dir_name("p", 2, 12, 3) == "p.i2.c0012.s3"


def test_folders_without_write_permission_are_removed_too(tmp_path: Path) -> None:
    run_dir = make_run_dir(tmp_path, "p", [])
    deep = run_dir.path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("")
    (run_dir.path / "outside").symlink_to(tmp_path)
    for folder in (deep, deep.parent):
        folder.chmod(0)
    assert remove_run_dir(run_dir.path) is None
    assert tmp_path.exists()
    assert not run_dir.path.exists()


def test_where_a_link_in_place_of_a_run_directory_leads_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "p").symlink_to(tmp_path / "mine")
    said = f"{tmp_path}/p was a symbolic link by then: where it led was not removed"
    assert remove_run_dir(tmp_path / "p") == said
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]


def test_a_tool_is_heard_on_both_streams_and_a_flood_is_cut(tmp_path: Path) -> None:
    ended = run_tool(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path)
    assert (ended.status, ended.output) == (3, "out\nerr")
    flood = run_tool(["sh", "-c", "yes | head -c 1000000; echo end"], tmp_path)
    assert len(flood.output) < 9000
    assert flood.output.endswith("end")


def test_a_benchmark_on_trial_is_killed_with_its_children_when_time_is_up(tmp_path: Path) -> None:
    argv = ["sh", "-c", "sleep 60 & echo $!; wait"]
    ended = run_alone(argv, tmp_path, os.environ, Limits(time_s=0.2))
    assert (ended.excess, ended.exit_code, ended.signal) == (
        LimitExceeded.TIME,
        None,
        signal.SIGKILL,
    )
    assert ended.elapsed_s < 10
    wait_until_dead(int((tmp_path / "stdout").read_text()))


def test_a_benchmark_on_trial_that_floods_its_output_is_stopped(tmp_path: Path) -> None:
    ended = run_alone(["yes"], tmp_path, os.environ, Limits(20, 4 << 20))
    assert (ended.excess, ended.signal) == (LimitExceeded.OUTPUT, signal.SIGKILL)
    assert (tmp_path / "stdout").stat().st_size == 1 << 20


MB = 1_000_000


def test_memory_and_disk_of_the_worst_phase_count() -> None:
    phases = [
        [
            MemoryDemand(
                benchmark="a", copies=4, runs=4, memory_bytes=10 * MB, disk_bytes=MB, input_bytes=MB
            )
        ],
        [
            MemoryDemand(
                benchmark="b", copies=4, runs=4, memory_bytes=None, disk_bytes=0, input_bytes=5 * MB
            )
        ],
    ]
    needs = estimate_needs(phases, AvailableResources(100 * MB, None, 100 * MB, "/w"), keep=False)
    assert (needs.memory_bytes, needs.memory_benchmark) == (40 * MB, "a")
    assert (needs.disk_bytes, needs.unstated, needs.problems) == (20 * MB, ("b",), ())
    kept = estimate_needs(phases, AvailableResources(100 * MB, None, 100 * MB, "/w"), keep=True)
    assert kept.disk_bytes == 28 * MB


def test_what_cannot_fit_is_told_with_the_numbers_and_the_way_out() -> None:
    phase = [
        MemoryDemand(
            benchmark="gups",
            copies=64,
            runs=64,
            memory_bytes=900 * MB,
            disk_bytes=MB,
            input_bytes=0,
        )
    ]
    tight = AvailableResources(12_300 * MB, "/box", 10 * MB, "/w")
    assert estimate_needs([phase], tight, keep=False).problems == (
        "memory: 57.6 GB needed (64 copies of gups), 12.3 GB available (the limit of cgroup /box); "
        "--copies 13 would fit, or a smaller --size, or --force",
        "disk: 64.0 MB needed by run directories, 10.0 MB free in /w; "
        "set RATER_CACHE to a larger disk, use fewer copies, or --force",
    )


def test_memory_that_copies_divide_needs_no_fewer_copies() -> None:
    load = MemoryDemand(
        benchmark="g", copies=4, runs=4, memory_bytes=500 * MB, disk_bytes=0, input_bytes=0
    )
    tight = AvailableResources(1_000 * MB, None, MB, "/w")
    (said,) = estimate_needs([[replace(load, is_divided=True)]], tight, keep=False).problems
    assert said.endswith("2.0 GB needed (4 copies of g), 1.0 GB available; take a smaller --size, "
                         "or --force")  # fmt: skip
    (said,) = estimate_needs([[load]], tight, keep=False).problems
    assert "--copies 2 would fit" in said


def test_a_benchmark_that_does_not_fit_alone_is_told_with_the_numbers() -> None:
    load = MemoryDemand(
        benchmark="g", copies=2, runs=2, memory_bytes=16_000 * MB, disk_bytes=MB, input_bytes=MB
    )
    assert misfit(load, AvailableResources(22_100 * MB, None, 10 * MB, "/w")) == (
        "32.0 GB needed, 22.1 GB available"
    )
    assert misfit(load, AvailableResources(40_000 * MB, None, 3 * MB, "/w")) == (
        "4.0 MB of disk needed, 3.0 MB free in /w"
    )
    assert misfit(load, AvailableResources(40_000 * MB, None, 4 * MB, "/w")) is None


def test_what_this_machine_has_left_is_measured(tmp_path: Path) -> None:
    left = available(tmp_path / "not" / "yet")
    assert left.memory_bytes > 0
    assert left.disk_bytes > 0


def test_the_tightest_cgroup_above_us_limits_the_memory(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    (tmp_path / "proc/self/mountinfo").write_text("35 1 0:30 / /cg rw - cgroup2 cgroup2 rw\n")
    for folder, limit, used in (("cg/a", 500, 300), ("cg/a/b", 1000, 200)):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "memory.max").write_text(f"{limit}\n")
        (tmp_path / folder / "memory.current").write_text(f"{used}\n")
        (tmp_path / folder / "memory.stat").write_text("anon 1\ninactive_file 50\n")
    assert cgroup_headroom(tmp_path) == (250, "/a")
    (tmp_path / "cg/a/memory.max").write_text("max\n")
    assert cgroup_headroom(tmp_path) == (850, "/a/b")


def test_cgroup_version_1_limits_count_too(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/docker/x\n0::/\n")
    (tmp_path / "proc/self/mountinfo").write_text(
        "35 1 0:30 /docker/x /cg/memory rw - cgroup cgroup rw,memory\n"
    )
    folder = tmp_path / "cg/memory"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("1000\n")
    (folder / "memory.usage_in_bytes").write_text("400\n")
    (folder / "memory.stat").write_text("total_inactive_file 100\n")
    assert cgroup_headroom(tmp_path) == (700, "/")


@pytest.mark.parametrize(
    ("size", "limit", "pages_left"),
    [(2 << 20, "8000", 7000), (1 << 30, "max", None), (1 << 30, str((1 << 63) - 4096), None)],
)
def test_huge_pages_that_cgroups_leave_are_the_least_of_them(
    tmp_path: Path, size: int, limit: str, pages_left: int | None
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a\n")
    (tmp_path / "proc/self/mountinfo").write_text("35 1 0:30 / /cg rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cg/a").mkdir(parents=True)
    name = {2 << 20: "2MB", 1 << 30: "1GB"}[size]
    (tmp_path / f"cg/a/hugetlb.{name}.max").write_text(f"{limit}\n")
    (tmp_path / f"cg/a/hugetlb.{name}.current").write_text("1000\n")
    assert huge_pages_left_bytes(tmp_path, size) == pages_left


def test_a_changed_header_of_another_folder_is_compiled_anew(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "mine").mkdir()
    header, inner = tmp_path / "common" / "number.h", tmp_path / "common" / "inner.h"
    source = tmp_path / "mine" / "main.c"
    source.write_text('#include "../common/number.h"\nint main(void) { return NUMBER; }\n')
    header.write_text('# include "inner.h"\n')
    inner.write_text("#define NUMBER 3\n")
    cache = tmp_path / "cache"
    first = compile_program("say", [source], ("-O0",), (), cache)
    assert compile_program("say", [source], ("-O0",), (), cache) == first
    inner.write_text("#define NUMBER 4\n")
    second = compile_program("say", [source], ("-O0",), (), cache)
    assert subprocess.run([second.executable], check=False).returncode == 4


def test_what_is_executed_can_be_written_by_nobody_else_whatever_the_umask(
    program_folder: Path, tmp_path: Path
) -> None:
    """With umask 0 programs lay in a folder that everybody may write, and root ran them."""
    cache = tmp_path / "cache"
    before = os.umask(0)
    try:
        built = build(benchmark(program_folder), "base", cache)
    finally:
        os.umask(before)
    for path in (built.executable, built.executable.parent):
        assert path.stat().st_mode & 0o022 == 0
    for path in cache.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    built.executable.chmod(0o777)  # by an older rater
    built.executable.write_bytes(b"#!/bin/sh\necho 1\n")
    (built.executable.parent / "sha256 of the program").write_text(
        hashlib.sha256(b"#!/bin/sh\necho 1\n").hexdigest()
    )
    again = build(benchmark(program_folder), "base", cache)
    assert again.sha256 == built.sha256
    assert again.executable.stat().st_mode & 0o022 == 0


@needs_root
def test_root_runs_no_program_of_the_cache_that_another_user_has(
    program_folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    built = build(benchmark(program_folder), "base", cache)
    for path in (built.executable, built.executable.parent):
        os.chown(path, STRANGER, STRANGER)
        assert build(benchmark(program_folder), "base", cache).sha256 == built.sha256
        assert path.stat().st_uid == 0
