"""`rater topo`, `counters`, `settings` and `restore`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE

import pytest
from msgspec.structs import replace

from rater.plan.hwloc_xml import parse_xml
from rater.plan.topology import HugePages, NodeMemory
from rater.settings.tuner import SettingsSession
from rater.show.plans.topology import TopoView, topo_document, topo_parts
from rater.show.screen.document import print_parts
from rater.store.store import Store
from rater.system.paths import default_journal_path, journal_paths
from tests.support.calls import Rater, query_rows
from tests.support.compared_runs import run
from tests.support.golden_runs import ODD, VM
from tests.support.papers import json_of
from tests.support.places import MACHINES, needs_machines
from tests.support.printed import printed_by
from tests.support.settings_tree import BOOT_ID, line, policy, values

GIB = 1 << 30

NOW = NodeMemory(
    node=0,
    total_bytes=25 * GIB,
    free_bytes=20 * GIB,
    page_cache_bytes=3 * GIB,
    dirty_bytes=1 << 20,
    free_huge_order_bytes=8 * GIB,
    huge_pages=(HugePages(2 << 20, 512, 100), HugePages(GIB, 0, 0)),
)


def screen(text: str, now: dict[int, NodeMemory] | None = None, width: int = 80) -> str:
    return printed_topo(TopoView(parse_xml(text, "m.xml"), now or {}), width)


def printed_topo(view: TopoView, width: int = 80) -> str:
    return printed_by(partial(print_parts, topo_parts(topo_document(view))), width).rstrip("\n")


def test_a_virtual_machine_fits_a_small_screen() -> None:
    assert (
        screen(VM, {0: NOW})
        == """\
m.xml: AMD EPYC
1 package, 1 NUMA node, 1 LLC, 2 cores, 2 CPUs

node  package  cores  CPUs  LLCs  memory  CPU numbers
                                      GB
   0        0      2     2     1    26.8  0-1

memory now
node  installed  free    in huge      page  dirty  2 MiB pages
             GB    GB  blocks GB  cache GB     GB     free/all
   0       26.8  21.5       8.59      3.22   0.00      100/512

no huge pages of 1 GiB are set aside (hugetlb)

threads     every core has 1 (no SMT)
caches      L3   1 x 32 MiB, one for 2 CPUs
            L2   2 x 1 MiB, one for each CPU
            L1d  2 x 48 KiB, one for each CPU
not usable  CPU 2: offline or not allowed when the file was made"""
    )


def test_kinds_that_nothing_ranks_have_no_number_in_the_json() -> None:
    text = ODD.replace("FrequencyMaxMHz", "Colour")
    assert "CPU kinds   which is the fastest is not known:" in screen(text)
    document = json.loads(json.dumps(topo_document(TopoView(parse_xml(text, "odd")))))
    assert [kind["kind"] for kind in document["kinds"]] == [None, None]


def test_json_has_everything_by_os_number() -> None:
    document = topo_document(TopoView(parse_xml(ODD, "m.xml"), {0: NOW}))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["counts"] == {
        "packages": 2,
        "lgroups": 4,
        "llcs": 2,
        "cores": 3,
        "pus": 5,
        "usable_pus": 4,
    }
    assert document["cpus_without_node"] == [6]
    assert document["not_usable"] == [
        {"cpus": [3], "reason": "not allowed by a cpuset (cgroup, container, batch system)"}
    ]
    assert document["siblings"] == [
        {"threads": 2, "offsets": [0, 1], "cores": 2},
        {"threads": 1, "offsets": [0], "cores": 1},
    ]
    assert document["distances"] == {
        "nodes": [0, 1, 3],
        "matrix": [[10.0, 21.0, 17.0], [21.0, 10.0, 28.0], [17.0, 28.0, 10.0]],
    }
    cpus, nodes = document["cpus"], document["nodes"]
    assert isinstance(cpus, list)
    assert isinstance(nodes, list)
    assert cpus[3] == {
        "cpu": 3,
        "logical": 3,
        "core": 1,
        "thread": 1,
        "node": 1,
        "package": 1,
        "llc": 1,
        "kind": 1,
        "usable": False,
    }
    assert nodes[0]["memory_bytes"] == 25 * GIB
    now = nodes[0]["now"]
    assert now is not None
    assert now["huge_pages"][0] == {"size_bytes": 2 << 20, "total": 512, "free": 100}
    assert nodes[2] == {
        "node": 3,
        "logical": nodes[2]["logical"],
        "cpus": [],
        "usable_cpus": [],
        "near_cpus": [0, 1],
        "packages": [],
        "cores": [],
        "llcs": [],
        "memory_bytes": 16_000_000_000,
        "subtype": "HBM",
        "default": False,
        "allowed": True,
        "now": None,
    }


@needs_machines
def test_every_real_machine_fits_its_page() -> None:
    said = {}
    for path in sorted(MACHINES.glob("*.xml")):
        view = TopoView(parse_xml(path.read_bytes(), path.stem))
        for width in (80, 100, 200):
            lines = printed_topo(view, width).splitlines()
            # A path stays whole.
            assert max(map(len, lines)) <= width, (path.stem, width)
        json.dumps(topo_document(view), allow_nan=False)
        said[path.stem.partition("-")[0]] = printed_topo(view)
    assert "every core has 2: CPUs n and n+128" in said["epyc9555"]
    assert "6 cores with 2: CPUs n and n+1\n" in said["i7"]
    assert "3 at 22, 8 at 26, 28 at 30, 24 at 34" in said["altix"]
    assert "(MCDRAM, no CPUs; near node 3)" in said["knl7250"]
    assert "2 drawers of 7-13 CPUs; 4 books of 3-7 CPUs" in said["s390"]
    assert (
        "not usable  CPUs 0-3,21-23: offline or not allowed when the file was made"
        in said["haswell"]
    )
    assert (
        "no memory   CPUs 0-1,10-15: their NUMA node's memory is not allowed" in said["opteron865"]
    )
    assert "252  80  80   10" in said["power9"]
    assert "1 shared" in said["xeon"]


def test_this_machine_is_shown_with_its_memory(rater: Rater) -> None:
    status, out, err = rater("topo")
    assert (status, err) == (0, "")
    assert out.startswith("this machine")
    assert "memory now" in out or not Path("/sys/devices/system/node/node0").exists()
    status, out, err = rater("topo", "--json")
    document = json.loads(out)
    assert document["this_machine"] is True
    usable = [cpu["cpu"] for cpu in document["cpus"] if cpu["usable"]]
    assert usable == sorted(os.sched_getaffinity(0))


def test_a_large_machine_is_quick(rater: Rater) -> None:
    status, out, _ = rater("--json", "topo", "numa:64 core:32 pu:2")
    assert status == 0
    assert len(json.loads(out)["cpus"]) == 4096
    assert len(json.loads(out)["nodes"]) == 64
    status, out, _ = rater("topo", "nodes=1024x4")
    assert "and 896 more (--json has all)" in out


def test_pipes_and_devices_do_not_hang(rater: Rater, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    status, _, err = rater("topo", str(fifo))
    assert status == 2
    assert err == f"rater: cannot read the topology file {fifo}: a pipe that nobody writes to\n"
    status, _, err = rater("topo", str(tmp_path))
    assert (status, err) == (
        2,
        f"rater: {tmp_path} is a folder: where it is a copy of /sys, `HWLOC_FSROOT={tmp_path} "
        "lstopo machine.xml` makes a file of it that rater reads\n",
    )
    status, _, err = rater("topo", "/dev/zero")
    assert status == 2
    assert "is larger than 24 MiB" in err


def test_a_pipe_that_somebody_writes_to_is_read_whole(rater: Rater, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)  # a pipe with a writer, who takes his time

    def write() -> None:
        fifo.write_text(VM + "\n" * 100_000)  # more than a pipe holds at once
        os.close(held)

    writer = threading.Thread(target=write)
    writer.start()
    status, out, _ = rater("topo", str(fifo))
    writer.join()
    assert status == 0
    assert "1 package, 1 NUMA node, 1 LLC, 2 cores, 2 CPUs" in out


def test_every_group_is_tried_and_what_does_not_count_is_told_once(rater: Rater) -> None:
    status, out, _ = rater("--json", "counters", "intel-skx:cpi", "software")
    assert status == 0
    document = json.loads(out)
    groups = {group["group"]: group for group in document["groups"]}
    assert list(groups) == ["pipeline", "memory", "threads", "translation", "software"]
    assert [group["in_stack"] for group in groups.values()] == [True] * 4 + [False]
    for it in groups.values():
        assert it["state"] in ("works", "user mode only", "in part", "not counted")
        assert bool(it["why"]) is (it["state"] != "works")
    assert document["energy"] is None
    assert isinstance(json.loads(rater("--json", "counters")[1])["energy"], list)
    status, text, _ = rater("doctor", "counters", "intel-skx:cpi", "software")
    assert status == 0
    for why in {group["why"] for group in groups.values()} - {""}:
        assert " ".join(text.split()).count(why) == 1


def test_fewer_iterations_than_groups_are_refused(rater: Rater) -> None:
    status, _, error = rater("run", "--counters", "intel-skx:cpi,software", "--", "true")
    assert status == 2
    assert "5 groups (pipeline, memory, threads, translation, software), one an iter" in error
    assert "need --iterations 5 or more (there are 1)" in error
    status, _, error = rater("run", "--counters", "nothing", "--", "true")
    assert (status, "has no group 'nothing'" in error) == (2, True)


def test_a_run_goes_on_without_what_is_not_counted_here(rater: Rater) -> None:
    # No processor has that event.
    words = ("--iterations", "2", "--counters", "ibm-power9:memory,software", "--copies", "2")
    status, _, error = rater("run", *words, "--", "true")
    assert status == 0
    if query_rows("SELECT 1 FROM copy_count") == []:
        pytest.skip("this kernel lets nobody count")
    counted = query_rows(
        "SELECT phase, group_name, count(DISTINCT copy) FROM copy_count GROUP BY 1, 2"
    )
    groups = [(phase, name.removesuffix(":u"), copies) for phase, name, copies in counted]
    assert (1, "software:software", 2) in groups
    assert query_rows("SELECT phase, copies FROM counted ORDER BY phase")[-1] == (1, 2)
    [text] = query_rows("SELECT value FROM setting WHERE name = 'rater.counters.software'")
    assert "task_clock_ns" in text[0]
    assert "counters: `rater show 1 --counters`" in " ".join(rater("show")[1].split())
    assert " minor_faults" in rater("show", "--counters")[1]
    if len(groups) == 1:
        assert error.count("counters: ibm-power9:memory not counted") == 1


def test_a_plan_says_what_will_be_counted(rater: Rater) -> None:
    words = ("--iterations", "2", "--counters", "intel-skx:numa,software", "--copies", "2")
    out = rater("run", "--dry-run", *words, "--", "true")[1]
    assert "counted  intel-skx:numa, software:software: one an iteration, in turn" in out
    assert json.loads(rater("plan", "--json", *words, "--", "true")[1])["counters"] == [
        "intel-skx:numa",
        "software:software",
    ]
    there = rater("plan", *words, "--topology", "nodes=2x2", "--", "true")[1]
    assert "counted" not in there


def test_counters_are_files_that_are_counted_beforehand(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {RLIMIT_NOFILE: (1024, 1024)}
    monkeypatch.setattr("resource.getrlimit", lambda it: limits.get(it, (RLIM_INFINITY,) * 2))
    words = ("--copies", "300", "--share", "--", "true")
    status, _, error = rater("run", "--counters", "software", *words)
    assert (status, "300 copies with 5 counters each need " in error) == (2, True)
    assert "hard limit here is 1024" in error
    assert "or count smaller groups" in error


SWAPPINESS = "proc/sys/vm/swappiness"


def die_with(machine: Path, **wanted: str) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            SettingsSession(machine, default_journal_path(), "rater sweep mini").set(wanted)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_settings_as_json_have_values_choices_and_files(rater: Rater, machine: Path) -> None:
    status, out, _ = rater("settings", "--json")
    document = json.loads(out)
    settings = {setting["name"]: setting for setting in document["settings"]}
    assert status == 0
    assert settings["thp"]["value"] == "madvise"
    assert settings["thp"]["choices"] == ["always", "madvise", "never"]
    assert settings["thp"]["recorded_as"] == "thp.enabled"
    assert (settings["swappiness"]["least"], settings["swappiness"]["most"]) == (0, 200)
    assert (
        settings["governor"]["files"][str(machine / policy(1, "scaling_governor"))] == "powersave"
    )
    assert document["journals"] == [str(default_journal_path())]


def test_restore_puts_back_what_a_dead_sweep_left_and_other_commands_only_tell(
    rater: Rater, machine: Path
) -> None:
    before = values(machine)
    die_with(machine, swappiness="10", thp="never")
    status, _, err = rater("plan", "layouts")
    assert status == 0
    assert "died and left settings changed: thp was madvise, swappiness was 60" in err
    assert "`rater settings restore` puts them back" in err
    assert values(machine) != before
    status, out, _ = rater("settings", "restore")
    assert status == 0
    assert "thp madvise (was never)" in out
    assert values(machine) == before
    assert rater("plan", "layouts")[2] == ""


def test_restore_leaves_what_somebody_else_set_and_says_how_to_undo_that(
    rater: Rater, machine: Path
) -> None:
    die_with(machine, swappiness="10")
    (machine / SWAPPINESS).write_text("33\n")
    status, out, _ = rater("settings", "restore", "--json")
    document = json.loads(out)
    assert (status, document["restored"]) == (1, False)
    assert "swappiness was 60 and is not put back: somebody set it to 33" in document["said"][0]
    assert "--force writes what was there" in document["said"][1]
    assert rater("settings", "restore", "--force")[0] == 0
    assert line(machine / SWAPPINESS) == "60"


def test_forget_leaves_everything_and_keeps_the_journal_aside(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    status, out, _ = rater("settings", "restore", "--forget")
    assert status == 0
    assert "settings.json.old" in out
    assert line(machine / SWAPPINESS) == "10"
    assert rater("settings", "restore")[1].startswith("nothing to put back")


def test_a_run_puts_back_first_and_says_so(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    status, _, err = rater("run", "--dry-run", "--copies", "1", "--", "true")
    assert (status, line(machine / SWAPPINESS)) == (0, "10")
    assert "`rater settings restore` puts them back" in err
    status, _, err = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert status == 0
    assert "put back what rater sweep mini (process " in err
    assert line(machine / SWAPPINESS) == "60"


def test_a_run_under_settings_that_could_not_be_put_back_is_warned_of_it_for_good(
    rater: Rater, machine: Path
) -> None:
    die_with(machine, swappiness="10")
    (machine / SWAPPINESS).write_text("33\n")
    assert rater("run", "--copies", "1", "--quiet", "--", "true")[0] == 0
    told = [text for (text,) in query_rows("SELECT text FROM note")]
    assert any("swappiness was 60 and is not put back" in text for text in told)


def test_after_a_reboot_a_run_closes_the_journal(rater: Rater, machine: Path) -> None:
    die_with(machine, swappiness="10")
    (machine / BOOT_ID).write_text("another\n")
    assert "`rater settings restore` closes it" in rater("plan", "layouts")[2]
    status, _, err = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert status == 0
    assert "booted since then" in err
    assert line(machine / SWAPPINESS) == "10"
    assert not default_journal_path().exists()


def test_the_journal_of_the_machine_concerns_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RATER_JOURNAL")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    machine, own = Path("/var/lib/rater/settings.json"), Path("/home/me/state/rater/settings.json")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (default_journal_path(), journal_paths()) == (machine, (machine,))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert (default_journal_path(), journal_paths()) == (own, (machine, own))


def test_commands_load_nothing_of_it_where_nothing_was_left() -> None:
    code = (
        "import sys\n"
        "from rater.commands.cli import main\n"
        "main(['list', '--json'])\n"
        "print('rater.settings.restore' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"


def test_paths_are_those_that_variables_set(
    rater: Rater, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_CACHE", str(tmp_path))
    monkeypatch.setenv("RATER_CONFIG", "")
    rows = {row["files"]: row for row in json.loads(rater("paths", "--json")[1])}
    assert rows["database"]["path"] == str(database)
    assert (rows["cache"]["path"], rows["cache"]["exists"]) == (str(tmp_path), True)
    assert "defaults here" not in rows
    assert rows["built-in suites"]["exists"]


def test_facts_of_a_run_have_units_and_fit_a_screen_whatever_firmware_says(
    rater: Rater, store: Store
) -> None:
    hostile = "<script>\u202e\x1b[31m" + "x" * 100_000
    made_run = run(1, {"a": [[1.0, 1.0]]})
    host = replace(made_run.host, cpu_model="EPYC", microcode="0x1")
    settings = {
        "hmat.node0.read_latency_ns": "90",
        "hmat.node0.read_bandwidth_mb_s": "204800",
        "dimms.peak_mb_s": "307200",
        "kernel.page_bytes": "4096",
        "kernel.cmdline": "quiet password=hunter2",
        f"dimm.{hostile}": hostile,
        "unread.TLBs": "no reason",
    }
    store.add(replace(made_run, host=host, settings=tuple(settings.items())))
    status, out, _ = rater("topo", "--facts", "--run-of", 1)
    assert status == 0
    for line_of_fact in (
        "processor  EPYC",
        "microcode  0x1",
        "peak  307200 MB/s",
        "node0 read latency    90 ns",
        "node0 read bandwidth  204800 MB/s",
        "base page     4096 bytes",
        "command line  quiet password=[redacted]",
        "TLBs  no reason",
    ):
        assert f"{line_of_fact}\n" in out
    assert "<script>??[31mxx" in out
    assert len(out) < 5000
    document = json_of(rater, "topo", "--facts", "--run-of", 1)
    facts = {fact["name"]: fact["value"] for fact in document["facts"]}
    assert facts[f"dimm.{hostile}"] == hostile
    assert "hunter2" not in json.dumps(document)


def test_runs_of_machines_that_differ_say_in_what(rater: Rater, store: Store) -> None:
    slot = "dimm.P0 CHANNEL H/DIMM 0"
    for number, (module, microcode, words) in enumerate(
        [("64 GB DDR5", "0x1", "ro nosmt"), ("empty", "0x2", "ro token=hunter2")], 1
    ):
        made_run = run(number, {"a": [[1.0, 1.0]]})
        settings = ((slot, module), ("kernel.cmdline", words), ("thp.enabled", words))
        host = replace(made_run.host, microcode=microcode)
        store.add(replace(made_run, host=host, settings=settings))
    status, out, _ = rater("divots", 1, 2)
    assert status == 0
    assert " ".join(out.partition("Their machines differ\n")[2].split()) == (
        "memory slot P0 CHANNEL H/DIMM 0 64 GB DDR5 (run 1); empty (run 2) "
        "microcode 0x1 (run 1); 0x2 (run 2) "
        "setting kernel.cmdline nosmt (run 1); token=[redacted] (run 2)"
    )
