"""The fleet's two hubs over PostgreSQL: what is laid over the recipes fits them, and no password stands in it."""

import pytest
import yaml

from store.__main__ import _serve_parser
from store.hub.database.postgres_url import PostgresUrl
from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET, HUB_PORT, ROOT

FOLDER = FLEET / "postgres"


class ComposeLoader(yaml.SafeLoader):
    """Knows `!reset` and `!override`."""


for tag in ("!reset", "!override"):
    ComposeLoader.add_multi_constructor(
        tag,
        lambda loader, _, node: (
            loader.construct_sequence(node)
            if isinstance(node, yaml.SequenceNode)
            else loader.construct_mapping(node)
            if isinstance(node, yaml.MappingNode)
            else None
        ),
    )


def compose():
    return yaml.load((FOLDER / "compose.yaml").read_text(), ComposeLoader)


def patched_hub():
    """The Deployment of the hub after the patch."""
    (hub,) = [
        item
        for item in recipes.kubernetes()
        if item["kind"] == "Deployment" and item["metadata"]["name"] == "werewolf-hub"
    ]
    for change in yaml.safe_load((FOLDER / "hub.yaml").read_text()):
        *way, last = [int(part) if part.isdecimal() else part for part in change["path"].split("/")[1:]]
        place = hub
        for part in way:
            place = place[part]
        match change["op"], last:
            case "add", "-":
                place.append(change["value"])
            case "add", name:
                assert name not in place
                place[name] = change["value"]
            case "replace", name:
                assert name in place
                place[name] = change["value"]
            case "remove", number:
                assert place.pop(number)["name"] == "data"
    return hub


def served(command):
    assert command[:3] == ["python", "-m", "store"]
    return _serve_parser().parse_args(command[3:])


def test_both_start_two_hubs_over_one_database():
    process = compose()["services"]["hub-process"]
    deployment = patched_hub()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for command, replicas in (
        (process["command"], process["deploy"]["replicas"]),
        (container["args"], deployment["spec"]["replicas"]),
    ):
        options = served(command)
        assert replicas == 2 and options.port == HUB_PORT and isinstance(options.db, PostgresUrl)
        assert ":" not in str(options.db).partition("//")[2].partition("@")[0], "a password on a command line"
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert "httpGet" in container["readinessProbe"] and "tcpSocket" in container["livenessProbe"]
    spec = deployment["spec"]["template"]["spec"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}


def test_what_compose_is_given_fits():
    over, base = compose(), recipes.compose()
    services, secrets = over["services"], {**base["secrets"], **over["secrets"]}
    assert set(services) - set(base["services"]) == {"hub-process", "postgres"}
    for name, service in services.items():
        assert set(service.get("secrets") or []) <= set(secrets), name
        assert set(service.get("depends_on", {})) <= set(services), name
    database = PostgresUrl(services["hub-process"]["command"][-1].removeprefix("--db="))
    environment = services["postgres"]["environment"]
    assert database.user == environment["POSTGRES_USER"] and str(database).endswith(f"/{environment['POSTGRES_DB']}")
    assert str(database).partition("@")[2].partition("/")[0] in services
    ignored = (ROOT / ".gitignore").read_text().split()
    for name in ("password", "pgpass"):
        assert f"configs/fleet/postgres/{name}" in ignored
        assert f"configs/fleet/postgres/{name}" in (FLEET / "Dockerfile.dockerignore").read_text().split()


def test_the_proxy_leads_to_the_hubs():
    """``tests/end_to_end/test_fleet_replicas.py`` has a real one do it."""
    text = (FOLDER / "hub_proxy.cfg").read_text()
    assert f'bind "${{HUB_BIND-:{HUB_PORT}}}"' in text and f'"${{HUBS-hub-process:{HUB_PORT}}}"' in text
    hub = compose()["services"]["hub"]
    assert hub["volumes"] == ["./postgres/hub_proxy.cfg:/etc/hub_proxy.cfg:ro"]
    assert hub["command"][-1] == "/etc/hub_proxy.cfg"


@pytest.mark.parametrize("file", ["kustomization.yaml", "disruption.yaml"])
def test_kubernetes_names_what_is_there(file):
    item = yaml.safe_load((FOLDER / file).read_text())
    if file == "disruption.yaml":
        assert item["spec"]["selector"]["matchLabels"] == patched_hub()["spec"]["selector"]["matchLabels"]
        return
    assert item["kind"] == "Component"
    named = [*item["resources"], *(patch["path"] for patch in item["patches"] if "path" in patch)]
    assert all((FOLDER / name).is_file() for name in named)
    claims = [yaml.safe_load(patch["patch"]) for patch in item["patches"] if "patch" in patch]
    assert [claim["metadata"]["name"] for claim in claims] == ["werewolf-hub"]
