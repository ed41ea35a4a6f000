"""`rater fleet` and its commands."""

from __future__ import annotations

from argparse import Namespace

from rater.commands.command_line import CommandTrait
from rater.commands.common import RESTORE, Subcommand, output_of, run_arguments_of

_FLEET = "FLEET? =last         a number, last, last~1 or the start of a uuid (default: last)\n"
_QUIET = "--quiet              no news, no table\n"
_WAIT = "--wait               until the jobs have ended\n"
_POLL = "--poll T:duration    between two checks; default 10s\n"
_DESCRIPTION = """\
Make a run on every node: an exclusive job each, whose database is published
whole when it ends. The plan is stored before the first job is submitted, so
that any command here may be killed and typed again. What a node has not
measured is tried again (--attempts), and only that.

  rater fleet run mini --nodes 'n[001-128]' --minutes 30 --wait
  rater fleet run --nodes n1,n2 --parallel 1 -- ./mybench --flag
"""


def _run(arguments: Namespace) -> int:
    from rater.fleet.run import RunOptions, run

    return run(
        output_of(arguments),
        typed=run_arguments_of(arguments),
        options=RunOptions(
            nodes=arguments.nodes,
            partition=arguments.partition,
            idle=arguments.idle,
            parallel=arguments.parallel,
            attempts=arguments.attempts,
            minutes=arguments.minutes,
            pending_limit_s=arguments.pending_limit_s,
            busy_limit_s=arguments.busy_limit_s,
            backend=arguments.backend,
            arguments=tuple(arguments.arguments),
            folder=arguments.folder,
            scratch=arguments.scratch,
            allow_partial=arguments.allow_partial,
            settle=arguments.settle,
        ),
        wait=arguments.wait,
        poll=arguments.poll,
    )


def _agent(arguments: Namespace) -> int:
    from rater.fleet.agent import agent

    return agent(
        spec=arguments.spec, node=arguments.node, attempt=arguments.attempt, job=arguments.job
    )


def _history(arguments: Namespace) -> int:
    from rater.fleet.slow_hosts import history

    return history(output_of(arguments), name=arguments.name)


def _merge(arguments: Namespace) -> int:
    from rater.fleet.merge import merge

    return merge(
        output_of(arguments),
        target=arguments.target,
        sources=tuple(arguments.sources),
        restore=arguments.restore,
    )


def _status(arguments: Namespace) -> int:
    from rater.fleet.run import status

    return status(output_of(arguments), fleet=arguments.fleet, every=arguments.every)


def _wait(arguments: Namespace) -> int:
    from rater.fleet.run import wait

    return wait(output_of(arguments), fleet=arguments.fleet, poll=arguments.poll)


def _cancel(arguments: Namespace) -> int:
    from rater.fleet.run import cancel

    return cancel(output_of(arguments), fleet=arguments.fleet, wait=arguments.wait)


def _collect(arguments: Namespace) -> int:
    from rater.fleet.run import LAST, collect

    if arguments.sources:
        from rater.fleet.from_files import collect_files

        return collect_files(
            output_of(arguments),
            words=tuple(arguments.sources),
            fleet=arguments.fleet,
            by_file=arguments.by_file,
            program=arguments.program,
        )
    return collect(output_of(arguments), fleet=arguments.fleet or LAST)


def _retry(arguments: Namespace) -> int:
    from rater.fleet.run import retry

    return retry(
        output_of(arguments),
        fleet=arguments.fleet,
        nodes=arguments.nodes,
        wait=arguments.wait,
        poll=arguments.poll,
    )


def _list_fleets(arguments: Namespace) -> int:
    from rater.fleet.run import list_fleets

    return list_fleets(output_of(arguments))


_ACTIONS = {
    "run": Subcommand(
        run=_run,
        arguments=f"""
the fleet:
--nodes NODES        their names: 'n[001-128]', n1,n2
--partition P        the nodes of this partition (PBS: queue), and jobs in it
--idle               of these, or of all, the nodes that are idle now
--parallel K:int     jobs at a time; default: all
--attempts N:int =2  at each node, at most; default 2
--minutes M:int      time limit of a job; default: the scheduler's
--pending-limit T:duration =1d >pending_limit_s  a job that is pending longer is ended (its node is
                     drained, or full); default 1d
--busy-limit T:duration =10m >busy_limit_s  a node that another rater holds longer is refused;
                     default 10m
--backend (slurm|pbs|ssh|local) =slurm  default slurm; pbs: written after the manual; ssh: without a
                     scheduler; local: processes of this machine, to try it out
--backend-arg, --slurm-arg ARG ... >arguments  an option of sbatch or qsub, such as
                     --slurm-arg=--qos=burn-in
--folder DIR         that this machine and all nodes see under one path; default RATER_FLEETS, else
                     `fleets` beside the default database
--scratch DIR        on each node's own disk; default /var/tmp
--allow-partial      run even if a job gets only a part of the CPUs
--settle T:duration  how long a published file may need to be seen here, before a node whose job has
                     ended is called lost; default 1m (NFS)
--wait               until the end, as `rater fleet wait`
{_POLL}
{_QUIET}
@run -wait -share
""",
        traits=CommandTrait.TAKES_COMMAND,
        help="submit a job for each node",
        description=_DESCRIPTION,
    ),
    "agent": Subcommand(
        run=_agent,
        arguments="""
--spec FILE !        what the fleet is to run
--node NODE !        which of its nodes this is
--attempt N:int !    at this node
--job JOB !          as the scheduler calls it
""",
        is_plain=True,
        description="What a job does on its node.",
    ),
    "history": Subcommand(
        run=_history,
        arguments="HOST|BENCHMARK >name  as fleets name it\n$ rater fleet history n017\n"
        "$ rater fleet history mini/lu",
        help="when a host became slow",
        description="Report the steps in the times of a host, fleet by fleet against the other "
        "hosts of its kind, or of a benchmark on all hosts: their dates, their sizes, and which "
        "settings, kernel, microcode or machine changed then.",
    ),
    "collect": Subcommand(
        run=_collect,
        arguments=f"""
FLEET?               a number, last, last~1 or the start of a uuid (default: last); with --from the
                     fleet of files to add to (default: a new one)
--from DB+ >sources  make a fleet of databases that were made anywhere: files, folders of .db files,
                     HOST=FILE
--by-file            with --from: each file is a host, called as the file is
--program TEXT       with --from: runs of this command or suite; default: of what most hosts ran
{_QUIET}
$ rater fleet collect             # what nodes of the last fleet have published
$ rater fleet collect --from n1.db n2.db n3.db n4.db
$ rater fleet collect --from databases/
""",
        help="take in what was published so far, or a fleet made of files",
        description="Take in what nodes of a fleet have published so far; at any time, again and "
        "again. With --from, make a fleet of databases that rater wrote anywhere (ssh, PBS, LSF, "
        "containers): slow hosts, gate, report and history are as of any other. A host is what a "
        "machine calls itself. Its runs of one program are attempts, of which the last complete "
        "one counts. The files are only read; one that cannot be taken is named, the others are "
        "taken, and the exit status is then 2.",
    ),
    "merge": Subcommand(
        run=_merge,
        arguments=f"""
TARGET               the database to merge into
DB+ >sources         a database to merge
--restore            {RESTORE}
$ rater fleet merge all.db n1.db n2.db n3.db
$ rater fleet merge all.db n1.db --restore   # what was removed from all.db, too
""",
        help="databases into one",
        description="Merge databases (a file each, as rater on other machines wrote them) into "
        "TARGET, which is made if there is none: every run with its samples, readings, "
        "settings, findings and notes, and every sweep. A run that is known is not added again; "
        "one that went on since is replaced under the number it has. The files are only read. One "
        "that is damaged, or of a newer rater, is named and does not keep the others out; the "
        "exit status is then 2. Stop it at any time and call it again.",
    ),
}
_STEPS = {
    name: Subcommand(
        run=run,
        arguments=_FLEET + arguments,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
    )
    for name, run, arguments, text in (
        (
            "status",
            _status,
            "--all >every         every node of a large fleet",
            "show once how far each node came, and why no further",
        ),
        (
            "wait",
            _wait,
            _QUIET + _POLL,
            "submit what is due, try lost nodes again, until the end; collect",
        ),
        ("cancel", _cancel, _QUIET + _WAIT, "end all jobs; what they have is published"),
        (
            "retry",
            _retry,
            f"{_QUIET}--nodes NODES  these, if they are not complete\n{_WAIT}{_POLL}",
            "one more attempt at nodes that were lost, late, cancelled or never began",
        ),
    )
}
COMMANDS = {
    "fleet": Subcommand(
        run=None,
        arguments="""
$ rater fleet run mini --nodes 'n[001-128]' --minutes 30 --wait
$ rater fleet run --nodes n1,n2 --parallel 1 -- ./mybench --flag
$ rater fleet status              # of the last fleet
$ rater fleet wait 3              # goes on with it, and collects
$ rater fleet retry 3 --nodes n7
""",
        description="One measurement on many nodes, each a job (Slurm, PBS, ssh), or databases "
        "that were made anywhere.",
        actions=_ACTIONS
        | _STEPS
        | {"list": Subcommand(run=_list_fleets, help="the fleets that are stored")},
    )
}
