# Every target sets up what it needs in .venv; nothing has to be activated.

PYTHON ?= python3
VENV := .venv
TORCH_VENV := .venv-torch
MAN := docs/numtui.1
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests start programs by the hundred: none of them compiles again what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast truth register fuzz fuzz-reader mutate test-integrations test-torch test-gpu check wheel format screenshots man clean

demo: $(VENV)/.viewer  ## open the explorer on the shipped example, in which a bug is to be found
	@$(BIN)/numtui demo || [ $$? -eq 1 ]

test: $(VENV)/.test-full  ## run all tests
	@.ci/packages tmux gcc 'chromium-headless-shell|chromium|chromium-browser|google-chrome'
	$(BIN)/python -m pytest -n 3 --dist worksteal

test-fast: $(VENV)/.test  ## run the tests that need no torch, terminal, browser, screen or much time, with fewer random examples
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not (torch or pty or browser or screen or slow)' --hypothesis-profile fast

truth: $(VENV)/.test-full  ## is the first cause where a bug was planted, and are healthy pairs quiet? the narrow suite, and the wide one on this commit's seed
	$(BIN)/python -m benchmarks.truth
	$(BIN)/python -m benchmarks.truth --wide --verbose

test-integrations: $(VENV)-integrations/.integrations  ## run the callbacks in the libraries that they are for, in an environment of their own
	$(VENV)-integrations/bin/python -m pytest tests/integrations

test-torch: $(if $(TORCH),$(TORCH_VENV)/.$(TORCH))  ## run the tests that need torch with a version of it: make test-torch TORCH=2.15.0 (gigabytes)
	@[ -n '$(TORCH)' ] || { echo 'which one? make test-torch TORCH=2.15.0' >&2; exit 2; }
	@.ci/packages gcc
	$(TORCH_VENV)/bin/python -m pytest -n 2 --dist worksteal -m torch

GPU_PYTHON ?= python3
test-gpu:  ## run what needs a GPU, and measure there, with a Python that has torch for CUDA, and pytest: make test-gpu GPU_PYTHON=python3
	$(GPU_PYTHON) -m pytest -c tests/gpu/pytest.ini $$($(GPU_PYTHON) -c 'import xdist' 2>/dev/null && echo --numprocesses auto --maxprocesses 8 --dist worksteal) tests/gpu
	$(GPU_PYTHON) -m benchmarks.capture_cost --device cuda

register: $(if $(TORCH),$(TORCH_VENV)/.$(TORCH))  ## write what a version of torch says of its operations: make register TORCH=2.15.0
	@[ -n '$(TORCH)' ] || { echo 'which one? make register TORCH=2.15.0' >&2; exit 2; }
	$(TORCH_VENV)/bin/python -m tests.matchers.laws.torch_operations matchers/laws/torch_operations.txt

SECONDS ?= 600
fuzz: $(VENV)/.test  ## try random damage for so long: make fuzz SECONDS=600 SEED=1 (docs/reliability.md)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(TALLY),--tally $(TALLY))

COUNT ?= 100000
fuzz-reader: $(VENV)/.test  ## read damaged logs with the compiled reader under sanitizers: make fuzz-reader COUNT=100000 SEED=1
	@.ci/packages gcc
	$(BIN)/python -m tests.fuzz.reader --count $(COUNT) $(if $(SEED),--seed $(SEED))

mutate: $(VENV)/.test  ## move each number in matchers by 3 and 1/3 and say which of them no test holds: make mutate ONLY=verdict/tolerance.py EVERY=4
	$(BIN)/python -m tests.mutation $(if $(ONLY),--only $(ONLY)) $(if $(EVERY),--every $(EVERY))

check: $(VENV)/.lint  ## run the linters, the type checker and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.matchers.laws.names_contract

wheel: $(VENV)/.viewer  ## build the wheel and run what it installs outside of the checkout
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(INSTALL) --no-deps --target build/site build/wheel/numtui-*.whl
	cd / && PYTHONPATH=$(CURDIR)/build/site $(CURDIR)/$(BIN)/python -m numtui demo | grep build/site/numtui/_examples
	cd / && PYTHONPATH=$(CURDIR)/build/site $(CURDIR)/$(BIN)/python -m numtui diff $(CURDIR)/examples/eager $(CURDIR)/examples/traced --format html \
	  | grep '</html>'
	@# as on a machine without a compiler: PATH is empty, nothing is compiled
	cd / && PATH= PYTHONPATH=$(CURDIR)/build/site $(CURDIR)/$(BIN)/python -c 'from matchers.logs.reader_library import INSTALLED, library; \
	  found, problem = library(); print(INSTALLED); assert found and found._name == str(INSTALLED), problem; \
	  from matchers import graph; assert graph._compiled()._name == str(graph.INSTALLED); \
	  from matchers.logs.imported import json_shapes; assert json_shapes._compiled()._name == str(json_shapes.INSTALLED); \
	  from numtui.terminal import crash; assert crash._library()._name == str(crash.INSTALLED)'
	test -s build/site/numtui_capture.pth

format: $(VENV)/.lint  ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

screenshots: $(VENV)/.test  ## draw the pictures of the README
	$(BIN)/python -m tests.numtui.scenes

man: $(VENV)/.test  ## write the manual page from the parsers of the command line
	COLUMNS=80 SOURCE_DATE_EPOCH=0 $(BIN)/argparse-manpage --module numtui.cli.parser --function root_parser --format single-commands-section \
	  --project-name numtui --version "$$($(BIN)/python -m numtui --version | cut -d' ' -f2)" --manual-title 'User Commands' \
	  --description 'find where two training runs diverge' --include docs/numtui.1.in \
	  | sed '1s/"1970[^"]*"/""/' > $(MAN)

clean:
	rm -rf $(VENV) $(VENV)-integrations $(TORCH_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.viewer: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("numtui needs Python 3.10 or newer: make PYTHON=python3.12" if sys.version_info < (3, 10) else 0)'
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@echo "installing numtui into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

$(VENV)-integrations/.integrations: pyproject.toml constraints.txt
	@$(MAKE) --no-print-directory VENV=$(VENV)-integrations $@

# One stamp per extra of pyproject.toml.
$(VENV)/.lint $(VENV)/.test $(VENV)/.test-full $(VENV)/.integrations: $(VENV)/.%: $(VENV)/.viewer
	@echo "installing numtui[$*] into $(VENV)"
	@$(INSTALL) --editable '.[$*]'
	@touch $@

# One version at a time, beside the one of constraints.txt; nothing of it stays in pip's cache.
$(TORCH_VENV)/.%: pyproject.toml constraints.txt
	@rm -rf $(TORCH_VENV)
	@$(PYTHON) -m venv $(TORCH_VENV)
	@echo "installing torch $* into $(TORCH_VENV)"
	@grep -v '^torch==' constraints.txt > $(TORCH_VENV)/constraints.txt
	@$(TORCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
	  --constraint $(TORCH_VENV)/constraints.txt 'torch==$*' --editable '.[test]'
	@touch $@
