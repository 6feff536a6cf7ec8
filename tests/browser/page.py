"""A page in one look: how it is opened, asked, typed at, drawn and printed."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.browser.devtools import Chromium

CHECKS = Path(__file__).with_name("checks.js")


@dataclass(frozen=True)
class Look:
    """How a reader sees a page: the window in CSS pixels, a phone or not, a dark scheme or not, on line or not."""

    name: str
    width: int
    height: int
    phone: bool = False
    dark: bool = False
    offline: bool = True

    @property
    def scheme(self) -> str:
        return "dark" if self.dark else "light"


DESKTOP = Look("desktop", 1280, 900, offline=False)
DESKTOP_DARK = Look("desktop-dark", 1280, 900, dark=True)
PHONE = Look("phone", 390, 844, phone=True)
PHONE_DARK = Look("phone-dark", 390, 844, phone=True, dark=True)
LOOKS = (DESKTOP, DESKTOP_DARK, PHONE, PHONE_DARK)


class Page:
    """A file opened in a tab of its own; use it in a ``with`` block."""

    def __init__(self, chromium: Chromium, path: Path, look: Look) -> None:
        self.url = path.resolve().as_uri()
        self.look = look
        self._chromium = chromium
        self._target = chromium.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = chromium.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        self._dress()
        answer = self.call("Page.navigate", url=self.url)
        assert not answer.get("errorText"), f"{path}: {answer['errorText']}"
        chromium.wait(self._session, "Page.loadEventFired")
        self.evaluate(f"globalThis.checks = {CHECKS.read_text(encoding='utf-8')}; 0")
        self.settle()

    def _dress(self) -> None:
        look = self.look
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=look.offline, latency=0, downloadThroughput=-1,
                  uploadThroughput=-1)  # fmt: skip
        self.call("Emulation.setDeviceMetricsOverride", width=look.width, height=look.height,
                  deviceScaleFactor=2 if look.phone else 1, mobile=look.phone)  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=look.phone)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        features = {"prefers-color-scheme": look.scheme, "prefers-reduced-motion": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in features.items()])

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self._chromium.call("Target.closeTarget", targetId=self._target)
        self._chromium.forget(self._session)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._chromium.call(method, self._session, **params)

    def events(self, method: str) -> list[dict[str, Any]]:
        """The parameters of each event of that name so far."""
        return [one["params"] for one in self._chromium.events(self._session) if one.get("method") == method]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression, awaited. Raises AssertionError with what it threw."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        thrown = answer.get("exceptionDetails")
        assert not thrown, f"{expression[:80]}: {thrown.get('exception', {}).get('description', thrown.get('text'))}"
        return answer["result"].get("value")

    def settle(self) -> None:
        """Until fonts are there and two frames are drawn."""
        frames = "requestAnimationFrame(() => requestAnimationFrame(done))"
        self.evaluate(f"document.fonts.ready.then(() => new Promise((done) => {frames})).then(() => 0)")

    def press(self, key: str) -> None:
        """One key down and up: Tab or Enter."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": text} if text and kind == "keyDown" else {}))  # fmt: skip

    def screenshot(self) -> bytes:
        """The whole page from top to bottom as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self) -> bytes:
        """As printed on A4, colours of backgrounds included."""
        answer = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        return base64.b64decode(answer["data"])
