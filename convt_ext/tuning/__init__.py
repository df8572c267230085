"""Choosing by measuring: benchmarks of shapes that are called often, and files of earlier measurements.

| file | what it is |
|---|---|
| verdicts.py | which implementation and plan computes a direction of a problem, and what decided it |
| race.py | when a shape is benchmarked; times our best plans and PyTorch's operator in a call |
| files.py | tuning files: reading, writing, merging, finding a call |
| tune.py | measures a model or calls ahead of time; replay; ranks that agree |
| restoring.py | runs a model or function and restores gradients, buffers and random numbers |
| command.py | `python -m convt_ext tune` |
| shipped.json | what was measured on an H200 |

What a user calls is in `convt_ext`: `tune`, `use_tuning`, and `convt_ext.tuning.tune.agree`.
"""
