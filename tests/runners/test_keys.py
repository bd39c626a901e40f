"""A hub may name any variable and any address: only keys that a runner was told of leave it, for where it was told."""

import pytest

from runners.errors import MissingApiKey
from runners.keys import ApiKeys
from runners.werewolf.api.models import ApiModel
from store.schema import ChatEndpoint

SECRET = "sk-secret"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("BIG_KEY", SECRET)
    monkeypatch.setenv("AGL_TOKEN", "the hub's token")


@pytest.mark.parametrize(
    "variable, url",
    [
        ("AGL_TOKEN", "http://127.0.0.1:9/v1"),  # what was sent before runners were told what may be
        ("BIG_KEY", "https://evil.example/v1"),
        ("BIG_KEY", "http://api.example/v1"),  # the right host, in the clear
        ("BIG_KEY", "https://api.example:8443/v1"),
        ("BIG_KEY", "https://api.example.evil.example/v1"),
    ],
)
def test_a_key_goes_nowhere_but_where_the_runner_was_told(variable, url):
    keys = ApiKeys(["BIG_KEY=https://api.example"])
    for told in (keys, ApiKeys(), None):
        with pytest.raises(MissingApiKey, match=f"--api-key {variable}=") as caught:
            ApiModel(ChatEndpoint(endpoint=url, model="m", api_key_env=variable), keys=told)
        assert SECRET not in str(caught.value) and "token" not in str(caught.value)


@pytest.mark.parametrize(
    "told, url",
    [
        ("BIG_KEY=https://api.example", "https://api.example/v1"),
        ("BIG_KEY=https://API.example:443/v1", "https://api.example./other"),
        ("BIG_KEY=http://localhost:8000", "http://localhost:8000/v1"),
        ("BIG_KEY=http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_one_place_has_many_spellings(told, url):
    assert ApiKeys([told]).key("BIG_KEY", url) == SECRET


@pytest.mark.parametrize(
    "text, problem",
    [
        ("BIG_KEY", "is not NAME=https://host"),
        ("sk-secret", "is not NAME=https://host"),
        ("BIG_KEY=http://api.example", r"entry of BIG_KEY .*\(https, or"),
        ("BIG_KEY=sk-secret", r"the key itself stays in the environment variable BIG_KEY"),
    ],
)
def test_invalid_key_options_are_named_and_a_key_in_one_is_not_shown(text, problem):
    with pytest.raises(ValueError, match=problem) as raised:
        ApiKeys([text])
    assert "secret" not in str(raised.value)


def test_a_file_adds_to_the_command_line(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# opponents\n\nBIG_KEY=https://two.example\n")
    keys = ApiKeys.read(["BIG_KEY=https://one.example"], file)
    assert [keys.key("BIG_KEY", f"https://{host}.example") for host in ("one", "two")] == [SECRET] * 2
