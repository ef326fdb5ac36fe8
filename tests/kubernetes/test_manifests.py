"""What is given to a cluster: valid to the letter, with the least rights, and an image that holds what it needs."""

import re
import shutil
import subprocess
import sys
import zipfile
from typing import Any

import kubernetes_validate
import pytest

from deployments.kubernetes.files import HERE, PARTS, base_job_template, manifest

ROOT = HERE.parent.parent
OBJECTS = [(part, item) for part in PARTS for item in manifest(part, "classgan:1", "a-class")]


def pods() -> dict[str, dict[str, Any]]:
    """Every pod that we describe."""
    found = {part: item["spec"]["template"]["spec"] for part, item in OBJECTS if "template" in item.get("spec", {})}
    return found | {"pool": base_job_template()["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]}


@pytest.mark.parametrize("version", ["1.29", "1.34"])
@pytest.mark.parametrize(
    ("part", "item"), OBJECTS, ids=lambda value: value if isinstance(value, str) else value["kind"]
)
def test_a_manifest_is_what_the_published_schema_says(part, item, version):
    kubernetes_validate.validate(item, version, strict=True)
    assert item["metadata"].get("namespace", "a-class") == "a-class"


def test_the_rights_are_the_least():
    """Named verbs on named things in one namespace, and nothing about secrets."""
    kinds = [item["kind"] for _, item in OBJECTS]
    assert not {"ClusterRole", "ClusterRoleBinding"} & set(kinds)
    [role] = [item for _, item in OBJECTS if item["kind"] == "Role"]
    allowed = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert {what for what, _ in allowed} == {"jobs", "pods", "pods/log", "events"}
    assert {verb for what, verb in allowed if what != "jobs"} <= {"get", "list", "watch"}
    assert "*" not in str(role["rules"])
    [binding] = [item for _, item in OBJECTS if item["kind"] == "RoleBinding"]
    assert [subject["name"] for subject in binding["subjects"]] == ["classgan-worker"]


@pytest.mark.parametrize("name", sorted(pods()))
def test_a_pod_is_nobody_and_writes_nowhere_but_in_its_own_folders(name):
    spec = pods()[name]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
    assert not {"hostPath", "hostNetwork"} & set(re.findall(r"\w+", str(spec)))
    if name != "worker":  # only the worker speaks to Kubernetes
        assert spec["serviceAccountName"] == "classgan-shift"
        assert spec["automountServiceAccountToken"] is False


def test_a_run_can_fill_in_nothing_that_decides_what_is_run():
    template = base_job_template()
    container = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"][0]
    fixed = (
        container["args"][:-1],
        container["env"],
        container["securityContext"],
        template["job_configuration"]["env"],
    )
    assert "{{" not in str(fixed)
    assert set(re.findall(r"\{\{ (\w+) \}\}", str(template))) == set(template["variables"]["properties"])


DOCKERFILE = (HERE / "Dockerfile").read_text(encoding="utf-8")


def copied() -> list[str]:
    """What the Dockerfile takes from the checkout."""
    lines = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ") and "--from" not in line]
    return [source for *sources, _ in lines for source in sources]


def test_the_dockerfile_is_well_formed():
    joined = DOCKERFILE.replace("\\\n", " ")
    words = [line.split()[0] for line in joined.splitlines() if line and not line.startswith("#")]
    assert set(words) <= {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "ENV", "USER", "CMD"}
    assert re.search(r"^USER 10001:10001$", DOCKERFILE, flags=re.MULTILINE)
    assert all((ROOT / source).exists() for source in copied())


def test_what_the_dockerfile_copies_builds_the_same_wheel(tmp_path):
    """Its own build command, on nothing but what it copies."""
    for source in copied():
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / source)
    [command] = re.findall(r"^RUN python (-m build .*) --outdir /wheels$", DOCKERFILE, flags=re.MULTILINE)
    subprocess.run(
        [sys.executable, *command.split(), "--outdir", "wheels"], cwd=tmp_path, check=True, capture_output=True
    )
    [wheel] = (tmp_path / "wheels").glob("*.whl")
    shipped = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        p.relative_to(ROOT).as_posix()
        for package in ("gan_core", "tasks", "flows", "deployments")
        for p in (ROOT / package).rglob("*")
        if p.is_file() and p.suffix != ".pyc"
    }
    assert ours <= shipped
    assert "deployments/prefect.yaml" in shipped
