# Every target sets up what it needs by itself: `.venv` from requirements.lock, Kafka's jars at first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WARM := $(VENV)/.warmed
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check format bench storm compat lock clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'
	@echo "  (arguments: make demo ARGS='--seconds 20')"

setup: $(STAMP) ## the virtual environment .venv, from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "heliograph needs Python >= 3.11, this is " + sys.version.split()[0] + ": make PYTHON=/path/to/python3.11")'
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@test -x $(BIN)/uv || { echo "installing uv"; grep -A200 '^uv==' requirements.lock | awk 'NR>1 && /^[a-z]/ {exit} {print}' > $(VENV)/uv.lock \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock; }
	@echo "installing the locked packages into $(VENV)"
	@$(BIN)/uv pip sync --compile-bytecode --python $(BIN)/python requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(WARM): $(STAMP)
	@$(BIN)/heliograph warm --kafka || echo "not warmed: Spark and Kafka start slower, nothing else"
	@touch $@

demo: $(STAMP) ## two embedded clusters mirroring each other, or a hub and spokes (make demo ARGS='hub-spoke --seconds 20')
	@$(BIN)/heliograph demo $(ARGS)

test: $(WARM) ## all tests: unit, property, broker, journey
	@$(BIN)/python -m tests $(ARGS)

quick: $(STAMP) ## unit and property tests only, under a minute
	@$(BIN)/python -m tests --quick $(ARGS)

check: $(STAMP) ## format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(STAMP) ## put the code in order
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(WARM) ## Heliograph beside MirrorMaker 2 on the same brokers (make bench ARGS='lz4 --runs 2')
	@$(BIN)/python -m bench $(ARGS)

storm: $(WARM) ## faults at seeded random on two clusters mirrored both ways (make storm ARGS='--faults 1000 --seed 1')
	@$(BIN)/python -m storm $(ARGS)

compat: $(WARM) ## hard topics between Kafka releases, kill -9 in between (make compat ARGS='--releases 2.8.2 --roles source')
	@$(BIN)/python -m compat $(ARGS)

lock: $(STAMP) ## renew requirements.lock (names, versions, hashes; no addresses)
	@$(BIN)/uv pip compile pyproject.toml --group dev --generate-hashes --no-emit-index-url --universal --python-version 3.11 --upgrade -o requirements.lock

clean: ## the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/out
