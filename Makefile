# Tasks of the project; `make` lists them. Variables, set as NAME=value (defaults in parentheses):
#   PYTHON        the Python that creates .venv (python3)
#   TORCH_SPEC    the torch that pip installs into .venv (torch==2.13.0)
#   TORCH_CPU_INDEX  the index of torch's CPU builds; if it is set, .venv gets a CPU build
#   SYSTEM=1      use PYTHON with its own torch and pytest, and do not create .venv
#   ARCHS         the architectures to compile for (TORCH_CUDA_ARCH_LIST, this machine's GPUs, or 9.0a without a GPU);
#                 release: all architectures of a release
#   DIST          the folder for the wheel of build (dist)
#   CUDA_RELEASE  the CUDA release of toolkit-test (13.5)
#   TEST_ARGS     more arguments for pytest
#   SHARDS        the number of parallel processes of gpu-test (one per core, at most 18 per GPU)
#   REPORT        the report of the GPU tests (tests/gpu_report.json)
#   LIMIT         seconds after which gpu-test (3000) or bench-results (no limit) stops
#   ONLY          the result files that bench-results measures, by their names in benchmarks/runs.json
#   REQUIRE=current  gpu-status fails if a report is stale or incomplete, not only if it contains a failure
#   COMPARE       another GPU's report; gpu-status compares its tests and exact results with those of REPORT
#   TOOLS         the compute-sanitizer tools that sanitize runs (all four)
#   SANITIZER_REPORT  the report of sanitize (tests/sanitizer_report.json)
#   MODULES       the modules that mutate changes, such as "routing precision" (routing)
#   MATRIX_PYTHONS  the interpreters of matrix-test (environments created in .venv-matrix)
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
# tools/wheels.py unpacks the wheel into build/site and does not modify a system Python.
export PYTHONPATH := $(CURDIR)/build/site$(if $(PYTHONPATH),:$(PYTHONPATH))
else
RUN := $(CURDIR)/.venv/bin/python
READY := .venv/ready
BASE := .venv/base
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help env build install demo test test-all gpu-test gpu-status sanitize bench-results bench-status charts repair matrix-test toolkit-test \
  cuda12-check build-cost check-wheel lint lint-ci locks mutate format clean

help: ## list the tasks
	@echo "For users:"
	@grep -hE '^(demo|test|install):.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22
	@echo "For contributors:"
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | grep -vE '^(demo|test|install|help):' | \
	  sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

env: $(READY) ## create .venv with torch and all tools

.venv/base: tools/demo_requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python tools/install_torch.py "$(TORCH_SPEC)"
	.venv/bin/python -m pip install --quiet "$(TORCH_SPEC)" -r tools/demo_requirements.txt
	@touch $@

.venv/ready: $(wildcard tools/*requirements.txt) .venv/base
	.venv/bin/python -m pip install --quiet "$(TORCH_SPEC)" -r tools/requirements.txt
	@touch $@

build: $(BASE) ## build the wheel into dist/ (with CUDA 13's compiler from PyPI if nvcc is missing)
	@rm -rf build/lib* build/bdist* $(DIST)/*.whl
	home="$$($(RUN) tools/cuda_toolkit.py $(NO_FETCH))" && \
	  CUDA_HOME="$$home" TORCH_CUDA_ARCH_LIST="$(filter-out release,$(ARCHS))" $(RUN) -m build --wheel --no-isolation --outdir $(DIST) .

install: $(BASE) ## install the wheel of dist/; build it first if it is not of these sources
	@$(RUN) tools/wheels.py path >/dev/null || $(MAKE) build
	@$(RUN) tools/wheels.py install

# Without a GPU no kernel runs, and plans do not depend on a wheel's architectures. The demo's wheel is then compiled
# without optimization, for an architecture without tensor-core kernels, which need most of the time. `make test` does
# not use it.
QUICK := build/quick
QUICKLY := CONVT_EXT_FAST_COMPILE=1 CFLAGS=-g0 NVCC_APPEND_FLAGS=-Xcompiler=-O0
demo: $(BASE) ## run layers and networks before and after conversion, with times if there is a GPU
	@if $(RUN) tools/wheels.py path >/dev/null 2>&1 || nvidia-smi -L >/dev/null 2>&1; then $(MAKE) install; else \
	  $(RUN) tools/wheels.py path $(QUICK) >/dev/null 2>&1 || \
	    $(QUICKLY) $(MAKE) build ARCHS=7.5 DIST=$(QUICK) && $(RUN) tools/wheels.py install $(QUICK); fi
	cd tests && $(RUN) -m convt_ext demo

# Run inside tests/, because the checkout's top folder on sys.path would hide the wheel.
test: $(READY) install ## run the tests that this machine supports, and list the skipped ones with reasons
	cd tests && $(RUN) -m pytest -rs -n auto --dist loadfile $(TEST_ARGS)

test-all: ## run test with all random problems, new ones for the planner, and all ways of distributed training
	CONVT_PLAN_PROFILE=same $(MAKE) test

gpu-test: install ## run the GPU tests and write the report that gpu-status reads
	CONVT_REQUIRE_GPU=1 $(RUN) tools/gpu_shards.py "$(REPORT)" $(if $(SHARDS),--shards $(SHARDS)) \
	  $(if $(LIMIT),--limit $(LIMIT)) $(TEST_ARGS)

gpu-status: $(READY) ## print whether the reports are current, stale, incomplete or failed, and why
	@$(RUN) tools/gpu_status.py --report "$(REPORT)" --sanitizer-report "$(SANITIZER_REPORT)" \
	  $(if $(REQUIRE),--require-$(REQUIRE)) $(if $(COMPARE),--compare "$(COMPARE)")

sanitize: install ## run the kernel instances under compute-sanitizer's four tools (needs a GPU), and write the report
	$(RUN) tools/sanitize.py --report "$(SANITIZER_REPORT)" $(TOOLS)

bench-results: install ## measure the benchmark's result files that are not current (needs a GPU)
	$(RUN) tools/bench_results.py run $(if $(ONLY),--only $(ONLY)) $(if $(LIMIT),--limit $(LIMIT))

charts: $(READY) ## write docs/performance.md and README.md's figures, and draw the charts, from the result files
	$(RUN) tools/charts.py

bench-status: $(READY) ## print which result files are current, older or missing
	@$(RUN) tools/bench_results.py status

repair: install ## give the wheel of dist/ its manylinux tag
	$(RUN) tools/repair_wheel.py

matrix-test: install ## run the CPU tests of one wheel under several versions of Python and torch
	$(RUN) tools/matrix.py $(MATRIX_PYTHONS)

toolkit-test: $(READY) ## build a wheel with another CUDA release from PyPI, and test it
	$(RUN) tools/other_toolkit.py $(CUDA_RELEASE)

build-cost: $(READY) ## build a wheel for every architecture, and write its build time and size
	$(RUN) tools/build_cost.py benchmarks/build.json

cuda12-check: $(READY) ## compile the device code with CUDA 12.9's NVRTC from PyPI
	$(RUN) tools/cuda12_device_code.py

check-wheel: install ## check the wheel: tag, libraries, architectures, size
	$(RUN) tools/check_wheel.py

mutate: $(READY) ## change the code of MODULES and list the changes that no test detects (slow)
	$(RUN) -m pip install --quiet -r tools/mutation_requirements.txt
	$(RUN) tools/mutate.py $(MODULES)

lint-ci: $(READY) ## check the workflows, cibuildwheel's configuration and the supply chain (needs Node.js)
	$(RUN) tools/lint_ci.py

locks: $(READY) ## update tools/locks: the packages that a release installs, with hashes
	$(RUN) tools/locks.py

lint: $(READY) ## check style and types
	$(RUN) tools/lint.py

format: $(READY) ## rewrite the sources in the project's style
	$(RUN) tools/lint.py --fix

clean: ## remove build outputs and caches, except .venv and .cuda
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find convt_ext kernels tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
