"""How a compiled program computes each transposed convolution: by our op with fused steps, by our op alone, or as the
original does.

choice.py decides for a whole graph, costs.py compares the alternatives in microseconds, measure.py times them on the
GPU, readers.py answers what the code around a layer costs. fusion.py calls choice.py and rewrites the graph.
"""
