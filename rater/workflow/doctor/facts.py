"""What the doctor reads of this machine now."""

from __future__ import annotations

from pathlib import Path

from rater.analysis.doctor.model import MachineFacts
from rater.run.host.busy import BusyWatch
from rater.run.host.snapshot import microcode_now, settings_snapshot
from rater.run.host.state import present_readings
from rater.run.programs.fingerprint import process_settings
from rater.settings.catalog import present_settings
from rater.text.cpuset import parse_set
from rater.text.words import some

_LEAST_BUSY = 0.05  # of a CPU: smaller processes are counted together


def facts_now(root: Path, *, with_load: bool) -> MachineFacts:
    """Return what is known of this machine; `with_load`: looks for a quarter of a second."""
    values = dict(settings_snapshot(root)) | dict(process_settings())
    values |= dict(present_readings(root))
    if with_load:
        values |= _load()
    nodes, online = values.get("nodes"), parse_set(values.get("cpu.online", ""))
    return MachineFacts(
        values, microcode_now(root), None if nodes is None else int(nodes), len(online) or None
    )


def names_here(root: Path) -> tuple[str, ...]:
    """Return the names of the settings that this machine has."""
    return tuple(setting.name for setting in present_settings(root))


def _load() -> dict[str, str]:
    busy = BusyWatch().busy(_LEAST_BUSY)
    cpus = sum(one.share for one in busy.processes) + busy.unseen
    named = some([f"{one.command} {one.share:.1f}" for one in busy.processes], 2)
    found = {"others.busy_cpus": f"{cpus:.2f}", "others.stolen_share": f"{busy.stolen:.4f}"}
    return found | ({"others.named": named} if named else {})
