"""Events on their way to the database and the screen, and what happens when the disk is full."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from rater.cli import main
from rater.errors import RunError
from rater.record.events import CopyEnded, Event, Noted
from rater.store.connection import StoreFullError
from rater.store.store import Store
from rater.workflow.run.session import Recorder, Screen


def texts(events: tuple[Event, ...]) -> list[str]:
    return [event.text for event in events if isinstance(event, Noted)]


def test_every_event_is_appended_once_and_in_order() -> None:
    stored: list[str] = []
    recorder = Recorder(lambda *events: stored.extend(texts(events)), pytest.fail)
    recorder.start()
    for number in range(1000):
        recorder.put(Noted(str(number)))
    recorder.close()
    assert stored == [str(number) for number in range(1000)]
    assert recorder.unsaved == []


def test_what_could_not_be_stored_is_tried_again_at_the_end() -> None:
    stored: list[str] = []
    full = threading.Event()
    full.set()
    said: list[str] = []

    def append(*events: Event) -> None:
        if full.is_set():
            raise RunError("the disk is full")
        stored.extend(texts(events))

    def trouble(reason: str) -> None:
        said.append(reason)
        full.clear()  # the run stops, its directories go, and there is room again

    recorder = Recorder(append, trouble)
    recorder.start()
    recorder.put(Noted("first"))
    recorder.put(Noted("second"))
    recorder.close()
    assert said == ["the disk is full"]
    assert stored == ["first", "second"]
    assert recorder.unsaved == []


def test_a_full_disk_fails_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    append = Store.append

    def full_after_the_head(self: Store, run_id: int, *events: Event) -> None:
        if any(isinstance(event, CopyEnded) for event in events):
            raise StoreFullError("the disk is full")
        append(self, run_id, *events)

    monkeypatch.setattr(Store, "append", full_after_the_head)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--quiet", "--copies", "2", "--", "true"]) == 1
    said = capsys.readouterr().err
    assert "the disk is full" in said
    [rescue] = tmp_path.glob("rater-*.jsonl")
    assert str(rescue) in said
    ended = [json.loads(line) for line in rescue.read_text().splitlines()]
    assert {one["copy"] for one in ended if one["event"] == "CopyEnded"} == {0, 1}


class Scribe:
    """A view that notes what it is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.drawn = threading.Event()

    def event(self, event: Event) -> None:
        self.seen.extend(texts((event,)))

    def tick(self, now_ns: int) -> float:
        self.drawn.set()
        return 60.0

    def pause(self) -> None:
        self.seen.append("pause")

    def resume(self) -> None:
        self.seen.append("resume")

    def stop(self) -> None:
        self.seen.append("stop")


def test_the_screen_shows_everything_before_it_stops() -> None:
    scribe = Scribe()
    screen = Screen(scribe)
    screen.start()
    assert scribe.drawn.wait(10)
    screen.put(Noted("a"))
    screen.close()
    assert scribe.seen == ["a", "stop"]


def test_nothing_is_drawn_between_pause_and_resume() -> None:
    scribe = Scribe()
    screen = Screen(scribe)
    screen.start()
    assert scribe.drawn.wait(10)
    screen.pause()
    scribe.drawn.clear()
    screen.put(Noted("while stopped"))
    assert not scribe.drawn.wait(0.4)
    screen.resume()
    assert scribe.drawn.wait(10)
    screen.close()
    assert scribe.seen == ["pause", "resume", "while stopped", "stop"]
