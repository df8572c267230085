"""What `convert(model, fuse=True)` does: transposed convolutions take the modules behind them into their epilogue.

sequential.py and graph.py find what follows a convolution, functions.py lists the functions of graphs, chain.py decides
on each call how much can be taken, folding.py folds a BatchNorm. Parameters and modules stay where they are, so that a
state_dict keeps its keys.
"""
