"""Bytes to and from memory: made trees of five families of servers, answers worked out by hand."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rater.run.observe.memory_traffic import ResctrlSource, TrafficSource, encode
from tests.support.servers import INTEL, Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


SAPPHIRE_RAPIDS, GRANITE_RAPIDS, SKYLAKE = 143, 173, 85


def intel(server: Server, model: int, *, channels: int = 2, **events: str) -> None:
    server.cpus("0-3", "4-7", packages=("0-3", "4-7"))
    server.write("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: {model}")
    for channel in range(channels):
        named = {f"events__{name}": terms for name, terms in events.items()}
        server.pmu(f"uncore_imc_{channel}", 30 + channel, "0,4", **INTEL, **named)


def source_of(server: Server) -> TrafficSource:
    return TrafficSource(server.root, server.open_event)


def read(source: TrafficSource) -> dict[str, list[int | None]]:
    return {column: [*values] for column, values in zip(source.columns, source.read(), strict=True)}


def test_sapphire_rapids_counts_lines_of_64_bytes_on_a_cpu_of_each_package(server: Server) -> None:
    intel(
        server,
        SAPPHIRE_RAPIDS,
        cas_count_read="event=0x05,umask=0xcf",
        cas_count_write="event=0x05,umask=0xf0",
    )
    source = source_of(server)
    # umask 0xcf at bits 8-15: 0xcf05; type 30 and 31 on CPUs 0 and 4.
    assert sorted(server.opened) == sorted(
        (channel, config, cpu)
        for channel in (30, 31)
        for config in (0xCF05, 0xF005)
        for cpu in (0, 4)
    )
    server.stand({0xCF05: 1000, 0xF005: 10})
    # Two channels of 1000 lines each, of each package.
    assert read(source) == {"read_bytes": [128_000, 128_000], "written_bytes": [1280, 1280]}
    assert source.places == [0, 1]


def test_an_older_kernel_without_events_has_the_same_codes_on_sapphire_rapids_alone(
    server: Server,
) -> None:
    intel(server, SAPPHIRE_RAPIDS)
    assert source_of(server).places == [0, 1]
    assert {config for _, config, _ in server.opened} == {0xCF05, 0xF005}
    server.opened.clear()
    server.write("proc/cpuinfo", f"vendor_id\t: GenuineIntel\nmodel\t\t: {SKYLAKE}")
    assert source_of(server).places == []
    assert server.opened == []


def test_counters_are_closed_once_and_what_has_their_numbers_then_stays_open(
    server: Server,
) -> None:
    intel(server, SAPPHIRE_RAPIDS)
    source = source_of(server)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before - len(server.opened)  # noqa: PTH208
    assert read(source) == {"read_bytes": [None, None], "written_bytes": [None, None]}
    ends = os.pipe()
    source.close()
    del source
    for end in ends:
        os.close(end)


def test_granite_rapids_adds_both_schedulers(server: Server) -> None:
    intel(
        server,
        GRANITE_RAPIDS,
        channels=1,
        cas_count_read="event=0x05,umask=0xcf",
        cas_count_read_sch0="event=0x05,umask=0xcf",
        cas_count_read_sch1="event=0x06,umask=0xcf",
        cas_count_write_sch0="event=0x05,umask=0xf0",
        cas_count_write_sch1="event=0x06,umask=0xf0",
    )
    source = source_of(server)
    server.stand({0xCF05: 100, 0xCF06: 50, 0xF005: 1, 0xF006: 2})
    assert read(source) == {"read_bytes": [150 * 64] * 2, "written_bytes": [3 * 64] * 2}


@pytest.mark.parametrize("model", [GRANITE_RAPIDS, 174, 175])  # both of it, and Sierra Forest
def test_granite_rapids_with_one_scheduler_is_marked_as_half(server: Server, model: int) -> None:
    intel(
        server,
        model,
        channels=1,
        cas_count_read="event=0x05,umask=0xcf",
        cas_count_write="event=0x05,umask=0xf0",
    )
    source = source_of(server)
    server.stand({0xCF05: 100, 0xF005: 1})
    assert read(source) == {"read_half_bytes": [6400] * 2, "written_half_bytes": [64] * 2}


def test_one_named_scheduler_of_two_is_half_of_the_traffic_too(server: Server) -> None:
    of_first = {
        f"cas_count_{name}{ending}": f"event=0x05,umask={umask}"
        for name, umask in (("read", "0xcf"), ("write", "0xf0"))
        for ending in ("", "_sch0")
    }
    intel(server, GRANITE_RAPIDS, channels=1, **of_first)
    assert source_of(server).columns == ["read_half_bytes", "written_half_bytes"]


def test_zen_4_names_no_events_and_counts_reads_and_writes_by_a_mask(server: Server) -> None:
    server.cpus("0-1", "2-3", "4-5", "6-7", packages=("0-3", "4-7"))
    formats = {"format__event": "config:0-7", "format__rdwrmask": "config:8-9"}
    for channel, cpu in ((0, "0"), (1, "0"), (2, "4")):
        server.pmu(f"amd_umc_{channel}", 40 + channel, cpu, **formats)
    server.pmu("amd_df", 50, "0,4", format__event="config:0-7")
    source = source_of(server)
    # Event 0x0a, rdwrmask 1 at bits 8-9: 0x10a; 2: 0x20a.
    assert {config for _, config, _ in server.opened} == {0x10A, 0x20A}
    assert {pmu_type for pmu_type, _, _ in server.opened} == {40, 41, 42}
    server.stand({0x10A: 1000, 0x20A: 500})
    # Packages of two nodes each: the first node of a package has all of it.
    assert source.places == [0, 2]
    assert read(source) == {"read_bytes": [128_000, 64_000], "written_bytes": [64_000, 32_000]}


def test_grace_counts_reads_in_32_bytes_and_writes_in_bytes(server: Server) -> None:
    server.cpus("0-71", "72-143", packages=("0-71", "72-143"))
    for socket, cpu in ((0, "0"), (1, "72")):
        server.pmu(
            f"nvidia_scf_pmu_{socket}",
            60 + socket,
            cpu,
            format__event="config:0-63",
            events__cmem_rd_data="event=0x1a5",
            events__cmem_wr_total_bytes="event=0x1a6",
        )
    source = source_of(server)
    server.stand({0x1A5: 1000, 0x1A6: 77})
    assert read(source) == {"read_bytes": [32_000] * 2, "written_bytes": [77] * 2}


def test_kunpeng_counts_32_bytes_by_the_node_of_its_cpus(server: Server) -> None:
    server.cpus("0-1", "2-3", packages=("0-3",))
    for cluster, cpu in ((1, "2"), (3, "0")):
        for channel in (0, 1):
            server.pmu(
                f"hisi_sccl{cluster}_ddrc{channel}",
                70 + 2 * cluster + channel,
                cpu,
                format__event="config:0-4",
                events__flux_rd="event=0x1",
                events__flux_wr="event=0x0",
            )
    source = source_of(server)
    server.stand({1: 10, 0: 2})
    assert source.places == [0, 1]
    assert read(source) == {"read_bytes": [640, 640], "written_bytes": [128, 128]}


def test_who_may_not_open_counters_is_told_why_and_the_way_out(server: Server) -> None:
    intel(server, SAPPHIRE_RAPIDS)
    server.write("proc/sys/kernel/perf_event_paranoid", "2")

    def refuse(pmu_type: int, config: int, cpu: int) -> int:
        raise PermissionError(errno.EACCES, "no")

    source = TrafficSource(server.root, refuse)
    assert source.places == []
    assert source.refused is not None
    assert source.refused.startswith("memory traffic is not known: kernel.perf_event_paranoid is 2")
    assert "sysctl kernel.perf_event_paranoid" in source.refused


def test_a_counter_that_the_kernel_does_not_open_is_told_with_its_reason(server: Server) -> None:
    intel(server, SAPPHIRE_RAPIDS)

    def refuse(pmu_type: int, config: int, cpu: int) -> int:
        raise OSError(errno.ENODEV, "No such device")

    expected = "memory traffic is not known: the kernel opens no counter of it (No such device)"
    assert TrafficSource(server.root, refuse).refused == expected


def test_a_machine_without_such_pmus_and_a_term_without_bits_count_nothing(server: Server) -> None:
    assert (source_of(server).places, source_of(server).refused) == ([], None)
    server.pmu("amd_umc_0", 1, "0", format__rdwrmask="config1:8-9", format__event="config:0-7")
    assert source_of(server).places == []
    why = source_of(server).refused or ""
    assert why.startswith("memory traffic is not known: ") and why.endswith("no bits for rdwrmask")
    formats = server.root / "sys/bus/event_source/devices/amd_umc_0/format"
    server.write("sys/bus/event_source/devices/amd_umc_0/format/wide", "config:0-7,32-35")
    assert encode("wide=0x1a0", formats) == 0x1_0000_00A0


def test_resctrl_tells_local_from_all_memory_by_node(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.cpus("0-1", "2-3", packages=("0-3",))
    for cpu, number in enumerate((0, 1, 8, 8)):
        server.write(f"sys/devices/system/cpu/cpu{cpu}/cache/index3/id", str(number))
    for cache, local, total in (("00", "1000", "1500"), ("01", "10", "20"), ("08", "7", "9")):
        folder = f"sys/fs/resctrl/mon_data/mon_L3_{cache}"
        server.write(f"{folder}/mbm_local_bytes", local)
        server.write(f"{folder}/mbm_total_bytes", total)
    source = ResctrlSource(tmp_path)
    assert (source.places, source.columns) == ([0, 1], ["local_bytes", "total_bytes"])
    assert source.read() == [[1010, 7], [1520, 9]]
    server.write("sys/fs/resctrl/mon_data/mon_L3_01/mbm_local_bytes", "Unavailable")
    assert source.read() == [[None, 7], [1520, 9]]
