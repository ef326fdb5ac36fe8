"""The files of this folder, filled in: the pool's base job template, and the manifests for `kubectl apply`."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NAMESPACE = "classgan"
PARTS = ("access", "worker", "joined")  # manifests, in the order in which they are applied


def base_job_template(**defaults: Any) -> dict[str, Any]:
    """What the work pool makes of a run; these values become the variables' defaults, where they aren't None."""
    import yaml

    template = yaml.safe_load((HERE / "base_job_template.yaml").read_text(encoding="utf-8"))
    for name, value in defaults.items():
        if value is not None:
            template["variables"]["properties"][name]["default"] = value
    return template


def manifest(part: str, image: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The objects of one of PARTS, with this image, in this namespace."""
    import yaml

    text = (HERE / "manifests" / f"{part}.yaml").read_text(encoding="utf-8")
    found = [item for item in yaml.safe_load_all(text) if item]
    for item in found:
        if item["kind"] == "Namespace":
            item["metadata"]["name"] = namespace
        else:
            item["metadata"]["namespace"] = namespace
        for subject in item.get("subjects", []):
            subject["namespace"] = namespace
        for container in item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            container["image"] = image
            container["args"] = [
                namespace if word == NAMESPACE and at else word for at, word in enumerate(container["args"])
            ]
    return found
