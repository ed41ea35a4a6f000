"""What shells complete, the examples of the help, and how both follow the parser."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rater.cli import build_parser
from rater.command_line import EXAMPLES, subparsers_of
from rater.commands.machine import SHELLS
from tests.support.calls import Rater

BASH = """
source {script}
_try() {{
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    $(complete -p rater | sed 's/.*-F \\([^ ]*\\).*/\\1/') rater "${{@: -1}}" "${{@: -2:1}}"
    echo "${{COMPREPLY[@]}}"
}}
_try rater div
_try rater run --mo
_try rater run --mode sta
_try rater export --format c
"""
FISH = """
source {script}
for line in 'rater div' 'rater run --mo' 'rater run --mode sta' 'rater export --format c'
    complete -C $line | string replace -r '\\t.*' ''
end
"""
ANSWERS = ["divots", "--mode", "staggered", "csv"]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_values_are_completed(
    shell: str, rater: Rater, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    status, text, _ = rater("completion", shell)
    script = tmp_path / "_rater"
    script.write_text(text)
    assert status == 0
    if shell == "zsh":  # its completion wants a terminal: the script at least is one
        subprocess.run([shell, "-n", script], check=True)
        assert "homogeneous rotated staggered steady" in text
        return
    code = {"bash": BASH, "fish": FISH}[shell].format(script=script)
    flags = ["--no-config"] if shell == "fish" else ["--norc"]
    done = subprocess.run([shell, *flags, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ANSWERS, done.stderr


def test_every_command_has_examples_and_each_of_them_parses() -> None:
    parser = build_parser()
    assert {f"rater {name}" for name in subparsers_of(parser)} == EXAMPLES.keys() - {"rater"}
    for lines in EXAMPLES.values():
        for line in lines:
            words = shlex.split(line, comments=True)
            words = words[: words.index("--")] if "--" in words else words
            words = words[: words.index(">")] if ">" in words else words
            parser.parse_args(words[1:])
            assert len(line) <= 78
