"""What the viewer's tests do with a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 20.0

KEYS = {
    "Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014",
    "Down": "\ue015", "Home": "\ue011", "End": "\ue010", "PageDown": "\ue00f", "Space": "\ue00d",
}  # fmt: skip

# Turns out of sight are not laid out, and what is not laid out has no innerText.
_LAY_OUT = "for (const one of document.querySelectorAll('.turn')) one.style.contentVisibility = 'visible';"

# Texts whose contrast with what is behind them is below 4.5, as WCAG 2 defines it. Letters on shapes of a board are
# left out: what is behind them is no background of an element.
_CONTRAST = """
const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const parse = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const backdrop = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
    if (a === 1) return [r, g, b];
  }
  return [255, 255, 255];
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || ["SCRIPT", "NOSCRIPT", "TITLE", "title", "OPTION"].includes(element.tagName)) continue;
  if (!element.checkVisibility() || element.closest(".hidden, .skip") || element.matches(".grid .on, .grid .white, .grid .black")) continue;
  const style = getComputedStyle(element);
  const front = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
  const [a, b] = [luminance(front), luminance(backdrop(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className} ${walker.currentNode.textContent.slice(0, 30)}`);
}
return found;
"""  # noqa: E501


class Browser:
    """A headless Chromium.

    Args:
        program: Path of Chromium.
        driver: Path of its WebDriver.
    """

    def __init__(self, program: str, driver: str) -> None:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = program
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.driver.set_script_timeout(TIMEOUT_S)

    def quit(self) -> None:
        self.driver.quit()

    def reset(self) -> None:
        self.driver.get("about:blank")
        self.messages()
        self.look()

    def look(self, width: int = 1280, height: int = 800, *, dark: bool = False) -> None:
        """Set the size of the page and the preferred colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # no colours between two colours
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})

    def open(self, address: str, hash_: str = "") -> None:
        """Open a page afresh and wait until it is drawn."""
        self.driver.get("about:blank")
        self.driver.get(f"{address}#{hash_}")
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def js(self, code: str, *arguments: Any) -> Any:
        return self.driver.execute_script(code, *arguments)

    def wait(self, condition: str, *arguments: Any) -> None:
        """Wait until a JavaScript expression is true."""
        self.until(lambda: bool(self.js(f"return Boolean({condition})", *arguments)), condition)

    def until(self, condition: Callable[[], bool], what: str = "") -> None:
        until = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > until:
                raise AssertionError(f"not within {TIMEOUT_S} s: {what}\n{self.text('body')[:2000]}")
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys on whatever has the focus. Names of KEYS are single keys, anything else is typed."""
        from selenium.webdriver.common.action_chains import ActionChains

        chain = ActionChains(self.driver)
        for key in keys:
            chain.send_keys(KEYS.get(key, key))
        chain.perform()

    def click(self, css: str, text: str = "") -> None:
        """Click the first visible element with a text."""
        element = self.js(
            "return [...document.querySelectorAll(arguments[0])]"
            ".find((one) => one.checkVisibility() && one.textContent.includes(arguments[1]))",
            css,
            text,
        )
        assert element is not None, f"no {css} with {text!r} in:\n{self.text('body')[:2000]}"
        element.click()

    def fill(self, css: str, value: str) -> None:
        """Give a field a value as a person would."""
        self.js(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input', { bubbles: true }))",
            css,
            value,
        )

    def text(self, css: str) -> str:
        return str(self.js(f"{_LAY_OUT} return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def texts(self, css: str) -> list[str]:
        every = "return [...document.querySelectorAll(arguments[0])].map((one) => one.innerText)"
        return list(self.js(f"{_LAY_OUT} {every}", css))

    def count(self, css: str) -> int:
        return int(self.js("return document.querySelectorAll(arguments[0]).length", css))

    def focused(self) -> str:
        """Tag and class of what has the focus."""
        return str(
            self.js("const one = document.activeElement; return `${one.tagName.toLowerCase()}.${one.className}`")
        )

    def hash(self) -> dict[str, str]:
        return dict(self.js("return Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"))

    def messages(self) -> list[str]:
        """What the console said since the last call: errors, and what the content security policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def low_contrast(self) -> list[str]:
        return list(self.js(_CONTRAST))

    def nameless(self) -> list[str]:
        """Roles of what can be operated, or is a picture, but has no accessible name."""
        self.driver.execute_cdp_cmd("Accessibility.enable", {})
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        wanted = {
            "button", "link", "textbox", "searchbox", "spinbutton", "combobox", "checkbox", "listbox", "option", "tree",
            "treeitem", "image", "img", "dialog", "heading", "region", "figure", "navigation", "toolbar",
        }  # fmt: skip
        found = []
        for node in nodes:
            role = node.get("role", {}).get("value")
            if not node.get("ignored") and role in wanted and not node.get("name", {}).get("value", "").strip():
                found.append(f"{role} {node.get('description', {}).get('value', '')}")
        return found
