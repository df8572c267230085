"""``python -m convt_ext demo``: layers and converted models, before and after; command.py runs it.

Needs nothing beyond torch itself: the benchmark takes its networks from models.py.
"""
