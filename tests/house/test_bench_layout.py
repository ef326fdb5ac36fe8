"""What `bench layout` says of its target: both layouts compute the same convolutions, and channels_last only saves reorders."""

from collections import Counter

import pytest
import torch

from bench.layout import BASELINE, FORMATS, OURS, prepare
from gan_core.presets import preset


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),
    reason="PyTorch has no oneDNN on this processor: run it on one by Intel or AMD",
)
def test_channels_last_saves_only_what_brings_tensors_into_onednns_order(capfd):
    plan = preset("dcgan").model_copy(update={"batch_size": 4})
    done = {}
    for name in FORMATS:
        bench = prepare(plan, name)
        bench.step()  # the first one makes the kernels
        capfd.readouterr()
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            bench.step()
        lines = [line.split(",") for line in capfd.readouterr().out.splitlines()]
        done[name] = Counter(line[line.index("exec") + 2] for line in lines if "exec" in line and "cpu" in line)
    default, ours = done[BASELINE], done[OURS]
    assert default["convolution"] == ours["convolution"] > 0
    assert default["deconvolution"] == ours["deconvolution"] > 0
    assert 0 < ours["reorder"] < default["reorder"]
