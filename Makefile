# make run: the app in the browser.  make hall: the site, Run and History for many readers (docs/hall.md).
# make check: style and the tests without a browser.  make test: every test, as CI runs them.
# make site: the static site, into site/. SITE_ARGS are its options, as in docs/site.md.
# make wasm: unit tests of kernels and visuals in WebAssembly. WASM_ARGS are pytest's arguments; without any a choice is run.
# make gpu: those that need a GPU.  Each makes .venv if it is missing.
# make faults: deliberate faults, one after another, and the test that catches each (tests/faults).
PYTHON ?= python3
# Without bytecode on disk each process that a test starts compiles the app again, and its start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
# Two processes, each with a server and a browser of its own. A file stays whole, and the long ones come first.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder
# Two processes share the cores; BLAS would start a thread for each core in both.
TESTS := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest $(SIDE_BY_SIDE)
GPU := $(shell command -v nvidia-smi 2>/dev/null)
# On a GPU machine eight processes share the GPU and the cores: BLAS would start a thread for each core in each of them.
GPU_SIDE_BY_SIDE := -n 8 --dist worksteal
BLAS_THREADS := $(shell n=$$(nproc 2>/dev/null || echo 8); echo $$((n / 8 > 0 ? n / 8 : 1)))
NODE := $(and $(shell command -v node 2>/dev/null),$(shell command -v npm 2>/dev/null))

.PHONY: run hall site wasm style check test faults gpu javascript texts

run: .venv/.run
	$(BIN)/streamlit run app.py

PORT ?= 8501
hall: .venv/.run
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m hall --port $(PORT) $(HALL_ARGS)

site: .venv/.run
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m visuals.site site $(SITE_ARGS)

style: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

check: style
	$(TESTS) -m "not gpu and not browser" $(PYTEST_ARGS)

test: style javascript .venv/wasm/.made
	$(TESTS) -m "not gpu" $(PYTEST_ARGS)
	$(if $(GPU),$(MAKE) gpu)

# Each deliberate fault of tests/faults, and the test that catches it. FAULTS are words of their names.
faults: .venv/.test node_modules/.made
	$(BIN)/python -m tests.faults $(FAULTS)

gpu: .venv/.test
	OPENBLAS_NUM_THREADS=$(BLAS_THREADS) $(BIN)/pytest $(GPU_SIDE_BY_SIDE) -m "gpu and not alone"
	$(BIN)/pytest -m "gpu and alone"

wasm: .venv/.test .venv/wasm/.made node_modules/.made
	$(BIN)/python -m tests.wasm $(WASM_ARGS)

# The texts of pages, scenes and player: the template that a translation, locale/<language>.po, starts from.
texts: .venv/.test
	mkdir -p locale
	PYTHONPATH=. $(BIN)/pybabel -q extract -F babel.cfg --no-default-keywords --no-location \
	  -k tr -k trn:1,2 -k mark -k trParts -k trnParts:1,2 -k Say -k step:2 \
	  --project "Kernel Theatre" --omit-header -o locale/kernel_theatre.pot .

ifneq ($(NODE),)
javascript: node_modules/.made
	node --test --test-reporter=spec tests/node/*.test.js
else
javascript:
	$(if $(CI),$(error node and npm are missing))
	@echo "No node and npm here: the tests of JavaScript, of the deck and of accessibility are left out."
endif

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The stamps are older than the lists they were made from only where those lists changed.
.venv/.run: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/.test: requirements-dev.txt .venv/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

# Python 3.12 in WebAssembly: packages without compiled parts.
.venv/wasm/.made: requirements-wasm.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .venv/wasm \
	  --python-version 3.12 --implementation py --only-binary :all: -r requirements-wasm.txt
	touch $@

node_modules/.made: package.json
	npm install --loglevel=error
	touch $@
