"""`rater selftest` many times in a row: how often all that is planted is named, nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

from benchmarks.bench import Bench

TIMES = 20


def campaign(bench: Bench, times: int = TIMES) -> None:
    """Count right answers over `times` self-tests, each with a seed of its own."""
    right, refused, again = 0, 0, 0
    verdicts: dict[str, Counter[str]] = {}
    found: Counter[str] = Counter()
    for seed in range(1, times + 1):
        done = subprocess.run(
            [sys.executable, "-m", "rater", "selftest", "--json", "--seed", str(seed)],
            env=bench.environment | {"TMPDIR": str(bench.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            raise SystemExit(f"rater selftest failed:\n{done.stderr}")
        document = json.loads(done.stdout)
        load = f"load {os.getloadavg()[0]:.1f}"
        if "refused" in document:
            refused += 1
            print(f"seed {seed:2}: {document['refused']} ({load})", flush=True)
            continue
        right += document["right"]
        for plant in document["plants"]:
            verdicts.setdefault(plant["kind"], Counter())[plant["verdict"]] += 1
            if plant["verdict"] != "right":
                found[f"{plant['kind']}, {plant['place']}: {plant['verdict']}"] += 1
        noise = f"copies differ by {document['spread']:.1%} with nothing planted"
        noise += f", {document['made_again']} runs made once more"
        again += document["made_again"]
        print(f"seed {seed:2}: {document['summary']}; {noise} ({load})", flush=True)
    print(f"{right} of {times} right, {refused} refused as too noisy, {again} runs made once more")
    for kind, counts in verdicts.items():
        print(f"  {kind:15} {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    for what, n in found.most_common():
        print(f"  {n} x {what}")
