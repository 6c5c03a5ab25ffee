# make run: the app in the browser.  make test: style and tests.  Both make .venv where it is missing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test

run: .venv/.run
	$(BIN)/streamlit run app.py

test: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest $(PYTEST_ARGS)

$(BIN)/python:
	$(PYTHON) -m venv .venv

# The stamps are older than the lists they were made from only where those lists changed.
.venv/.run: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/.test: requirements-dev.txt .venv/.run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
