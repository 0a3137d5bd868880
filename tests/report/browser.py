"""A real headless Chromium for tests, spoken to in its own protocol over a pipe.

    with Chromium() as browser:
        page = browser.open(path, width=1200)
        page.evaluate("document.title")

Nothing but the browser itself is needed: no driver, no port, no network.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_TIMEOUT_S = 120.0


def chromium_path() -> str | None:
    """The browser on this machine, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Chromium:
    """One browser process with an empty profile."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="rel-batch-chromium-")
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()

        def as_three_and_four() -> None:
            # Duplicated first, in case a pipe already is number 3 or 4.
            commands, answers = os.dup(read_commands), os.dup(write_answers)
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [chromium_path() or "chromium", *FLAGS, f"--user-data-dir={self._profile}"],
            preexec_fn=as_three_and_four,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._number = 0
        self._unread = b""
        self.events: list[dict[str, Any]] = []

    def open(self, path: Path, *, fragment: str = "", width: int = 1200, height: int = 900) -> Page:
        """A new page, loaded, with the report's script done."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = Page(self, session["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call("Page.navigate", {"url": path.resolve().as_uri() + fragment})
        page.wait_for("document.documentElement?.dataset.ready === 'yes'")
        return page

    def call(
        self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters or {}}
        if session:
            command["sessionId"] = session
        sent = json.dumps(command).encode() + b"\0"
        while sent:
            sent = sent[os.write(self._commands, sent) :]
        while True:
            message = self._read()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            received = os.read(self._answers, 1 << 20) if ready else b""
            if not received:
                raise TimeoutError("the browser does not answer")
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._commands)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        shutil.rmtree(self._profile, ignore_errors=True)


class Page:
    """One tab."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.call(method, parameters, self._session)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited; raises where it throws."""
        found = self.call(
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True},
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not self.evaluate(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def press(self, key: str) -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            event: dict[str, Any] = {"type": kind, "key": key, "windowsVirtualKeyCode": code}
            if kind == "keyDown" and text:
                event["text"] = text
            self.call("Input.dispatchKeyEvent", event)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", {"features": features})

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions, so far."""
        self.evaluate("0")
        told: list[str] = []
        for event in self._browser.events:
            details = event.get("params", {})
            if event.get("sessionId") != self._session:
                continue
            if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                told.append(json.dumps(details))
            elif event["method"] == "Runtime.consoleAPICalled" and details["type"] != "log":
                told.append(json.dumps(details["args"]))
        return told

    def requested(self) -> list[str]:
        """The addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self._browser.events
            if event.get("method") == "Network.requestWillBeSent"
            and event.get("sessionId") == self._session
        ]

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", {"captureBeyondViewport": True})
        return base64.b64decode(shot["data"])

    def print(self) -> bytes:
        """The page as PDF, as a printer gets it."""
        return base64.b64decode(self.call("Page.printToPDF")["data"])
