"""`rater suites new`: write a suite that runs as it is, to be changed by its owner."""

from __future__ import annotations

import argparse
import os
import shlex
from contextlib import suppress
from pathlib import Path

from rater.workflow.common import print_json

_NAME = "NAME"  # stands for the suite's name in the files of the example
_MAIN = "suite.toml"  # the example's file that becomes NAME.toml; the others go to NAME/


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `rater suites new`."""
    parser.add_argument(
        "name", metavar="NAME", help="of the suite; a path to write it somewhere else"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="folder to write NAME.toml and NAME/ into (default: here)",
    )
    parser.set_defaults(run=_new)


def _new(args: argparse.Namespace) -> int:
    from rater.plan.suite.find import suite_folders

    main, programs = _places(args.name, args.dir)
    written = _write(main, programs)
    # In a folder of suites its name is enough.
    by_name = main.parent.absolute() in suite_folders()
    shown = main.stem if by_name else shlex.quote(_as_path(main))
    next_ = [
        (f"rater suites check {shown} --run", "is every answer right?"),
        (f"rater run {shown} --size test", "a copy on every CPU, all at once"),
        (f"${{EDITOR:-vi}} {shlex.quote(_as_path(main))}", "put your own program in"),
    ]
    if args.json:
        print_json(
            {
                "suite": main.stem,
                "written": [str(path) for path in written],
                "next": [command for command, _ in next_],
            }
        )
        return 0
    print("written:")
    for path in written:
        print(f"  {path}")
    width = max(len(command) for command, _ in next_)
    print("\nnext:")
    for command, why in next_:
        print(f"  {command.ljust(width)}   # {why}")
    return 0


def _places(name: str, folder: Path | None) -> tuple[Path, Path]:
    """Return where the suite's file and the folder of its programs go.

    Raises `InputError` when the name is none, is taken, or something lies there.
    """
    from rater.errors import InputError
    from rater.plan.suite.find import suite_names
    from rater.text.document import NAME, NAME_EXPECTED

    programs = (folder or Path()) / name.removesuffix(".toml")
    stem = programs.name
    if not NAME.fullmatch(stem) or name.endswith("/"):
        raise InputError(f"suites new: {name!r}: {NAME_EXPECTED}, or the path of one")
    if stem in suite_names():
        raise InputError(
            f"suites new: the name {stem} is that of a suite that comes with rater, and names win: "
            "take another one"
        )
    main = programs.with_name(f"{stem}.toml")
    taken = [str(path) for path in (main, programs) if path.exists() or path.is_symlink()]
    if taken:
        raise InputError(
            f"suites new: {' and '.join(taken)} {'is' if len(taken) == 1 else 'are'} there "
            "already, nothing was written: take another NAME, or another folder with --dir"
        )
    return main, programs


def _write(main: Path, programs: Path) -> list[Path]:
    """Write the example; what was begun is taken back when it cannot be finished."""
    from rater.errors import InputError
    from rater.resources import folder

    source = folder("suites") / "new"
    files = {programs / path.name: path for path in sorted(source.iterdir()) if path.name != _MAIN}
    files[main] = source / _MAIN
    written: list[Path] = []
    try:
        main.parent.mkdir(parents=True, exist_ok=True)
        programs.mkdir()
        for target, path in files.items():
            with target.open("x", encoding="utf-8") as file:  # never over something else
                written.append(target)
                file.write(path.read_text(encoding="utf-8").replace(_NAME, main.stem))
                if path.suffix == ".sh":
                    os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode | 0o111)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if written:
            with suppress(OSError):
                programs.rmdir()
        raise InputError(
            f"suites new: {error.filename or main}: {error.strerror}; "
            "name a folder of yours with --dir"
        ) from error
    return [main, *(path for path in files if path != main)]


def _as_path(path: Path) -> str:
    """Return a path that is not taken for a name."""
    text = str(path)
    return text if text.startswith(("/", "../")) else f"./{text}"
