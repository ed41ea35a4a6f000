"""`rater lint-bind` as it is typed: where lines come from, what is printed, the exit status."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.support.calls import Rater
from tests.support.places import SAMPLES, needs_samples
from tests.support.raw_files import HEAD, bracket, pack

WRONG = """\
# a list for four CPUs
submit = $BIND $command
bind0 = numactl -m 0 --physcpubind=0
bind1 = numactl -m 0 --physcpubind=1
bind2 = numactl -m 0 --physcpubind=2
bind3 = numactl -m 1 --physcpubind=1
"""
RIGHT = WRONG.replace("-m 0 --physcpubind=2", "-m 1 --physcpubind=2").replace(
    "-m 1 --physcpubind=1", "-m 1 --physcpubind=3"
)


@pytest.fixture
def rater(rater: Rater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rater:
    """Run `rater lint-bind ...` in an empty folder; return status, standard output and error."""
    monkeypatch.chdir(tmp_path)
    return partial(rater, "lint-bind")


def test_findings_are_a_line_each_and_the_status_is_1(rater: Rater) -> None:
    Path("a.cfg").write_text(WRONG)
    status, out, _ = rater("a.cfg", "--topology", "nodes=2x2")
    assert status == 1
    assert out.splitlines()[:5] == [
        "a.cfg:5: bind2 binds memory to node 0, but CPU 2 is of node 1; use -m 1 [far-memory]",
        "a.cfg:6: bind3 binds CPU 1 again (bind1, line 4 has it), there with memory node 0 and "
        "here 1; CPU 3 has no copy [cpu-twice]",
        "a.cfg:6: bind3 binds memory to node 1, but CPU 1 is of node 0; bind CPU 3 of node 1, "
        "still free, or use -m 0 [far-memory]",
        "a.cfg:6: CPU 3 has no copy (1 on node 1); bind it where copies share CPUs [idle]",
        "a.cfg: 4 findings; 4 binds, CPUs 0-2 on nodes=2x2",
    ]


def test_without_a_machine_the_rest_is_said_to_be_left_out(rater: Rater) -> None:
    Path("a.cfg").write_text(RIGHT)
    status, out, _ = rater("a.cfg")
    assert status == 0
    assert out.startswith("a.cfg: nothing found; 4 binds, CPUs 0-3\n  not checked: the machine:")
    assert "nodes=2x20" in out and "this" in out


def test_json_has_all_of_it(rater: Rater) -> None:
    Path("a.cfg").write_text(WRONG)
    status, out, _ = rater("a.cfg", "--topology", "nodes=2x2", "--json")
    document = json.loads(out)
    assert status == 1
    assert [(one["line"], one["kind"], one["cpus"]) for one in document["findings"]] == [
        (5, "far-memory", [2]),
        (6, "cpu-twice", [1]),
        (6, "far-memory", [1]),
        (6, "idle", [3]),
    ]
    assert document["lists"][0]["binds"][3]["memory_nodes"] == [1]


def test_kinds_that_are_meant_are_ignored(rater: Rater) -> None:
    Path("a.cfg").write_text(WRONG)
    ignored = "far-memory,cpu-twice,idle"
    status, out, _ = rater("a.cfg", "--topology", "nodes=2x2", "--ignore", ignored)
    assert status == 0
    assert "nothing found (4 ignored)" in out


def test_many_findings_of_a_kind_are_cut_with_their_number(rater: Rater) -> None:
    lines = "".join(f"bind{cpu} = taskset -c {cpu}\n" for cpu in range(40))
    Path("a.cfg").write_text(f"submit = $BIND $command\n{lines}")
    _, out, _ = rater("a.cfg", "--topology", "nodes=2x2")
    assert out.count("which is not there") == 12
    assert "a.cfg:41: and 24 more up to here [cpu-missing] (--json has all)" in out


def test_included_files_are_read_and_their_lines_named(rater: Rater) -> None:
    Path("binds.inc").write_text("bind0 = taskset -c 0\nbind1 = taskset -c 0\n")
    Path("a.cfg").write_text(
        "include: binds.inc\ninclude: absent.inc\nsubmit = $BIND $command\ncopies = 3\n"
    )
    status, out, _ = rater("a.cfg")
    assert status == 1
    assert "binds.inc:2: bind1 binds CPU 0 again (bind0, binds.inc:1 has it)" in out
    assert "a.cfg:4: 3 copies and 2 binds" in out
    assert "a.cfg:2: include: absent.inc is not there to be read" in " ".join(out.split())


def test_a_file_that_includes_itself_comes_to_an_end(rater: Rater) -> None:
    Path("a.cfg").write_text("include: a.cfg\nsubmit = taskset -c 0 $command\n")
    assert rater("a.cfg")[0] in (0, 1)


def test_the_configuration_inside_a_raw_file_is_checked(rater: Rater) -> None:
    packed = "".join(
        f"spec.cpu2006.rawconfig{place:03}: {piece}\n" for place, piece in enumerate(pack(WRONG))
    )
    text = HEAD + packed + bracket(times=(400.0,) * 5)
    Path("a.rsf").write_text(text)
    status, out, _ = rater("a.rsf")
    assert status == 1
    assert "a.rsf(config):6: bind3 binds CPU 1 again" in out
    assert "5 copies and 4 binds" in out
    assert "the configuration inside a.rsf: 2 findings" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file: a.cfg"),
        (b"\x7fELF\0\0", "no text"),
        (b"tune = base\n", "no submit, bind or bindN line: nothing to check"),
        (b"spec.cpu2006.size: ref\n", "without a readable configuration"),
    ],
)
def test_what_cannot_be_read_is_status_2(rater: Rater, content: bytes | None, message: str) -> None:
    if content is not None:
        Path("a.cfg").write_bytes(content)
    status, out, err = rater("a.cfg")
    assert (status, out) == (2, "")
    assert message in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--copies", "0"), "expected"),
        (("--copies", "x"), "expected"),
        (("--ignore", "everything"), "expected"),
        (("--fix",), "`rater plan --topology MACHINE -- true` lists each copy's CPU"),
    ],
)
def test_wrong_options_are_status_2(
    rater: Rater, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        rater("a.cfg", *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_this_machine_is_taken_when_it_is_named(rater: Rater) -> None:
    Path("a.cfg").write_text("submit = taskset -c $BIND $command\nbind = 60000\n")
    status, out, _ = rater("a.cfg", "--topology", "this")
    assert status == 1
    assert "CPU 60000, which is not there: this machine has CPU" in out


@needs_samples
def test_real_configurations_have_the_mistakes_that_are_known(rater: Rater) -> None:
    machine = "pack:2 numa:1 core:10 pu:2(indexes=core:pack:pu)"
    file = SAMPLES / "configs" / "huawei-tsk_e5-2640v4.cfg"
    _, out, _ = rater(file, "--topology", machine, "--json")
    kinds = [(one["line"], one["kind"]) for one in json.loads(out)["findings"]]
    assert kinds == [
        *((84, "cpu-twice"), (84, "far-memory")),
        *((85, "cpu-twice"), (85, "far-memory")),
        (96, "idle"),
    ]
    assert rater(file)[0] == 1
    file = SAMPLES / "configs" / "chenzhihui244_e5-2658-2cpu.cfg"
    assert rater(file, "--topology", machine.replace("10", "14"))[0] == 0
    assert rater(SAMPLES / "CINT2006-64copies.rsf", "--topology", "nodes=4x16")[0] == 0
    assert rater(SAMPLES / "CINT2006-64copies.rsf", "--topology", "nodes=4x18")[0] == 1
