"""A device that computes wrong numbers, has too little memory, breaks or hangs: its machine goes on with the next one.

`cpu:1` to `cpu:3` are the CPU under other names, which a test spoils as it likes.
"""

import threading
import weakref
from collections.abc import Callable

import psycopg
import pytest
import torch
from poll import wait_until

from gan_core.coordinator import plans
from gan_core.coordinator.coordinator import Coordinator
from gan_core.errors import DeviceBroken
from gan_core.networks import self_test
from gan_core.networks.models import Networks
from gan_core.store.coordinator import trainings
from gan_core.worker import shift as shifts
from gan_core.worker.device_choice import DeviceChoice
from gan_core.worker.shift import LeaseLost, Shift

Spoil = Callable[[Networks, Callable[[], tuple]], tuple]
REAL = shifts.contribute


@pytest.fixture
def fake_device(monkeypatch):
    """Give the device with this name the behaviour of `spoil`, which gets the networks and what computes on them."""

    def make(device: str, spoil: Spoil) -> None:
        wanted = torch.device(device)

        def contribute(plan, networks, *more, **how):
            if networks.device != wanted:
                return REAL(plan, networks, *more, **how)
            return spoil(networks, lambda: REAL(plan, networks, *more, **how))

        for module in (shifts, self_test):
            monkeypatch.setattr(module, "contribute", contribute)

    return make


@pytest.fixture
def plan(tiny):
    return tiny.changed(iterations=5, target_seconds=1)


@pytest.fixture
def trained(classroom, plan):
    """Train the plan with one machine that wants this device; returns the machine's shift after its end."""

    def train(device: str, **how) -> Shift:
        url, ended = classroom.student_url("ada"), threading.Event()
        shift = Shift(url, "ada", device, classroom.cache, should_stop=ended.is_set, **how)
        thread = threading.Thread(target=shift.run)
        thread.start()
        try:
            classroom.train(plan)
        finally:
            ended.set()
            thread.join()
        return shift

    return train


@pytest.fixture
def ask(classroom):
    with psycopg.connect(classroom.url, autocommit=True) as connection:
        yield lambda query: connection.execute(query).fetchall()


def wasted(ask) -> int:
    return ask("SELECT count(*) FROM classgan.leases WHERE outcome <> 'accepted'")[0][0]


def told(ask) -> list[str]:
    return [text for (text,) in ask("SELECT text FROM classgan.events WHERE kind = 'device'")]


def scaled(factor: float, tensor: int) -> Spoil:
    """One layer's change comes out wrong: what a kernel in another memory order makes of it."""

    def spoil(networks, compute):
        vectors, measures = compute()
        spec = networks.layout.generator[tensor]
        vectors.generator[spec.start : spec.stop] *= factor
        return vectors, measures

    return spoil


def shuffled(networks, compute):
    vectors, measures = compute()
    spec = networks.layout.generator[0]
    layer = vectors.generator[spec.start : spec.stop]
    vectors.generator[spec.start : spec.stop] = layer.view(spec.shape).permute(0, 2, 3, 1).reshape(-1)
    return vectors, measures


def not_a_number(networks, compute):
    vectors, measures = compute()
    vectors.discriminator[:] = float("nan")
    return vectors, measures


def raising(message: str, kind: type[Exception] = RuntimeError) -> Spoil:
    def spoil(networks, compute):
        raise kind(message)

    return spoil


FAULTS = {
    "NaN": (not_a_number, "it computes other numbers than the CPU: its discriminator part is nan times as long"),
    "a layer in another order": (shuffled, "it computes other numbers than the CPU: its generator part"),
    "a layer three times": (scaled(3.0, 0), "it computes other numbers than the CPU: its generator"),
    "no memory": (
        raising("CUDA out of memory. Tried to allocate 2.00 GiB", torch.OutOfMemoryError),
        "its memory is too small",
    ),
    "no kernels": (
        raising(
            "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be ..."
        ),
        "PyTorch has no kernels for this GPU in this build: pip install 'torch==2.14.*' --index-url",
    ),
    "another package": (raising("No module named 'torch_hpu'", ModuleNotFoundError), "No module named 'torch_hpu'"),
    "no CUDA at all": (raising("Torch not compiled with CUDA", AssertionError), "Torch not compiled with CUDA"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_device_that_fails_its_self_test_computes_nothing_for_the_class(trained, fake_device, ask, classroom, fault):
    spoil, sentence = FAULTS[fault]
    fake_device("cpu:1", spoil)
    shift = trained("cpu:1")
    assert (shift.device, wasted(ask)) == ("cpu", 0)
    ((said),) = told(ask)
    assert said.startswith(f"ada computes on cpu now. cpu:1 is not used: {sentence}")
    assert ask("SELECT device FROM classgan.workers") == [("cpu",)]
    ((training,),) = ask("SELECT id FROM classgan.trainings")
    assert classroom.check_all(training) == 15
    assert ask("SELECT DISTINCT valid FROM classgan.checks") == [(True,)]


def too_large_for(device: str, monkeypatch) -> None:
    monkeypatch.setattr(plans, "step_bytes", lambda plan: 9_300 << 20)
    monkeypatch.setattr(self_test, "room", lambda name: (4_096 if name == device else 24_576) << 20)


def test_a_device_without_room_for_a_step_is_not_even_tried(trained, fake_device, ask, monkeypatch):
    fake_device("cpu:1", raising("it was tried"))
    too_large_for("cpu:1", monkeypatch)
    assert (trained("cpu:1").device, wasted(ask)) == ("cpu", 0)
    sentence = "cpu:1 is not used: a step takes 9,300 MB, and cpu:1 has 4,096 MB for it."
    assert told(ask) == [f"ada computes on cpu now. {sentence}"]


def test_what_only_a_gpu_that_fails_has_room_for_costs_one_lease_and_no_more(
    classroom, plan, fake_device, ask, monkeypatch
):
    """Its system would end the CPU's process. From then on the class counts with the CPU, and leases what fits there."""
    fake_device("cpu:1", not_a_number)
    too_large_for("cpu", monkeypatch)
    monkeypatch.setattr(shifts, "hardware", lambda device: {"memory_mb": 2 * 4_096, "room_mb": 24_576})
    monkeypatch.setattr(shifts, "PAUSE_AFTER_FAULT", 0.1)
    stop = threading.Event()
    shift = Shift(classroom.student_url("ada"), "ada", "cpu:1", classroom.cache, should_stop=stop.is_set)
    working = threading.Thread(target=shift.run)
    working.start()
    try:
        with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
            training.create_units()
            said = "SELECT message FROM classgan.workers WHERE message LIKE 'One step of test takes 9300 MB%'"
            wait_until(lambda: ask(said), what="the machine reads why it has no more work")
    finally:
        stop.set()
        working.join()
    ((reason,),) = ask("SELECT text FROM classgan.events WHERE kind = 'given back'")
    assert (
        "a step takes 9,300 MB, and cpu has 4,096 MB for it, and no other device of this machine can be used" in reason
    )
    assert ask("SELECT outcome FROM classgan.leases") == [("given back",)]
    assert told(ask)[0].startswith("ada computes on cpu now. cpu:1 is not used: it computes other numbers than the CPU")


def test_one_percent_off_is_what_the_check_of_credit_lets_pass_too(trained, fake_device, ask, classroom):
    """Rounding makes as much. So the device is used, and nobody loses credit for it."""
    fake_device("cpu:1", scaled(1.01, 0))
    shift = trained("cpu:1")
    assert shift.device == "cpu:1"
    ((training,),) = ask("SELECT id FROM classgan.trainings")
    assert classroom.check_all(training) == 15
    assert ask("SELECT DISTINCT valid FROM classgan.checks") == [(True,)]


def test_the_next_device_is_tried_before_the_cpu(trained, fake_device, ask):
    fake_device("cpu:1", not_a_number)
    assert trained("cpu:1, cpu:2").device == "cpu:2"


def after(units: int, fault: Exception, lasting: bool) -> tuple[Spoil, Callable[[], bool]]:
    """Fails once so many contributions were made: for good, or once. And whether it has failed."""
    made = []

    def spoil(networks, compute):
        made.append(1)
        if len(made) > units and (lasting or len(made) == units + 1):
            raise fault
        return compute()

    return spoil, lambda: len(made) > units


SELF_TEST = 2  # contributions that the self-test asks for


def test_a_fault_in_the_middle_costs_no_lease(trained, fake_device, ask):
    """An operation that this device doesn't have, say: the same units are computed on the CPU, and so is all the rest."""
    fake_device("cpu:1", after(SELF_TEST + 10, NotImplementedError("aten::op is not implemented for MPS"), True)[0])
    shift = trained("cpu:1")
    assert (shift.device, wasted(ask)) == ("cpu", 0)
    assert told(ask) == ["ada computes on cpu now. cpu:1 is not used: aten::op is not implemented for MPS."]


@pytest.mark.parametrize(("lasting", "device"), [(False, "cpu:1"), (True, "cpu")])
def test_memory_that_was_full_is_tidied_up_once_before_another_device_is_taken(
    trained, fake_device, ask, lasting, device
):
    fake_device("cpu:1", after(SELF_TEST + 10, torch.OutOfMemoryError("CUDA out of memory."), lasting)[0])
    assert (trained("cpu:1").device, wasted(ask)) == (device, 0)


def test_a_lease_that_never_fits_goes_to_the_next_device_though_the_self_test_does(trained, ask, monkeypatch):
    """Its memory is tidied up once, and not again and again."""
    tries = []

    def contribute(plan, networks, *more, **how):
        if networks.device == torch.device("cpu:1"):
            tries.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return REAL(plan, networks, *more, **how)

    monkeypatch.setattr(shifts, "contribute", contribute)
    assert (trained("cpu:1").device, wasted(ask), len(tries)) == ("cpu", 0, 2)


def test_what_a_full_memory_held_is_gone_before_the_device_is_used_again(trained, fake_device, ask):
    """Networks, activations and a recorded step, that is: a fault's traceback knows all of them."""
    made, failed = [], []

    def spoil(networks, compute):
        made.append(1)
        if len(made) == SELF_TEST + 2:
            failed.append(weakref.ref(networks))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        assert not failed or failed[0]() is None
        return compute()

    fake_device("cpu:1", spoil)
    assert (trained("cpu:1").device, wasted(ask), len(failed)) == ("cpu:1", 0, 1)


def test_a_device_holds_one_training_at_a_time(classroom, plan, fake_device, ask):
    """The networks of the last training are gone before those of the next one are tested."""
    held: dict[int, weakref.ref] = {}

    def spoil(networks, compute):
        size = networks.latent_dim
        held[size] = weakref.ref(networks)
        assert [other for other, known in held.items() if known() is not None] == [size]
        return compute()

    fake_device("cpu:1", spoil)
    stop = threading.Event()
    shift = Shift(classroom.student_url("ada"), "ada", "cpu:1", classroom.cache, should_stop=stop.is_set)
    working = threading.Thread(target=shift.run)
    working.start()
    try:
        for number, size in enumerate((4, 6)):
            classroom.train(plan.changed(iterations=1, latent_dim=size), f"training-{number}")
    finally:
        stop.set()
        working.join()
    assert (set(held), shift.device, told(ask)) == ({4, 6}, "cpu:1", [])


@pytest.mark.parametrize(("knob", "value", "tests"), [("precision", "float32", 2), ("learning_rate_g", 5e-4, 1)])
def test_a_device_is_tested_anew_if_the_plan_changes_how_it_computes(classroom, plan, monkeypatch, knob, value, tests):
    asked, stop = [], threading.Event()
    monkeypatch.setattr(self_test, "fault_of", lambda plan, networks, beat: asked.append(plan.fingerprint) or "")
    shift = Shift(classroom.student_url("ada"), "ada", "cpu:1", classroom.cache, should_stop=stop.is_set)
    working = threading.Thread(target=shift.run)
    working.start()
    try:
        led = classroom.train(plan, until=2)
        wanted = plan.changed(**{knob: value})
        with psycopg.connect(classroom.url, autocommit=True) as connection:
            trainings.want_plan(connection, led.training_id, wanted.model_dump(mode="json"), "a test")
        classroom.train(plan)
    finally:
        stop.set()
        working.join()
    assert asked == [plan.fingerprint, wanted.fingerprint][:tests]


@pytest.mark.parametrize("has_worked", [True, False])
def test_a_device_that_breaks_between_two_trainings_gets_a_fresh_process(tiny, fake_device, monkeypatch, has_worked):
    """One that has never computed here wouldn't compute in another process either: the next device takes its place."""
    monkeypatch.setattr("gan_core.worker.device_choice.is_broken", lambda device: True)
    choice = DeviceChoice("cpu:1")
    if has_worked:
        choice.fit(tiny, lambda: None)
    fake_device("cpu:1", raising("CUDA error: unspecified launch failure"))
    if has_worked:
        with pytest.raises(DeviceBroken, match="cpu:1 has stopped working"):
            choice.fit(tiny, lambda: None, another=True)
    else:
        choice.fit(tiny, lambda: None, another=True)
        assert choice.device == "cpu"


def test_a_device_that_has_broken_ends_its_process_and_one_lease_goes_to_another(
    classroom, plan, fake_device, ask, monkeypatch
):
    """A driver's reset: in this process it never computes again, in a fresh one it does."""
    spoil, has_failed = after(SELF_TEST + 10, RuntimeError("CUDA error: unspecified launch failure"), True)
    fake_device("cpu:1", spoil)
    monkeypatch.setattr("gan_core.worker.device_choice.is_broken", lambda device: has_failed())
    shift, ended = Shift(classroom.student_url("ada"), "ada", "cpu:1", classroom.cache), []

    def work() -> None:
        with pytest.raises(DeviceBroken, match=r"cpu:1 has stopped working \(CUDA error: unspecified launch failure\)"):
            shift.run()
        ended.append(1)
        classroom.shift("grace").run()

    working = threading.Thread(target=work)
    working.start()
    try:
        classroom.train(plan)
    finally:
        classroom.stop.set()
        working.join()
    assert ended == [1]
    assert wasted(ask) == 1


def test_a_device_that_hangs_loses_its_lease_and_then_its_process(classroom, plan, fake_device, ask, monkeypatch):
    monkeypatch.setattr("gan_core.worker.watchdog.STUCK_AT_LEAST", 1.0)
    monkeypatch.setattr("gan_core.worker.watchdog.STUCK", 0.0)
    monkeypatch.setattr(shifts, "HEARTBEAT", 0.2)
    monkeypatch.setattr(shifts, "HUNG", 1.0)
    hangs, killed = threading.Event(), threading.Event()

    def hanging(networks, compute):
        hangs.set()
        killed.wait(60)
        raise RuntimeError("the process was ended")

    fake_device("cpu:1", hanging)
    stop = threading.Event()
    shift = Shift(
        classroom.student_url("ada"), "ada", "cpu:1", classroom.cache, should_stop=stop.is_set, on_hang=killed.set
    )
    hung = threading.Thread(target=shift.run)
    hung.start()
    with Coordinator(classroom.url, "test", plan, classroom.cache) as training:
        training.create_units()
        assert hangs.wait(60)
        given_back = "SELECT count(*) FROM classgan.leases WHERE outcome = 'given back'"
        wait_until(lambda: ask(given_back) == [(1,)], 30, "the lease, given back")
        assert killed.wait(30)
        monkeypatch.setattr(
            "gan_core.worker.watchdog.STUCK_AT_LEAST", 60.0
        )  # the other machine may be slow, and isn't stuck
        with classroom.working(1):
            training.publish(training.gather())
    stop.set()
    hung.join()
    assert ask("SELECT outcome FROM classgan.leases WHERE outcome NOT IN ('accepted', '')") == [("given back",)]


def test_a_lease_that_is_lost_during_the_self_test_is_no_fault_of_the_device(tiny):
    choice = DeviceChoice("cpu:1")

    def lost() -> None:
        raise LeaseLost("another machine was faster")

    with pytest.raises(LeaseLost):
        choice.fit(tiny, lost)
    choice.fit(tiny, lambda: None)
    assert (choice.device, choice.why) == ("cpu:1", "")
