"""The benchmark: ``python -m convt_ext bench`` (benchmarks/README.md says how it measures).

Data flow: layers -> modes -> runner (operands, reference, first calls, timing, floors) -> results, report, summary.
Of the neighbour grid: neighbours -> modes -> runner -> results, report (neighbour_report, neighbour_summary).
Of whole networks: programs -> steps -> results, report.
"""
