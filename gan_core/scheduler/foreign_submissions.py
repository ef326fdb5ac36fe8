"""Turns submissions in the formats of two other systems into a plan: known fields are mapped, others are refused by name.

A scheduler's task: `name, required_gpus, min_gpu_memory, params`. A training service's job: `algorithm, dataset_id, name,
train_data_version_hash, parameters, output_model_name`, alone or inside `metadata`. Both have texts for numbers.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gan_core.errors import PlanError
from gan_core.plan import Plan, checked_plan
from gan_core.presets import PRESETS, preset

# Their words for our knobs, in small letters; knobs by their own name need no line here.
WORDS: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("batch_size",),
    "epochs": ("epochs",),
    "lr": ("learning_rate_g", "learning_rate_d"),
    "learning_rate": ("learning_rate_g", "learning_rate_d"),
    "momentum": ("beta1",),
    "model": ("model",),
    "dataset": ("data",),
}
WORKERS = "parallel_instances"  # so many workers at once, or none
ADAM = ("adam",)  # the only optimiser there is here
DATA_SETS = ("digits", "mnist")
OURS = r"[a-z0-9-]+@\d+|[0-9a-f]{16}"  # a data version of ours, or a fingerprint; others' hashes say nothing here


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What somebody wants trained: our own shape, whatever it came in as."""

    name: str
    plan: Plan
    demand: dict[str, Any] = field(default_factory=dict)


def from_values(values: Mapping[str, Any], name: str = "", otherwise: str = "") -> Submission:
    """A submission in any shape: the knobs of a plan, `{name, plan, demand}` with a preset's name or knobs as the plan,
    a scheduler's task, or a training service's job.

    Args:
        name: instead of the one inside.
        otherwise: the name, if there is none.

    Raises:
        PlanError: it can't be trained; says which field, and what is possible.
    """
    if is_task(values):
        return from_task({**values, "name": name or values.get("name") or otherwise})
    if is_job(values):
        job = dict(values.get("metadata") or values)
        return from_job(
            job | ({"output_model_name": name} if name else {}) | ({} if _named(job) else {"name": otherwise})
        )
    if strange := [key for key in values if not isinstance(key, str)]:
        raise PlanError(f"{strange[0]!r} is no name of a knob. A plan has lines such as iterations: 50.")
    own = training_name(name or str(values.get("name") or otherwise))
    if "plan" not in values:
        return Submission(name=own, plan=Plan().changed(**{k: v for k, v in values.items() if k != "name"}))
    if unknown := values.keys() - {"name", "plan", "demand"}:
        raise PlanError(f"{', '.join(sorted(unknown))} is unknown here: a submission has only name, plan and demand.")
    knobs = values["plan"]
    for part, value, kinds in (("plan", knobs, (str, Mapping)), ("demand", values.get("demand") or {}, (Mapping,))):
        if not isinstance(value, kinds):
            raise PlanError(f"{part} is {value!r}: write its fields as KEY: VALUE lines below it.")
    plan = preset(knobs) if isinstance(knobs, str) else Plan().changed(**knobs)
    return Submission(name=own, plan=plan, demand=dict(values.get("demand") or {}))


def _named(job: Mapping[str, Any]) -> bool:
    return bool(job.get("output_model_name") or job.get("name"))


def is_task(values: Mapping[str, Any]) -> bool:
    return bool({"required_gpus", "min_gpu_memory", "params"} & values.keys())


def is_job(values: Mapping[str, Any]) -> bool:
    return bool({"algorithm", "dataset_id", "train_data_version_hash"} & (values.get("metadata") or values).keys())


def from_task(values: Mapping[str, Any]) -> Submission:
    """A scheduler's task as a submission.

    Raises:
        PlanError: a parameter is unknown or impossible here; every fault in one sentence each.
    """
    demand = {"gpus": values.get("required_gpus", 0), "memory_mb": values.get("min_gpu_memory", 0)}
    plan, more = _plan(values.get("params") or {})
    return Submission(name=training_name(str(values.get("name", ""))), plan=plan, demand=demand | more)


def from_job(values: Mapping[str, Any]) -> Submission:
    """A training service's job as a submission; its algorithm is a model of ours, its data set one that a plan can name.

    Raises:
        PlanError: a field is missing, or a value is unknown or impossible here.
    """
    given = values.get("metadata") or values
    needed = ("algorithm", "dataset_id", "train_data_version_hash")
    if missing := [f for f in needed if not given.get(f)]:
        raise PlanError(
            f"A job needs {', '.join(missing)}. Its fields are {', '.join(needed)}, name, parameters, output_model_name."
        )
    name = given.get("output_model_name") or given.get("name") or ""
    parameters = {"model": given["algorithm"], "dataset": given["dataset_id"], **(given.get("parameters") or {})}
    if re.fullmatch(OURS, version := str(given["train_data_version_hash"])):
        parameters["data_version"] = version
    plan, demand = _plan(parameters)
    return Submission(name=training_name(str(name)), plan=plan, demand=demand)


def training_name(text: str) -> str:
    """A training's name made of any text: "My GAN, v2" becomes "my-gan-v2". Raises PlanError if nothing is left."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-")
    if not name:
        raise PlanError(
            f"name is {text!r}: a training's name has small letters, digits and dashes, for example digits-2."
        )
    return name


def _plan(parameters: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
    faults, knobs, demand = [], dict[str, Any](), dict[str, Any]()
    for key, text in parameters.items():
        word = key.lower()
        value = str(text) if word == "data_version" else _number(text)
        if word == WORKERS:
            demand |= {"min_workers": value, "max_workers": value}
        elif word == "optimizer":
            if str(text).lower() not in ADAM:
                faults.append(f"{key} is {text!r}: a GAN is trained with adam here")
        elif word == "model" and text not in ("dcgan", "spectral", "gan"):
            faults.append(f"model is {text!r}, which is no GAN of this class: choose dcgan or spectral")
        elif word == "dataset" and not re.match(r"(folder|zip):.", str(text)) and text not in DATA_SETS:
            faults.append(f"data is {text!r}: choose digits, folder:PATH or zip:PATH")
        elif word in WORDS or word in Plan.model_fields:
            value = {"mnist": "digits", "gan": "dcgan"}.get(str(text), value)
            knobs |= dict.fromkeys(WORDS.get(word, (word,)), value)
        else:
            known = sorted({*WORDS, WORKERS, "optimizer"})
            faults.append(
                f"{key} (got {text!r}) is unknown here. Known are the knobs of a plan, and {', '.join(known)}"
            )
    try:
        plan = checked_plan({**PRESETS["demo"].model_dump(), **knobs})
    except PlanError as exc:
        faults.append(str(exc).partition("\n  ")[2])
    if faults:
        raise PlanError("This can't be trained here:\n  " + "\n  ".join(faults))
    return plan, demand


def _number(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
