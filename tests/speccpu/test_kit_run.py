"""Benchmarks of an installed SPEC CPU under rater's gate: real processes in a stand-in kit."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from rater.commands.cli import main
from rater.speccpu.kit import outputs as kitcheck
from rater.text.cpuset import parse_list
from tests.support.calls import query_rows, rater
from tests.support.kit import StandInKit, script


@pytest.fixture
def kit(tmp_path: Path) -> StandInKit:
    return StandInKit(tmp_path / "a kit")


def run_dir(file: Path, copy: int) -> Path:
    return file.parent.with_name(f"{file.parent.name[:-4]}{copy:04}")


def ran(*words: object) -> str:
    """Run something that goes well; return what it printed."""
    done = rater("run", *words)
    if done.returncode:
        ended = "SELECT late_ns, copy, step, exit_code, signal, note, validity_detail FROM copy "
        failed = query_rows(f"{ended} WHERE status != 'ok' OR validity = 'invalid'")
        if failed and all(row[0] for row in failed) and os.getpriority(os.PRIO_PROCESS, 0) > 0:
            pytest.skip("the tests were started behind others (nice), so that rater did not run")
        raise AssertionError(done.stderr, failed)
    return done.stdout + done.stderr


# -- a kit without faults -------------------------------------------------------------------------


def test_64_staggered_copies_of_two_workloads_each_are_run_validated_and_timed(
    kit: StandInKit,
) -> None:
    count, words = kit.count(64), kit.write_words_kit(64)
    message = ran(f"spec:{kit.root}", "--stagger", "1", "-v")
    assert "placement as planned: 128 copy runs" in " ".join(message.split())
    assert query_rows("SELECT mode, copies, size, tune, stagger_ms FROM run") == [
        ("staggered", 64, "ref", "base", 1.0)
    ]
    assert query_rows(
        "SELECT benchmark, status, validity, count(*) FROM copy GROUP BY 1, 2, 3"
    ) == [
        ("901.count", "ok", "valid", 64),
        ("902.words", "ok", "valid", 64),
    ]
    # Two workloads a copy, one after the other, which together are the copy's time.
    assert query_rows(
        "SELECT count(*), sum(workload.elapsed_ns) = sum(copy.elapsed_ns) / 2, "
        "min(workload.exit_code), max(workload.exit_code), min(workload.pid) > 0 "
        "FROM workload JOIN copy USING (run_id, phase, copy, step)"
    ) == [(256, 1, 0, 0, 1)]
    assert query_rows(
        "SELECT count(*) FROM workload AS a JOIN workload AS b USING (run_id, phase, copy, step) "
        "WHERE a.workload = 1 AND b.workload = 2 AND a.finish_ns = b.start_ns"
    ) == [(128,)]
    # Every copy in its own directory, with its own number and SPECrate's environment.
    for copy in (0, 7, 63):
        assert (run_dir(count, copy) / "one.err").read_text() == f"copy {copy} of 1\n"
        assert (run_dir(words, copy) / "w2.out").read_text() == f"{copy} hello\n"
        assert (run_dir(words, copy) / "w2.err").read_text() == ""
        text = (run_dir(count, copy) / "two.out.cmp").read_text()
        assert text == "specdiff run completed\n"


def test_64_rotated_copies_run_both_benchmarks_and_their_last_round_is_validated(
    kit: StandInKit,
) -> None:
    kit.count(64)
    kit.write_words_kit(64)
    message = ran(f"spec:{kit.root}", "--mode", "rotated", "--iterations", "2")
    assert "validated for the last round only" in " ".join(message.split())
    assert query_rows(
        "SELECT iteration, status, validity, count(*), count(DISTINCT copy) FROM copy "
        "GROUP BY 1, 2, 3"
    ) == [(1, "ok", "no-expectation", 128, 64), (2, "ok", "valid", 128, 64)]
    assert query_rows("SELECT benchmark FROM copy WHERE copy = 3 ORDER BY step") == [
        ("902.words",),
        ("901.count",),
        ("902.words",),
        ("901.count",),
    ]
    assert query_rows("SELECT count(*) FROM workload") == [(512,)]


def test_a_steady_run_repeats_and_says_that_it_validates_nothing(kit: StandInKit) -> None:
    kit.count(2)
    message = ran(f"spec:{kit.root}", "--mode", "steady", "--window", "0.2")
    assert "not validated: a copy's next run writes into the same run directory" in " ".join(
        message.split()
    )
    ((runs, copies, kinds),) = query_rows(
        "SELECT count(*), count(DISTINCT copy), group_concat(DISTINCT status || validity) FROM copy"
    )
    assert runs > copies == 2
    assert kinds == "okno-expectation"
    # But for the runs that the window's end cut off, each has its two workloads.
    assert query_rows("SELECT max(workload), count(*) FROM workload")[0][0] == 2


def test_what_an_earlier_run_left_is_no_answer_of_this_one(kit: StandInKit) -> None:
    file = kit.count(2)
    one, program = run_dir(file, 1), file.parent / "count_base.rig"
    for _ in range(2):
        ran(f"spec:{kit.root}", "--quiet")
        # Emptied when a copy begins, appended to by its workloads.
        assert (one / "one.err").read_text() == "copy 1 of 1\n"
    # An output that the program writes itself, and this time does not.
    compare = file.parent / "compare.cmd"
    compare.write_text(compare.read_text().replace("/one.out one.out", "/one.out own"))
    script(program, '#!/bin/sh\ncp "$1" own; [ $# = 2 ] && echo 3 lines || echo 2 lines\n')
    (kit.root / "benchspec/CPU2006/901.count/data/ref/output/one.out").write_text("1\n2\n")
    ran(f"spec:{kit.root}", "--quiet")
    script(program, "#!/bin/sh\n[ $# = 2 ] && echo 3 lines || echo 2 lines\n")
    done = rater("run", f"spec:{kit.root}", "--quiet")
    assert (done.returncode, "2 copies failed" in done.stderr) == (1, True)
    last = "WHERE run_id = (SELECT max(id) FROM run)"
    assert query_rows(f"SELECT DISTINCT status, validity, validity_detail FROM copy {last}") == [
        ("wrong-output", "invalid", "own was not written: it is of an earlier run")
    ]


def test_a_file_that_is_written_again_shows_it_whatever_its_mtime_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kitcheck, "_TICK_NS", -(10**9))  # files just made count too
    file = tmp_path / "out"

    def write() -> dict[str, kitcheck.State]:
        file.write_text("same")
        os.utime(file, (10, 10))
        return kitcheck.states(str(tmp_path), ["out", "none"])

    before = write()
    assert before.keys() == {"out"}
    assert kitcheck.states(str(tmp_path), ["out"]) == before
    until = time.monotonic() + 5  # the kernel's tick takes up to 10 ms
    while write() == before:
        assert time.monotonic() < until


def test_closed_standard_input_is_closed_and_the_pipe_of_the_script_is_nobodys(
    kit: StandInKit,
) -> None:
    # A shell keeps its script open as descriptor 10 or above.
    program = "#!/bin/sh\nls /proc/$$/fd\n"
    commands = ["-o a EXE", "-i in -o b EXE", "-o c EXE; EXE"]
    files = {"in": "x\n"}
    closed = kit.benchmark("1.c", 1, program=program, commands=commands, files=files)
    null = kit.benchmark("2.n", 1, program=program, commands=["-o a EXE"], directives=["-N Z"])
    ran(f"spec:{kit.root}", "--quiet")

    def low(file: Path) -> set[str]:
        return {number for number in file.read_text().split() if len(number) == 1}

    assert low(closed.parent / "a") == low(closed.parent / "c") == {"1", "2"}
    assert low(closed.parent / "b") == low(null.parent / "a") == {"0", "1", "2"}
    (count,) = query_rows("SELECT count(*) FROM workload WHERE exit_code = 0")
    assert count == (4,)


def test_the_environment_is_specrates_then_the_files_then_the_users(kit: StandInKit) -> None:
    file = kit.benchmark(
        "9.e",
        1,
        program="#!/bin/sh\necho $OMP_NUM_THREADS $OMP_THREAD_LIMIT $GREETING $MINE\n",
        commands=["-o a -e e EXE"],
        directives=["-E OMP_THREAD_LIMIT 4", "-E GREETING hello there", "-E MINE no"],
    )
    ran(f"spec:{kit.root}", "--quiet", "--env", "MINE=yes")
    assert (file.parent / "a").read_text() == "1 4 hello there yes\n"


def test_quotes_pipes_and_several_commands_in_a_line_are_the_shells(kit: StandInKit) -> None:
    file = kit.benchmark(
        "3.q",
        2,
        program="#!/bin/sh\nprintf '<%s>' \"$@\"\n",
        commands=[
            "-o a -e /dev/null EXE 'a b' \"it's\" $HOME \\$x",
            '-o b -e e echo "EXE $SPECCOPYNUM" > run.sh ; sh run.sh',
            "-o c -e e EXE x | tr x y",
        ],
        expected={},
        end="\r\n",
    )
    ran(f"spec:{kit.root}", "--quiet")
    one = run_dir(file, 1)
    assert (one / "a").read_text() == f"<a b><it's><{os.environ['HOME']}><$x>"
    assert [(one / name).read_text() for name in "bc"] == ["<1>", "<y>"]
    assert not (one / "dev").exists()  # specinvoke makes no folders


# -- where copies run ------------------------------------------------------------------------------


BEFORE = "grep Cpus_allowed_list /proc/self/status | cut -f2 >before;"
BOUND = "#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status | cut -f2\n"


def test_bind_values_that_are_cpus_place_copies_and_are_replaced(kit: StandInKit) -> None:
    cpu = max(os.sched_getaffinity(0))
    file = kit.benchmark(
        "4.b",
        2,
        program=BOUND,
        commands=["-o out -e err EXE; echo $BIND"],
        binds=[str(cpu), str(cpu)],
    )
    message = ran(f"spec:{kit.root}", "--bind-from-file")
    assert f"binds several copies to CPUs {cpu}" in message
    assert [(run_dir(file, number) / "out").read_text() for number in (0, 1)] == [
        f"{cpu}\n{cpu}\n"
    ] * 2
    assert query_rows("SELECT layout FROM run") == [("-b of the command file",)]
    # Without the option rater places them, and tells the commands where.
    ran(f"spec:{kit.root}", "--layout", f"list:{min(os.sched_getaffinity(0))}")
    first = min(os.sched_getaffinity(0))
    assert (file.parent / "out").read_text() == f"{first}\n{first}\n"


def test_a_bind_value_that_is_a_command_binds_by_itself(kit: StandInKit) -> None:
    cpu = max(os.sched_getaffinity(0))
    binder = script(kit.root / "numactl", '#!/bin/sh\nshift 3\necho bound\nexec "$@"\n')
    file = kit.benchmark(
        "5.n",
        1,
        program='#!/bin/sh\necho "$@"\n',
        commands=["-o out -e err $BIND EXE x"],
        binds=[f"'{binder}' -m 0 --physcpubind={cpu}"],
    )
    message = " ".join(ran(f"spec:{kit.root}", "--bind-from-file").split())
    assert "of the command file binds copies, not rater" in message
    assert query_rows("SELECT cpus, cpu, memory_policy FROM placement") == [(None, cpu, "none")]
    assert (file.parent / "out").read_text() == "bound\nx\n"
    refused = rater("run", f"spec:{kit.root}", "--bind-from-file", "--mem", "bind")
    assert (refused.returncode, "--mem bind: the command file already sets" in refused.stderr) == (
        2,
        True,
    )
    message = " ".join(ran(f"spec:{kit.root}").split())
    assert "of the command file is left out: rater places copies itself" in message
    assert query_rows("SELECT cpus FROM placement WHERE run_id = 2") != [(None,)]
    assert (file.parent / "out").read_text() == "x\n"


@pytest.mark.parametrize(
    ("command", "bind"),
    [
        ("taskset -c {cpu} EXE", None),
        ("taskset $BIND EXE", "-c {cpu}"),
    ],
)
def test_commands_that_bind_themselves_are_bound_by_nobody_else(
    kit: StandInKit, command: str, bind: str | None
) -> None:
    first, cpu = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    file = kit.benchmark(
        "5.t",
        1,
        program=BOUND,
        commands=[f"-o out -e err {command.format(cpu=cpu)}"],
        binds=[bind.format(cpu=cpu)] if bind else (),
    )
    # What the command finds before it binds: numactl takes no CPU that it was not given.
    file.write_text(file.read_text().replace("-e err ", f"-e err {BEFORE} "))
    message = " ".join(ran(f"spec:{kit.root}", "--layout", f"list:{first}").split())
    assert "taskset in the commands binds copies, not rater" in message
    assert query_rows("SELECT cpus, cpu FROM placement") == [(None, cpu)]
    assert (file.parent / "out").read_text() == f"{cpu}\n"
    every = (file.parent / "before").read_text().strip()
    assert parse_list(every) == tuple(sorted(os.sched_getaffinity(0)))


def test_a_bind_that_stands_nowhere_binds_nobody_and_it_is_said(kit: StandInKit) -> None:
    kit.count(1, binds=["numactl --physcpubind=0"])
    message = " ".join(ran(f"spec:{kit.root}", "--bind-from-file").split())
    assert "copies are not bound: the commands have no $BIND" in message
    assert query_rows("SELECT cpus, cpu FROM placement") == [(None, None)]


def test_the_stagger_of_the_file_is_used_where_the_user_gives_none(kit: StandInKit) -> None:
    kit.count(2, directives=["-S 3"])
    assert "--stagger 3: not given, taken from -S" in ran(f"spec:{kit.root}")
    ran(f"spec:{kit.root}", "--stagger", "1", "--quiet")
    assert "-S of the command files is not used" in ran(f"spec:{kit.root}", "--mode", "rotated")
    assert query_rows("SELECT mode, stagger_ms FROM run") == [
        ("staggered", 3.0),
        ("staggered", 1.0),
        ("rotated", 0.0),
    ]


def test_the_file_says_how_many_copies_there_are(
    kit: StandInKit, capsys: pytest.CaptureFixture[str]
) -> None:
    kit.count(3)
    kit.write_words_kit(3, directives=["-u 2"])
    assert main(["run", f"spec:{kit.root}", "--dry-run"]) == 2
    message = capsys.readouterr().err
    assert "different numbers of copies (901.count: 3, 902.words: 2)" in message
    assert main(["run", f"spec:{kit.root}", "--copies", "4"]) == 2
    message = capsys.readouterr().err
    assert "has run directories for 3 copies of 901.count (its -C lines): use --copies 3" in message
    assert main(["plan", f"spec:{kit.root}", "--copies", "2", "--topology", "nodes=2x1"]) == 0
    assert "2 copies" in capsys.readouterr().out


# -- bad days --------------------------------------------------------------------------------------


def test_a_copy_stops_at_its_first_workload_that_fails(kit: StandInKit) -> None:
    file = kit.benchmark(
        "6.f",
        3,
        program="#!/bin/sh\necho ran; [ $RATER_COPY = 0 ] || eval $1\n",
        commands=["-o a -e e EXE :", "-o b -e e EXE 'exit 3'", "-o c -e e EXE :"],
        expected={"a": "ran\n"},
    )
    (run_dir(file, 2) / "in").touch()
    file.write_text(file.read_text().replace("-o c", "-i in -o c"))
    (file.parent / "in").touch()
    done = rater("run", "--speccmds", file)
    assert done.returncode == 1
    assert "workload" not in done.stderr
    assert query_rows("SELECT copy, status, exit_code, note FROM copy") == [
        (0, "ok", 0, None),
        *(
            (
                number,
                "failed",
                3,
                "command 2 of 3 (../run_base_ref_rig.0000/f_base.rig 'exit 3'"
                f" <&- >b 2>>e): exit code 3, in {run_dir(file, number)}",
            )
            for number in (1, 2)
        ),
    ]
    assert query_rows("SELECT copy, workload, exit_code FROM workload") == [
        *((0, number, 0) for number in (1, 2, 3)),
        *((copy, number, code) for copy in (1, 2) for number, code in ((1, 0), (2, 3))),
    ]
    shown = rater("show", "last", "--copies").stdout.splitlines()
    heading = next(line for line in shown if line.startswith("benchmark") and "w1" in line)
    wanted = "benchmark iter copy CPU node time w1 w2 w3 ended"
    found = [word for word in heading.split() if word not in ("start", "output")]
    assert " ".join(found) == wanted  # start, output: as wide as times allow
    assert re.fullmatch(r"6\.f +1 +2 .* \d\.\d+ +\d\.\d+! +- +exit code 3\b.*", shown[-2]), shown
    document = json.loads(rater("show", "last", "--copies", "--json").stdout)
    assert [workload["exit_code"] for workload in document["copy_runs"][2]["workloads"]] == [0, 3]


def test_signals_timeouts_and_what_is_not_there(kit: StandInKit) -> None:
    file = kit.benchmark(
        "7.s",
        1,
        program="#!/bin/sh\n$1\n",
        commands=["-o a -e e EXE true", "-o b -e e EXE 'kill -SEGV $$'"],
    )
    file.write_text(file.read_text().replace("'kill", "'eval kill"))
    text = file.read_text()
    assert rater("run", "--speccmds", file, "--quiet").returncode == 1
    file.write_text(text.replace("'eval kill -SEGV $$'", "'sleep 60'"))
    assert rater("run", "--speccmds", file, "--quiet", "--timeout", "0.3").returncode == 1
    file.write_text(text.replace("-o b", "-i missing -o b"))
    assert rater("run", "--speccmds", file, "--quiet").returncode == 1
    file.write_text(text.replace("-o b -e e ", "-o b -e e ../no/such/"))
    assert rater("run", "--speccmds", file, "--quiet").returncode == 1
    copies = query_rows(
        "SELECT copy.status, copy.signal, copy.exit_code, workload.signal, workload.exit_code "
        "FROM copy JOIN workload USING (run_id, phase, copy, step) WHERE workload = 2"
    )
    assert copies[0] == ("failed", 11, None, 11, None)
    assert copies[1][0] == "timeout"
    assert copies[2][0] == "failed"
    assert copies[3] == ("failed", None, 127, None, 127)


def test_an_interrupted_run_ends_its_copies_and_knows_which_workload_they_were_in(
    kit: StandInKit,
) -> None:
    file = kit.benchmark(
        "8.i",
        2,
        program="#!/bin/sh\n[ $# = 0 ] || { mkfifo here; read -r x < here; }\n",
        commands=["-o a -e e EXE", "-o b -e e EXE wait"],
        expected={"a": "\n"},
    )
    both = [run_dir(file, copy) / "here" for copy in (0, 1)]

    def interrupt() -> None:
        while not all(path.exists() for path in both):
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt)
    watcher.start()
    assert rater("run", f"spec:{kit.root}", "--quiet").returncode == 130
    watcher.join()
    assert query_rows("SELECT status, validity FROM copy") == [("interrupted", "unchecked")] * 2
    assert query_rows("SELECT copy, workload, exit_code, signal FROM workload") == [
        (copy, *ended) for copy in (0, 1) for ended in ((1, 0, None), (2, None, 15))
    ]


def test_a_wrong_output_is_a_failed_copy_with_the_words_of_the_kits_tool(kit: StandInKit) -> None:
    file = kit.count(2, first=3)
    (run_dir(file, 4) / "a").write_text("only one\n")
    done = rater("run", f"spec:{kit.root}", "--json")
    assert done.returncode == 1
    (failed,) = json.loads(done.stdout)["failed"]
    assert (failed["copy"], failed["status"]) == (1, "wrong-output")
    (detail,) = query_rows("SELECT validity_detail FROM copy WHERE copy = 1")[0]
    assert detail == f"one.out differs: 0001: 1 lines (see {run_dir(file, 4)}/one.out.mis)"
    # Mended, the old findings are no longer in the way.
    (run_dir(file, 4) / "a").write_text("1\n2\n")
    ran(f"spec:{kit.root}", "--quiet")
    assert not (run_dir(file, 4) / "one.out.mis").exists()


def test_without_specdiff_copies_are_not_validated_and_it_is_said(kit: StandInKit) -> None:
    kit.count(2)
    kit.specdiff.unlink()
    message = " ".join(ran(f"spec:{kit.root}").split())
    ((status, validity, detail),) = query_rows(
        "SELECT DISTINCT status, validity, validity_detail FROM copy"
    )
    assert (status, validity) == ("ok", "no-expectation")
    assert detail.startswith("not validated: the kit's specdiff: ")
    assert "outputs of 901.count were not validated: the kit's specdiff: " in message
    kit.write_words_kit(1, expected={})
    message = " ".join(ran(f"spec:{kit.root}/902.words").split())
    assert "902.words: outputs are not validated: no compare.cmd in" in message


@pytest.mark.parametrize(
    ("tool", "validity", "detail"),
    [
        ("kill -SEGV $$", "no-expectation", "signal 11"),
        ("echo Can not locate Foo.pm >&2; exit 2", "no-expectation", "Can not locate Foo.pm"),
        ("exec sleep 60", "no-expectation", "comparing took over 0 s"),
        ("echo 0001: 7; exit 1", "invalid", "0001: 7"),
        ('test "$SPECENV $COPY" = "set 0"', "valid", None),
    ],
)
def test_a_specdiff_that_breaks_has_found_nothing(
    kit: StandInKit, monkeypatch: pytest.MonkeyPatch, tool: str, validity: str, detail: str | None
) -> None:
    if "sleep" in tool:
        monkeypatch.setattr(kitcheck, "_SHORTEST_LIMIT_S", 0.0)
    file = kit.count(1)
    script(kit.specdiff, f"#!/bin/sh\n{tool}\n")
    compare = file.parent / "compare.cmd"
    text = compare.read_text().replace("-o one.out.cmp ", "-o one.out.cmp COPY=$SPECCOPYNUM ")
    compare.write_text("-E SPECENV set\n" + text.split("-o two.out")[0])
    rater("run", f"spec:{kit.root}", "--quiet")
    ((found, message),) = query_rows("SELECT validity, validity_detail FROM copy")
    assert (found, detail is None) == (validity, message is None)
    assert detail is None or detail in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["spec:{0}", "mini"], "both spec:.* and mini"),
        (["--bind-from-file"], "--bind-from-file is for spec:DIR"),
        (["spec:{0}", "--bind-from-file"], "has no -b lines"),
        (["spec:{0}", "--bind-from-file", "--layout", "spread"], "leave out --layout"),
        (["spec:{0}", "--run-dirs"], "--run-dirs: copies of a kit"),
        (["spec:{0}", "--size", "test"], "no run directory for --size test"),
        (["--speccmds", "/no/such.cmd"], "no such file: /no/such.cmd"),
        (["spec:{0}", "--speccmds", "{0}/one.cmd"], "901.count is there more than once"),
    ],
)
def test_what_does_not_go_together_is_refused(
    kit: StandInKit, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    file = kit.count(1)
    (kit.root / "one.cmd").write_text(file.read_text())
    assert main(["run", *(word.format(kit.root) for word in words)]) == 2
    err = capsys.readouterr().err
    assert re.search(message, err), err


def test_directories_that_are_gone_refuse_the_run_and_a_dry_run_says_so(
    kit: StandInKit, capsys: pytest.CaptureFixture[str]
) -> None:
    file = kit.count(2)
    run_dir(file, 1).rename(run_dir(file, 5))
    assert main(["run", f"spec:{kit.root}"]) == 2
    assert f"copy 1 of 901.count: no run directory {run_dir(file, 1)}" in capsys.readouterr().err
    assert main(["run", f"spec:{kit.root}", "--dry-run"]) == 0
    assert "no run directory" in " ".join(capsys.readouterr().out.split())
    there = Path(os.environ["RATER_DB"]).exists()
    assert not there or query_rows("SELECT count(*) FROM run") == [(0,)]


def test_a_kits_run_is_made_again_and_taken_up_again(kit: StandInKit) -> None:
    file = kit.count(2)
    ran(f"spec:{kit.root}", "--iterations", "2", "--quiet")
    again = rater("rerun", "1")
    assert again.returncode == 0, again.stderr
    assert "nothing differs from run 1" in again.stderr
    file.write_text(file.read_text().replace("EXE a b", "EXE a b") + "# changed\n")
    again = rater("rerun", "1", "--quiet")
    assert again.returncode == 0
    notes = [text for (text,) in query_rows("SELECT text FROM note WHERE run_id = 3")]
    assert any("inputs of 901.count" in text or "suite file" in text for text in notes), notes
    assert query_rows("SELECT copies, size, mode FROM run GROUP BY 1, 2, 3") == [
        (2, "ref", "homogeneous")
    ]
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db, db:
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("DELETE FROM bracket WHERE run_id = 2 AND iteration = 2")
        db.execute("UPDATE run SET status = 'interrupted' WHERE id = 2")
    refused = rater("run", "--resume", "2")
    assert refused.returncode == 2
    assert "cannot go on" in refused.stderr
    done = rater("run", "--resume", "2", "--force", "--quiet")
    assert done.returncode == 0, done.stderr
    assert query_rows("SELECT status, resumed FROM run WHERE id = 2") == [("complete", 1)]
    assert query_rows("SELECT count(*) FROM workload WHERE run_id = 2") == [(8,)]
