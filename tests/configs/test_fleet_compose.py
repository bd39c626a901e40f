"""The Compose recipe: no key that Compose does not know, no reference to what is not there."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

from store.auth import TOKEN_FILE_VARIABLE
from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET, PLACED, longest_game


def seconds(text):
    """Of Compose's durations, such as 10m30s."""
    assert re.fullmatch(r"(\d+[hms])+", text), text
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


class Strict(BaseModel):
    """The part of the Compose specification that the recipe uses; any other key is a slip."""

    model_config = ConfigDict(extra="forbid")


class Build(Strict):
    context: str
    dockerfile: str
    target: Literal["light", "training"]


class Healthcheck(Strict):
    test: list[str]
    interval: str
    timeout: str
    retries: int
    start_period: str = "0s"


class Dependency(Strict):
    condition: Literal["service_healthy"]
    restart: bool = False


class Device(Strict):
    driver: Literal["nvidia"]
    count: int
    capabilities: list[Literal["gpu"]]


class Reservations(Strict):
    devices: list[Device]


class Resources(Strict):
    reservations: Reservations


class Deploy(Strict):
    replicas: int = 1
    resources: Resources | None = None


class Service(Strict):
    image: str
    command: list[str]
    healthcheck: Healthcheck
    restart: Literal["unless-stopped", "on-failure:20"]
    security_opt: list[Literal["no-new-privileges:true"]]
    cap_drop: list[Literal["ALL"]]
    build: Build | None = None
    environment: dict[str, str] = {}
    secrets: list[str] = []
    volumes: list[str] = []
    ports: list[str] = []
    network_mode: str | None = None
    depends_on: dict[str, Dependency] = {}
    deploy: Deploy = Deploy()
    shm_size: str | None = None
    stop_grace_period: str = "10s"
    mem_limit: str | None = None


class SecretFile(Strict):
    file: str


class Compose(Strict):
    name: str
    services: dict[str, Service]
    secrets: dict[str, SecretFile]
    volumes: dict[str, None]


def test_compose():
    compose = Compose.model_validate(recipes.compose())
    assert compose.secrets["hub_token"].file == "./hub_token"
    for name, service in compose.services.items():
        for secret in service.secrets:
            assert secret in compose.secrets, name
        if TOKEN_FILE_VARIABLE in service.environment:
            assert service.environment[TOKEN_FILE_VARIABLE] in {f"/run/secrets/{secret}" for secret in service.secrets}
        for volume in service.volumes:
            source, target, *mode = volume.split(":")
            if source.startswith("."):
                assert (FLEET / source).resolve() == PLACED[target] and mode == ["ro"], volume
            else:
                assert source in compose.volumes or source in recipes.GIVEN.values(), volume
        for other in service.depends_on:
            assert other in compose.services, name
        if service.network_mode is not None:
            assert service.network_mode.removeprefix("service:") in service.depends_on and not service.ports, name
        for port in service.ports:
            assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), "by default nothing is open to the network"
        if service.build is not None:
            assert (FLEET / service.build.context / service.build.dockerfile) == (
                FLEET / "../.." / service.build.dockerfile
            )
            assert (FLEET / service.build.context / service.build.dockerfile).is_file()
    hub, runner, algorithm = (compose.services[name] for name in ("hub", "runner", "algorithm"))
    assert seconds(runner.stop_grace_period) >= longest_game()
    assert "hub:/data" in hub.volumes and "--db=/data/hub.sqlite3" in hub.command
    assert "runs:/runs" in algorithm.volumes and "--set=run.dir=/runs" in algorithm.command
    assert algorithm.restart == "on-failure:20", "a finished run, or one that cannot begin, would begin again and again"
