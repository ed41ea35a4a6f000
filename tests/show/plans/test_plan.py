"""What a dry run says of windows, threads and rests."""

import io
from typing import Any

import pytest

from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.plan.schedule import Order, Window, make_plan, order_table
from rater.show.plans.plan import Estimates, PlanView, plan_document, print_plan
from tests.support.small_machines import ONE

S = 1_000_000_000


def view(copies: int = 2, **options: Any) -> PlanView:
    extra = {key: options.pop(key) for key in ("threads", "cooldown_s", "until_idle_s")
             if key in options}  # fmt: skip
    plan = make_plan(["lu", "gups"], copies, **options)
    return PlanView(
        suite="mini",
        size="test",
        tune="base",
        plan=plan,
        placements=tuple(
            Placement(c, (c,), c, c, 0, 0, 0, MemoryPolicy.LOCAL, ()) for c in range(copies)
        ),
        layout="balanced",
        topology=ONE,
        shares=(),
        orders=tuple(order_table(plan)),
        expected_s=140.0,
        estimates=Estimates(10**9, "lu", 8 * 10**9, 0, 10**10),
        warnings=(),
        refusals=(),
        **extra,
    )


def shown(view: PlanView, width: int = 80) -> str:
    out = io.StringIO()
    print_plan(view, out, width)
    return out.getvalue()


WINDOW = Window(6 * S, 60 * S)


def test_windows_are_told_with_their_warm_up() -> None:
    text = shown(view(mode="steady", window=WINDOW))
    assert (
        "window   2 windows of 60 s, each after 6.0 s of warm-up; copies repeat until\n"
        "         every run that began before its end has ended\n"
    ) in text
    assert "how      steady, 2 copies, 1 iteration\n" in text
    assert "time     about 2 min, the windows and the runs that cross their ends\n" in text


def test_a_steady_mix_is_one_window_an_iteration_in_rotated_order() -> None:
    text = shown(view(mode="steady", order=Order.ROTATED, window=WINDOW, iterations=3))
    assert "how      steady in rotated order, 2 copies, 3 iterations" in text
    assert "3 windows of 60 s" in text
    assert "order    copies with the same queue, one round:" in text


@pytest.mark.parametrize(
    ("threads", "line"),
    [
        ((("lu", 4), ("gups", 4)), "threads  4 CPUs for each copy\n"),
        ((("lu", 4), ("gups", 1)), "threads  CPUs that a copy uses: lu 4, gups 1\n"),
        ((("lu", 1), ("gups", 1)), ""),
        ((), ""),
    ],
)
def test_threads_are_told_where_there_are_several(
    threads: tuple[tuple[str, int], ...], line: str
) -> None:
    text = shown(view(threads=threads))
    assert line in text
    assert ("threads" in text) is bool(line)


def test_rests_are_told_where_there_is_something_to_rest_between() -> None:
    text = " ".join(shown(view(cooldown_s=5.0, until_idle_s=300.0)).split())
    assert (
        "between phases: 5.0 s of rest, then at most 5 min until the machine is idle again" in text
    )
    assert "between" not in shown(view())
    one = view(mode="rotated", order=Order.ROTATED, cooldown_s=5.0)
    assert "between" not in shown(one)


def test_the_document_of_a_plan_has_them_too() -> None:
    document = plan_document(
        view(mode="steady", window=WINDOW, threads=(("lu", 4),), cooldown_s=5.0)
    )
    assert (document["warmup_s"], document["window_s"], document["phases"]) == (6.0, 60.0, 2)
    assert (document["threads"], document["cooldown_s"]) == ({"lu": 4}, 5.0)
    assert (document["order"], document["until_idle_s"]) == ("homogeneous", None)
    plain = plan_document(view())
    assert (plain["warmup_s"], plain["window_s"]) == (None, None)
