"""The wings of the house, by name: the one place through which the core reaches them.

A wing (`speccpu`, `lab`, `fleet`) stands on the core and imports what it needs of it. The core
imports no wing, and no wing another. What a wing adds to the core is a line here: a command, or a
function that the core calls by the hook's name, and that is imported when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

WINGS = ("speccpu", "lab", "fleet")

# Commands, in the order of their helps: each a function that declares arguments.
COMMANDS = (
    "speccpu.commands.register",
    "lab.commands.register_model",
    "lab.commands.register_pages",
    "lab.commands.register_lab",
    "fleet.commands.register_merge",
    "fleet.commands.register_fleet",
    "fleet.commands.register_history",
)

# What the core asks for by name, and the module that has it under this name.
HOOKS = {
    # rater.fleet.index: for workflow.arguments
    "ArchivedStore": "rater.fleet.index",
    "fleet_words": "rater.fleet.index",
    # rater.fleet.merge: for workflow.results.stored
    "merge_database": "rater.fleet.merge",
    "merge_document": "rater.fleet.merge",
    "merge_in_words": "rater.fleet.merge",
    "merge_remarks": "rater.fleet.merge",
    # rater.fleet.merge_source: for workflow.results.stored
    "SourceRefusedError": "rater.fleet.merge_source",
    "is_database": "rater.fleet.merge_source",
    # rater.lab.layout: for plan.options
    "parse_pages": "rater.lab.layout",
    # rater.lab.preload: for run.supervise.job
    "PageProof": "rater.lab.preload",
    # rater.lab.proof: for analysis.compare.compare, analysis.results.score
    "base_side": "rater.lab.proof",
    "layout_warnings": "rater.lab.proof",
    "prove_pages": "rater.lab.proof",
    # rater.lab.prepare: for workflow.run.prepare, workflow.run.resolve, workflow.run.session
    "pages_asked": "rater.lab.prepare",
    "pages_of_run": "rater.lab.prepare",
    "refuse_layout": "rater.lab.prepare",
    # rater.lab.show_models: for show.html.page
    "model_charts": "rater.lab.show_models",
    # rater.lab.show_sizes: for show.results.run, workflow.results.stored
    "pages_document": "rater.lab.show_sizes",
    "print_pages": "rater.lab.show_sizes",
    # rater.lab.show_study: for show.html.page
    "lab_gains": "rater.lab.show_study",
    "lab_sections": "rater.lab.show_study",
    # rater.speccpu.kit: for workflow.run.resolve
    "commands_bind": "rater.speccpu.kit",
    "places_of_file": "rater.speccpu.kit",
    # rater.speccpu.outputs: for run.workplace.run_dirs
    "KitOutputs": "rater.speccpu.outputs",
    "OVERWRITTEN": "rater.speccpu.outputs",
    # rater.speccpu.run: for workflow.run.head, workflow.run.prepare, workflow.run.repeat,
    #   workflow.run.resolve, workflow.run.session, workflow.run.workload
    "check_copies": "rater.speccpu.run",
    "kit_benchmark": "rater.speccpu.run",
    "kit_built": "rater.speccpu.run",
    "kit_command": "rater.speccpu.run",
    "kit_digest": "rater.speccpu.run",
    "kit_files": "rater.speccpu.run",
    "kit_lines": "rater.speccpu.run",
    "kit_problems": "rater.speccpu.run",
    "kit_program": "rater.speccpu.run",
    "read_kit": "rater.speccpu.run",
    "with_file_defaults": "rater.speccpu.run",
}

# Values of wings that the core hands on and never looks into but by the names it was given.
type KitBenchmark = Any  # rater.speccpu.kit
type KitComparison = Any  # rater.speccpu.outputs
type MergedFile = Any  # rater.fleet.merge
type PageLab = Any  # rater.lab.models
type PageSetup = Any  # rater.lab.preload
type PagesReady = Any  # rater.lab.prepare
type RunPages = Any  # rater.lab.proof


def hook(name: str) -> Any:
    """Return what a wing has for the core under this name."""
    return getattr(import_module(HOOKS[name]), name)
