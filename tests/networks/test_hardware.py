"""What a machine has to compute with, what is known of it beforehand, and what its errors mean."""

from types import SimpleNamespace

import pytest
import torch

from gan_core.devices import hardware as devices


def test_a_driver_in_a_bad_state_is_asked_no_more_than_needed_and_ends_nothing(monkeypatch):
    def refuse(number: int) -> None:
        raise RuntimeError("device kernel image is invalid")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", refuse)
    assert devices.hardware("cuda:0")["gpus"] == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("a shift on the CPU has asked the driver"))
    assert devices.hardware("cpu")["gpus"] == []


@pytest.mark.parametrize(
    "said",
    ["CUDA out of memory. Tried to allocate 2.00 GiB", "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"],
)  # fmt: skip
def test_memory_that_is_short_is_known_by_each_systems_words(said):
    assert devices.is_out_of_memory(RuntimeError(said))


def test_what_is_known_to_be_wrong_is_not_even_tried(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    assert devices.known_fault("mps") == "PyTorch 2.11.0 computes wrong gradients on it: pip install -U torch"
    assert devices.known_fault("cuda:0") == ""
    monkeypatch.setattr(torch, "__version__", "2.14.1+cu130")
    assert devices.known_fault("mps") == ""


def test_a_training_may_take_all_of_a_gpus_memory_and_half_of_the_machines(monkeypatch):
    class Told:
        total_memory = 8 << 30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: Told())
    monkeypatch.setattr(devices, "CONTAINER_LIMITS", ())
    monkeypatch.setattr(devices.psutil, "virtual_memory", lambda: SimpleNamespace(total=12 << 30))
    assert (devices.room("cuda:0"), devices.room("cpu"), devices.room("cuda:0+cpu")) == (8 << 30, 6 << 30, 6 << 30)
    assert devices.room("cpu:1") == float("inf")  # nobody can say, and the self-test finds out
    assert devices.hardware("cuda:0")["room_mb"] == 8 << 10
    assert {"room_mb"}.isdisjoint(devices.hardware("cpu") | devices.hardware("cpu:1"))


def test_a_container_has_the_memory_that_it_may_use(monkeypatch, tmp_path):
    (limit := tmp_path / "memory.max").write_text("4294967296\n")
    monkeypatch.setattr(devices, "CONTAINER_LIMITS", (limit, tmp_path / "gone"))
    assert (devices.room("cpu"), devices.hardware("cpu")["memory_mb"]) == (2 << 30, 4096)
    limit.write_text("max\n")
    assert devices.main_memory() == devices.psutil.virtual_memory().total


def test_images_lie_in_apples_memory_as_its_kernels_expect_them():
    assert devices.memory_format(torch.device("mps")) is torch.contiguous_format
    assert devices.memory_format(torch.device("cuda:1")) is torch.channels_last


@pytest.mark.parametrize(
    ("gpus", "apple", "wanted", "found"),
    [
        (2, False, "", ["cuda:0", "cuda:1", "cpu"]),
        (0, True, "", ["mps", "cpu"]),
        (0, False, "", ["cpu"]),
        (2, False, "cuda:1", ["cuda:1", "cpu"]),
        (2, False, "cuda:0+cuda:1", ["cuda:0+cuda:1", "cuda:0", "cuda:1", "cpu"]),
        (2, False, "cpu", ["cpu"]),
        (2, False, "cuda:0+, +", ["cuda:0", "cpu"]),
    ],
)
def test_the_cpu_is_always_the_last_choice(monkeypatch, gpus, apple, wanted, found):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
    assert devices.choices(wanted) == found
