"""One headless Chromium for all tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By


class Browser:
    """A page in Chromium, asked in the words of a reader."""

    def __init__(self, driver: webdriver.Chrome, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def open(self, page: str, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Shows a page, from a file, as it would be mailed."""
        self.resize(width, height, dark=dark)
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self.driver.get(path.as_uri())
        # No pointer rests where the last page had one.
        self.point_away()

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """A window of so many pixels, by day or by night."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def run(self, code: str, *arguments: object) -> object:
        """What a piece of JavaScript returns."""
        return self.driver.execute_script(code, *arguments)

    def all(self, selector: str) -> list[webdriver.remote.webelement.WebElement]:
        """The elements that a selector finds."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> webdriver.remote.webelement.WebElement:
        """The element that a selector finds."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def point_at(self, selector: str) -> None:
        """Moves the pointer over an element."""
        webdriver.ActionChains(self.driver).move_to_element(self.one(selector)).perform()

    def point_away(self) -> None:
        """Moves the pointer to the corner of the window."""
        actions = webdriver.ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(0, 0)
        actions.perform()

    def type(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        """What the console says: errors, and whatever the page was not allowed to load."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that a selector finds."""
        return [element.text for element in self.all(selector)]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Debian's Chromium without a window, and without a network."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert binary, "chromium is missing: make test-packages"
    assert driver, "chromedriver is missing: make test-packages"
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        started.set_page_load_timeout(60)
        yield Browser(started, tmp_path_factory.mktemp("pages"))
    finally:
        started.quit()
