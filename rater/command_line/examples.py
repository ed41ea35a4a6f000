"""What stands at the end of each help: command lines to copy. A test parses every one of them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "rater": (
        "rater run -- ./mybench --flag   # your own program, a copy on each PU",
        "rater run mini --copies cores   # a built-in suite, a copy on each core",
    ),
    "rater run": (
        "rater run -- ./mybench --flag",
        "rater run mini --copies cores --iterations 3",
        "rater run --copies 128 --mode staggered --stagger 6s -- ./mybench",
        "rater run mini/lu --mode steady --warmup 10s --window 1m",
        "rater run --resume last         # what is missing of an interrupted run",
    ),
    "rater plan": (
        "rater plan mini --copies 16 --layout scatter",
        "rater plan --topology 'pack:2 numa:4 core:8 pu:2' --copies pus -- ./mybench",
    ),
    "rater rerun": ("rater rerun 7", "rater rerun last --tag fan=fixed"),
    "rater list": (
        "rater list                      # the latest runs",
        "rater list --since 7d --host 'n1*' --tag thp=always",
        "rater list --limit 0 --json     # all runs, for programs",
    ),
    "rater show": (
        "rater show last",
        "rater show 7 --copies           # every copy's time over the median copy",
        "rater show 7 --proof            # where memory and copies really were",
    ),
    "rater export": (
        "rater export 7 --format csv > run7.csv",
        "rater export last               # as `rater import` reads it",
    ),
    "rater import": (
        "rater import times.json more.json",
        "rater import other-machine.db   # all its runs, as `rater merge` does",
        "rater import spec result/CPU2017.*.rsf",
    ),
    "rater pages": (
        "rater pages mini/gups --size test",
        "rater pages --budget 20 -- ./program input",
    ),
    "rater merge": (
        "rater merge all.db n1.db n2.db n3.db",
        "rater merge all.db n1.db --restore   # what was removed from all.db, too",
    ),
    "rater history": ("rater history n017", "rater history mini/lu"),
    "rater rm": ("rater rm 7 8", "rater rm tag:trial=yes --yes", "rater rm sweep:3"),
    "rater divots": (
        "rater divots                    # of the last run",
        "rater divots 12 13 14           # what comes back, what moves about",
        "rater divots 12 --fail-on slow-lgroup:2%",
        "rater divots --confirm 12       # run the slow place against another like it",
    ),
    "rater plot": ("rater plot last", "rater plot 7 --benchmark lu", "rater plot 7 -o run7.svg"),
    "rater report": ("rater report last -o run.html",),
    "rater selftest": ("rater selftest --quick", "rater selftest --simulate --topology nodes=4x16"),
    "rater compare": (
        "rater compare 7 8",
        "rater compare tag:build=old tag:build=new",
        "rater compare sweep:last",
    ),
    "rater scale": ("rater scale sweep:last",),
    "rater sweep": (
        "rater sweep mini --axis copies=1,2,4,8 --rounds 3",
        "rater sweep --axis thp=always,never --rounds 5 -- ./mybench",
        "rater sweep mini --axis alloc=system,jemalloc --until 1% --rounds 20",
    ),
    "rater model": (
        "rater model last                # what large pages, or any axis of numbers, do",
        "rater model 3 --x walks --y cycles -o fits.svg",
    ),
    "rater lab": (
        "rater lab pages --quick         # about a minute, to see that all works",
        "rater lab pages --copies 1 --counters cpi -o pages.html",
        "rater lab pages --layouts 0%,spread:50%,100% -- ./mybench",
        "rater lab pages --show last     # of a sweep that is stored",
    ),
    "rater settings": ("rater settings", "rater settings thp"),
    "rater restore": ("rater restore",),
    "rater suites": ("rater suites", "rater suites show mini", "rater suites new nightly"),
    "rater layouts": ("rater layouts", "rater layouts show balanced"),
    "rater topo": (
        "rater topo",
        "rater topo machine.xml",
        "rater topo 'pack:2 numa:4 core:8 pu:2'",
    ),
    "rater doctor": (
        "rater doctor",
        "rater doctor -v governor THP",
        "rater doctor --fix -- make bench",
    ),
    "rater counters": ("rater counters", "rater counters cpi numa"),
    "rater lint-bind": (
        "rater lint-bind my.cfg",
        "rater lint-bind my.cfg --topology nodes=2x20 --fix > binds.inc",
    ),
    "rater fleet": (
        "rater fleet run mini --nodes n[001-128] --minutes 30 --wait",
        "rater fleet run --nodes n1,n2 --parallel 1 -- ./mybench --flag",
        "rater fleet status              # of the last fleet",
        "rater fleet wait 3              # goes on with it, and collects",
        "rater fleet retry 3 --nodes n7",
    ),
    "rater completion": (
        "rater completion bash > ~/.local/share/bash-completion/completions/rater",
        "rater completion fish > ~/.config/fish/completions/rater.fish",
    ),
}
