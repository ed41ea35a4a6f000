"""A headless Chromium for tests, driven by real mouse and keyboard events.

Over the DevTools protocol on a pipe (`--remote-debugging-pipe`): JSON messages that end
with NUL on descriptors 3 and 4. No driver, no port, no package; and no network: every
name resolves to nothing.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_PATIENCE_S = 60.0
_KEYS = {"Enter": 13, "Escape": 27, "Home": 36, "End": 35, "Tab": 9, " ": 32} | {
    f"Arrow{name}": 37 + place for place, name in enumerate(("Left", "Up", "Right", "Down"))
}


def chromium() -> str | None:
    """Return the path of Chromium, None if it is not installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab of one Chromium; use as a context."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="rater-browser-", ignore_cleanup_errors=True
        )
        to_read, to_us = os.pipe()
        from_us, to_write = os.pipe()
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        # The shell puts the pipes on 3 and 4 whatever their numbers are here, and goes away.
        words = [program, *_OPTIONS, *root, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$@" 3</dev/fd/{from_us} 4>/dev/fd/{to_us}', "sh", *words],
            pass_fds=(from_us, to_us),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(from_us)
        os.close(to_us)
        self._in, self._out = to_write, to_read
        self._buffer = b""
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._in)  # it ends with its pipe
        os.close(self._out)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    # -- the protocol --------------------------------------------------------------------

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._event(answer)

    def _event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event.get("method") == "Page.javascriptDialogOpening":  # else the page would wait
            message = {"id": next(self._numbers), "method": "Page.handleJavaScriptDialog"}
            message |= {"params": {"accept": True}, "sessionId": self._session}
            os.write(self._in, json.dumps(message).encode() + b"\0")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], _PATIENCE_S)
            piece = os.read(self._out, 1 << 20) if ready else b""
            assert piece, f"chromium says nothing (status {self._process.poll()})"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    # -- what a reader does --------------------------------------------------------------

    def screen(self, width: int, height: int, *, dark: bool = False, media: str = "") -> None:
        """Set the size of the window in CSS pixels, and the colours and medium preferred."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, page: Path) -> None:
        """Open a file and wait until its scripts have run."""
        url = page.resolve().as_uri()
        self.call("Page.navigate", url=url)
        ready = f"location.href === {json.dumps(url)} && document.readyState === 'complete'"
        self.wait(lambda: self.js(ready), "the page is not loaded")

    def js(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def frame(self) -> None:
        """Wait until what changed has been laid out and drawn."""
        self.js("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")

    def wait(self, done: Callable[[], object], condition: str) -> None:
        """Wait until something is so, with frames between the looks."""
        end = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < end and not self.said(), (condition, self.said())
            self.frame()

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Scroll to an element; return its left, top, width and height in the window."""
        corners = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "if (!e) return null; e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        assert corners is not None, f"there is no {selector}"
        return tuple(corners)

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.frame()

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        x, y, width, height = self.box(selector)
        self.click_at(x + width / 2, y + height / 2)

    def click_at(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.frame()

    def key(self, *names: str) -> None:
        """Press keys one after the other."""
        for name in names:
            code = _KEYS[name]
            more = {"text": "\r"} if name == "Enter" else {"text": " "} if name == " " else {}
            common = {"key": name, "code": name, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", **common, **more)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.frame()

    def type(self, text: str) -> None:
        """Type text into what has the focus."""
        self.call("Input.insertText", text=text)
        self.frame()

    def picture(self, *, whole: bool = False) -> bytes:
        """Return the window, or the whole page, as a PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """Return the printed page."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def said(self) -> list[str]:
        """Return what went wrong: errors and warnings of scripts, dialogs, and requests."""
        messages = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                messages.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                messages.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                messages.append(f"console: {params['args']}")
            elif method == "Page.javascriptDialogOpening":
                messages.append(f"dialog: {params['message']}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("file:", "data:", "about:", "blob:")):
                    messages.append(f"request: {url}")
        return messages
