"""Implementation of `convert(model, fuse=True)`: modules after a transposed convolution become its epilogue.

sequential.py and graph.py find the followers of a convolution, functions.py lists the functions of graphs, chain.py
decides on each call how many followers to fuse, folding.py folds a BatchNorm. Parameters and modules stay in place, so
a state_dict keeps its keys.
"""
