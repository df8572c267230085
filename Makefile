# Every task of the project; `make` lists them. Variables, given as NAME=value:
#   PYTHON        the Python to start from (python3)
#   TORCH_SPEC    what pip installs as torch into .venv (torch==2.13.0)
#   TORCH_CPU_INDEX  the index of torch's CPU builds: where it is set, .venv gets one of them
#   SYSTEM=1      use PYTHON as it is, with its own torch and pytest, instead of making .venv
#   ARCHS         the GPUs to compile for (this machine's; 9.0a where it has none); release: all that a release has
#   DIST          the folder that build writes the wheel to (dist)
#   CUDA_RELEASE  the CUDA that toolkit-test builds with (13.5)
#   TEST_ARGS     more arguments for pytest
#   SHARDS        how many processes share the GPU tests, side by side on all GPUs (as many as cores)
#   REPORT        the report that the GPU tests are written to
#   LIMIT         seconds after which gpu-test ends with what it has (3000), and bench-results (none)
#   ONLY          of the benchmark's result files only these, names of benchmarks/runs.json
#   REQUIRE=current  gpu-status fails when a report is stale or incomplete, and not only when it holds a failure
#   COMPARE       another GPU's report: gpu-status says whether its tests and its exact results are REPORT's
#   TOOLS, SANITIZER_REPORT  of compute-sanitizer's tools only these, and the report they are written to
#   MODULES       the modules that mutate changes, such as "routing precision"
#   MATRIX_PYTHONS  interpreters for matrix-test; empty: environments made in .venv-matrix
PYTHON ?= python3
TORCH_SPEC ?= torch==2.13.0
SYSTEM ?= 0
ARCHS ?= $(or $(TORCH_CUDA_ARCH_LIST),$(shell $(PYTHON) tools/architecture.py))
DIST ?= dist
REPORT ?= $(CURDIR)/tests/gpu_report.json
SHARDS ?=
LIMIT ?=
REQUIRE ?=
COMPARE ?=
TOOLS ?=
ONLY ?=
SANITIZER_REPORT ?= $(CURDIR)/tests/sanitizer_report.json
TEST_ARGS ?=
MATRIX_PYTHONS ?=
MODULES ?= routing
CUDA_RELEASE ?= 13.5

ifeq ($(SYSTEM),1)
RUN := $(PYTHON)
READY :=
BASE :=
NO_FETCH := --no-fetch
# A system's Python is left alone: tools/wheels.py unpacks the wheel into build/site.
export PYTHONPATH := $(CURDIR)/build/site$(if $(PYTHONPATH),:$(PYTHONPATH))
else
RUN := $(CURDIR)/.venv/bin/python
READY := .venv/ready
BASE := .venv/base
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help env build install demo test gpu-test gpu-status sanitize bench-results bench-status charts repair matrix-test toolkit-test \
  cuda12-check build-cost check-wheel lint lint-ci locks mutate format clean

help: ## list the tasks
	@echo "For users:"
	@grep -hE '^(demo|test|install):.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22
	@echo "For contributors:"
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | grep -vE '^(demo|test|install|help):' | \
	  sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

env: $(READY) ## make .venv with torch and every tool

.venv/base: tools/demo_requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python tools/install_torch.py "$(TORCH_SPEC)"
	.venv/bin/python -m pip install --quiet "$(TORCH_SPEC)" -r tools/demo_requirements.txt
	@touch $@

.venv/ready: $(wildcard tools/*requirements.txt) .venv/base
	.venv/bin/python -m pip install --quiet "$(TORCH_SPEC)" -r tools/requirements.txt
	@touch $@

build: $(BASE) ## build the wheel into dist/ (takes CUDA 13's compiler from PyPI where nvcc is missing)
	@rm -rf build/lib* build/bdist* $(DIST)/*.whl
	home="$$($(RUN) tools/cuda_toolkit.py $(NO_FETCH))" && \
	  CUDA_HOME="$$home" TORCH_CUDA_ARCH_LIST="$(filter-out release,$(ARCHS))" $(RUN) -m build --wheel --no-isolation --outdir $(DIST) .

install: $(BASE) ## install the wheel of dist/, building it when it is not of these sources
	@$(RUN) tools/wheels.py path >/dev/null || $(MAKE) build
	@$(RUN) tools/wheels.py install

# Without a GPU no kernel runs, and plans do not depend on a wheel's architectures: a wheel for the demo alone is not
# optimized, and is for GPUs without tensor-core kernels, which take most of the time. `make test` does not use it.
QUICK := build/quick
QUICKLY := CONVT_EXT_FAST_COMPILE=1 CFLAGS=-g0 NVCC_APPEND_FLAGS=-Xcompiler=-O0
demo: $(BASE) ## layers and converted networks before and after, with times and a chart where there is a GPU
	@if $(RUN) tools/wheels.py path >/dev/null 2>&1 || nvidia-smi -L >/dev/null 2>&1; then $(MAKE) install; else \
	  $(RUN) tools/wheels.py path $(QUICK) >/dev/null 2>&1 || \
	    $(QUICKLY) $(MAKE) build ARCHS=7.5 DIST=$(QUICK) && $(RUN) tools/wheels.py install $(QUICK); fi
	cd tests && $(RUN) -m convt_ext demo --chart ../build/convt_ext_demo.png

# Inside tests/: the checkout's top must not be on sys.path, where it would hide the wheel.
test: $(READY) install ## run all that this machine can run; -rs lists what was skipped and why
	cd tests && $(RUN) -m pytest -rs $(TEST_ARGS)

gpu-test: install ## run the GPU tests and write the report that gpu-status reads
	CONVT_REQUIRE_GPU=1 $(RUN) tools/gpu_shards.py "$(REPORT)" $(if $(SHARDS),--shards $(SHARDS)) \
	  $(if $(LIMIT),--limit $(LIMIT)) $(TEST_ARGS)

gpu-status: $(READY) ## print what the reports are worth: current, stale, incomplete or failed, and why
	@$(RUN) tools/gpu_status.py --report "$(REPORT)" --sanitizer-report "$(SANITIZER_REPORT)" \
	  $(if $(REQUIRE),--require-$(REQUIRE)) $(if $(COMPARE),--compare "$(COMPARE)")

sanitize: install ## run every kernel instance under compute-sanitizer's four tools (needs a GPU), and write the report
	$(RUN) tools/sanitize.py --report "$(SANITIZER_REPORT)" $(TOOLS)

bench-results: install ## measure the benchmark's result files that are not current (needs a GPU)
	$(RUN) tools/bench_results.py run $(if $(ONLY),--only $(ONLY)) $(if $(LIMIT),--limit $(LIMIT))

charts: $(READY) ## write the figures of README.md and draw docs/speed.svg, both from the result files
	$(RUN) tools/charts.py

bench-status: $(READY) ## print which result files are of these kernels, and which of older ones
	@$(RUN) tools/bench_results.py status

repair: install ## give the wheel of dist/ its manylinux tag, in its place
	$(RUN) tools/repair_wheel.py

matrix-test: install ## install one wheel file under several Pythons and torches, and run the CPU tests
	$(RUN) tools/matrix.py $(MATRIX_PYTHONS)

toolkit-test: $(READY) ## build with another CUDA release, from PyPI, and test that wheel
	$(RUN) tools/other_toolkit.py $(CUDA_RELEASE)

build-cost: $(READY) ## build for every architecture, and write down minutes and size
	$(RUN) tools/build_cost.py benchmarks/build.json

cuda12-check: $(READY) ## compile the device code with CUDA 12.9's NVRTC, from PyPI
	$(RUN) tools/cuda12_device_code.py

check-wheel: install ## check the wheel: tag, libraries, architectures inside, size
	$(RUN) tools/check_wheel.py

mutate: $(READY) ## change the code of MODULES on purpose and list what no test notices (takes long)
	$(RUN) -m pip install --quiet -r tools/mutation_requirements.txt
	$(RUN) tools/mutate.py $(MODULES)

lint-ci: $(READY) ## check the workflows, cibuildwheel's configuration, and what is installed from where (needs Node.js)
	$(RUN) tools/lint_ci.py

locks: $(READY) ## write tools/locks anew: what a release installs, with hashes
	$(RUN) tools/locks.py

lint: $(READY) ## check style and types
	$(RUN) tools/lint.py

format: $(READY) ## rewrite the sources in the project's style
	$(RUN) tools/lint.py --fix

clean: ## remove what was built, and keep .venv and .cuda
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find convt_ext kernels tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
