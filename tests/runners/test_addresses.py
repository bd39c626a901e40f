"""Which addresses a runner calls: its hub's machine, private networks, and what it was given."""

import socket

import pytest

from runners.addresses import Addresses
from runners.errors import AddressRefused, CannotPlay, EndpointUnavailable
from runners.policy.client import PolicyClient
from runners.werewolf.api.models import ApiModel
from store.endpoints import ServedPolicy
from store.players import ChatEndpoint
from store.schema import PolicyResources

HERE, ELSEWHERE = "http://127.0.0.1:4747", "http://10.0.0.5:4747"


def resources_at(url, **changes):
    return PolicyResources(run_name="run", version=0, endpoints=(url,), model="policy", **changes)


@pytest.mark.parametrize(
    ("hub", "url", "allowed"),
    [
        (HERE, "http://127.0.0.1:8000/v1", True),
        (HERE, "http://192.168.7.7:8000/v1", True),
        (ELSEWHERE, "http://10.0.0.6:8000/v1", True),
        (ELSEWHERE, "http://[fd00::7]:8000/v1", True),
        ("http://8.8.8.8:4747", "http://8.8.8.8:8000/v1", True),
        (ELSEWHERE, "http://127.0.0.1:8000/v1", False),
        (ELSEWHERE, "http://0.0.0.0:8000/v1", False),
        (ELSEWHERE, "http://[::ffff:127.0.0.1]:8000/v1", False),
        (HERE, "http://169.254.169.254/v1", False),
        (HERE, "http://[::ffff:169.254.169.254]/v1", False),
        (HERE, "http://8.8.8.8/v1", False),
        (HERE, "http://[fd00:ec2::254]/v1", False),
    ],
)
async def test_machines_of_the_hub_and_private_networks_are_called_and_none_elsewhere(hub, url, allowed):
    if allowed:
        return await Addresses(hub).check(resources_at(url))
    with pytest.raises(AddressRefused, match="--allow-address"):
        await Addresses(hub).check(resources_at(url))
    await Addresses(hub, [url]).check(resources_at(url))


@pytest.fixture
def names(monkeypatch):
    """name -> the addresses that a fake resolver finds, one look after the other; the last one stays."""
    names = {}

    def found(host, port, *rest, **options):
        of_name = names.get(host, [host])
        address = of_name.pop(0) if len(of_name) > 1 else of_name[0]
        if address is None:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return names


async def test_a_name_is_as_good_as_the_addresses_that_it_stands_for(names):
    names["models.example.org"] = ["169.254.169.254"]
    with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
        await Addresses(HERE).check(resources_at("http://models.example.org/v1"))


async def test_a_failed_lookup_of_the_hubs_name_ends_no_game_and_allows_nothing(names):
    names |= {"hub.example.org": [None], "models.example.org": ["127.0.0.1"]}
    addresses = Addresses("http://hub.example.org:4747")
    assert await addresses.resolve("http://models.example.org/v1") == []  # nothing to connect to
    for address in ("127.0.0.1", "[::ffff:127.0.0.1]"):  # which are connected to without a look at their name
        with pytest.raises(AddressRefused):
            await addresses.resolve(f"http://{address}/v1")


@pytest.mark.parametrize("kind", ["policy", "openai", "dashscope"])
async def test_a_name_that_changes_its_address_after_the_check_is_not_connected_to(kind, http_service, names):
    names["models.example.org"] = ["192.168.7.7", "127.0.0.1"]
    addresses, url = Addresses(ELSEWHERE), f"http://models.example.org:{http_service.port}/v1"
    await addresses.check(resources_at(url))
    if kind == "policy":
        server = PolicyClient(url, "policy", 1.0, addresses, 0.0)
        with pytest.raises(AddressRefused, match=r"127\.0\.0\.1"):
            await server.model_folder()
    else:
        server = ApiModel(ChatEndpoint(provider=kind, endpoint=url, model="m", tries=1), addresses=addresses)
        with pytest.raises((EndpointUnavailable, AddressRefused), match=r"127\.0\.0\.1"):
            await server.reply([{"role": "user", "content": "?"}])
    await server.close()
    assert http_service.asked == []


async def test_a_name_that_keeps_its_address_is_connected_to(http_service, monkeypatch):
    # Nothing listens at the first, as where localhost is ::1 before it is 127.0.0.1.
    of_name = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **options: of_name)
    url = f"http://models.example.org:{http_service.port}/v1"
    for server in (
        PolicyClient(url, "policy", 1.0, Addresses(HERE), 0.0),
        ApiModel(ChatEndpoint(endpoint=url, model="m", tries=1), addresses=Addresses(HERE)),
    ):
        with pytest.raises(CannotPlay):  # it answers, but not as a model would
            await (server.model_folder() if isinstance(server, PolicyClient) else server.ask([]))
        await server.close()
    assert http_service.asked == ["/v1/models", "/v1/chat/completions"]


@pytest.mark.parametrize(
    "named",
    [
        {"policies": (ServedPolicy(name="old", endpoints=("http://8.8.8.8/v1",), model="m"),)},
        {"players": {"api": ChatEndpoint(endpoint="http://8.8.8.8/v1", model="m")}},
        {"judge": ChatEndpoint(endpoint="http://8.8.8.8/v1", model="m")},
    ],
    ids=lambda named: next(iter(named)),
)
async def test_every_model_that_resources_name_is_looked_at(named):
    with pytest.raises(AddressRefused, match=r"8\.8\.8\.8"):
        await Addresses(HERE).check(resources_at("http://127.0.0.1:8000/v1", **named))


async def test_a_malformed_address_is_refused_by_name():
    with pytest.raises(AddressRefused, match="http://gpu:80800/v1 is not a URL: Port out of range"):
        player = ChatEndpoint(endpoint="http://gpu:80800/v1", model="m")
        await Addresses(HERE).check(resources_at("http://127.0.0.1/v1", players={"api": player}))


async def test_where_a_key_goes_has_a_rule_of_its_own():
    player = ChatEndpoint(endpoint="https://8.8.8.8/v1", model="m", api_key_env="KEY")
    own = ChatEndpoint(model="gpt", api_key_env="KEY")
    await Addresses(HERE).check(resources_at("http://127.0.0.1:8000/v1", players={"a": player, "b": own}))
