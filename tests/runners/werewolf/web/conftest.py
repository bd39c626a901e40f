"""Browsers for the tests of the pages: started once, and handed out one for each person."""

import pytest

from tests.support.werewolf.browser import Person, start_driver


@pytest.fixture(scope="session")
def drivers():
    started = []
    yield started
    for driver in started:
        driver.quit()


@pytest.fixture
def people(drivers):
    """``people(2)``: that many people, each at a browser of its own, with nothing remembered."""

    def come(count):
        while len(drivers) < count:
            drivers.append(start_driver())
        for driver in drivers[:count]:
            driver.get("about:blank")
            driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
            driver.get_log("browser")
        return [Person(driver) for driver in drivers[:count]]

    return come


@pytest.fixture
def person(people):
    return people(1)[0]
