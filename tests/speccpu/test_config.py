"""Configurations of SPEC CPU: what bind and submit lines mean, for the shell and numactl too."""

from __future__ import annotations

import gc
import subprocess
import time

import pytest

from rater.speccpu.config.arithmetic import expr_value, printed, shell_value
from rater.speccpu.config.binding import Binding, binding_of, read_binding
from rater.speccpu.config.config import Variant, read_config, split_list
from rater.speccpu.config.shell import commands_of
from rater.speccpu.results.log import RECORDS
from tests.support.spec_fuzz import CONFIG


def test_submit_and_binds_have_their_lines() -> None:
    config = read_config(
        "# a\nbind0 = numactl -C 0\nbind1=numactl -C 1\n\nsubmit = $BIND $command\n"
    )
    assert config.submit("400.perlbench", "base") == ("$BIND $command", 5)
    assert [(bind.setting.line, bind.name, bind.text) for bind in config.binds()] == [
        (2, "bind0", "numactl -C 0"),
        (3, "bind1", "numactl -C 1"),
    ]


def test_bind_may_be_a_list() -> None:
    config = read_config('bind = 0, 8, "16,17"\ncopies = 3\n')
    assert [bind.text for bind in config.binds()] == ["0", "8", "16,17"]
    assert config.copies() == (3, 2)


@pytest.mark.parametrize(
    ("benchmark", "tune", "submit"),
    [
        ("400.perlbench", "base", "of all"),
        ("400.perlbench", "peak", "of peak"),
        ("429.mcf", "base", "of mcf"),
        ("429.mcf", "peak", "of mcf"),
        ("505.mcf_r", "base", "of intrate"),
        ("503.bwaves_r", "peak", "of peak"),
        ("605.mcf_s", "base", "of all"),
    ],
)
def test_the_closest_section_holds(benchmark: str, tune: str, submit: str) -> None:
    config = read_config(
        "submit = of all\n"
        "default=peak=default=default:\nsubmit = of peak\n"
        "429.mcf=default=default=default:\nsubmit = of mcf\n"
        "intrate:\nsubmit = of intrate\n"
    )
    found = config.submit(benchmark, tune)
    assert found is not None and found[0] == submit


def test_numbered_submit_lines_are_one_command() -> None:
    config = read_config("submit0 = echo a > run.sh\nsubmit10 = c\nsubmit2 = b\n")
    assert config.submit("x", "base") == ("echo a > run.sh\nb\nc", 1)


def test_macros_and_simple_conditions_are_followed() -> None:
    config = read_config(CONFIG)
    assert config.copies("500.perlbench_r", "base") == (4, 3)
    assert config.problems == []
    # A block of several lines, in a section of two sets and one tune.
    assert config.setting("submit0", "500.perlbench_r", "peak") is not None
    assert config.setting("submit0", "500.perlbench_r", "base") is None
    assert binding_of(config.holding("500.perlbench_r", "peak")["submit0"].value, None, 5) == (
        Binding(cpus=(2,), policy="local", by="numactl")
    )


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("%if %{n} == 4", True),
        ("%if %{n} > 4", False),
        ("%if '%{name}' eq 'big'", True),
        ("%if defined(%{n}) && !defined(%{other})", True),
        ("%ifdef %{other}", False),
        ("%ifndef %{other}", True),
        ("%if 0", False),
        ("%if 0 || 1", True),
        ("%if defined %{n} && !defined other", True),
        ("%if %{n} == 4          # four", True),
        ("%if %{n} * 2 - 1 > 7", False),
        ("%if (%{n} + 1) % 2 == 1 && '%{name}' != 'small'", True),
        ("%if !(%{n} == 4) || %{n} lt 3", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    text = f"%define n 4\n%define name big\n{condition}\ncopies = 1\n%else\ncopies = 2\n%endif\n"
    config = read_config(text)
    assert config.copies() == ((1, 4) if holds else (2, 6))
    assert config.problems == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%if %{a} =~ /x/\n%endif\n", "line 1: the condition %if %{a} =~ /x/ is not understood"),
        ("\n%if 1\n", "line 2: %if without %endif"),
        ("%endif\n", "line 1: %endif without %if"),
        ("%include other.inc\n", "line 1: %include other.inc is not followed"),
        ("submit <<EOT\nnumactl\n", "line 1: <<EOT has no end"),
    ],
)
def test_what_is_not_understood_is_named_by_its_line(text: str, message: str) -> None:
    assert str(read_config(text).problems[0]).startswith(message)


def test_macros_that_double_themselves_come_to_an_end() -> None:
    text = "%define a %{b}%{b}\n" + "%define b %{a}%{a}\n" * 50 + "submit = %{a}\n" * 200
    assert read_config(text).submit("x", "base") is not None


def test_a_list_keeps_together_what_quotes_enclose() -> None:
    assert split_list("0, 1-3 ,'4,5'") == ["0", "1-3", "4,5"]


# -- bindings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "cpus", "policy", "nodes"),
    [
        ("numactl -m 0 --physcpubind=3 ./a -C 9", (3,), "bind", (0,)),
        ("/usr/bin/numactl --physcpubind=3-5,8 -m 1,2 a", (3, 4, 5, 8), "bind", (1, 2)),
        ("numactl --localalloc --physcpubind=+4 a", (4,), "local", ()),
        ("numactl -lC7 a", (7,), "local", ()),
        ("numactl -C 1 -p 2 a", (1,), "preferred", (2,)),
        ("numactl --membind=1 --interleave 0-3 a", None, "interleave", (0, 1, 2, 3)),
        ("taskset -c 0-6:2 a", (0, 2, 4, 6), None, ()),
        ("taskset 0x30 a", (4, 5), None, ()),
        ("/bin/taskset --cpu-list 12 a", (12,), None, ()),
        ("dplace -c 5 a", (5,), None, ()),
        ("dplace -x2 -c5-6 a", (5, 6), None, ()),
        ("17", (17,), None, ()),
        ("0,64", (0, 64), None, ()),
        ("sh -c 'numactl -C 3 ./a'", (3,), None, ()),
        ('echo "./a" > run.sh ; numactl -C 3 bash run.sh', (3,), None, ()),
        ("numactl --show | grep phys >> log\nnumactl -C 3 a", (3,), None, ()),
        ("./a -c 5", None, None, ()),
    ],
)
def test_a_command_tells_cpus_and_memory(
    command: str, cpus: tuple[int, ...] | None, policy: str | None, nodes: tuple[int, ...]
) -> None:
    found = read_binding(command)
    assert (found.cpus, found.policy, found.mem_nodes, found.problem) == (cpus, policy, nodes, None)


@pytest.mark.parametrize(
    ("submit", "bind", "copy", "cpus"),
    [
        ("$BIND $command", "numactl -C 9", 3, (9,)),
        ("taskset -c $BIND $command", "4", 0, (4,)),
        ("numactl -C $SPECCOPYNUM $command", None, 5, (5,)),
        ("numactl -C ${SPECCOPYNUM} $command", None, 5, (5,)),
        ("taskset -c $((2*$SPECCOPYNUM+1)) $command", None, 5, (11,)),
        (
            "MYMASK=`printf '0x%x' \\$((1<<\\$SPECCOPYNUM))`; /usr/bin/taskset \\$MYMASK $command",
            None,
            6,
            (6,),
        ),
        ('let "N=$SPECCOPYNUM/2"; numactl -C $N $command', None, 7, (3,)),
        ("./bind.sh $BIND $command", "4,5", 0, (4, 5)),
        ("./bind.sh $BIND $command", "socket0", 0, None),
        ("numactl -C $(( (7-$SPECCOPYNUM)*2 >> 1 )) $command", None, 3, (4,)),
        ("numactl --phys=$SPECCOPYNUM $command", None, 3, (3,)),
        ("$command", "4", 0, None),
        ("taskset -c $((1/0)) $command", None, 0, None),
        ("taskset -c $((1<<99999999)) $command", None, 0, None),
    ],
)
def test_the_submit_line_and_the_bind_value_of_a_copy_make_its_binding(
    submit: str, bind: str | None, copy: int, cpus: tuple[int, ...] | None
) -> None:
    assert binding_of(submit, bind, copy).cpus == cpus


def test_what_a_binding_says_wrongly_is_told() -> None:
    assert read_binding("numactl -C 5-3 a").problem == (
        "numactl --physcpubind=5-3: the range 5-3 in '5-3' runs backwards"
    )
    assert "is no mask" in (read_binding("taskset zz a").problem or "")
    assert read_binding("numactl --what=1 -C 3 a").problem == "numactl --what=1 is not known"
    assert "no stride" in (read_binding("taskset -c 0-7:x a").problem or "")
    assert read_binding("numactl -N 1 a") == Binding(cpu_nodes=(1,), by="numactl")


def test_a_command_is_expanded_as_its_shell_would() -> None:
    assert (
        " ; ".join(commands_of("numactl -C $BIND $command", "$SPECCOPYNUM", 4))
        == "numactl -C 4 $command"
    )


@pytest.mark.parametrize(
    ("label", "machine", "submit"),
    [
        ("mylabel", "default", "of mylabel"),
        ("lab1", "default", "of lab1"),
        ("third", "default", "of all"),
        ("third", "boxA", "of boxA"),
        ("mylabel", "boxA", "of mylabel"),  # the label counts before the machine
    ],
)
def test_sections_of_other_labels_and_machines_do_not_hold(
    label: str, machine: str, submit: str
) -> None:
    config = read_config(
        "submit = of all\n"
        "default=default=lab1=default:\nsubmit = of lab1\n"
        "default=default=mylabel=default:\nsubmit = of mylabel\n"
        "default=default=otherlab:\nsubmit = of otherlab\n"
        "default=default=default=boxA:\nsubmit = of boxA\n"
        "default=default=default=boxB:\nsubmit = of boxB\n"
    )
    found = config.submit("500.perlbench_r", "base", Variant(label, machine))
    assert found is not None and found[0] == submit


def test_conditions_in_conditions_cost_as_much_as_beside_each_other() -> None:
    def once_s(conditions: int) -> float:
        begin = time.thread_time()
        config = read_config("%if '%{x}' == 'y'\n" * conditions)
        cost_s = time.thread_time() - begin
        assert len(config.problems) >= conditions  # none has its end
        return cost_s

    def least_s(conditions: int) -> float:
        return min(once_s(conditions) for _ in range(3))

    gc.disable()  # a pass over all that a worker holds takes longer than what is measured
    try:
        assert least_s(20_000) < 40 * least_s(2000)
    finally:
        gc.enable()


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


def test_a_mask_beyond_the_bits_of_the_shell_begins_again() -> None:
    bound = [binding_of(MASK, None, copy).cpus for copy in (64, 65, 127, 128)]
    assert bound == [(0,), (1,), (63,), (0,)]
    assert binding_of(MASK, None, 64, bits=None).cpus == (64,)


# Expressions with N=70, and what bash and dash make of them on x86 and ARM.
SUMS: dict[str, int | None] = {
    "1<<N": 64,
    "1<<64": 1,
    "1<<-1": -(2**63),
    "1<<63": -(2**63),
    "9223372036854775807+1": -(2**63),
    "4611686018427387904*2": -(2**63),
    "-1>>1": -1,
    "-7/2": -3,
    "-7%3": -1,
    "010+0x10": 24,
    "N<64 ? 1 : 2": 2,
    "N>64 && N<128": 1,
    "N==0 || N!=70": 0,
    "N & 63 | 1 ^ 3": 6,
    "~N": -71,
    "!N": 0,
    "0 && 1/0": 0,
    "M = N % 64, M * 2": 12,
    "(N <<= 1) + N": 280,
    "1 + 2 * 3 - -4": 11,
    "1/0": None,
    "unknown + 1": None,
    "08": None,
    "9223372036854775808": None,
    "1 +": None,
    "x == ": None,
}


@pytest.mark.parametrize("text", SUMS)
def test_sums_of_the_shell_have_64_bits_and_its_signs(text: str) -> None:
    assert shell_value(text, {"N": "70"}) == SUMS[text]


def test_a_mask_that_has_become_zero_has_no_cpu() -> None:
    found = binding_of("taskset 0x`printf %x $((2**$SPECCOPYNUM))` $command", None, 64)
    assert (found.cpus, found.problem) == (None, "taskset: the mask '0x0' has no CPU in it")


def test_sums_come_to_what_the_shell_here_makes_of_them() -> None:
    told = {text: value for text, value in SUMS.items() if value is not None and ", " not in text}
    script = "".join(f'N=70; echo "$(({text}))"\n' for text in told)
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert [int(line) for line in shell.stdout.split()] == list(told.values())


def test_an_assignment_is_kept_only_where_the_sum_can_be_told() -> None:
    values = {"N": "3"}
    assert shell_value("M = N + 1, M / 0", values) is None and values == {"N": "3"}
    assert shell_value("M = N + 1", values) == 4 and values == {"N": "3", "M": "4"}


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("'0x%x' 64", "0x40"),
        ('"%#x\\n" 64', "0x40"),
        ("%x -9223372036854775808", "8000000000000000"),
        ("'%d,' 1 2 3", "1,2,3,"),
        ("'%d-%d' 4 7", "4-7"),
        ("'%02d%%' 5", "05%"),
        ("%x 18446744073709551616", None),
        ("'%q' 1", None),
        ("%d $N", None),
    ],
)
def test_printf_prints_as_that_of_the_shell(arguments: str, output: str | None) -> None:
    assert printed(arguments) == output


def test_expr_has_words_for_signs_and_numbers_without_end() -> None:
    assert expr_value("64 \\* 2 % 128") == 0
    assert expr_value("9223372036854775807 + 1") == 2**63
    assert expr_value("010 + 1") == 11
    assert expr_value("64*2") is None
    assert expr_value("5 '>=' 4") == 1


@pytest.mark.parametrize(
    ("submit", "is_open"),
    [
        ("numactl -l $command", False),
        ('echo "$command" > run.sh; numactl -l bash run.sh', False),
        ("nice -n 5 $command", False),
        ("bash bind.sh $command", True),
        ("./bind.sh $SPECCOPYNUM $command", True),
        ("taskset 0x`echo 2^$SPECCOPYNUM | bc` $command", True),
        ("numactl $OPTIONS $command", True),
    ],
)
def test_a_command_that_is_not_understood_is_open(submit: str, is_open: bool) -> None:
    assert binding_of(submit, None, 3).is_open == is_open


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
    assert [str(problem) for problem in read_config(text).uncertain] == [
        "line 1: the condition %if '%{mode}' eq 'a' asks for a macro that is not defined here: "
        "taken as if it does not hold: its lines are left out",
        "line 8: the condition %ifdef %{other} asks for a macro that is not defined here: "
        "taken as if it does not hold: its lines are left out",
    ]


@pytest.mark.parametrize("condition", ["%{n} == 1", "%{n} > 4", "%{n}", "!defined(%{n}) && 0"])
def test_a_condition_asks_for_a_macro_that_is_not_defined(condition: str) -> None:
    config = read_config(f"%if {condition}\ncopies = 8\n%else\ncopies = 4\n%endif\n")
    assert config.copies() == (4, 4)
    assert config.problems == []
    assert "asks for a macro that is not defined here" in str(config.uncertain[0])


def test_a_default_for_a_macro_of_the_command_line_is_no_doubt() -> None:
    text = "%ifndef %{n}\n%  define n 8\n%endif\ncopies = %{n}\n"
    assert read_config(text).uncertain == []
    assert read_config(text).copies() == (8, 4)
    assert read_config(text, {"n": "3"}).copies() == (3, 4)


@pytest.mark.parametrize(
    ("text", "binds"),
    [
        ("bind = 0 8 16 24\n", "0 8 16 24"),
        ("bind = <<EOT\n 0, 2,  # socket 0\n 1, 3\nEOT\n", "0 2 1 3"),
        ("bind = 0,1, \\\n  2,3   # one socket, all cores\n", "0 1 2 3"),
        (
            "bind0 = numactl -C 0# first\nbind1 = numactl -C 1 # don't\n",
            "numactl -C 0|numactl -C 1",
        ),
        ("bind = 0 1\nbind += 2,3\n", "0 1 2 3"),
        ("last = 7\nbind = 0 $[last]\n", "0 7"),
        ("%define half %{n} / 2\nbind = 0 %{half}\n", "0 4"),
        ("%define cpus 0-3\nbind = %{cpus} 4-7\n", "0-3 4-7"),
        ("bind = \\#1 '#2 3'\n", "#1|#2 3"),
    ],
)
def test_binds_are_read_as_the_configuration_language_has_them(text: str, binds: str) -> None:
    found = [bind.text for bind in read_config(text, {"n": "8"}).binds()]
    assert found == (binds.split("|") if "|" in binds else binds.split())


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("copies = 4   # EDIT\n", 4),
        ("%define n 2      # cores\ncopies = %{n}\n", 2),
        ("%define n 2\n%define all %{n}*4 - 1\ncopies = %{all}\n", 7),
        ("n = 6\ncopies = $[n]\n", 6),
        ("copies = 3\nintrate:# the rest\ncopies = 4\n", 4),
        ("copies = 3\nintrate=base:   # the rest\ncopies = 4\n", 4),
        ("submit = echo $# ${#x} '# no' \\# # yes\ncopies = 5\n", 5),
        ("copies = 1\n505.mcf_r=base=fast:\ncopies = 9\n", 9),
        ("label = slow\ncopies = 1\n505.mcf_r=base=fast:\ncopies = 9\n", 1),
    ],
)
def test_copies_are_read_as_the_configuration_language_has_them(text: str, copies: int) -> None:
    config = read_config(text)
    found = config.copies("505.mcf_r", "base")
    assert found is not None and found[0] == copies
    assert config.problems == []


def test_a_label_of_the_command_line_chooses_its_sections() -> None:
    text = "label = slow\ncopies = 1\ndefault=base=%{label}:\ncopies = 9\n"
    assert read_config(text, label="fast").copies("505.mcf_r", "base") == (9, 4)


@pytest.mark.slow
def test_long_blanks_do_not_take_long() -> None:
    """What is quadratic in them would take minutes."""
    blanks = " " * 200_000
    for line in (f"foo = a{blanks}b", f"foo{blanks}b", f"%if a{blanks}b", f"bind = a{blanks}'"):
        read_config(line + "\n%endif\n")
    read_config("%if " + "eq" * 100_000 + "!\n%endif\n")
    assert RECORDS["running"].match(f"Running 400.a{blanks}b") is not None
    for submit in (f"numactl{blanks}-C 1", f"let x={blanks}'y", f"printf{blanks}x", "$((" * 60_000):
        for copy in range(20):
            binding_of(submit, None, copy)
