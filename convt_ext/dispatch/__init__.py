"""The path of an eager call: its request, the decision which implementation runs it, and its autograd nodes.

request.py and scopes.py hold the precision and the backend that a call or `flags` request, arguments.py and geometry.py
the arithmetic of sizes and formats, precision.py the classes. routing.py decides. directions.py runs convt_ext's ops or
PyTorch's operator, auto_dispatch.py selects one of them for each direction, autograd.py records gradients. ops.py holds
the ops of the binary, planner.py queries its plans. frozen.py keeps packed weights, autocast.py casts operands,
replaced.py finds tools that have replaced PyTorch's functions.
"""
