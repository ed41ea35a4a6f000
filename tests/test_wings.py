"""What wings have for the core is what it asks for: mypy holds each module to its Protocol."""

from types import ModuleType

import pytest

from rater import wings
from rater.analysis.results.score import PageProofs
from rater.commands.results import FleetWords
from rater.errors import InputError
from rater.fleet import archive, merge, slow_hosts
from rater.lab.layout import layout, prepare, proof, table
from rater.plan.options import PageLayouts
from rater.run.workplace.run_dirs import KitOutputsFactory
from rater.show.results.run import PageTables
from rater.speccpu.kit import outputs, run
from rater.speccpu.kit.benchmark import KitBenchmark
from rater.wings import HOOKS, Hook
from rater.workflow.arguments import FleetArchive
from rater.workflow.results.stored import Merge
from rater.workflow.run.session import PagePreparation
from rater.workflow.run.workload import Kits, PageChecks

KITS: Kits[KitBenchmark] = run
KIT_OUTPUTS: KitOutputsFactory[outputs.KitComparison] = outputs
PAGE_LAYOUTS: PageLayouts = layout
PAGE_CHECKS: PageChecks = prepare
PAGE_SETUP: PagePreparation = prepare
PAGE_PROOFS: PageProofs = proof
PAGE_TABLES: PageTables[proof.RunPages] = table
MERGE: Merge = merge
FLEET_ARCHIVE: FleetArchive = archive
FLEET_WORDS: FleetWords = slow_hosts


def test_each_module_of_the_registry_is_held_to_a_protocol() -> None:
    held = {
        value.__name__ for name, value in globals().items() if name.isupper() and name != "HOOKS"
    }
    named = {f"rater.{module}" for module in HOOKS.values()}
    assert held == named


def test_a_wing_that_is_absent_has_nothing_to_say_of_a_run_and_is_missed_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> ModuleType:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(wings, "import_module", absent)
    proofs = Hook[PageProofs]("page proofs")()
    assert proofs.layout_warnings([]) == ()
    assert Hook[PageChecks]("page setup")().pages_asked(None) is None  # type: ignore[arg-type]
    with pytest.raises(InputError, match="this rater has no lab"):
        Hook[PageLayouts]("page layouts")().parse_pages("50%")
