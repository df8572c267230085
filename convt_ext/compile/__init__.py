"""The operator in compiled and exported programs: by our op with fused steps, by our op alone, or as the original does.

While Dynamo traces, tracing.py takes routing's place and records an op of traced_ops.py, or of ops.py where a precision
was asked for. Before Inductor compiles a graph, fusion.py has choice.py decide for all of its layers, and rewrites it:
costs.py compares the alternatives in microseconds, measure.py times them on the GPU, readers.py and pointwise.py say
what the code around a layer is, steps.py what of it a kernel runs (traced_epilogues.py). inductor.py says how the ops
are compiled, loading.py what a program benchmarks before it runs.
"""
