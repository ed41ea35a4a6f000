"""Only what setup.cfg cannot say: packages, the launcher, man pages and completions."""

import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

if sys.version_info < (3, 12):  # noqa: UP036 - pip asks this file before it reads the metadata
    sys.exit(f"rater needs Python 3.12 or newer, this is {sys.version.split()[0]}: pipx --python")

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))  # builds run elsewhere; the parser needs msgspec alone

from argparse_manpage.manpage import Manpage  # noqa: E402

from rater import __version__  # noqa: E402
from rater.commands.cli import MENU, build_parser  # noqa: E402
from rater.commands.machine import script  # noqa: E402

DATA = ("suites", "layouts", "db")
# Where each shell looks below a prefix.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/rater",
    "zsh": "share/zsh/site-functions/_rater",
    "fish": "share/fish/vendor_completions.d/rater.fish",
}


def texts():
    """Yield what is installed below the prefix: path and text."""
    parser = build_parser()
    for shell, path in COMPLETIONS.items():
        yield path, script(shell, build_parser())
    pages = {"rater": (parser, parser.description)} | {
        f"rater-{name.replace(' ', '-')}": (parser.commands[name], it.about)
        for group in MENU.values()
        for name, it in group.items()
    }
    for name, (sub, about) in pages.items():
        sub.man_short_description = about
        page = str(Manpage(sub, format="single-commands-section"))
        # It takes the words of `prog` for title and section.
        title = f'.TH {name.upper()} 1 "" "rater {__version__}" "User Commands"'
        yield f"share/man/man1/{name}.1", title + page[page.index("\n") :]


def data_files():
    """Write them below `build/`, and return setuptools' list of them."""
    for path, text in texts():
        written = ROOT / "build" / path
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(text)
        yield str(Path(path).parent), [str(written.relative_to(ROOT))]


LAUNCHER = Path("rater/run/launcher")


class BuildWithLauncher(build_py):
    """Compile the program that starts copies: who installs the wheel needs no compiler."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:  # a checkout has it by `make`, or at the first run
            made = Path(self.build_lib, LAUNCHER, "rater-launcher")
            sources = sorted(map(str, (ROOT / LAUNCHER / "native").glob("*.c")))
            compiler = shlex.split(os.environ.get("CC", "") or "cc")
            # As rater/run/launcher/launcher.py has it, which needs what is not here yet.
            files = sorted((ROOT / LAUNCHER / "native").glob("*.[ch]"))
            digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
            flags = ["-std=gnu11", "-O2", f'-DSOURCE_DIGEST="{digest}"']
            words = [*compiler, *flags, *sources, "-o", made]
            if subprocess.run([*words, "-static"], check=False).returncode:  # no such library
                subprocess.run(words, check=True)


class OfThisMachine(Distribution):
    """A wheel for machines like this one."""

    def has_ext_modules(self):
        """Tell that it is."""
        return True


class WheelOfAnyPython(bdist_wheel):
    """A wheel for any Python: the launcher is a program, no module."""

    def get_tag(self):
        """Return Python, ABI and platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_py": BuildWithLauncher, "bdist_wheel": WheelOfAnyPython},
    distclass=OfThisMachine,
    # The last three are folders beside `rater` (setup.cfg: package_dir).
    packages=[*find_packages(include=["rater", "rater.*"]), *(f"rater.{it}" for it in DATA)],
    data_files=list(data_files()),
)
