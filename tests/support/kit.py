"""A stand-in for an installed SPEC CPU: run directories as its tools make them, all of it ours.

Two benchmarks of two workloads each. `901.count` counts the lines of its arguments
(its program is a script of copy 0, which all copies execute); `902.words` reads its
standard input. `bin/specdiff` compares two files as far as equal or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

COUNT = """\
#!/bin/sh
n=0
for file in "$@"; do while read -r line; do n=$((n + 1)); done < "$file"; done
echo "$n lines"
echo "copy $RATER_COPY of $OMP_NUM_THREADS" >&2
"""
WORDS = """\
#!/bin/sh
read -r first rest
echo "$1 $first"
"""
SPECDIFF = """\
#!/bin/sh
for last do before=$expected; expected=$now; now=$last; done
if [ "$(cat "$expected" 2>&1)" = "$(cat "$now" 2>&1)" ]
then echo "specdiff run completed"; exit 0
fi
echo "0001: $(cat "$now")" > "$now.mis"
echo "0001: differs from $expected"
exit 1
"""


def script(path: Path, text: str) -> Path:
    """Write a script that can be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@dataclass
class StandInKit:
    """A kit below one folder."""

    root: Path
    suite: str = "CPU2006"
    label: str = "rig"
    specdiff: Path = field(init=False)

    def __post_init__(self) -> None:
        self.specdiff = script(self.root / "bin" / "specdiff", SPECDIFF)

    def benchmark(
        self,
        name: str,
        copies: int,
        *,
        program: str,
        commands: Sequence[str],
        directives: Sequence[str] = (),
        files: dict[str, str] | None = None,
        expected: dict[str, str] | None = None,
        binds: Sequence[str] = (),
        tune: str = "base",
        size: str = "ref",
        first: int = 0,
        end: str = "\n",
    ) -> Path:
        """Make the run directories of a benchmark; return the command file.

        `EXE` in `commands` becomes the program of copy 0; outputs in `expected` are
        compared. `first` is the number of copy 0's directory.
        """
        home = self.root / "benchspec" / self.suite / name
        names = [f"run_{tune}_{size}_{self.label}.{first + copy:04}" for copy in range(copies)]
        executable = f"{name.partition('.')[2]}_{tune}.{self.label}"
        for directory in names:
            (home / "run" / directory).mkdir(parents=True)
            for inside, text in (files or {}).items():
                (home / "run" / directory / inside).write_text(text)
        script(home / "run" / names[0] / executable, program)
        copied = [f"-C {home}/run/{directory}" for directory in names]
        if binds:
            copied = [
                line for number, it in enumerate(copied) for line in (f"-b {binds[number]}", it)
            ]
        lines = [
            *directives,
            *copied,
            *(command.replace("EXE", f"../{names[0]}/{executable}") for command in commands),
        ]
        file = home / "run" / names[0] / "speccmds.cmd"
        file.write_text(end.join([*lines, ""]))
        if expected:
            output = home / "data" / size / "output"
            output.mkdir(parents=True, exist_ok=True)
            compare = copied.copy()
            tool = quote(str(self.specdiff))
            for out, text in expected.items():
                (output / out).write_text(text)
                compare.append(f"-o {out}.cmp {tool} -m -l 10 {quote(str(output))}/{out} {out}")
            (file.parent / "compare.cmd").write_text("\n".join([*compare, ""]))
        return file

    def count(self, copies: int, name: str = "901.count", **more: object) -> Path:
        """Make a benchmark that counts lines, in two workloads."""
        values: dict[str, object] = {
            "program": COUNT,
            "commands": ["-o one.out -e one.err EXE a", "-o two.out -e two.err EXE a b"],
            "files": {"a": "1\n2\n", "b": "3\n"},
            "expected": {"one.out": "2 lines\n", "two.out": "3 lines\n"},
        }
        return self.benchmark(name, copies, **(values | more))  # type: ignore[arg-type] # by name

    def write_words_kit(self, copies: int, name: str = "902.words", **more: object) -> Path:
        """Make one that reads standard input; in CPU2017's dialect."""
        values: dict[str, object] = {
            "program": WORDS,
            "directives": ["-E GREETING hello there", "-r", "-N C"],
            "commands": [
                "-i in -o w1.out -e w1.err EXE first < in > w1.out 2>> w1.err",
                "-i in -o w2.out -e w2.err EXE $SPECCOPYNUM < in > w2.out 2>> w2.err",
            ],
            "files": {"in": "hello world\n"},
            "expected": {"w1.out": "first hello\n"},
        }
        return self.benchmark(name, copies, **(values | more))  # type: ignore[arg-type] # by name
