"""`rater fleet` and its commands."""

from __future__ import annotations

import argparse

from rater.command_line import CommandTrait
from rater.commands.common import (
    RESTORE,
    Subparsers,
    add_common,
    add_flag,
    add_run_arguments,
    lazy_command,
)
from rater.text.values import duration_s

_FLEET = "a number, last, last~1 or the start of a uuid (default: last)"
DEFAULT_PENDING_S = 86400.0
_DESCRIPTION = """\
Make a run on every node: an exclusive job each, whose database is published
whole when it ends. The plan is stored before the first job is submitted, so
that any command here may be killed and typed again. What a node has not
measured is tried again (--attempts), and only that.

  rater fleet run mini --nodes 'n[001-128]' --minutes 30 --wait
  rater fleet run --nodes n1,n2 --parallel 1 -- ./mybench --flag
"""


def register(subparsers: Subparsers) -> None:
    """Declare `rater fleet` and its commands."""
    fleet = subparsers.add_parser(
        "fleet",
        examples=(
            "rater fleet run mini --nodes 'n[001-128]' --minutes 30 --wait",
            "rater fleet run --nodes n1,n2 --parallel 1 -- ./mybench --flag",
            "rater fleet status              # of the last fleet",
            "rater fleet wait 3              # goes on with it, and collects",
            "rater fleet retry 3 --nodes n7",
        ),
        description="One measurement on many nodes, each a job (Slurm).",
    )
    commands = fleet.add_subparsers(dest="fleet_command", metavar="COMMAND", required=True)
    _register_run(commands)
    _register_agent(commands)
    _register_history(commands)
    _register_merge(commands)
    for name, text, function in (
        ("status", "show once how far each node came, and why no further", "status"),
        ("wait", "submit what is due, try lost nodes again, until the end; collect", "wait"),
        ("cancel", "end all jobs; what they have is published", "cancel"),
        ("collect", "take in what was published so far; at any time, again and again", "collect"),
        (
            "retry",
            "one more attempt at nodes that were lost, late, cancelled or never began",
            "retry",
        ),
    ):
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.add_argument("fleet", metavar="FLEET", nargs="?", default="last", help=_FLEET)
        if name == "status":
            add_flag(sub, "--all", dest="every", help="every node of a large fleet")
        else:
            add_flag(sub, "--quiet", help="no news, no table")
        if name == "retry":
            sub.add_argument("--nodes", metavar="NODES", help="these, if they are not complete")
        if name in ("cancel", "retry"):
            add_flag(sub, "--wait", help="until the jobs have ended")
        if name in ("wait", "retry"):
            _add_poll(sub)
        add_common(sub, f"fleet.run.{function}")
    listing = commands.add_parser("list", help="the fleets that are stored")
    add_common(listing, "fleet.run.list_fleets")


def _register_run(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "run",
        traits=CommandTrait.TAKES_COMMAND,
        help="submit a job for each node",
        description=_DESCRIPTION,
    )
    fleet = parser.add_argument_group("the fleet")
    fleet.add_argument("--nodes", metavar="NODES", help="their names: 'n[001-128]', n1,n2")
    fleet.add_argument("--parallel", type=int, metavar="K", help="jobs at a time; default: all")
    fleet.add_argument(
        "--attempts", type=int, metavar="N", default=2, help="at each node, at most; default 2"
    )
    fleet.add_argument(
        "--minutes", type=int, metavar="M", help="time limit of a job; default: the scheduler's"
    )
    fleet.add_argument(
        "--pending-limit",
        type=duration_s,
        metavar="T",
        default=DEFAULT_PENDING_S,
        help="a job that is pending longer is ended (its node is drained, or full); default 1d",
    )
    fleet.add_argument(
        "--busy-limit",
        type=duration_s,
        metavar="T",
        default=600.0,
        help="a node that another rater holds longer is refused; default 10m",
    )
    fleet.add_argument(
        "--backend",
        choices=("slurm", "local"),
        default="slurm",
        help="default slurm; local: processes of this machine, to try it out",
    )
    fleet.add_argument(
        "--slurm-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="an option of sbatch, such as --slurm-arg=--partition=fast",
    )
    fleet.add_argument(
        "--folder",
        metavar="DIR",
        help="that this machine and all nodes see under one path; default RATER_FLEETS, else "
        "`fleets` beside the default database",
    )
    fleet.add_argument("--scratch", metavar="DIR", help="on each node's own disk; default /var/tmp")
    add_flag(fleet, "--allow-partial", help="run even if a job gets only a part of the CPUs")
    fleet.add_argument(
        "--settle",
        type=duration_s,
        metavar="T",
        help="how long a published file may need to be seen here, before a node whose job has "
        "ended is called lost; default 1m (NFS)",
    )
    add_flag(fleet, "--wait", help="until the end, as `rater fleet wait`")
    _add_poll(fleet)
    add_flag(fleet, "--quiet", help="no news, no table")
    add_run_arguments(parser, without=("wait", "share"))
    add_common(parser, "fleet.run.run")


def _add_poll(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--poll",
        type=duration_s,
        metavar="T",
        help="between two checks; default 10s",
    )


def _register_agent(commands: Subparsers) -> None:
    agent = commands.add_parser("agent", description="What a job does on its node.")
    agent.add_argument("--spec", required=True)
    agent.add_argument("--node", required=True)
    agent.add_argument("--attempt", type=int, required=True)
    agent.add_argument("--job", required=True)
    agent.set_defaults(run=lazy_command("fleet.agent", "agent"))


def _register_merge(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "merge",
        examples=(
            "rater fleet merge all.db n1.db n2.db n3.db",
            "rater fleet merge all.db n1.db --restore   # what was removed from all.db, too",
        ),
        help="databases into one",
        description="Merge databases (a file each, as rater on other machines wrote them) into "
        "TARGET, which is made if there is none: every run with its samples, readings, "
        "settings, findings and notes, and every sweep. A run that is known is not added again; "
        "one that went on since is replaced under the number it has. The files are only read. One "
        "that is damaged, or of a newer rater, is named and does not keep the others out; the "
        "exit status is then 2. Stop it at any time and call it again.",
    )
    parser.add_argument("target", metavar="TARGET", help="the database to merge into")
    parser.add_argument("sources", metavar="DB", nargs="+", help="a database to merge")
    add_flag(parser, "--restore", help=RESTORE)
    add_common(parser, "fleet.merge.merge")


def _register_history(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "history",
        examples=(
            "rater fleet history n017",
            "rater fleet history mini/lu",
        ),
        help="when a host became slow",
        description="Report the steps in the times of a host, fleet by fleet against the other "
        "hosts of its kind, or of a benchmark on all hosts: their dates, their sizes, and which "
        "settings, kernel, microcode or machine changed then.",
    )
    parser.add_argument("name", metavar="HOST|BENCHMARK", help="as fleets name it")
    add_common(parser, "fleet.slow_hosts.history")
