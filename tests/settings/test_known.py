"""Knobs: those that a machine has, the values they take, and how they are read."""

from pathlib import Path

import pytest

from rater.run.host.facts import settings_snapshot
from rater.settings.known import changes_with, is_known_file, read_value
from rater.settings.tuner import available_settings, find_setting, missing_settings
from rater.system.errors import InputError
from tests.support.settings_tree import CPUS, POOL, THP, make_tree, node_pool


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def test_a_machine_has_the_knobs_whose_files_it_has_and_the_rest_is_named(root: Path) -> None:
    assert [setting.name for setting in available_settings(root)] == [
        *("smt.control", "governor", "boost", "max_khz", "min_khz", "energy_preference"),
        *("thp", "thp.defrag", "thp.64kB", "thp.2048kB", "khugepaged.pages"),
        *("hugepages.2048kB", "hugepages.2048kB.node0", "hugepages.2048kB.node1"),
        *("numa_balancing", "zone_reclaim", "swappiness", "aslr"),
    ]
    assert [(setting.names, setting.why) for setting in missing_settings(root)] == [
        (("compaction_proactiveness",), "this kernel was built without")
    ]


def test_settings_of_a_size_stand_together_from_the_smallest_size_on(root: Path) -> None:
    for folder in ("hugepages-8kB", "hugepages-64kB", "hugepages-1024kB"):
        file = root / THP / folder / "shmem_enabled"
        file.parent.mkdir(exist_ok=True)
        file.write_text("always inherit [never]\n")
    of_sizes = [
        setting.name for setting in available_settings(root) if setting.name.startswith("thp.")
    ][1:]
    assert of_sizes == [
        *("thp.8kB.shmem", "thp.64kB", "thp.64kB.shmem", "thp.1024kB.shmem", "thp.2048kB"),
    ]


def test_an_empty_tree_has_no_knobs_and_each_is_named_as_lacking(tmp_path: Path) -> None:
    assert available_settings(tmp_path) == ()
    gone = [name for setting in missing_settings(tmp_path) for name in setting.names]
    assert {"governor", "boost", "smt.control", "thp", "numa_balancing"} <= set(gone)
    with pytest.raises(InputError, match=r"governor: this machine does not have it \(no cpufreq\)"):
        find_setting("governor", tmp_path)


def test_the_value_of_a_file_is_its_chosen_word_or_all_it_says(tmp_path: Path) -> None:
    for text, value in (
        ("always [madvise] never\n", "madvise"),
        ("always defer [defer+madvise] never", "defer+madvise"),
        ("60\n", "60"),
        ("", ""),
    ):
        (tmp_path / "file").write_text(text)
        assert read_value(tmp_path, "file") == value


def test_values_that_differ_between_cpus_or_nodes_are_told_apart(root: Path) -> None:
    assert find_setting("governor", root).read().description == "performance (0,3), powersave (1-2)"
    assert find_setting("thp", root).read().description == "madvise"
    assert find_setting("boost", root).read().description == "on"


def test_a_knob_is_found_by_the_name_that_runs_record_it_with(root: Path) -> None:
    assert find_setting("thp.enabled", root).name == "thp"
    assert find_setting("kernel.randomize_va_space", root).name == "aslr"
    assert find_setting("hugepages.node1.2048kB.total", root).files == (node_pool(1),)


def test_every_knob_is_recorded_with_each_run(root: Path) -> None:
    recorded = dict(settings_snapshot(root))
    missing = [setting.name for setting in available_settings(root) if setting.also not in recorded]
    assert missing == ["hugepages.2048kB"]  # a total: its nodes are


def test_an_unknown_name_is_told_with_close_ones(root: Path) -> None:
    with pytest.raises(InputError, match=r"swapiness: no setting .* did you mean swappiness"):
        find_setting("swapiness", root)


@pytest.mark.parametrize(
    ("name", "value", "content"),
    [
        ("thp", "never", "never"),
        ("boost", "off", "0"),
        ("boost", "1", "1"),
        ("swappiness", " 10 ", "10"),
        ("hugepages.2048kB", "0512", "512"),
        ("energy_preference", "power", "power"),
    ],
)
def test_what_a_user_types_becomes_what_the_file_takes(
    root: Path, name: str, value: str, content: str
) -> None:
    assert find_setting(name, root).accept(value) == content


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("thp", "alway", "thp=alway: expected one of always, madvise, never"),
        ("swappiness", "201", "expected a whole number, 0 to 200"),
        ("swappiness", "much", "expected a whole number"),
        ("max_khz", "0", "expected a whole number, 1 up"),
        ("energy_preference", "default", "expected one of performance, balance_performance"),
        ("governor", "ondemand", "expected one of performance, powersave"),
    ],
)
def test_a_value_that_a_knob_does_not_take_is_told_with_those_it_does(
    root: Path, name: str, value: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        find_setting(name, root).accept(value)


def test_the_other_switch_of_turbo_is_the_same_knob_the_other_way_round(tmp_path: Path) -> None:
    file = tmp_path / CPUS / "intel_pstate/no_turbo"
    file.parent.mkdir(parents=True)
    file.write_text("1\n")
    boost = find_setting("boost", tmp_path)
    assert (boost.read().description, boost.accept("on"), boost.also) == (
        "off",
        "0",
        "cpu.no_turbo",
    )


def test_smt_is_not_touched_where_that_would_bring_back_cpus_taken_away_by_hand(
    root: Path,
) -> None:
    assert find_setting("smt.control", root).obstacle() is None  # CPUs 4-7 are not there at all
    (root / CPUS / "offline").write_text("2,4-7\n")
    assert find_setting("smt.control", root).obstacle() == "CPUs 2 are offline and would come back"


def test_only_files_of_knobs_may_stand_in_a_journal(root: Path) -> None:
    files = {
        file for setting in available_settings(root) for file in (*setting.stored, *setting.follows)
    }
    assert {POOL, f"{THP}/enabled"} <= files
    assert [file for file in files if not is_known_file(file)] == []
    for file in ("etc/passwd", f"{THP}/../../../etc/passwd", "proc/sys/kernel/core_pattern", ""):
        assert not is_known_file(file)


@pytest.mark.parametrize(
    ("setting", "recorded", "answer"),
    [
        ("thp", "thp.enabled", True),
        ("thp", "vm.min_free_kbytes", True),
        ("thp.enabled", "vm.min_free_kbytes", True),
        ("thp", "thp.64kB.enabled", False),
        ("thp.64kB", "thp.64kB.enabled", True),
        ("thp.64kB", "thp.2048kB.enabled", False),
        ("boost", "cpu.no_turbo", True),
        ("boost", "cpu.max_khz", True),
        ("governor", "cpu.energy_preference", True),
        ("aslr", "kernel.randomize_va_space", True),
        ("aslr", "kernel.nmi_watchdog", False),
        ("hugepages.2048kB", "hugepages.node10.2048kB.total", True),
        ("hugepages.2048kB", "hugepages.node10.64kB.total", False),
        ("hugepages.2048kB.node0", "hugepages.node1.2048kB.total", False),
        ("copies", "thp.enabled", False),
        ("", "thp.enabled", False),
    ],
)
def test_what_changes_with_a_setting_is_known(setting: str, recorded: str, answer: bool) -> None:
    assert changes_with(setting, recorded) is answer
