# `make demo` and `make test` do all the set-up themselves, in .venv; nothing needs to be activated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check wheel format screenshots clean

demo: $(VENV)/.viewer  ## open the explorer on the shipped example
	@$(BIN)/numtui demo || [ $$? -eq 1 ]

test: $(VENV)/.dev  ## install what the tests need and run all of them
	@.ci/packages tmux gcc 'chromium-headless-shell|chromium|chromium-browser|google-chrome'
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.dev  ## what has to be clean before a commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel: $(VENV)/.viewer  ## build the wheel, and see that what it installs works without the checkout
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(INSTALL) --no-deps --target build/site build/wheel/numtui-*.whl
	cd / && PYTHONPATH=$(CURDIR)/build/site $(CURDIR)/$(BIN)/python -m numtui demo | grep build/site/numtui/_examples
	cd / && PYTHONPATH=$(CURDIR)/build/site $(CURDIR)/$(BIN)/python -m numtui diff $(CURDIR)/examples/eager $(CURDIR)/examples/traced --format html \
	  | grep '</html>'

format: $(VENV)/.dev  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshots: $(VENV)/.dev  ## draw the pictures of the README
	$(BIN)/python -m tests.numtui.scenes

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.viewer: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("numtui needs Python 3.10 or newer: make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing numtui into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.viewer
	@echo "installing what tests and checks need into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@
