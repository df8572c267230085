"""The benchmark on the CPU, for its tests: small layers, the command, and a timer with fake times."""

from __future__ import annotations

from convt_ext import __main__ as cli
from convt_ext.bench import command
from convt_ext.bench.layers import Layer, csv_columns

# Small relatives of real layers: bias, groups, dilation, empty phases, output_padding >= stride, and other dimensions.
SMALL = (
    Layer("plain", 2, 4, 6, 7, 9, (3, 3), (1, 1)),
    Layer("grouped", 3, 8, 16, 6, 5, (3, 5), (2, 3), (1, 2), (0, 0), 4, (2, 1)),
    Layer("empty_phases", 2, 4, 8, 5, 6, (3, 3), (5, 5), (1, 1), (0, 0), 1, (2, 2)),
    Layer("padding_over_stride", 2, 4, 4, 5, 5, (2, 2), (1, 1), (0, 1), (1, 1), 1, (3, 2), bias=True),
    Layer("audio", 2, 4, 8, 1, 9, (8,), (4,), (2,), (1,), 2, (1,), bias=True),
    Layer("volume", 2, 4, 8, 4, 5, (2, 3, 2), (2, 2, 3), (0, 1, 0), (1, 0, 0), 2, (1, 1, 2), True, depth=3),
)


def csv_text(layer: Layer) -> str:
    """Returns a CSV file of one layer."""
    before, after = (layer.n, layer.c_in, layer.c_out, *layer.k, *layer.s, *layer.p, *layer.op), (layer.g, *layer.d)
    numbers = ",".join(map(str, (*before, *after, *layer.size, int(layer.bias))))
    return f"{','.join(csv_columns('dhw'[-layer.dims :]))}\n{layer.name},{numbers}\n"


class FakeTimer:
    """Runs every call once and reports these times in microseconds, the last one also for further calls."""

    def __init__(self, *times: float):
        self.times = times

    def times_us(self, calls):
        for call in calls:
            call()
        return [*self.times, *[self.times[-1]] * len(calls)][: len(calls)]

    def peak_bytes(self, call):
        return None


def bench(words, timer=None) -> int:
    """Runs `python -m convt_ext bench` with these arguments in this process; returns its exit status."""
    return command.run_command(cli.make_parser().parse_args(["bench", *words]), ["bench", *words], timer=timer)


def run_harness(words, timer=None) -> int:
    """Runs `python -m harness` of benchmarks/ with these arguments in this process; returns its exit status."""
    from harness.command import main

    return main(words, timer=timer)
