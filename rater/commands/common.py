"""What every family of subcommands shares."""

from __future__ import annotations

import argparse


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add `--db` and `--json`, which may also stand before the subcommand.

    They have no default here: one would overwrite what stood there.
    """
    parser.add_argument(
        "--db", metavar="PATH", default=argparse.SUPPRESS, help="the database (else RATER_DB)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="one JSON document on stdout",
    )
