"""`rater bundle`: runs with all that is known of them in one file, to be sent; and taken in."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rater import __version__
from rater.plan.checkup import TAG
from rater.record.stored import StoredRun
from rater.run.host.discover import discover_topology, this_machine_xml
from rater.show.charts.vega import library
from rater.show.html.page import report_html
from rater.show.plans.hardware import hardware_document
from rater.store.bundle import DATABASE, extract_runs
from rater.store.export import full_document
from rater.store.store import Store, open_store
from rater.system.errors import InputError, RunError
from rater.system.files import scratch_folder
from rater.system.process import print_error
from rater.text.secrets import Redactor
from rater.text.values import count, runs_text, truncate_list
from rater.workflow.arguments import Output, open_store_for_reading, print_json
from rater.workflow.results.divots import refusal
from rater.workflow.results.plot import load_report_run
from rater.workflow.results.points import write_output

_MANIFEST = "manifest.json"
_MOST_NAMED, _MOST_PAGES = 4, 12  # runs
_NO_LIBRARY = "no library"
_SHORTEST_SECRET = 6  # letters: shorter values are in other words by chance
_AGAIN = """\
Made by rater {version}. {runs}

See it here:         rater import {file}   then `rater show`, `rater divots`, `rater report`
What differs here:   rater rerun RUN --dry-run   with the number that the import told
Make it again:       {commands}

rater.db       the runs with all that was recorded, without secrets
run-*.json     each run as one JSON document
facts-*.json   firmware, memory modules, promises, TLBs of its machine
checkup.txt    the verdicts of a checkup, where these are its runs
topology.xml   the machine as hwloc has it, where the bundle was made on the machine of the runs
page.html      the report
manifest.json  SHA-256 of each file
"""


def make_bundle(output: Output, run_words: tuple[str, ...], file: str | None, force: bool) -> int:
    """Write a zip of runs. Raises `RunError` rather than write a secret into it."""
    redactor = Redactor()
    words = run_words or ("last",)
    with scratch_folder() as folder:
        with open_store_for_reading(output, words) as store:
            found_runs = (number for word in words for number in store.find_all(word))
            numbers = list(dict.fromkeys(found_runs))
            path = _place_of(file, numbers, force=force)
            extract_runs(store.path, folder / DATABASE, numbers, redactor)
        members = _members(folder / DATABASE, numbers, path.name, redactor)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    write_output(path, data.getvalue())
    hidden = sorted(redactor.hidden)
    if output.json:
        print_json({"file": str(path), "runs": numbers, "members": [*members], "hidden": hidden})
    else:
        print(f"{path.resolve()}: {runs_text(numbers)}, {len(data.getvalue()) / 1e6:.1f} MB")
        if hidden:
            names = truncate_list(hidden, _MOST_NAMED)
            print(f"left out: {count(len(hidden), 'secret')} ({names})")
    return 0


def _members(
    database: Path, numbers: Sequence[int], file_name: str, redactor: Redactor
) -> dict[str, bytes]:
    """Return the files of a bundle, made of a database in which no secrets are."""
    vega = _library()
    with open_store(database) as store:
        runs = [store.load(number) for number in numbers]
        members = dict(_documents(store, runs, vega))
    members[DATABASE] = database.read_bytes()
    topology = discover_topology()
    if not any(refusal(run, topology) for run in runs):
        members["topology.xml"] = this_machine_xml().encode()
    if verdicts := [note for run in runs for note in run.notes if note.startswith(f"{TAG} ")]:
        members["checkup.txt"] = "".join(f"{verdict}\n" for verdict in verdicts).encode()
    members["AGAIN.txt"] = redactor.redact(_again(runs, file_name)).encode()
    # Vega holds whole alphabets, in which any word may be.
    texts = {name: data.replace(vega.encode(), b"") for name, data in members.items()}
    _refuse_secrets(texts, redactor)
    members[_MANIFEST] = _json(_manifest(runs, members))
    return members


def _place_of(file: str | None, numbers: Sequence[int], *, force: bool) -> Path:
    path = Path(file or f"rater-{'-'.join(map(str, numbers[:_MOST_NAMED]))}.zip")
    if path.exists() and not force:
        raise InputError(f"{path}: already exists; name another file, or --force writes over it")
    return path


def _library() -> str:
    """Return what draws the pictures of the page; `_NO_LIBRARY` if it is not there."""
    try:
        return library()
    except InputError as error:
        print_error(f"the bundle has no page: {error}")
        return _NO_LIBRARY


def _documents(store: Store, runs: Sequence[StoredRun], vega: str) -> Iterator[tuple[str, bytes]]:
    """Yield what people read of the runs; no page without what draws its pictures."""
    for run in runs:
        facts = hardware_document(
            f"the machine of run {run.head.run}", run.host, dict(run.settings)
        )
        yield f"run-{run.head.run}.json", _json(full_document(run))
        yield f"facts-{run.head.run}.json", _json(facts)
    if vega != _NO_LIBRARY:
        pages = [load_report_run(store, run) for run in runs[:_MOST_PAGES]]
        yield "page.html", report_html(pages, vega, None).encode()


def _json(document: object) -> bytes:
    return (json.dumps(document, indent=1) + "\n").encode()


def _again(runs: Sequence[StoredRun], file_name: str) -> str:
    commands = [run.head.command_line or f"rater rerun {run.head.run}" for run in runs]
    hosts = sorted({run.host.hostname or "a host without a name" for run in runs})
    return _AGAIN.format(
        version=__version__,
        runs=f"{count(len(runs), 'run')} of {', '.join(hosts)}.",
        file=file_name,
        commands="\n                     ".join(dict.fromkeys(commands)),
    )


def _manifest(runs: Sequence[StoredRun], members: Mapping[str, bytes]) -> dict[str, object]:
    return {
        "rater": 1,
        "version": __version__,
        "runs": [run.head.uuid for run in runs],
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }


def _refuse_secrets(members: Mapping[str, bytes], redactor: Redactor) -> None:
    """Raise `RunError` where a value that was left out of one text still is in a file.

    A program may have printed it, or a benchmark may be called so.
    """
    values = {value for value in redactor.values if len(value) >= _SHORTEST_SECRET}
    for name, content in members.items():
        found = [value for value in values if value.encode() in content]
        if found:
            raise RunError(
                f"{name} would hold {count(len(found), 'secret')} that rater left out elsewhere: "
                "the bundle is not written; `rater export` of single runs shows where"
            )
