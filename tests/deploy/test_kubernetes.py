"""The manifests: by the schemas of several versions, by what they say of each other, and by a real server."""

import kubernetes_validate
import pytest

from conftest import ask, read_yaml
from serving import wait_for

MANIFESTS = [(name, one) for name in ("kubernetes/aerie.yaml", "kubernetes/autoscale.yaml") for one in read_yaml(name)]
BY_KIND = {one["kind"]: one for _, one in MANIFESTS}
POD = BY_KIND["Deployment"]["spec"]["template"]
CONTAINER, = POD["spec"]["containers"]


@pytest.mark.parametrize("version", ["1.27", "1.31", "1.36"])
def test_the_schemas(version):
    for name, manifest in MANIFESTS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise AssertionError(f"{name}, {manifest['kind']}: {error.message}") from error


def test_the_schemas_find_errors():
    wrong = {**BY_KIND["PodDisruptionBudget"], "spec": {"maxUnavailible": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


def test_they_speak_of_each_other():
    labels = POD["metadata"]["labels"]
    for selector in (BY_KIND["Deployment"]["spec"]["selector"]["matchLabels"], BY_KIND["Service"]["spec"]["selector"],
                     BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
                     POD["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    target = BY_KIND["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", BY_KIND["Deployment"]["metadata"]["name"])
    adapter, = read_yaml("prometheus/adapter.yaml")
    metric = BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert metric == adapter["rules"]["custom"][0]["name"]["as"]
    volumes = {one["name"]: one for one in POD["spec"]["volumes"]}
    assert {one["name"] for one in CONTAINER["volumeMounts"]} == set(volumes)
    claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
    assert claim == BY_KIND["PersistentVolumeClaim"]["metadata"]["name"]
    ports = {one["name"] for one in CONTAINER["ports"]}
    assert BY_KIND["Service"]["spec"]["ports"][0]["targetPort"] in ports
    assert BY_KIND["PodDisruptionBudget"]["spec"]["maxUnavailable"] < BY_KIND["Deployment"]["spec"]["replicas"]


def test_there_is_time_to_drain():
    pause = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    drain, = [int(word.split("=")[1]) for word in CONTAINER["args"] if word.startswith("--drain-seconds=")]
    assert POD["spec"]["terminationGracePeriodSeconds"] > pause + drain
    probe = CONTAINER["readinessProbe"]
    assert pause > probe["periodSeconds"] * probe["failureThreshold"]


def test_a_server_with_these_arguments(start):
    server = start(CONTAINER["args"])
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        # The kubelet asks by the pod's address and has no key.
        assert ask(server.port, CONTAINER[probe]["httpGet"]["path"], key="none")[0] == 200
    name, = [word.split("=")[1] for word in CONTAINER["args"] if word.startswith("--served-model-name=")]
    status, _, _ = ask(server.port, body={"model": name, "prompt": "one", "max_tokens": 2})
    assert status == 200
    # Whatever name the cluster knows the service by.
    assert ask(server.port, "/v1/models", headers={"Host": "aerie.default.svc"})[0] == 200


def test_a_secret_that_is_changed(start, tmp_path):
    """The kubelet puts a new folder in the place of the old one, behind links."""
    for name, key in (("first", "key-1"), ("second", "key-2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(key)
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "keys").symlink_to("..data/keys")
    server = start(["--model=model"], f"--api-key-file={tmp_path}/keys")

    def models(key):
        return ask(server.port, "/v1/models", key=key)[0]

    assert models("key-1") == 200 and models("key-2") == 401
    (tmp_path / "..new").symlink_to("second")
    (tmp_path / "..new").rename(tmp_path / "..data")
    wait_for(lambda: models("key-2") == 200, 10, "the new key")
    assert models("key-1") == 401
