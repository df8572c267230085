"""The benchmark: ``python -m convt_ext bench`` (benchmarks/README.md describes the method).

Data flow: layers -> modes -> runner (operands, reference, first calls, timing, floors) -> results, report, summary.
Neighbour grid: neighbours -> modes -> runner -> results, report (neighbour_report, neighbour_summary).
Whole networks: programs -> steps -> results, report.
"""
