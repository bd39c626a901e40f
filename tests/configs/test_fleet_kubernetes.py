"""The Kubernetes recipe: its objects fit each other; a runner has the time to finish its games."""

import re

from store.auth import TOKEN_VARIABLE
from tests.support.hub import fleet_recipes as recipes
from tests.support.hub.fleet_recipes import FLEET, HUB_PORT, POLICY_PORT, longest_game

PROGRAMS = recipes.every_program()


def named(kind):
    return {item["metadata"]["name"]: item for item in recipes.kubernetes() if item["kind"] == kind}


def test_kubernetes_objects_fit_each_other():
    claims, guide = named("PersistentVolumeClaim"), (FLEET / "README.md").read_text()
    used_claims = set()
    for name, pod in recipes.pods().items():
        spec = pod["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert len(volumes) == len(spec["volumes"]), name
        mounted = {mount["name"] for container in recipes.containers(pod) for mount in container["volumeMounts"]}
        assert mounted == set(volumes), f"{name}: a mount without a volume, or a volume without a mount"
        for volume in volumes.values():
            if "persistentVolumeClaim" in volume:
                used_claims.add(volume["persistentVolumeClaim"]["claimName"])
            elif "configMap" in volume:
                assert f"create configmap {volume['configMap']['name']} " in guide
        for container in recipes.containers(pod):
            for entry in container.get("env", []):
                if entry["name"] == TOKEN_VARIABLE:
                    secret = entry["valueFrom"]["secretKeyRef"]
                    assert f"create secret generic {secret['name']} --from-file={secret['key']}=" in guide
    assert used_claims == set(claims)


def test_kubernetes_selectors_and_ports():
    labels = {name: pod["metadata"]["labels"] for name, pod in recipes.pods().items()}
    for name, deployment in named("Deployment").items():
        assert deployment["spec"]["selector"]["matchLabels"] == labels[name]
    ports = {
        name: {
            key: port["containerPort"]
            for container in recipes.containers(pod)
            for port in container.get("ports", [])
            for key in (port["name"], port["containerPort"])
        }
        for name, pod in recipes.pods().items()
    }
    for name, service in named("Service").items():
        (selected,) = [pod for pod, its in labels.items() if its == service["spec"]["selector"]]
        (port,) = service["spec"]["ports"]
        assert ports[selected][port["targetPort"]] == port["port"], name
    assert {service["spec"]["ports"][0]["port"] for service in named("Service").values()} == {HUB_PORT, POLICY_PORT}
    hosts = set(named("Service"))
    for program in PROGRAMS:
        if program.recipe == "kubernetes":
            for words in program.words():
                for host in re.findall(r"http://([\w.-]+):\d+", " ".join(words)):
                    assert host in hosts | {"127.0.0.1"}, host
    for policy in named("NetworkPolicy").values():
        assert policy["spec"]["podSelector"]["matchLabels"] in labels.values()
        (rule,) = policy["spec"]["ingress"]
        assert all(peer["podSelector"]["matchLabels"] in labels.values() for peer in rule["from"])
        assert rule["ports"] == [{"port": POLICY_PORT}]


def test_a_runner_has_the_time_to_finish_its_games():
    runner = recipes.pods()["werewolf-runner"]["spec"]
    drain = re.search(r"timeout (\d+)", runner["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2])
    assert longest_game() <= int(drain[1]) < runner["terminationGracePeriodSeconds"]
