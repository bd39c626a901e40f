"""The browser for the tests of the pages, started once."""

import pytest

from tests.support.werewolf.browser import Person, start_driver


@pytest.fixture(scope="session")
def driver():
    driver = start_driver()
    yield driver
    driver.quit()


@pytest.fixture
def person(driver):
    """At a browser with nothing remembered."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    driver.get_log("browser")
    return Person(driver)
