"""`rater doctor` on trees of files: what is wrong, what is set for a command and put back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.analysis.compare.conditions import stored_conditions
from rater.analysis.doctor.examine import CHECKS, examine
from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict, MachineFacts
from rater.run.host.foreign_load import BusyProcess, ForeignLoad
from rater.workflow import doctor as doctor_facts
from rater.workflow.doctor import facts_now
from rater.workflow.run.repeat import changed_conditions
from tests.support.calls import RATER, Rater
from tests.support.doctor_tree import CGROUP, CLOCKS, FIT, NODES, change, changed, make_doctor_tree
from tests.support.example_runs import copy_row, stored
from tests.support.settings_tree import CPUFREQ, CPUS, THP, values

BAD, CONSIDER, GOOD, UNKNOWN = (
    DoctorVerdict.BAD,
    DoctorVerdict.CONSIDER,
    DoctorVerdict.GOOD,
    DoctorVerdict.UNKNOWN,
)
STATUS, MEMINFO = FIT["proc/self/status"], FIT["proc/meminfo"]
BALLOON = "sys/bus/virtio/drivers/virtio_balloon/virtio0/features"  # bits, the lowest first
FEW_PIECES = "Node {n}, zone Normal  7000000 0 0 0 0 0 0 0 0 0 {pieces}"
SLEEP = f"{CPUS}/cpu0/cpuidle"
PMU = "sys/bus/event_source/devices/cpu/type"
UNFIT: list[tuple[str, DoctorVerdict, str, dict[str, str | None]]] = [
    (
        "governor",
        BAD,
        "not the same on all CPUs",
        {f"{CPUFREQ}/policy3/scaling_governor": "powersave"},
    ),
    (
        *("governor", BAD, "schedutil, driver intel_pstate: the frequency follows"),
        {f"{CPUFREQ}/policy{number}/scaling_governor": "schedutil" for number in range(4)},
    ),
    (
        *("governor", CONSIDER, "the CPU itself decides"),
        {f"{CPUFREQ}/policy{number}/scaling_governor": "powersave" for number in range(4)},
    ),
    (
        *("preference", CONSIDER, "power"),
        {f"{CPUFREQ}/policy{number}/energy_performance_preference": "power" for number in range(4)},
    ),
    (
        *("frequency", BAD, "2.00 GHz at most, the CPU can 2.60"),
        {
            f"{CPUS}/intel_pstate/no_turbo": "0",
            **{f"{CPUFREQ}/policy{number}/scaling_max_freq": "2000000" for number in range(4)},
        },
    ),
    ("frequency", CONSIDER, "differs", {f"{CPUFREQ}/policy3/scaling_max_freq": "2000000"}),
    ("turbo", CONSIDER, "on: speed depends", {f"{CPUS}/intel_pstate/no_turbo": "0"}),
    ("heat", BAD, "91 C", {"sys/class/hwmon/hwmon0/temp1_input": "91000"}),
    ("heat", BAD, "92 C", {"sys/class/thermal/thermal_zone0/temp": "92000"}),
    (
        *("heat", CONSIDER, "throttled: cores 12 times"),
        {f"{CPUS}/cpu0/thermal_throttle/core_throttle_count": "12"},
    ),
    (
        *("heat", CONSIDER, "throttled: cores 14 times, packages 36"),
        {
            f"{CPUS}/cpu{cpu}/{file}": str(number)
            for cpu, numbers in enumerate([(5, 30, 0), (0, 30, 0), (0, 6, 1), (9, 6, 1)])
            for file, number in zip(
                (
                    "thermal_throttle/core_throttle_count",
                    "thermal_throttle/package_throttle_count",
                    "topology/physical_package_id",
                ),
                numbers,
                strict=True,
            )
        },
    ),
    ("C-states", CONSIDER, "down to C6, 133 us to wake", {f"{SLEEP}/state2/disable": "0"}),
    (
        "C-states",
        UNKNOWN,
        "no cpuidle",
        {f"{SLEEP}/state{number}/latency": None for number in range(3)},
    ),
    ("tuned", CONSIDER, "balanced: trades", {"etc/tuned/active_profile": "balanced"}),
    ("tuned", UNKNOWN, "no profile", {"etc/tuned/active_profile": None}),
    ("mTHP", CONSIDER, "64 kB: always", {f"{THP}/hugepages-64kB/enabled": "[always] inherit"}),
    (
        *("mTHP", CONSIDER, "64 kB: always"),
        {f"{THP}/hugepages-64kB/enabled": "[inherit] never", f"{THP}/enabled": "[always]"},
    ),
    ("mTHP", UNKNOWN, "of one size", {f"{THP}/hugepages-64kB/enabled": None}),
    ("khugepaged", CONSIDER, "4096 pages every 10 s", {f"{THP}/khugepaged/defrag": "1"}),
    ("SMT", CONSIDER, "two copies share a core", {f"{CPUS}/smt/active": "1"}),
    ("isolation", CONSIDER, "no CPU is isolated", {f"{CPUS}/isolated": ""}),
    ("isolation", CONSIDER, "timer's tick", {f"{CPUS}/nohz_full": "(null)"}),
    (
        *("isolation", CONSIDER, "CPUs 2-7 are isolated: only layouts that name them put copies"),
        {"proc/self/status": STATUS.replace("0-7", "0-1")},
    ),
    ("CPUs", BAD, "a cgroup gives 1.5 CPUs", {f"{CGROUP}/cpu.max": "150000 100000"}),
    (
        *("CPUs", CONSIDER, "rater may use CPUs 2-7; 0-1 are others'"),
        {"proc/self/status": STATUS.replace("0-7", "2-7")},
    ),
    ("interrupts", CONSIDER, "irqbalance moves", {"proc/77/comm": "irqbalance"}),
    (
        *("interrupts", BAD, "1 interrupt may go to isolated CPUs"),
        {"proc/irq/24/effective_affinity_list": "5"},
    ),
    (
        *("virtualization", CONSIDER, "KVM: it places"),
        {
            "proc/cpuinfo": FIT["proc/cpuinfo"].replace("avx", "avx hypervisor"),
            "sys/class/dmi/id/product_name": "KVM Virtual Machine",
        },
    ),
    (
        *("virtualization", CONSIDER, "KVM: the guest returns free memory"),
        {
            "proc/cpuinfo": FIT["proc/cpuinfo"].replace("avx", "avx hypervisor"),
            "sys/class/dmi/id/product_name": "KVM Virtual Machine",
            BALLOON: "011001010000",
        },
    ),
    (
        *("virtualization", CONSIDER, "KVM: it places"),
        {
            "proc/cpuinfo": FIT["proc/cpuinfo"].replace("avx", "avx hypervisor"),
            "sys/class/dmi/id/product_name": "KVM Virtual Machine",
            BALLOON: "111110110000",
        },
    ),
    (
        "microcode",
        BAD,
        "CPUs differ: 0x2b + 0x2a",
        {"proc/cpuinfo": FIT["proc/cpuinfo"] + "processor: 8\nmicrocode: 0x2a"},
    ),
    (
        *("microcode", UNKNOWN, "0x2b is what a hypervisor shows"),
        {"proc/cpuinfo": FIT["proc/cpuinfo"].replace("avx", "hypervisor")},
    ),
    ("mitigations", CONSIDER, "off by mitigations=off", {"proc/cmdline": "mitigations=off"}),
    (
        "mitigations",
        CONSIDER,
        "not against meltdown",
        {f"{CPUS}/vulnerabilities/meltdown": "Vulnerable"},
    ),
    ("clock source", BAD, "hpet: a microsecond", {f"{CLOCKS}/current_clocksource": "hpet"}),
    ("NUMA balancing", BAD, "1: pages move", {"proc/sys/kernel/numa_balancing": "1"}),
    ("zone reclaim", CONSIDER, "1: allocations", {"proc/sys/vm/zone_reclaim_mode": "1"}),
    ("THP", CONSIDER, "always:", {f"{THP}/enabled": "[always] madvise never"}),
    ("THP", CONSIDER, "never:", {f"{THP}/enabled": "always madvise [never]"}),
    ("THP defrag", BAD, "always:", {f"{THP}/defrag": "[always] defer defer+madvise madvise never"}),
    (
        *("fragmentation", BAD, "1% of NUMA node 1's free memory"),
        {
            "proc/buddyinfo": "\n".join(
                FEW_PIECES.format(n=number, pieces=(7000, 100)[number]) for number in (0, 1)
            )
        },
    ),
    (
        *("fragmentation", CONSIDER, "40% of NUMA node 0's free memory"),
        {
            "proc/buddyinfo": "\n".join(
                FEW_PIECES.format(n=number, pieces=(2930, 7000)[number]) for number in (0, 1)
            )
        },
    ),
    (
        *(
            "fragmentation",
            CONSIDER,
            "50% of NUMA node 0's blocks hold memory that the kernel cannot move",
        ),
        {
            "proc/pagetypeinfo": FIT["proc/pagetypeinfo"].replace(
                "100        15000", "15100      15000", 1
            )
        },
    ),
    (
        *("pools", CONSIDER, "1.07 GB of 2.15 GB reserved but unused"),
        {
            f"{NODES}/node1/hugepages/hugepages-2048kB/nr_hugepages": "1024",
            f"{NODES}/node1/hugepages/hugepages-2048kB/free_hugepages": "512",
        },
    ),
    ("KSM", BAD, "on: it merges equal pages", {"sys/kernel/mm/ksm/run": "1"}),
    (
        *("swap", CONSIDER, "8.59 GB, swappiness 60"),
        {
            "proc/meminfo": MEMINFO.replace("Total: 0", "Total: 8388608").replace(
                "Free: 0", "Free: 8388608"
            )
        },
    ),
    (
        "swap",
        BAD,
        "8.59 GB of 8.59 GB in use",
        {"proc/meminfo": MEMINFO.replace("Total: 0", "Total: 8388608")},
    ),
    ("memory limit", CONSIDER, "a cgroup allows 4.29 GB", {f"{CGROUP}/memory.max": "4294967296"}),
    (
        *("memory limit", CONSIDER, "are killed, and rater with them (memory.oom.group)"),
        {f"{CGROUP}/memory.max": "4294967296", f"{CGROUP}/memory.oom.group": "1"},
    ),
    (
        *("isolation", CONSIDER, "CPUs 2-9 are isolated; 8-9 by a partition of cgroups"),
        {"sys/fs/cgroup/cpuset.cpus.isolated": "8-9"},
    ),
    (
        "ASLR",
        CONSIDER,
        "0: all copies have the same layout",
        {"proc/sys/kernel/randomize_va_space": "0"},
    ),
    ("perf", CONSIDER, "(PMU)", {"sys/bus/event_source/devices/software/type": "1", PMU: None}),
    ("perf", CONSIDER, "paranoid 2", {"proc/sys/kernel/perf_event_paranoid": "2"}),
    ("perf", BAD, "paranoid 4: nothing", {"proc/sys/kernel/perf_event_paranoid": "4"}),
    ("perf", UNKNOWN, "counts no events", {"proc/sys/kernel/perf_event_paranoid": None}),
    ("NMI watchdog", CONSIDER, "one hardware counter fewer", {"proc/sys/kernel/nmi_watchdog": "1"}),
    ("other load", CONSIDER, "load 3.5 in the minute before", {"proc/loadavg": "3.50 1 1 1/2 3"}),
]


def test_interrupts_are_sent_to_the_cpus_that_are_not_isolated(fit: Path) -> None:
    with changed(fit, {"proc/irq/24/effective_affinity_list": "5"}):
        command = examine_root(fit)["interrupts"].command
    assert command == "for i in /proc/irq/*/smp_affinity_list; do echo 0-1 > $i; done"


def test_pm_qos_keeps_cpus_out_of_deep_sleeps(fit: Path) -> None:
    asked = {"cpu.idle_deepest": "C6", "cpu.idle_latency_us": "133", "cpu.latency_limit_us": "20"}
    (found,) = [
        finding for finding in examine(MachineFacts(values=asked)) if finding.check == "C-states"
    ]
    assert (found.verdict, "asks for 20 us at most" in found.seen) == (GOOD, True)


def test_a_filter_that_refuses_counters_is_told_and_no_sysctl() -> None:
    refused = {"rater.perf_refused": "by a filter\n--cap-add PERFMON", "rater.may_count": "yes"}
    (found,) = [
        finding for finding in examine(MachineFacts(values=refused)) if finding.check == "perf"
    ]
    assert (found.verdict, found.seen, found.command) == (BAD, "by a filter", "--cap-add PERFMON")


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("others.busy_cpus", "0.09", GOOD),
        ("others.busy_cpus", "0.1", CONSIDER),
        ("others.busy_cpus", "0.99", CONSIDER),
        ("others.busy_cpus", "1", BAD),
        ("load.1min", "0.99", GOOD),
        ("load.1min", "1", CONSIDER),
    ],
)
def test_a_tenth_of_a_cpu_of_other_load_is_some_and_a_whole_one_is_much(
    name: str, value: str, verdict: DoctorVerdict
) -> None:
    found = {finding.check: finding for finding in examine(MachineFacts(values={name: value}))}
    assert found["other load"].verdict is verdict


class Somebody:
    """Works beside us, and the hypervisor for others."""

    def busy(self, least_share: float) -> ForeignLoad:
        return ForeignLoad((BusyProcess(7, "make", 1.5, "ann"),), 0.1, 0.02)


@pytest.fixture
def somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_facts, "ForeignLoadSampler", Somebody)


def examine_root(root: Path) -> dict[str, DoctorFinding]:
    return {finding.check: finding for finding in examine(facts_now(root, with_load=False))}


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_doctor_tree(tmp_path_factory.mktemp("fit"))


@pytest.mark.usefixtures("somebody")
def test_nothing_is_wrong_with_a_fit_machine(fit: Path) -> None:
    verdicts = {name: one.verdict for name, one in examine_root(fit).items()}
    del verdicts["limits"], verdicts["inherited"]  # those of this process
    assert {name for name, verdict in verdicts.items() if verdict is not GOOD} == set()


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize(("check", "verdict", "seen", "changes"), UNFIT)
def test_what_is_wrong_is_seen(
    fit: Path,
    check: str,
    verdict: DoctorVerdict,
    seen: str,
    changes: dict[str, str | None],
) -> None:
    with changed(fit, changes):
        found = examine_root(fit)[check]
    assert (found.verdict, seen in found.seen) == (verdict, True), found
    assert (found.command is None) == (verdict is UNKNOWN or check == "virtualization")


@pytest.mark.usefixtures("somebody")
def test_every_check_can_be_failed() -> None:
    by_tests_below = {"limits", "inherited"}
    failed = {check for check, verdict, *_ in UNFIT if verdict in (BAD, CONSIDER)}
    assert {check.name for check in CHECKS} - failed == by_tests_below


@pytest.mark.usefixtures("somebody")
@pytest.mark.parametrize(
    ("limits", "verdict", "seen"),
    [
        ({"open_files_hard": "100"}, BAD, "100 open files (-Hn), 192 wanted for 8 copies"),
        ({"processes": "200"}, BAD, "200 processes (-u), 272 wanted for 8 copies"),
        ({"stack": "65536"}, CONSIDER, "0.0655 MB of stack (-s)"),
        (
            {"open_files_hard": "192", "processes": "272", "stack": "8388608"},
            GOOD,
            "192 open files",
        ),
        ({}, UNKNOWN, "not kept"),
    ],
)
def test_limits_that_copies_run_into(
    limits: dict[str, str], verdict: DoctorVerdict, seen: str
) -> None:
    facts = MachineFacts(values={f"limit.{name}": value for name, value in limits.items()}, pus=8)
    (found,) = [finding for finding in examine(facts) if finding.check == "limits"]
    assert (found.verdict, seen in found.seen) == (verdict, True), found


USUAL = {
    "process.scheduler": "other",
    "process.nice": "0",
    "process.thp": "on",
    "process.timer_slack_ns": "50000",
    "process.ignored_signals": "SIGHUP SIGINT SIGQUIT",  # nohup, and a job in the background
    "process.store_bypass": "vulnerable",
    "process.personality": "0",
    "limit.cpu_seconds": "unlimited",
    "thp.enabled": "madvise",
}


@pytest.mark.parametrize(
    ("name", "value", "verdict", "seen"),
    [
        ("process.scheduler", "idle", BAD, "run only where nobody else wants the CPU"),
        ("process.scheduler", "fifo 10", CONSIDER, "real-time scheduling (fifo 10)"),
        ("process.nice", "5", CONSIDER, "nice 5: copies get less of a CPU"),
        ("process.thp", "off", CONSIDER, "transparent huge pages are switched off (prctl"),
        ("process.timer_slack_ns", "4000000", CONSIDER, "timer slack 4000 us"),
        ("process.ignored_signals", "SIGHUP SIGCHLD", CONSIDER, "SIGCHLD ignored"),
        ("process.blocked_signals", "SIGALRM", CONSIDER, "SIGALRM blocked: copies do not get it"),
        ("process.oom_score_adj", "-500", CONSIDER, "kills other processes before the copies"),
        ("process.oom_score_adj", "200", CONSIDER, "kills the copies first"),
        ("process.store_bypass", "thread force mitigated", CONSIDER, "against store bypass"),
        ("process.personality", "40000", CONSIDER, "addresses are not random"),
        ("process.uclamp_max", "512", BAD, "uclamp.max 512 of 1024"),
        ("limit.cpu_seconds", "600", CONSIDER, "600 seconds of CPU time (ulimit -t)"),
        ("process.nice", "0", GOOD, "as usual"),
    ],
)
def test_what_copies_inherit_is_judged(
    name: str, value: str, verdict: DoctorVerdict, seen: str
) -> None:
    found = {one.check: one for one in examine(MachineFacts(values=USUAL | {name: value}))}
    assert (found["inherited"].verdict, seen in found["inherited"].seen) == (verdict, True)
    assert (found["THP"].verdict is GOOD) == (name != "process.thp")


def test_an_older_run_does_not_tell_what_its_copies_inherited() -> None:
    facts = MachineFacts(values={"process.nice": "0", "limit.stack": "8388608"})
    found = {one.check: one for one in examine(facts)}
    assert found["inherited"].verdict is UNKNOWN


@pytest.mark.usefixtures("somebody")
def test_others_work_and_stolen_time_are_seen(fit: Path) -> None:
    facts = facts_now(fit, with_load=True)
    found = {finding.check: finding for finding in examine(facts)}
    load, virtual = found["other load"], found["virtualization"]
    assert (load.verdict, load.seen) == (BAD, "other processes keep 1.6 CPUs busy: make 1.5")
    assert (virtual.verdict, virtual.seen) == (BAD, "the host gave 2% of the CPUs' time away")


@pytest.mark.usefixtures("somebody")
def test_what_another_wrote_into_a_database_is_no_number_and_no_crash() -> None:
    names = [
        *("memory.node0.free_bytes", "memory.node0.free_huge_order_bytes", "cpu.max_khz"),
        *("swap.total_bytes", "cgroup.cpu_quota", "kernel.perf_event_paranoid", "limit.stack"),
        *("cpu.idle_latency_us", "thp.64kB.enabled", "thp.khugepaged_pages_to_scan"),
        *("hugepages.node0.2048kB.total", "cpu.isolated", "cpu.governor", "load.1min"),
    ]
    facts = MachineFacts(values=dict.fromkeys(names, "x\u202e"), now=False)
    assert len(examine(facts)) == len(CHECKS)


@pytest.mark.usefixtures("somebody")
def test_of_an_empty_machine_nothing_is_known(tmp_path: Path) -> None:
    found = examine_root(tmp_path)
    told = {name for name, one in found.items() if one.verdict is not UNKNOWN}
    assert told <= {"limits", "inherited", "interrupts", "memory limit"}


@pytest.mark.usefixtures("somebody")
def test_the_page_is_a_screen_and_details_have_commands(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_doctor_tree(tmp_path / "machine")
    for *_, changes in UNFIT:
        change(root, {name: text for name, text in changes.items() if text is not None})
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    status, out, err = rater("doctor")
    assert (status, err) == (0, "")
    # A command stays whole, to be copied.
    assert max(len(line) for line in out.splitlines() if "-> " not in line) <= 80
    assert len(out.splitlines()) <= 24
    assert "…" not in out
    assert "2 MB 5860 (node 0) to 14000 (node 1)" in " ".join(out.split())
    assert "to consider" in out.splitlines()[0]
    _, details, _ = rater("doctor", "numa balancing", "KSM")
    assert "-> sysctl -w kernel.numa_balancing=0" in details
    assert details.count("why: ") == 2
    document = json.loads(rater("doctor", "--json")[1])
    assert document["counts"]["bad"] == sum(
        finding["verdict"] == "bad" for finding in document["findings"]
    )
    assert document["tuned"]["ksm"] == "0"
    assert rater("doctor", "nonsense")[0] == 2


@pytest.mark.usefixtures("somebody")
def test_what_pools_can_have_is_told_by_lgroup_and_size(
    rater: Rater, fit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_SYSROOT", str(fit))
    rooms = json.loads(rater("doctor", "--json")[1])["huge_pages"]
    assert [(room["lgroup"], room["size_bytes"] >> 20, room["more_now"]) for room in rooms] == [
        (0, 2, 14000),  # 7000 pieces of 4 MB
        (0, 1024, None),
        (1, 2, 14000),
        (1, 1024, None),
    ]
    assert rooms[1]["more_at_most"] == 29  # of 31 GB free or page cache
    assert (
        "echo 14000 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB"
        in (rater("doctor", "-v")[1])
    )


WRONG: dict[str, str | None] = {
    "proc/sys/kernel/numa_balancing": "1",
    "sys/kernel/mm/ksm/run": "1",
    "proc/sys/kernel/nmi_watchdog": "1",
    # Not to be mended: they change what is measured.
    "proc/sys/kernel/randomize_va_space": "0",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "0",
}
SHOWN = "cat $RATER_SYSROOT/sys/kernel/mm/ksm/run $RATER_SYSROOT/proc/sys/kernel/numa_balancing"


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = make_doctor_tree(tmp_path / "machine")
    change(root, WRONG)
    monkeypatch.setenv("RATER_SYSROOT", str(root))
    monkeypatch.setenv("RATER_JOURNAL", str(tmp_path / "settings.json"))
    return root


def test_a_command_runs_with_what_the_doctor_sets(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    status, _, err = rater("doctor", "--fix", "--", "sh", "-c", f"({SHOWN}) > {seen}; exit 5")
    assert (status, seen.read_text().split()) == (5, ["0", "0"])
    assert "numa_balancing=0 (was 1)" in err
    assert values(wrong) == before
    tuned = json.loads(rater("doctor", "--json")[1])["tuned"]
    assert tuned == {"numa_balancing": "0", "ksm": "0", "nmi_watchdog": "0"}


def test_what_it_set_is_put_back_after_kill_9(wrong: Path, rater: Rater, tmp_path: Path) -> None:
    before = values(wrong)
    words = ("doctor", "--fix", "--", "sh", "-c", "echo on; exec sleep 60")
    with subprocess.Popen([*RATER, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        assert values(wrong)["sys/kernel/mm/ksm/run"] == "0"
        sleeping = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        for pid in sleeping:
            os.kill(int(pid), signal.SIGKILL)
    assert values(wrong) != before
    assert rater("settings", "restore")[0] == 0
    assert values(wrong) == before


def test_fix_wants_a_command_and_a_machine_that_nobody_measures(wrong: Path, rater: Rater) -> None:
    assert rater("doctor", "--fix")[0] == 2
    assert rater("doctor", "--", "true")[0] == 2
    status, _, err = rater("doctor", "--fix", "--", "/no/such/program")
    assert (status, "/no/such/program" in err) == (2, True)
    assert values(wrong)["sys/kernel/mm/ksm/run"] == "1"


RUN = ("run", "--copies", "1", "--proof", "off", "--share", "--quiet", "--tuned")


def test_a_tuned_run_has_what_the_doctor_sets_and_puts_it_back(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    status, _, err = rater(*RUN, "--", "sh", "-c", f"({SHOWN}) > {seen}")
    assert (status, err, seen.read_text().split()) == (0, "", ["0", "0"])
    assert values(wrong) == before
    assert rater(*RUN, "--", "false")[0] == 1
    assert values(wrong) == before


def test_a_tuned_run_is_refused_where_a_setting_cannot_be_set(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    (wrong / "sys/kernel/mm/ksm/run").chmod(0o444)
    before = values(wrong)
    status, out, _ = rater(*RUN, "--dry-run", "--", "true")
    assert (status, "sets     numa_balancing=0" in out) == (0, True)
    assert "ksm cannot be set: the kernel only tells it" in " ".join(out.split())
    status, _, err = rater(*RUN, "--", "touch", str(tmp_path / "made"))
    assert (status, "ksm cannot be set: the kernel only tells it" in err) == (2, True)
    assert values(wrong) == before
    assert not (tmp_path / "made").exists()


def test_an_axis_of_a_sweep_stands_over_what_tuned_runs_want(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before, seen = values(wrong), tmp_path / "seen"
    loud = [word for word in RUN[1:] if word != "--quiet"]
    words = ("sweep", *loud, "--axis", "ksm=0,1", "--rounds", "1", "--", "sh", "-c")
    status, _, err = rater(*words, f"({SHOWN}) >> {seen}")
    told = "changed for the sweep, restored at its end: numa_balancing=0, nmi_watchdog=0"
    assert (status, told in err) == (0, True)
    assert sorted(zip(*[iter(seen.read_text().split())] * 2, strict=True)) == [
        ("0", "0"),
        ("1", "0"),
    ]
    assert values(wrong) == before


def test_a_tuned_run_killed_with_kill_9_is_put_back_by_the_next_one(
    wrong: Path, rater: Rater, tmp_path: Path
) -> None:
    before = values(wrong)
    os.mkfifo(tmp_path / "on")
    words = (*RUN, "--", "sh", "-c", f"echo on > {tmp_path}/on; exec sleep 60")
    with subprocess.Popen([*RATER, *words]) as process:
        assert (tmp_path / "on").read_text() == "on\n"
        assert values(wrong)["sys/kernel/mm/ksm/run"] == "0"
        process.kill()
    assert values(wrong) != before
    status, _, err = rater("run", *RUN[1:-1], "--", "true")
    assert (status, "put back what rater run" in err) == (0, True)
    assert values(wrong) == before


def test_what_will_be_set_is_no_difference_from_a_run_that_had_it() -> None:
    settings = (("kernel.numa_balancing", "0"), ("vm.swappiness", "60"))
    run = replace(stored([copy_row(0, 1.0)]), settings=settings)
    present = (("kernel.numa_balancing", "1"), ("vm.swappiness", "10"))
    now = replace(stored_conditions(run), settings=present)
    told = [condition.what for condition in changed_conditions(run, now, ["numa_balancing"])]
    assert told == ["setting vm.swappiness"]
    assert len(changed_conditions(run, now)) == 2
