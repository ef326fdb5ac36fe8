"""The plan: bounds, presets, and what may change."""

import pytest
import yaml

from gan_core.errors import PlanError
from gan_core.networks.models import layout_of
from gan_core.plan import FIXED, Plan, checked_plan
from gan_core.presets import PRESETS, preset


def test_every_field_explains_itself():
    """The plan is the form in the Prefect UI: a field without a description is a riddle."""
    for name, field in Plan.model_json_schema()["properties"].items():
        assert len(field.get("description", "")) > 15, name


def test_every_number_has_bounds():
    for name, field in Plan.model_json_schema()["properties"].items():
        if field.get("type") in ("integer", "number") and "enum" not in field:
            assert {"minimum", "exclusiveMinimum"} & field.keys(), f"{name} has no lower bound"
            assert {"maximum", "exclusiveMaximum"} & field.keys(), f"{name} has no upper bound"


def test_all_faults_are_told_at_once():
    with pytest.raises(PlanError) as caught:
        checked_plan({"batch_size": 1, "learning_rate_g": -1, "colour": "blue"})
    text = str(caught.value)
    assert "batch_size" in text
    assert "greater than or equal to 2 (got 1)" in text
    assert "learning_rate_g" in text
    assert "colour" in text


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"images_per_unit": 10, "batch_size": 64}, "images_per_unit is 10, less than one batch of 64"),
        ({"images_per_unit": 640, "quorum": 100}, "quorum is 100, less than one unit of 640 images"),
        ({"deadline_floor": 100, "deadline_ceiling": 10}, "deadline_ceiling is 10"),
        ({"iterations": 0}, "nothing would be trained"),
        ({"data": "cats"}, "data"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_both_numbers(values, sentence):
    with pytest.raises(PlanError, match=sentence):
        checked_plan(values)


def test_the_classic_has_its_published_size():
    """Radford's DCGAN at 64x64 in colour."""
    layout = layout_of(preset("dcgan"))
    assert (layout.length("generator"), layout.length("discriminator")) == (3_576_704, 2_765_568)


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(PlanError, match="demo, dcgan, better"):
        preset("stylegan")


def test_data_and_model_are_fixed_and_the_rest_may_change():
    before = preset("demo")
    assert before.conflicts_with(before.changed(iterations=7, batch_size=64, learning_rate_g=0.1)) == []
    assert before.conflicts_with(before.changed(image_size=64, seed=5)) == ["image_size", "seed"]
    assert set(Plan.model_fields) >= FIXED


def test_differences_are_told_in_words():
    before = preset("demo")
    assert before.differences(before) == ""
    assert before.differences(before.changed(batch_size=64, quorum="auto")) == "batch_size 32 → 64, quorum 1875 → auto"


@pytest.mark.parametrize("plan", PRESETS.values(), ids=PRESETS.keys())
def test_a_plan_survives_the_trip_through_json(plan):
    assert checked_plan(plan.model_dump(mode="json")) == plan


def test_the_deployments_carry_the_presets(pytestconfig):
    """prefect.yaml repeats the presets, since Prefect reads only that; here they are held equal."""
    deployments = yaml.safe_load((pytestconfig.rootpath / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    stored = {d["name"]: d["parameters"]["plan"] for d in deployments if "plan" in d.get("parameters", {})}
    assert {name: checked_plan(plan) for name, plan in stored.items()} == {
        "train-dcgan": preset("dcgan"),
        "train-better": preset("better"),
    }


def test_a_licence_that_the_hub_would_refuse_is_refused_and_a_stored_one_is_not(tiny):
    assert tiny.changed(hub_licence="cc-by-4.0").hub_licence == "cc-by-4.0"
    with pytest.raises(PlanError, match=r"knows no licence 'banana' and would refuse each push\. Its list"):
        tiny.changed(hub_licence="banana")
    with pytest.raises(PlanError, match=r"Is it cc-by-4\.0 or"):
        tiny.changed(hub_licence="cc-by4.0")
    stored = checked_plan({**tiny.model_dump(), "hub_licence": "banana"})
    assert stored.changed(iterations=9).iterations == 9


def test_decays_of_which_no_result_could_be_checked_are_refused_and_stored_ones_are_not(tiny):
    """Rounding alone made honest results 48 times as long, and 32 times shorter: their steps have no bound."""
    with pytest.raises(
        PlanError, match=r"beta2 is 0\.2, less than the square of beta1, 0\.5: .* Set beta2 to 0\.25 or more"
    ):
        tiny.changed(beta1=0.5, beta2=0.2)
    assert tiny.changed(beta1=0.5, beta2=0.25).beta2 == 0.25
    assert tiny.changed(beta1=0, beta2=0).beta2 == 0  # signs of gradients: each step has the same length
    stored = checked_plan({**tiny.model_dump(), "beta1": 0.5, "beta2": 0.2})
    assert stored.changed(iterations=9).iterations == 9
    with pytest.raises(PlanError, match="square of beta1"):
        stored.changed(beta1=0.6)
