"""An installed SPEC CPU: its benchmarks, and command files of specinvoke."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from rater.speccpu.kit.benchmark import (
    bind_kind,
    compared_files,
    problems_of,
    programs_of,
    read_benchmark,
)
from rater.speccpu.kit.files import (
    CommandFile,
    SpecCommand,
    expanded,
    find_runs,
    is_simple,
    kit_run,
    newest_runs,
    parse_speccmds,
    uses_bind,
    words_of,
)
from rater.system.errors import InputError
from tests.support.kit import StandInKit
from tests.support.places import SAMPLES, needs_samples


@pytest.fixture
def kit(tmp_path: Path) -> StandInKit:
    return StandInKit(tmp_path / "a kit")


def names(folder: Path | str) -> list[str]:
    return [run.benchmark for run in find_runs(str(folder))[0]]


# -- finding ---------------------------------------------------------------------------------------


def test_run_directories_are_found_from_every_folder_above_them(kit: StandInKit) -> None:
    file = kit.count(2)
    kit.write_words_kit(2)
    spec = kit.root / "benchspec"
    assert names(kit.root) == names(spec) == names(spec / "CPU2006") == ["901.count", "902.words"]
    one = spec / "CPU2006" / "901.count"
    assert names(one) == names(one / "run") == names(file.parent) == ["901.count"]
    assert names(f"{kit.root}/902.words") == ["902.words"]
    assert names(f"{kit.root}/902.words,901.count") == ["901.count", "902.words"]


def test_a_directory_tells_tune_size_label_and_number(kit: StandInKit) -> None:
    run = kit_run(kit.count(1, tune="peak", size="refrate", first=13))
    assert (run.tune, run.size, run.label, run.number) == ("peak", "refrate", "rig", 13)
    old = kit.root / "benchspec" / "CINT2000" / "164.gzip" / "run" / "00000003"
    old.mkdir(parents=True)
    (old / "speccmds.cmd").write_text("-u 1\n-o x ./x\n")
    run = kit_run(old / "speccmds.cmd")
    assert (run.benchmark, run.tune, run.size, run.number) == ("164.gzip", None, None, 3)


def test_what_is_not_there_is_told_with_the_way_out(kit: StandInKit, tmp_path: Path) -> None:
    file = kit.count(1)
    (tmp_path / "empty").mkdir()
    for folder, message in (
        (tmp_path / "no", "no such folder"),
        (tmp_path / "no" / "way", "no such folder"),
        (tmp_path / "empty", "no speccmds.cmd in it or below; make run directories first"),
        (file, "a file; expected a kit"),
        (kit.root / "901.cuont", "no run directory of 901.cuont .* did you mean 901.count"),
    ):
        with pytest.raises(InputError, match=message):
            find_runs(str(folder))
    with pytest.raises(InputError, match="no such file"):
        kit_run(tmp_path / "x.cmd")


def test_the_newest_of_several_is_taken_and_said(kit: StandInKit) -> None:
    old, new = kit.count(1), kit.count(1, first=7)
    os.utime(old, (10, 10))
    (run,), (note,) = newest_runs(find_runs(str(kit.root))[0], None, None, "spec:x")
    assert run.file == new
    assert note.startswith("901.count: run_base_ref_rig.0007 is the newest of 2 run directories")


def test_sizes_and_tunes_are_chosen_not_guessed(kit: StandInKit) -> None:
    kit.count(1, size="test")
    kit.count(1, size="refrate", first=1)
    kit.count(1, size="refrate", tune="peak", first=2)
    runs, _ = find_runs(str(kit.root))
    with pytest.raises(InputError, match="sizes refrate, test; choose one with --size"):
        newest_runs(runs, None, "base", "spec:x")
    with pytest.raises(InputError, match="tunes base, peak; choose one with --tune"):
        newest_runs(runs, "ref", None, "spec:x")
    with pytest.raises(InputError, match="for --size train; there are: base refrate"):
        newest_runs(runs, "train", None, "spec:x")
    (run,), notes = newest_runs(runs, "ref", "peak", "spec:x")
    assert (run.number, notes) == (2, ())


# -- reading ---------------------------------------------------------------------------------------


def test_a_benchmark_is_read_with_all_that_lies_beside_it(kit: StandInKit) -> None:
    file = kit.count(3, binds=["0", "8", "16"])
    (file.parents[2] / "data" / "ref" / "reftime").write_text("ref\n9120\n")
    benchmark = read_benchmark(kit_run(file))
    assert [Path(directory).name[-4:] for directory in benchmark.directories] == [
        "0000",
        "0001",
        "0002",
    ]
    assert benchmark.commands.binds == ("0", "8", "16")
    assert len(benchmark.comparison) == 2
    assert (benchmark.root, benchmark.reference_s, benchmark.remarks) == (kit.root, 9120.0, ())
    assert programs_of(benchmark) == (file.parent / "count_base.rig",)
    assert problems_of(benchmark, 3) == ()


def test_reference_times_of_2017_and_nonsense(kit: StandInKit) -> None:
    file = kit.count(1, size="refrate")
    time = file.parents[2] / "data" / "refrate" / "reftime"
    for text, value in (("refrate 1616\n", 1616.0), ("refrate\n", None), ("x\n", None)):
        time.write_text(text)
        assert read_benchmark(kit_run(file)).reference_s == value


def test_a_copy_of_a_command_file_is_called_after_its_directories(
    kit: StandInKit, tmp_path: Path
) -> None:
    file = kit.count(2)
    copy = tmp_path / "mine.speccmds.cmd"
    copy.write_text(file.read_text())
    found = read_benchmark(kit_run(copy))
    assert (found.name, found.run.size, found.run.file) == ("901.count", "ref", copy)
    alone = tmp_path / "other.speccmds.cmd"
    alone.write_text("-o out ./exe\n")
    found = read_benchmark(kit_run(alone))
    assert (found.name, found.directories) == ("other", (str(tmp_path),))


def test_a_kit_that_was_moved_is_found_beside_its_command_file(kit: StandInKit) -> None:
    kit.count(2)
    kit.root.rename(kit.root.with_name("moved"))
    ((run,), _) = find_runs(str(kit.root.with_name("moved")))
    found = read_benchmark(run)
    assert problems_of(found, 2) == ()
    assert (
        "which is not there; the directories of these names beside it are used"
        in (found.remarks[0])
    )


def test_directories_that_are_not_there_are_named(kit: StandInKit) -> None:
    file = kit.count(3)
    gone = file.parent.with_name("run_base_ref_rig.0002")
    for inside in gone.iterdir():
        inside.unlink()
    gone.rmdir()
    found = read_benchmark(kit_run(file))
    assert problems_of(found, 2) == ()
    (message,) = problems_of(found, 3)
    assert message.startswith(f"copy 2 of 901.count: no run directory {gone}; make run directories")


def test_bytes_that_are_no_text_are_kept(kit: StandInKit) -> None:
    file = kit.count(1)
    file.write_bytes(b"-E A \xff\n" + file.read_bytes())
    assert read_benchmark(kit_run(file)).commands.environment == (("A", "\udcff"),)


def test_a_copied_kit_runs_in_its_own_directories(kit: StandInKit) -> None:
    kit.count(2)
    other = kit.root.with_name("copy")
    shutil.copytree(kit.root, other)
    ((run,), _) = find_runs(str(other))
    benchmark = read_benchmark(run)
    assert all(directory.startswith(f"{other}/") for directory in benchmark.directories)
    assert f"its command file names {kit.root}, which is another tree" in benchmark.remarks[0]
    # Not where copies would be missing.
    shutil.rmtree(kit_run(run.file).file.parent.with_name("run_base_ref_rig.0001"))
    benchmark = read_benchmark(run)
    assert all(directory.startswith(f"{kit.root}/") for directory in benchmark.directories)
    assert "another tree: copies run there" in benchmark.remarks[0]


def test_a_folder_that_may_not_be_looked_into_is_named(
    kit: StandInKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.count(1)
    closed = kit.write_words_kit(1).parents[1]
    look = os.scandir

    def scandir(folder: Path) -> object:  # root may look into every folder
        if folder == closed:
            raise PermissionError
        return look(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    (run,), (note,) = find_runs(str(kit.root))
    assert run.benchmark == "901.count"
    assert f"no permission to look into {closed}" in note
    with pytest.raises(InputError, match="no permission to look into"):
        find_runs(str(closed))


@pytest.mark.parametrize("name", ["link", "run_base_ref_rig.0000"])
def test_two_copies_in_one_directory_are_refused(kit: StandInKit, name: str) -> None:
    file = kit.count(1)
    (file.parent.parent / "link").symlink_to(file.parent)
    file.write_text(f"-C {file.parent}\n-C ../{name}\nexe\n")
    with pytest.raises(InputError, match="two copies have the run directory"):
        read_benchmark(kit_run(file))


@pytest.mark.parametrize(
    ("text", "message"),
    [("\n", ".*is empty"), ("-C /a\n", ".*no command in it"), (None, "no compare.cmd in ")],
)
def test_a_comparison_that_says_nothing_keeps_nobody_from_running(
    kit: StandInKit, text: str | None, message: str
) -> None:
    file = kit.count(1, expected={})
    if text is not None:
        (file.parent / "compare.cmd").write_text(text)
    found = read_benchmark(kit_run(file))
    assert found.comparison == ()
    (remark,) = found.remarks
    assert re.match(f"901.count: outputs are not validated: {message}", remark)


EVERY = """\
-N C
-E LIBC_FATAL_STDERR_ 1
-E GREETING hello  there
-r
-S 6000
-u 2
-b numactl -m 0 --physcpubind=$SPECCOPYNUM
-C /kit/run/run_base_ref_x.0013
-b 4
-C /kit/run/a b

# a remark
-i in -o "o u t" -e err ../run_base_ref_x.0013/exe -i x < in > out 2>> err
plain words
"""


def test_every_directive_is_read() -> None:
    assert parse_speccmds(EVERY, "f") == CommandFile(
        commands=(
            SpecCommand(
                text="../run_base_ref_x.0013/exe -i x < in > out 2>> err",
                stdin="in",
                stdout="o u t",
                stderr="err",
                line=13,
            ),
            SpecCommand(text="plain words", stdin=None, stdout=None, stderr=None, line=14),
        ),
        directories=("/kit/run/run_base_ref_x.0013", "/kit/run/a b"),
        binds=("numactl -m 0 --physcpubind=$SPECCOPYNUM", "4"),
        environment=(("LIBC_FATAL_STDERR_", "1"), ("GREETING", "hello  there")),
        stagger_ms=6000.0,
        users=2,
        no_redirection=True,
        stdin="C",
    )


def test_names_that_no_shell_takes_are_variables_too() -> None:
    text = (
        "-E BASH_FUNC_which%% () {  ( alias;\n eval ${x} ) | which $@\n}\n"
        "-E my.var\tx  y\n-E EMPTY\n-E BASH_FUNC_f%% () { :; }\n-E B \udcff\nexe\n"
    )
    file = parse_speccmds(text, "f")
    assert file.environment == (
        ("BASH_FUNC_which%%", "() {  ( alias;\neval ${x} ) | which $@\n}"),
        ("my.var", "x  y"),
        ("EMPTY", ""),
        ("BASH_FUNC_f%%", "() { :; }"),
        ("B", "\udcff"),
    )
    assert [(command.text, command.line) for command in file.commands] == [("exe", 8)]
    # Without an end it is what stands in its line.
    assert parse_speccmds("-E BASH_FUNC_f%% () {\nexe\n", "f").environment[0][1] == "() {"


def test_line_ends_of_windows_change_nothing() -> None:
    assert parse_speccmds(EVERY.replace("\n", "\r\n"), "f") == parse_speccmds(EVERY, "f")


def test_a_file_without_directories_is_for_one_copy() -> None:
    file = parse_speccmds("-u 3\n-o out ./exe\n", "f")
    assert (file.copies, file.copies_meant, file.users) == (1, 1, 3)


def test_fewer_bind_values_than_copies_are_used_in_a_circle() -> None:
    file = parse_speccmds("-b 0\n-b 8\n-C a\n-C b\n-C c\nexe\n", "f")
    assert file.binds == ("0", "8", "0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: no command in it"),
        ("-C /a\n", "f: no command in it"),
        ("-C\n", "f:1: -C without a value"),
        ("exe\n-o\n", "f:2: -o without a value"),
        ("-o out -e err\n", "f:1: -i, -o or -e without a command"),
        ("-o a -o b exe\n", "f:1: -o twice"),
        ("\n-x 3\n", "f:2: -x: expected one of -C -b"),
        ("-oout exe\n", "f:1: -oout: expected one of"),
        ("-S soon\n", "f:1: -S soon: expected milliseconds"),
        ("-S -1\n", "f:1: -S -1: expected milliseconds"),
        ("-S nan\n", "f:1: -S nan"),
        ("-u 0\n", "f:1: -u 0: expected a number of copies"),
        ("-u ²\n", "f:1: -u ²: expected"),
        ("-E A=b c\n", "f:1: -E A=b c: expected the name"),
        ("-N X\n", "f:1: -N X: expected C, N or Z"),
        ("exe\n\0\n", "f:2: a NUL byte"),
        ("-", "f:1: -: expected one of"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        parse_speccmds(text, "f")


def test_copy_number_and_bind_value_are_replaced_but_not_with_braces() -> None:
    text = "numactl -C $BIND ../exe $SPECCOPYNUM ${BIND} $BINDING $SPECCOPYNUM.in"
    assert expanded(text, 3, "8-11") == "numactl -C 8-11 ../exe 3 ${BIND} $BINDING 3.in"
    assert expanded("$BIND exe", 7, "numactl $SPECCOPYNUM") == "numactl 7 exe"
    assert uses_bind("a $BIND")
    assert not uses_bind("a ${BIND} $BINDER $SPECCOPYNUM")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("../exe 'a b' c", ("../exe", "a b", "c")),
        ("exe in > out 2>> err", ("exe", "in")),
        ("exe in 2>>err", ("exe", "in")),
        ("exe < in", ("exe",)),
        ("it's", ()),
    ],
)
def test_words_of_a_command_end_at_its_redirections(text: str, words: tuple[str, ...]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("../exe 'a; b' c > out 2>> err", True),
        ("numactl -l -C 3 ../exe $HOME", True),
        ("echo x > run.sh ; sh run.sh", False),
        ("exe | tr a b", False),
        ("exe && exe", False),
        ("(exe)", False),
        ("exe &", False),
        ("A=b exe", False),
        ("> out exe", False),
        ("exe `cat x`", False),
        ("it's", False),
        ("a\nb", False),
    ],
)
def test_a_simple_command_can_take_the_place_of_its_shell(text: str, simple: bool) -> None:
    assert is_simple(text) is simple


def test_a_bind_value_is_a_list_words_or_a_command() -> None:
    kinds = {it: bind_kind(it).value for it in ("3", "0-3,8", "0x1", "-c 0", "+3", "numactl -m 0")}
    assert kinds == {
        "3": "cpus",
        "0-3,8": "cpus",
        "0x1": "words",
        "-c 0": "words",
        "+3": "words",
        "numactl -m 0": "command",
    }


def test_the_file_that_is_compared_is_the_last_word() -> None:
    lines = (
        "-o a.cmp /k/specdiff -m -l 10 --abstol 1e-7 /k/data/a a\n-o b.cmp /k/specdiff /k/b /b\n"
    )
    assert compared_files(parse_speccmds(lines, "f").commands) == ("a",)


@needs_samples
def test_the_real_command_files_are_read() -> None:
    benchmarks = {
        file.name.removesuffix(".speccmds.cmd"): parse_speccmds(file.read_text(), file.name)
        for file in (SAMPLES / "speccmds").glob("*.cmd")
    }
    assert {name: len(file.commands) for name, file in benchmarks.items()} == {
        "400.perlbench": 3,
        "403.gcc": 9,
        "429.mcf": 1,
        "445.gobmk": 5,
        "450.soplex": 2,
        "483.xalancbmk": 1,
    }
    assert all(file.copies == 1 for file in benchmarks.values())
    assert [command.stdin for command in benchmarks["445.gobmk"].commands][:2] == [
        "13x13.tst",
        "nngs.tst",
    ]
    assert benchmarks["403.gcc"].commands[0].text.endswith("/gcc_base.CPU_O3 166.i -o 166.s")
