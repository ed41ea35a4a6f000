"""Mistakes in bind lists, each found at its line, and `rater spec lint-bind` as a command."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path

import pytest

from rater.analysis.results.gates import gate_status
from rater.plan.topology import RawNode, RawPU, Topology, build_topology
from rater.speccpu.config.config import read_config
from rater.speccpu.lint.bind_list import (
    MOST_SEATS,
    LintContext,
    ResultOf,
    Source,
    read_source,
)
from rater.speccpu.lint.check import KINDS, LintReport
from rater.speccpu.lint.check import lint as check
from rater.speccpu.lint.machine import misplaced
from rater.system.errors import InputError
from tests.support.calls import Rater
from tests.support.machines import generated, real_machines, topology_of
from tests.support.places import SAMPLES, needs_samples
from tests.support.spec_fuzz import CONFIG, broken

# Two lgroups of two cores of two threads; second threads come last, as on x86.
SMALL = topology_of([[[0, 4], [1, 5]], [[2, 6], [3, 7]]])
NUMACTL = "submit = $BIND $command\n"
GOOD = [(0, 0), (1, 0), (4, 0), (5, 0), (2, 1), (3, 1), (6, 1), (7, 1)]


def source(text: str, *ran: ResultOf) -> Source:
    config = read_config(text)
    origins = tuple(("x.cfg", line) for line in range(1, config.lines + 1))
    return Source(name="x.cfg", config=config, packed=False, ran=ran, missing=(), origins=origins)


def lint(source: Source, topology: Topology | None = None, **options: object) -> LintReport:
    return check(LintContext(source=source, topology=topology, **options))  # type: ignore[arg-type]  # the test's own


def listed(pairs: list[tuple[int, int]]) -> str:
    return "".join(
        f"bind{copy} = numactl -m {node} --physcpubind={cpu}\n"
        for copy, (cpu, node) in enumerate(pairs)
    )


def findings_by_line(
    text: str, topology: Topology | None = None, **options: object
) -> list[tuple[int, str]]:
    result = lint(source(text), topology, **options)
    return [(finding.line, finding.kind) for finding in result.findings]


def text_of(text: str, topology: Topology | None = None) -> str:
    [one] = lint(source(text), topology).findings
    return one.text


EIGHT = NUMACTL + listed(GOOD)
BY_COPY = "submit = numactl --localalloc --physcpubind=$SPECCOPYNUM $command\n"
RELATIVE = BY_COPY.replace("=$", "=+$")
TWO_MASKS = NUMACTL + "bind0 = taskset -c 0-1\nbind1 = taskset -c {}\n"
OF_NODE = NUMACTL + "".join(f"bind{copy} = numactl -N 0 -m 0\n" for copy in range(5))
MCDRAM = NUMACTL + "bind0 = numactl -m {} -C 0\nbind1 = numactl -l -C 1\n"
ONE_NODE, POWER, AWAY = (
    topology_of([[[0], [1]]]),
    topology_of([[[0, 1], [2, 3]]]),
    topology_of([[[2], [5]]]),
)
HALF_SHUT = topology_of([[[0], [1]], [[2], [3]]], usable={0, 1, 2})
FOUR = NUMACTL + listed([(0, 0), (1, 0), (2, 1), (3, 1)])
CASES: dict[str, tuple[str, Topology | None, int | None, list[tuple[int, str]]]] = {
    "a right list": (EIGHT, None, None, []),
    "a right list on its machine": (EIGHT, SMALL, None, []),
    "a third copy": (
        "submit = taskset -c $BIND $command\nbind = 3, 3, 3\n",
        None,
        None,
        [(2, "cpu-twice"), (2, "cpu-twice")],
    ),
    "as many copies as CPUs share them": (TWO_MASKS.format("0-1"), None, None, []),
    "masks that overlap": (TWO_MASKS.format("1-2"), None, None, [(3, "cpu-twice")]),
    "more copies than a node has CPUs": (OF_NODE, SMALL, 5, [(6, "cpu-twice")]),
    "copies of a node nobody knows": (OF_NODE, None, None, []),
    "the same names in another section": (
        f"{EIGHT}429.mcf=peak:\n{listed(GOOD)}",
        None,
        None,
        [],
    ),
    "a CPU that may not be used": (FOUR, HALF_SHUT, None, [(5, "cpu-missing"), (5, "many-copies")]),
    "a node without memory": (MCDRAM.format("0,1"), ONE_NODE, None, [(2, "node-missing")]),
    "memory of the same place": (MCDRAM.format("0"), ONE_NODE, None, []),
    "what a section unsets does not hold there": (
        f"copies = 4\n{EIGHT}429.mcf=peak:\nbind = %undef%\nsubmit = %undef%\n"
        + "".join(f"bind{number} = %undef%\n" for number in range(8)),
        None,
        None,
        [(1, "many-binds")],
    ),
    "fewer copies of one benchmark's peak": (
        f"copies = 8\n{EIGHT}429.mcf=peak:\ncopies = 2\n",
        None,
        None,
        [],
    ),
    "binds without a submit": (listed(GOOD), None, None, [(1, "not-used")]),
    "binds that submit does not use": (BY_COPY + listed(GOOD), None, None, [(2, "not-used")]),
    "a submit without binds": (NUMACTL, None, None, [(1, "no-binds")]),
    "a bind that is wrong in itself": (
        NUMACTL + "bind0 = numactl --physcpubind=5-3\n",
        None,
        None,
        [(2, "unclear")],
    ),
    "+N counts inside the CPUs of the machine": (RELATIVE, AWAY, 2, []),
    "+N beyond them": (RELATIVE, AWAY, 3, [(1, "cpu-missing"), (1, "many-copies")]),
    "a section that gives some binds keeps the others": (
        f"{EIGHT}429.mcf=peak:\nbind0 = numactl -m 0 -C 7\n",
        None,
        None,
        [(9, "cpu-twice")],
    ),
    "threads side by side": (BY_COPY, POWER, 2, [(1, "siblings")]),
}


@pytest.mark.parametrize("name", CASES)
def test_mistakes_have_their_lines_and_kinds(name: str) -> None:
    text, machine, copies, expected = CASES[name]
    assert findings_by_line(text, machine, copies=copies) == expected


def test_the_same_cpu_twice_is_told_with_both_lines_and_the_free_cpu() -> None:
    text = NUMACTL + listed([*GOOD[:3], (1, 0), *GOOD[4:]])
    assert text_of(text) == "bind3 binds CPU 1 again (bind1, line 3 has it); CPU 5 has no copy"
    assert findings_by_line(text, SMALL) == [(5, "cpu-twice"), (9, "idle")]


def test_a_name_given_twice_is_told_where_it_is_given_again() -> None:
    text = EIGHT.replace("bind3 =", "bind2 =")
    kinds = findings_by_line(text)
    assert kinds == [(5, "repeated"), (6, "gap")]
    assert "8 bindN lines are 7 binds" in lint(source(text)).findings[0].text


def test_what_the_machine_lacks() -> None:
    text = NUMACTL + listed([*GOOD[:6], (8, 1), (7, 2)])
    assert findings_by_line(text, SMALL) == [(8, "cpu-missing"), (9, "node-missing"), (9, "idle")]
    message = {finding.kind: finding.text for finding in lint(source(text), SMALL).findings}
    assert message["cpu-missing"] == "bind6 binds CPU 8, which is not there: made has CPUs 0-7"
    assert message["node-missing"] == "bind7 names node 2: the machine has nodes 0-1 with memory"


def test_memory_of_another_node_is_told_with_the_right_one() -> None:
    text = NUMACTL + listed([*GOOD[:7], (7, 0)])
    assert findings_by_line(text, SMALL) == [(9, "far-memory")]
    assert text_of(text, SMALL) == (
        "bind7 binds memory to node 0, but CPU 7 is of node 1; use -m 1"
    )


def test_memory_of_a_node_without_any_is_a_mistake() -> None:
    nodes = [RawNode(0, 0b11, 1 << 30, None), RawNode(1, 0b1100, 0, None)]
    pus = [RawPU(os=cpu, core=cpu, package=0, l3=None, l2=None) for cpu in range(4)]
    bare = build_topology(pus, nodes, usable=15, allowed_nodes=3, source="made")
    [one] = lint(source(FOUR.replace("-m 1 --phys", "-m 0 --phys", 1)), bare).findings
    assert one.text == (
        "bind3 binds memory to node 1, which has no memory: the kernel refuses it; "
        "node 0 gives some"
    )
    local = "copies = 4\nsubmit = numactl -l -C $SPECCOPYNUM $command\n"
    assert lint(source(local), bare).notes == (
        "node 1 has no memory: all memory of copies 2-3 is remote",
    )


def test_siblings_before_free_cores() -> None:
    text = NUMACTL + listed([(0, 0), (4, 0), (1, 0)])
    [one] = [
        finding for finding in lint(source(text), SMALL).findings if finding.kind == "siblings"
    ]
    assert one.line == 3
    assert one.text == (
        "bind1 (CPU 4) shares the core of bind0 (CPU 0, line 2), while 2 cores have no copy: "
        "CPUs 2-3 first"
    )
    # With all CPUs in use no core is free; only fewer copies would meet in one.
    whole = lint(source(EIGHT), SMALL)
    assert whole.findings == ()
    assert whole.notes == (
        "with 3 to 5 copies of this list some share a core while other cores have none",
    )
    assert findings_by_line(EIGHT, SMALL, copies=4) == [(4, "siblings"), (9, "many-binds")]


def test_idle_cpus_are_those_of_as_many_threads_as_the_copies_need() -> None:
    assert findings_by_line(FOUR, SMALL) == []  # one thread a core is a choice
    three = NUMACTL + listed([(0, 0), (1, 0), (2, 1)])
    assert findings_by_line(three, SMALL) == [(4, "idle")]
    assert "CPU 3 has no copy (1 on node 1); a list for all has 4 copies" in text_of(three, SMALL)
    assert findings_by_line(three, SMALL, copies=3) == []  # so many are meant


def test_copies_against_binds() -> None:
    more = f"copies = 10\n{EIGHT}"
    assert findings_by_line(more) == [(1, "few-binds")]
    assert "copies 8-9 share CPUs with copies 0-1; add bind8 to bind9 or run 8" in text_of(more)
    assert "copy 8 shares CPUs with copy 0" in text_of(f"copies = 9\n{EIGHT}")
    assert findings_by_line(more, SMALL) == [(1, "few-binds"), (1, "many-copies")]
    fewer = f"copies = 6\n{EIGHT}"
    assert findings_by_line(fewer) == [(1, "many-binds")]
    assert "bind6 (line 9) to bind7 are not used, CPUs 6-7 stay idle" in text_of(fewer)


def test_cpus_worked_out_from_the_copy_need_its_number() -> None:
    text = "submit = numactl --localalloc --physcpubind=$(($SPECCOPYNUM*2)) $command\n"
    assert findings_by_line(text, SMALL) == []
    assert "--copies N does" in lint(source(text), SMALL).unchecked[0]
    assert findings_by_line(text, SMALL, copies=5) == [(1, "cpu-missing")]  # CPU 8
    assert findings_by_line(text, SMALL, copies=3) == [(1, "siblings")]  # CPUs 0, 2, 4
    expr = "submit = taskset -c `expr $SPECCOPYNUM + 1` $command\n"
    assert [seat.cpus for seat in lint(source(expr), copies=2).scopes[0].seats] == [(1,), (2,)]


def test_shell_that_is_not_followed_is_no_mistake_and_excludes_none() -> None:
    result = lint(source("copies = 2\nsubmit = numactl -C `awk '{print $1}' map` $command\n"))
    assert result.findings == ()
    assert any("no CPU that rater can read" in one for one in result.unchecked)
    assert (result.unread, gate_status([result.verdict])) == (2, 3)


def test_a_command_for_copies_whose_number_nobody_tells_excludes_nothing() -> None:
    result = lint(source(BY_COPY))
    assert (result.unread, result.is_complete, gate_status([result.verdict])) == (0, False, 3)
    assert gate_status([lint(source(BY_COPY), copies=4).verdict]) == 0


def test_a_command_that_binds_no_cpu_is_read() -> None:
    result = lint(source("copies = 4\nsubmit = numactl --localalloc $command\n"))
    assert result.notes == ("x.cfg:2: 4 copies are bound to no CPU",)
    assert gate_status([result.verdict]) == 0


def test_masks_that_wrap_around_are_one_mistake_with_the_cpus_that_were_meant() -> None:
    text = "copies = 128\nsubmit = taskset `printf '0x%x' $((1<<$SPECCOPYNUM))` $command\n"
    result = lint(source(text), topology_of([[[cpu] for cpu in range(128)]]))
    assert [finding.kind for finding in result.findings] == ["idle", "cpu-twice"]
    assert result.findings[1].text == (
        "copies 64-127 bind CPUs 0-63 again (as copies 0-63 do): shells count in 64 bits, and "
        "1<<64 is 1 again; CPUs 64-127 were meant, which a list of CPUs binds (taskset -c)"
    )
    assert gate_status([result.verdict]) == 1


def test_masks_of_several_cpus_that_wrap_around_are_no_sharing_on_purpose() -> None:
    text = "copies = 40\nsubmit = taskset `printf 0x%x $((3<<(2*$SPECCOPYNUM)))` $command\n"
    [finding] = lint(source(text), topology_of([[[cpu] for cpu in range(64)]])).findings
    assert finding.text.startswith("copies 32-39 bind CPUs 0-15 again (as copies 0-7 do): shells")
    shared = text.replace("2*$SPECCOPYNUM", "2*($SPECCOPYNUM/2)")
    assert lint(source(shared), topology_of([[[cpu] for cpu in range(40)]])).findings == ()


def test_sections_are_checked_each_by_its_own_lines() -> None:
    text = (
        "submit = taskset -c $BIND $command\nbind = 0, 1\nintrate=base:\ncopies = 3\n"
        "505.mcf_r=peak:\nbind = 2, 2\n"
    )
    result = lint(source(text))
    assert [(finding.line, finding.kind, finding.scopes) for finding in result.findings] == [
        (4, "few-binds", ("intrate base, 505.mcf_r base",)),
        (6, "cpu-twice", ("505.mcf_r peak",)),
    ]
    assert findings_by_line(text, section="505.mcf_r=peak") == [(6, "cpu-twice")]
    assert findings_by_line(text, section="fprate") == []


def test_a_list_beside_numbered_lines_is_told() -> None:
    text = f"{EIGHT}429.mcf=peak:\nbind = 0, 1\n"
    assert findings_by_line(text) == [(11, "repeated")]
    assert "bindN lines (from line 2 on) hold as well" in text_of(text)


def test_a_raw_file_tells_copies_and_benchmarks() -> None:
    ran = (("429.mcf", "base", 9), ("400.perlbench", "base", 8))
    result = lint(source(EIGHT, *ran))
    assert [(finding.kind, finding.scopes) for finding in result.findings] == [
        ("few-binds", ("429.mcf base",))
    ]


def test_kinds_can_be_left_out() -> None:
    text = NUMACTL + listed([*GOOD[:3], (1, 0), *GOOD[4:]])
    result = lint(source(text), SMALL, ignore=frozenset({"idle"}))
    assert [finding.kind for finding in result.findings] == ["cpu-twice"]
    assert result.ignored == 1


def test_a_submit_for_a_hundred_thousand_copies_comes_to_an_end() -> None:
    text = "submit = taskset -c $SPECCOPYNUM $command\n"
    result = lint(source(text), copies=99_999)
    assert len(result.scopes[0].seats) == MOST_SEATS
    assert any(str(MOST_SEATS) in one for one in result.unchecked)


# -- the pattern of a list, without a machine -----------------------------------------------------


@pytest.mark.parametrize(
    "nodes",
    [
        [0] * 14 + [1] * 14 + [0] * 14 + [1] * 14,  # second threads last
        [0, 1, 2, 3] * 7,  # numbers that alternate
        [0] * 18 + [1] * 18 + [2] * 16 + [3] * 16,  # nodes of different size
        [0] * 8 + [8] * 8,
        [0] * 5 + [1] * 3,
        [0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 1],  # no pattern at all
    ],
)
def test_machines_as_they_are_contradict_no_pattern(nodes: list[int]) -> None:
    assert misplaced(dict(enumerate(nodes))) == {}


@pytest.mark.parametrize(
    ("nodes", "cpu"),
    [
        ([0] * 14 + [1] * 14 + [0] * 14 + [1] * 14, 9),
        ([0, 1] * 14, 7),
        ([0] * 16 + [1] * 16, 20),
        ([0] * 16 + [1] * 16 + [2] * 16 + [3] * 16, 33),
    ],
)
def test_one_cpu_against_the_pattern_is_found(nodes: list[int], cpu: int) -> None:
    wrong = nodes.copy()
    wrong[cpu] = (nodes[cpu] + 1) % 2
    assert misplaced(dict(enumerate(wrong))) == {cpu: nodes[cpu]}


def test_a_node_against_the_pattern_is_told_without_a_machine_only() -> None:
    pairs = [(cpu, cpu // 8) for cpu in range(16)]
    pairs[3] = (3, 1)
    assert findings_by_line(NUMACTL + listed(pairs)) == [(5, "node-differs")]
    assert (
        findings_by_line(NUMACTL + listed(pairs), topology_of([[[copy] for copy in range(8)]]))
        != []
    )


STYLES = {
    "numactl -m": (NUMACTL, "bindN", "numactl -m {node} --physcpubind={cpu}"),
    "numactl --membind": (
        'submit = echo "${command}" > run.sh ; $BIND bash run.sh\n',
        "bindN",
        "/usr/bin/numactl --physcpubind={cpu} --membind={node}",
    ),
    "numactl -p": (NUMACTL, "bindN", "numactl -p {node} -C {cpu}"),
    "numactl -l": (NUMACTL, "bindN", "numactl -l --physcpubind={cpu}"),
    "numactl -N": (NUMACTL, "bindN", "numactl --cpunodebind={node} --membind={node}"),
    "numactl, two CPUs": (NUMACTL, "bindN", "numactl -m {node} -C {cpu},{next}"),
    "taskset -c": (NUMACTL, "bindN", "taskset -c {cpu}"),
    "taskset": (NUMACTL, "bindN", "taskset {mask}"),
    "list": ("submit = taskset -c $BIND $command\n", "bind", "{cpu}"),
    "plain": ("submit = numactl -l --physcpubind=$BIND $command\n", "bindN", "{cpu}"),
    "copy": ("submit = numactl -l -C $SPECCOPYNUM $command\n", "", ""),
    "copy / 4": ("submit = numactl -m $(($SPECCOPYNUM/4)) -C $SPECCOPYNUM $command\n", "", ""),
}


def any_list(machine: Topology, style: str, dice: random.Random) -> str:
    """Return a configuration with every mistake that chance makes."""
    submit, form, bind = STYLES[style]
    binds = []
    for _ in range(dice.choice((1, 4, len(machine.pus), dice.randint(1, 80)))):
        cpu = dice.choice(machine.pus).os
        if dice.random() < 0.1:
            cpu = dice.randrange(max(machine.by_cpu) + 2)
        node = dice.choice([node.os for node in machine.nodes] or [0])
        binds.append(bind.format(cpu=cpu, node=node, next=cpu + 1, mask=hex(1 << cpu)))
    text = submit
    if form == "bind":
        text += f"bind = {', '.join(binds)}\n"
    elif form:
        text += "".join(f"bind{copy} = {bind}\n" for copy, bind in enumerate(binds))
    if dice.random() < 0.4:
        text += f"copies = {dice.choice((1, len(binds), dice.randint(1, 90)))}\n"
    return text


@pytest.mark.slow
def test_any_list_on_any_machine_is_checked_in_the_order_of_its_lines() -> None:
    kinds = set()
    for seed, machine in enumerate((*generated()[:60], *real_machines())):
        if len(machine.pus) > 300:
            continue
        dice = random.Random(seed)
        for style in dice.sample(sorted(STYLES), 2):
            asked = dice.choice((None, None, dice.randint(1, len(machine.pus))))
            result = lint(source(any_list(machine, style, dice)), machine, copies=asked)
            assert all("\n" not in finding.text for finding in result.findings)
            lines = [finding.line for finding in result.findings]
            assert lines == sorted(lines)
            kinds |= {finding.kind for finding in result.findings}
    assert kinds <= set(KINDS)
    assert {"cpu-twice", "far-memory", "idle", "cpu-missing"} <= kinds


def test_broken_configurations_are_checked_without_a_crash(tmp_path: Path) -> None:
    lines = [
        *("bind = 0,1,,1", "bind3 = numactl -m 7 -C 0-3", "bind3 = numactl -C +9 -m +1"),
        *("copies = 99", "copies = 0", "429.mcf=peak:", "502,int=base:", "submit0 = $BIND x"),
        *("bind99999999 = numactl -N 1", "bind1 = taskset 0xff", "include: x", "%if 0", "%endif"),
    ]
    file = tmp_path / "broken.cfg"
    for seed in range(60):
        dice = random.Random(seed)
        chosen = [*CONFIG.splitlines(), *dice.choices(lines, k=12)]
        dice.shuffle(chosen)
        data = "\n".join(chosen).encode()
        file.write_bytes(broken(data, dice) if seed % 3 else data)
        try:
            own = read_source(file)
        except InputError:
            continue
        for machine in (None, SMALL):
            result = lint(own, machine, copies=dice.choice((None, 3, 40)))
            assert {finding.kind for finding in result.findings} <= set(KINDS)


WRONG = """\
# a list for four CPUs
submit = $BIND $command
bind0 = numactl -m 0 --physcpubind=0
bind1 = numactl -m 0 --physcpubind=1
bind2 = numactl -m 0 --physcpubind=2
bind3 = numactl -m 1 --physcpubind=1
"""


@pytest.fixture
def rater(rater: Rater, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rater:
    """Run `rater spec lint-bind ...` in an empty folder; return status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    return partial(rater, "lint-bind")


def test_json_has_all_of_it(rater: Rater) -> None:
    Path("a.cfg").write_text(WRONG)
    status, out, _ = rater("a.cfg", "--topology", "nodes=2x2", "--json")
    document = json.loads(out)
    assert status == 1
    assert [
        (finding["line"], finding["kind"], finding["cpus"]) for finding in document["findings"]
    ] == [
        (5, "far-memory", [2]),
        (6, "cpu-twice", [1]),
        (6, "far-memory", [1]),
        (6, "idle", [3]),
    ]
    assert document["lists"][0]["binds"][3]["memory_nodes"] == [1]


def test_a_file_that_includes_itself_comes_to_an_end(rater: Rater) -> None:
    Path("a.cfg").write_text("include: a.cfg\nsubmit = taskset -c 0 $command\n")
    assert rater("a.cfg", "--copies", "1")[0] == 0


def test_a_configuration_of_another_system_is_read_as_any_other(rater: Rater) -> None:
    text = "\ufeffsubmit = taskset -c $BIND \\\n $command\nbind = 0, 1, \\\n 1\ncopies = 3\n"
    Path("a.cfg").write_bytes(text.replace("\n", "\r\n").encode())
    status, out, _ = rater("a.cfg")
    assert (status, "bind = 0" in out, "binds CPU 1 again" in out) == (1, False, True)


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
    kinds = [(finding["line"], finding["kind"]) for finding in json.loads(out)["findings"]]
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


def test_what_the_command_line_of_runcpu_defines_chooses_the_branch(
    rater: Rater, tmp_path: Path
) -> None:
    path = tmp_path / "my.cfg"
    path.write_text(
        "copies = 2\nsubmit = taskset -c $SPECCOPYNUM $command\n%ifdef %{smt-on}\n"
        "copies = %{cores}\nsubmit = taskset -c `expr 2 \\* $SPECCOPYNUM` $command\n%endif\n"
        "default=default=mine:\ncopies = 1\n"
    )

    def cpus(*options: str) -> list[list[int]]:
        (found,) = json.loads(rater(path, "--json", *options)[1])["lists"]
        return [bind["cpus"] for bind in found["binds"]]

    assert cpus("--label", "other") == [[0], [1]]
    assert cpus("--label", "mine") == [[0]]
    defined = ("--define", "smt-on", "--define", "cores=4")
    assert cpus("--label", "other", *defined) == [[0], [2], [4], [6]]
    _, out, _ = rater(path)
    assert "asks for a macro that is not defined here" in out and "--define NAME[=VALUE]" in out
    with pytest.raises(SystemExit) as ended:
        rater(path, "--define", "=4")
    assert ended.value.code == 2
