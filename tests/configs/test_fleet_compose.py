"""The Compose recipe: no reference to what is not there; a runner has the time to finish its games."""

import re

from store.auth import TOKEN_FILE_VARIABLE
from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET, PLACED, longest_game


def test_services_name_secrets_volumes_and_services_that_are_there():
    compose = recipes.compose()
    services = compose["services"]
    for name, service in services.items():
        secrets = service.get("secrets", [])
        assert set(secrets) <= set(compose["secrets"]), name
        if TOKEN_FILE_VARIABLE in service.get("environment", {}):
            assert service["environment"][TOKEN_FILE_VARIABLE] in {f"/run/secrets/{secret}" for secret in secrets}
        for volume in service.get("volumes", []):
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                assert (FLEET / source).resolve() == PLACED[target] and mode == ["ro"], volume
            else:
                assert source in compose["volumes"] or source in recipes.GIVEN.values(), volume
        assert set(service.get("depends_on", {})) <= set(services), name
        for port in service.get("ports", []):
            assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), "by default nothing is open to the network"
        if "build" in service:
            assert (FLEET / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_a_runner_has_the_time_to_finish_its_games():
    grace = recipes.compose()["services"]["runner"]["stop_grace_period"]
    units = {"h": 3600, "m": 60, "s": 1}
    assert sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", grace)) >= longest_game()
