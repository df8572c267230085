"""The operator in compiled and exported programs: the op with fused steps, the op alone, or PyTorch's operator.

While Dynamo traces, tracing.py replaces routing.py and records an op of traced_ops.py, or of ops.py for an explicit
precision. Before Inductor compiles a graph, fusion.py rewrites it as choice.py decides for its layers: costs.py
compares the alternatives in microseconds, measure.py times them on the GPU, readers.py and pointwise.py classify the
code around a layer. traced_epilogues.py has the ops with fused steps. inductor.py defines how the ops are compiled.
"""
