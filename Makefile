# Everything from a clean clone, on a machine that has Python 3.11+ and make:
#
#   make demo    a real 270M checkpoint on the bundled instances, in the real engine, on the CPU
#   make test    lint, types, import contract, and every test
#   make bench   the benchmarks that need no engine, each within a few minutes (docs/performance.md)
#
# All install what they need into .venv first. A second call finds it there.

PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-deps --no-compile
INSTALLED := $(VENV)/.installed
# The sources of what setup.py compiles: the package is installed again when one changes.
COMPILED := $(wildcard setup.py rel_batch/constraints/molecules/*.py)
CHECKPOINT := .cache/checkpoints/gemma3-270m

# torch's CPU build is not on PyPI. It is tried without this index first, for a machine that keeps
# the file itself or cannot reach it.
TORCH := $(shell grep '^torch==' constraints.txt)
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# The library fetches nothing while it works; the tests and the demo prove it.
export HF_HUB_OFFLINE := 1
export VLLM_NO_USAGE_STATS := 1

.PHONY: demo test bench browser slurm install lint clean

demo: $(INSTALLED) $(CHECKPOINT)
	$(BIN)/rel-batch run configs/quickstart.yaml

# In two processes: one waits for the engine, mostly, while the other works.
test: lint $(CHECKPOINT) browser slurm
	$(BIN)/python -m pytest -n 2

bench: $(INSTALLED)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/store_rows.py
	$(BIN)/python benchmarks/scoring.py
	$(BIN)/python benchmarks/scoring_lag.py --rows 300

# The report's page is tested in a real browser, which is installed where that is allowed.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	&& apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } \
	|| echo "Chromium is not there: the tests of the report's page are skipped"

# Arrays of tasks are tested on a real SLURM, which is installed where that is allowed.
slurm:
	@tests/slurm/install.sh || echo "SLURM is not there: its tests are skipped"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt $(COMPILED)
	@test -n "$(PYTHON)" || { echo "rel-batch needs Python 3.11 or newer; none found" >&2; exit 1; }
	@echo "installing about 170 packages into $(VENV), 2 GB to download; this takes a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$(TORCH)" 2>/dev/null || $(PIP) --extra-index-url $(TORCH_INDEX) "$(TORCH)"
	$(PIP) --requirement constraints.txt
	$(PIP) --no-build-isolation --editable .
	touch $@

$(CHECKPOINT): | $(INSTALLED)
	$(BIN)/python -m rel_batch.demo $@

clean:
	rm -rf $(VENV) .cache build dist *.egg-info
