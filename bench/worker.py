"""One shift in a process of its own: `python -m bench.worker URL NAME CACHE THREADS DEVICE`. Ends when its stdin does."""

import sys
import threading
from pathlib import Path

import torch

from bench.children import when_stdin_closes
from bench.measure import warm_up
from gan_core.worker.shift import Shift


def main(url: str, name: str, cache: str, threads: str, device: str) -> None:
    torch.set_num_threads(int(threads))
    warm_up()
    stop = threading.Event()
    when_stdin_closes(stop.set)
    Shift(url, name, device, Path(cache), should_stop=stop.is_set).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
