"""What wings have for the core is what it asks for: mypy holds each module to its Protocol."""

from rater.analysis.results.score import PageProofs
from rater.commands.results import FleetWords
from rater.fleet import archive, merge, slow_hosts
from rater.lab.layout import layout, prepare, proof, table
from rater.lab.trace import machine
from rater.plan.options import PageLayouts
from rater.run.workplace.run_dirs import KitOutputsFactory
from rater.show.results.run import PageTables
from rater.speccpu.kit import outputs, run
from rater.speccpu.kit.benchmark import KitBenchmark
from rater.wings import HOOKS
from rater.workflow.arguments import FleetArchive
from rater.workflow.counters import MissCosts
from rater.workflow.results.stored import Merge
from rater.workflow.run.session import PagePreparation
from rater.workflow.run.workload import Kits, PageChecks

KITS: Kits[KitBenchmark] = run
KIT_OUTPUTS: KitOutputsFactory = outputs
PAGE_LAYOUTS: PageLayouts = layout
PAGE_CHECKS: PageChecks = prepare
PAGE_SETUP: PagePreparation = prepare
PAGE_PROOFS: PageProofs = proof
PAGE_TABLES: PageTables[proof.RunPages] = table
MISS_COSTS: MissCosts = machine
MERGE: Merge = merge
FLEET_ARCHIVE: FleetArchive = archive
FLEET_WORDS: FleetWords = slow_hosts


def test_each_module_of_the_registry_is_held_to_a_protocol() -> None:
    held = {
        value.__name__ for name, value in globals().items() if name.isupper() and name != "HOOKS"
    }
    named = {f"rater.{module}" for module in HOOKS.values()}
    assert held == named
