"""Command files of specinvoke."""

from __future__ import annotations

import re

import pytest

from rater.errors import InputError
from rater.speccpu.kit import bind_kind, compared_files
from rater.speccpu.kit_files import (
    CommandFile,
    SpecCommand,
    expanded,
    is_simple,
    parse_speccmds,
    uses_bind,
    words_of,
)
from tests.support.places import SAMPLES, needs_samples

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
                "../run_base_ref_x.0013/exe -i x < in > out 2>> err", "in", "o u t", "err", 13
            ),
            SpecCommand("plain words", None, None, None, 14),
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
    assert [(it.text, it.line) for it in file.commands] == [("exe", 8)]
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
    found = {
        file.name.removesuffix(".speccmds.cmd"): parse_speccmds(file.read_text(), file.name)
        for file in (SAMPLES / "speccmds").glob("*.cmd")
    }
    assert {name: len(file.commands) for name, file in found.items()} == {
        "400.perlbench": 3,
        "403.gcc": 9,
        "429.mcf": 1,
        "445.gobmk": 5,
        "450.soplex": 2,
        "483.xalancbmk": 1,
    }
    assert all(file.copies == 1 for file in found.values())
    assert [it.stdin for it in found["445.gobmk"].commands][:2] == ["13x13.tst", "nngs.tst"]
    assert found["403.gcc"].commands[0].text.endswith("/gcc_base.CPU_O3 166.i -o 166.s")
