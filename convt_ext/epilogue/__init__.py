"""Pointwise steps after a transposed convolution.

steps.py defines the steps and the functions of PyTorch that they compute, fused.py runs an eager call with steps. The
other files implement `convert(model, fuse=True)`, where modules after a transposed convolution become its epilogue:
sequential.py and graph.py find the followers of a convolution, functions.py lists the functions of graphs, chain.py
decides on each call how many followers to fuse, folding.py folds a BatchNorm. Parameters and modules stay in place, so
a state_dict keeps its keys.
"""
