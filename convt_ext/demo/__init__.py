"""``python -m convt_ext demo``: layers and converted models, with PyTorch's operator and with convt_ext.

models.py needs only torch; the benchmark imports it too.
"""
