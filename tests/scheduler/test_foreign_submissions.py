"""Submissions in other systems' shapes: what has a counterpart becomes a plan, the rest is refused by name."""

import pytest
from foreign import JOB, TASK

from gan_core.errors import PlanError
from gan_core.scheduler.demand import checked_demand
from gan_core.scheduler.foreign_submissions import from_job, from_task, is_job, is_task, training_name


def test_a_schedulers_task_becomes_a_plan_and_a_demand():
    params = {k: v for k, v in TASK["params"].items() if k != "weight_decay"}
    gan = TASK | {"params": params | {"model": "dcgan", "dataset": "mnist", "optimizer": "adam", "momentum": "0.5"}}
    assert is_task(gan)
    found = from_task(gan)
    assert found.name == "resnet50-training"
    assert found.demand == {"gpus": 2, "memory_mb": 8192}
    plan = found.plan
    assert (plan.data, plan.model, plan.batch_size, plan.epochs) == ("digits", "dcgan", 64, 90)
    assert (plan.learning_rate_g, plan.learning_rate_d, plan.beta1) == (0.001, 0.001, 0.5)


def test_what_is_not_a_gan_is_refused_with_every_fault_and_what_is_possible():
    with pytest.raises(PlanError) as refused:
        from_task(TASK)
    text = str(refused.value)
    assert "model is 'resnet50', which is no GAN of this class: choose dcgan or spectral" in text
    assert "data is 'imagenet': choose digits, folder:PATH or zip:PATH" in text
    assert "optimizer is 'sgd': a GAN is trained with adam here" in text
    assert "weight_decay (got '0.0001') is unknown here" in text


@pytest.mark.parametrize(
    ("hash_", "version"),
    [("digits@2", "digits@2"), ("1234567890123456", "1234567890123456"), ("hashDg==", ""), ("v", "")],
)
def test_a_version_of_ours_is_asked_for_and_another_systems_hash_is_passed_over(hash_, version):
    job = {"algorithm": "dcgan", "dataset_id": "digits", "train_data_version_hash": hash_, "name": "x"}
    assert from_job(job).plan.data_version == version


def test_a_services_job_becomes_a_gang():
    job = JOB["metadata"] | {"algorithm": "dcgan", "dataset_id": "digits", "output_model_name": "My Digits"}
    job["parameters"] = {"LR": "0.002", "EPOCHS": "10", "BATCH_SIZE": "64", "PARALLEL_INSTANCES": "3"}
    assert is_job(job)
    assert is_job({"metadata": job})
    found = from_job({"metadata": job})
    assert found.name == "my-digits"
    assert found.demand == {"min_workers": 3, "max_workers": 3}
    assert (found.plan.learning_rate_d, found.plan.epochs, found.plan.batch_size) == (0.002, 10, 64)


def test_a_text_classifier_is_refused_by_its_fields():
    with pytest.raises(PlanError) as refused:
        from_job(JOB)
    text = str(refused.value)
    assert "model is 'intent-classification', which is no GAN of this class" in text
    assert "FC_SIZE (got '128') is unknown here" in text
    assert "data is '1': choose digits" in text


def test_missing_fields_of_a_job_are_named():
    with pytest.raises(PlanError, match="A job needs dataset_id, train_data_version_hash"):
        from_job({"algorithm": "dcgan", "name": "x"})


def test_our_own_knobs_are_welcome_in_both_and_checked():
    assert from_task({"name": "x", "params": {"generator_width": "16"}}).plan.generator_width == 16
    with pytest.raises(PlanError, match=r"batch_size: Input should be .* \(got 0\)"):
        from_task({"name": "x", "params": {"batch_size": "0"}})


@pytest.mark.parametrize("value", ["0", "many", -1])
def test_an_impossible_number_of_instances_is_refused_at_submission(value):
    job = {"algorithm": "dcgan", "dataset_id": "digits", "train_data_version_hash": "v", "name": "x"}
    found = from_job(job | {"parameters": {"PARALLEL_INSTANCES": value}})
    with pytest.raises(PlanError, match="min_workers: Input should be"):
        checked_demand(found.demand)


def test_a_demand_that_contradicts_itself_or_the_plan():
    with pytest.raises(PlanError, match="max_workers is 2, below min_workers of 3: raise it"):
        checked_demand({"min_workers": 3, "max_workers": 2})
    with pytest.raises(PlanError, match=r"memory_mb: .*got -1"):
        checked_demand({"memory_mb": -1})
    plan = from_task({"name": "x"}).plan
    with pytest.raises(PlanError, match="min_workers is 4, but an iteration of this plan has units for 3"):
        checked_demand({"min_workers": 4}).require_possible(plan)


def test_names_are_made_of_any_text_but_not_of_nothing():
    assert training_name("  Ünser GAN, v2! ") == "nser-gan-v2"
    with pytest.raises(PlanError, match="small letters, digits and dashes"):
        training_name("!?")
