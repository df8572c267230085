"""The benchmark harness for contributors: neighbour grids, compiled programs, steps of networks.

Run inside benchmarks/: ``python -m harness --help`` (benchmarks/README.md describes the method).

Neighbour grid: neighbours -> convt_ext.bench.runner, or planned without a GPU -> neighbour_report.
Programs: program_sets -> program_rows -> program_report.
Networks: programs -> steps -> program_report.
"""
