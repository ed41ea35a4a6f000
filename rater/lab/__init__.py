"""The laboratory of page sizes: layouts, traces, models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the core asks for is what it says
    from rater.analysis.results.score import PageProofs
    from rater.lab import layout, prepare, proof, show_sizes
    from rater.plan.options import PageLayouts
    from rater.show.results.run import PageTables
    from rater.workflow.run.session import PagePreparation
    from rater.workflow.run.workload import PageChecks

    LAYOUTS: PageLayouts = layout
    CHECKS: PageChecks = prepare
    PREPARATION: PagePreparation = prepare
    PROOFS: PageProofs = proof
    TABLES: PageTables[proof.RunPages] = show_sizes
