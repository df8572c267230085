"""``python -m convt_ext check``, and the definitions of the operator that it compares kernels with."""
