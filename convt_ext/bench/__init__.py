"""The benchmark of layers: ``python -m convt_ext bench`` (benchmarks/README.md describes the method).

Data flow: layers -> modes -> runner (operands, reference, first calls, timing, floors) -> results, report, summary.
"""
