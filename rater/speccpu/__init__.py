"""What is of SPEC CPU: its kits, configurations and published results."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the core asks for is what it says
    from rater.commands.results import RawResults
    from rater.run.workplace.run_dirs import KitOutputsFactory
    from rater.speccpu import commands, outputs, run
    from rater.speccpu.kit import KitBenchmark
    from rater.workflow.run.workload import Kits

    KITS: Kits[KitBenchmark] = run
    KIT_OUTPUTS: KitOutputsFactory[outputs.KitComparison] = outputs
    RAW_RESULTS: RawResults = commands
