"""`rater merge`: whole databases of other machines into one."""

from __future__ import annotations

from rater.commands.common import RESTORE, Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "merge",
        help="databases into one",
        description="Merge databases (a file each, as rater on other machines wrote them) into "
        "TARGET, which is made where there is none: every run with its samples, readings, "
        "settings, findings and notes, and every sweep. A run that is known is not added again; "
        "one that went on since is replaced under the number it has. The files are only read. One "
        "that is damaged, or of a newer rater, is named and does not keep the others out; the "
        "exit status is then 2. Stop it at any time and call it again.",
    )
    parser.add_argument("target", metavar="TARGET", help="the database to merge into")
    parser.add_argument("source", metavar="DB", nargs="+", help="a database to merge")
    parser.add_argument("--restore", action="store_true", help=RESTORE)
    add_common(parser)
    parser.set_defaults(run=later("results.merge", "merge"))
