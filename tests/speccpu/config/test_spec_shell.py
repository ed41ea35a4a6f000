"""What the shell and numactl make of submit lines that real configurations have."""

from __future__ import annotations

import pytest

from rater.speccpu.config import read_config, split_list
from rater.speccpu.log_words import RUNNING
from rater.speccpu.places import Binding, binding_of

MASK = "MYMASK=`printf '0x%x' $((1<<$SPECCOPYNUM))`; taskset $MYMASK $command"
BY_HALF = (
    "if [ $SPECCOPYNUM -lt 32 ]; then numactl -C $SPECCOPYNUM -m 0 $command\n"
    "else numactl -C $SPECCOPYNUM -m 1 $command\nfi"
)
BY_CASE = (
    "case $(($SPECCOPYNUM/16)) in 0|1) numactl -m 0 $command;; 2) numactl -m 2 $command ;;\n"
    "*) numactl -m 3 $command;; esac"
)


@pytest.mark.parametrize("copy", [0, 29, 30, 33, 62, 63])
def test_a_mask_binds_every_copy_that_the_shell_can_count_to(copy: int) -> None:
    assert binding_of(MASK, None, copy) == Binding(cpus=(copy,), by="taskset")


def test_a_mask_beyond_the_bits_of_the_shell_is_not_understood() -> None:
    found = binding_of(MASK, None, 64)
    assert (found.cpus, found.problem) == (None, "taskset: '$MYMASK' is no mask of CPUs")


@pytest.mark.parametrize(
    ("submit", "copy", "nodes"),
    [
        (BY_HALF, 3, (0,)),
        (BY_HALF, 40, (1,)),
        (BY_CASE, 3, (0,)),
        (BY_CASE, 31, (0,)),
        (BY_CASE, 32, (2,)),
        (BY_CASE, 60, (3,)),
        ("[ $SPECCOPYNUM -ge 8 ] && numactl -m 1 a || numactl -m 0 a", 3, (0,)),
        ("[ $SPECCOPYNUM -ge 8 ] && numactl -m 1 a || numactl -m 0 a", 9, (1,)),
        ("if (( SPECCOPYNUM < 4 )); then N=0; else N=1; fi; numactl -m $N a", 2, (0,)),
        ("if (( SPECCOPYNUM < 4 )); then N=0; else N=1; fi; numactl -m $N a", 4, (1,)),
        (
            "if [ $SPECCOPYNUM -lt 2 ]; then numactl -m 0 a; elif [ $SPECCOPYNUM -lt 4 ]; then "
            "if test $SPECCOPYNUM = 3; then numactl -m 3 a; else numactl -m 2 a; fi; "
            "else numactl -m 4 a; fi",
            3,
            (3,),
        ),
        ("sh -c 'if [ $SPECCOPYNUM = 1 ]; then numactl -m 1 a; else numactl -m 0 a; fi'", 1, (1,)),
        ("[ -d /tmp ] || mkdir /tmp; numactl -m 5 a", 0, (5,)),
    ],
)
def test_the_branch_that_runs_is_the_one_that_binds(
    submit: str, copy: int, nodes: tuple[int, ...]
) -> None:
    found = binding_of(submit, None, copy)
    assert (found.mem_nodes, found.problem) == (nodes, None)


@pytest.mark.parametrize(
    "submit",
    [
        "if grep -q x /proc/cpuinfo; then numactl -m 0 a; else numactl -m 1 a; fi",
        "[ -f /etc/x ] && numactl -m 0 a || numactl -m 1 a",
        "case $HOST in a) numactl -m 0 a;; *) numactl -m 1 a;; esac",
    ],
)
def test_a_condition_that_is_not_understood_is_named_and_binds_nothing(submit: str) -> None:
    found = binding_of(submit, None, 0)
    assert not found.is_bound
    assert "a condition of the shell is not understood" in (found.problem or "")


@pytest.mark.parametrize(
    ("submit", "bind", "expected"),
    [
        ("N=$SPECCOPYNUM; numactl -m $((N/16)) a", None, Binding(policy="bind", mem_nodes=(2,))),
        ("numactl -C `expr $SPECCOPYNUM / 16` a", None, Binding(cpus=(2,))),
        ("numactl -C $[$SPECCOPYNUM%16] a", None, Binding(cpus=(5,))),
        ("numactl -C +3 a", None, Binding(cpus=(3,), relative=True)),
        ("numactl -i all -C 1 a", None, Binding(cpus=(1,), policy="interleave", all_nodes=True)),
        ("numactl --physcpubind=all -l a", None, Binding(policy="local")),
        ("ssh node$BIND a", "1", Binding(by=None)),
        ("./go node$BIND a", "1", Binding(by=None)),
    ],
)
def test_more_of_what_configurations_say(submit: str, bind: str | None, expected: Binding) -> None:
    found = binding_of(submit, bind, 37)
    assert found.problem is None
    for name in ("cpus", "policy", "mem_nodes", "relative", "all_nodes"):
        assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize("options", ["$[numaopts]", "$(numaopts)"])
def test_options_from_elsewhere_are_named(options: str) -> None:
    found = binding_of(f"numactl {options} -C 5 $command", None, 0)
    assert (found.cpus, found.problem) == (
        (5,),
        f"numactl {options}: not known what it stands for",
    )


# -- configurations -------------------------------------------------------------------------------


def test_a_list_of_the_closer_section_wins_over_numbered_binds() -> None:
    config = read_config("bind0 = 0\nbind1 = 1\n429.mcf:\nbind = 10, 11\n")
    assert [bind.text for bind in config.binds("429.mcf", "base")] == ["10", "11"]
    assert [bind.text for bind in config.binds("400.perlbench", "base")] == ["0", "1"]


def test_a_quote_that_does_not_end_keeps_the_rest_together() -> None:
    assert split_list("0, '1,2") == ["0", "1,2"]


def test_a_condition_that_the_outside_decides_is_a_doubt_where_it_holds_binds() -> None:
    text = (
        "%if '%{mode}' eq 'a'\nsubmit = a\n%elif '%{mode}' =~ /b/\nsubmit = b\n"
        "%else\nsubmit = c\n%endif\n%ifdef %{other}\ncopies = 1\n%endif\n"
    )
    (problem,) = read_config(text).uncertain
    assert str(problem) == (
        "line 1: the condition %if '%{mode}' eq 'a' asks for a macro that is not defined here: "
        "taken as if it does not hold"
    )


@pytest.mark.slow
def test_long_blanks_do_not_take_long() -> None:
    """What is quadratic in them would take minutes."""
    blanks = " " * 200_000
    for line in (f"foo = a{blanks}b", f"foo{blanks}b", f"%if a{blanks}b", f"bind = a{blanks}'"):
        read_config(line + "\n%endif\n")
    read_config("%if " + "eq" * 100_000 + "!\n%endif\n")
    assert RUNNING.match(f" Running 400.a{blanks}b".rstrip()) is not None
    for submit in (f"numactl{blanks}-C 1", f"let x={blanks}'y", f"printf{blanks}x", "$((" * 60_000):
        for copy in range(20):
            binding_of(submit, None, copy)
