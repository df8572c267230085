"""The machine and the installation: binary, driver, GPUs, private names of PyTorch, optional packages.

Independent of the operator. info.py prints the installation and the settings of calls (``python -m convt_ext info``).
"""
