"""The manifest of the campaign on Kubernetes: its plan, its command, its volumes and its ports fit together."""

import importlib
import shlex
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hosts.choice import RAY_CLIENT, is_valid
from kvproof.check.hunting.plan import read_plan

MANIFEST = Path(__file__).parents[3] / "examples" / "kuberay" / "campaign.yaml"
# Fields of a RayJob and of the parts of its cluster that the manifest may use, of KubeRay's API ray.io/v1.
JOB = {"entrypoint", "submissionMode", "shutdownAfterJobFinishes", "backoffLimit", "rayClusterSpec"}
HEAD = {"rayStartParams", "template"}
WORKERS = HEAD | {"groupName", "replicas", "minReplicas", "maxReplicas"}


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")  # its types are not installed
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def test_the_job_has_the_fields_of_kuberay_and_enough_workers(manifests: dict[str, Any]) -> None:
    job = manifests["RayJob"]
    assert job["apiVersion"] == "ray.io/v1"
    assert job["spec"].keys() <= JOB
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster.keys() == {"headGroupSpec", "workerGroupSpecs"}
    assert cluster["headGroupSpec"].keys() == HEAD
    for group in cluster["workerGroupSpecs"]:
        assert group.keys() == WORKERS
        assert 1 <= group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_every_pod_mounts_volumes_that_exist_and_has_the_same_image(manifests: dict[str, Any]) -> None:
    cluster = manifests["RayJob"]["spec"]["rayClusterSpec"]
    pods = [one["template"]["spec"] for one in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    containers = [container for pod in pods for container in pod["containers"]]
    assert len({container["image"] for container in containers}) == 1
    for pod in pods:
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        mounted = {mount["name"]: mount["mountPath"] for one in pod["containers"] for mount in one["volumeMounts"]}
        assert mounted == {"plan": "/plan", "campaign": "/campaign"}
        assert volumes.keys() == mounted.keys()
        assert volumes["plan"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    (claim,) = [volume for volume in pods[0]["volumes"] if "persistentVolumeClaim" in volume]
    assert claim["persistentVolumeClaim"]["claimName"] == manifests["PersistentVolumeClaim"]["metadata"]["name"]


def test_the_job_runs_a_campaign_of_kvproof_on_the_port_of_the_head(manifests: dict[str, Any], tmp_path: Path) -> None:
    spec = manifests["RayJob"]["spec"]
    program, command, plan, option, workers = shlex.split(spec["entrypoint"])
    assert (program, command, option) == ("kvproof", "campaign", "--workers")
    assert is_valid(workers)
    (container,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    port = int(workers.removeprefix(RAY_CLIENT).rpartition(":")[2])
    assert port in {one["containerPort"] for one in container["ports"]}
    data = manifests["ConfigMap"]["data"]
    (tmp_path / Path(plan).name).write_text(data[Path(plan).name])
    assert len(read_plan(tmp_path / Path(plan).name).searches) == 4
