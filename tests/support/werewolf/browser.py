"""A person at a real headless Chromium: opens pages, clicks, types, looks; screenshots are kept in runs/screenshots.

Everything here blocks: asynchronous tests call it in a thread, while servers run in their loop (``at_the_browser``).
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

SCREENSHOTS = Path("runs/screenshots")
LAPTOP, PHONE = (1400, 900), (390, 844)
_PATIENCE_SECONDS = 60.0
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars "
    "--lang=zh-CN --accept-lang=zh-CN"
)
Found = TypeVar("Found")


def start_driver() -> webdriver.Chrome:
    """A new browser with a profile of its own. Skips without Chromium, or fails where one is required."""
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        message = "no Chromium here: `apt-get install chromium chromium-driver`"
        if os.environ.get("REQUIRE_BROWSER"):
            pytest.fail(message)
        pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


class Person:
    """A person at a browser. Waiting polls until the condition holds, for a minute by default."""

    def __init__(self, driver: webdriver.Chrome):
        self.driver = driver
        self.resize(*LAPTOP)

    def resize(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def opens(self, url: str) -> None:
        self.driver.get(url)
        self.until(lambda: self.run("return document.body && document.body.dataset.ready"), f"{url} to be ready")

    def until(self, true: Callable[[], Found], what: str, seconds: float = _PATIENCE_SECONDS) -> Found:
        deadline = time.monotonic() + seconds
        while True:
            try:
                if found := true():
                    return found
            except StaleElementReferenceException:
                pass  # redrawn during the lookup
            if time.monotonic() > deadline:
                self.shot("failed")
                raise AssertionError(f"waited in vain for {what}; the page says:\n{self.text('body')[:1500]}")
            time.sleep(0.05)  # a page has no event for it

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def sees(self, css: str, text: str = "") -> WebElement:
        """The first visible element that has this text, once there is one."""

        def find():
            return next((e for e in self.all(css) if e.is_displayed() and text in e.text), None)

        return self.until(find, f"{css} {text!r}")

    def clicks(self, css: str, text: str = "") -> None:
        def click():
            element = next((e for e in self.all(css) if e.is_displayed() and text in e.text), None)
            if element is None:
                return False
            self.run("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True

        self.until(click, f"{css} {text!r} to click")

    def presses(self, keys: str) -> None:
        webdriver.ActionChains(self.driver).send_keys(keys).perform()

    def text(self, css: str) -> str:
        return "\n".join(element.text for element in self.all(css))

    def run(self, script: str, *arguments: object):
        return self.driver.execute_script(script, *arguments)

    def shot(self, name: str) -> Path:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def complaints(self) -> list[str]:
        """Errors in the browser's console: blocked scripts, missing files, exceptions."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return self.run("return document.scrollingElement.scrollWidth - document.documentElement.clientWidth")


async def at_the_browser(visit: Callable[..., Found], *people: Person) -> Found:
    """Let people do something while this loop goes on."""
    return await asyncio.to_thread(visit, *people)
