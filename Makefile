# Everything a checkout can do. Needs git, make and Python >= 3.11 with venv; `make` alone explains.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# Extras that `make install` is to bring beside `dev`, with commas.
EXTRAS ?=

# What a plain `make test` leaves out: these need minutes, a cluster, a GPU or a browser.
FAST   := not slow and not kube and not gpu and not browser
# What a contributor runs at each change: no process is started but by the one test of every verb.
UNIT   := tests/kernel/test_every_verb.py $(wildcard tests/contract tests/unit)
# Real kernels, notebooks and controllers: what takes longest in one file first.
KERNEL := tests/notebooks tests/kernel tests/binder $(addprefix tests/integration/,cli controller)
# What runs on clusters and beside them, in depth.
DEPTH  := tests/contract $(addprefix tests/integration/,backends environment faults fit mirror network server telemetry tensorboard worker)
# Rank groups on real clusters: many small starts and deaths.
GROUPS := $(addprefix tests/integration/,ddp groups)
# Tests in parallel processes, a file in one of them: what its fixtures make is made once.  In the order
# above: files of one folder share a cluster, and what has few tests that take long is not begun last.
# Where a process of tests dies, its test is named and the suite ends: one that is replaced makes
# pytest-xdist wait for ever.
FILES  := --dist loadfile --no-loadscope-reorder --max-worker-restart 0
PARALLEL := -n 2 $(FILES)
# Those that wait for kernels and pages, and those that wait for clusters and ranks half of the time.
WAITING := -n 3 $(FILES)
RESTING := -n 4 $(FILES)
ARGS   ?=
# The panel needs node and 500 MB of packages to be built: only targets that show it build it.
export JUPYTER_DDL_NO_PANEL := 1
# Where it is set, as in many images, each of the thousand processes that tests start compiles what it
# imports: a third of what a cluster costs.
unexport PYTHONDONTWRITEBYTECODE
PANEL  := $(BIN)/python tools/build_labextension.py

.DEFAULT_GOAL := help
.PHONY: help install demo test test-kernel test-clusters test-groups test-gpu test-real test-kube test-kube-slow test-slow test-js test-browser labextension lab lint format helm audit sbom soak soak-orphans soak-strategies soak-kube fuzz bench docs notebooks badge pictures clean

help:  ## show this
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '  %-17s %s\n' "$$name" "$$text"; done

install: $(READY)  ## make the virtual environment .venv (others do it when needed); EXTRAS=tools,browser
	@test -z "$(EXTRAS)" -o "$(EXTRAS)" = "$$(cat $(READY))" || { $(PIP) -e '.[$(EXTRAS)]' && echo "$(EXTRAS)" >$(READY); }

demo: $(READY)  ## execute the quickstart notebook here, with progress, and print the best trial
	@$(BIN)/python tools/demo.py

test: $(READY)  ## all unit and contract tests, and every verb once end to end; TESTS=tests/unit/cell is a part
	@$(BIN)/python -m pytest $(PARALLEL) -m "$(FAST) and not integration" $(or $(TESTS),$(UNIT)) $(ARGS)

test-kernel: $(READY)  ## the magics in real kernels, the notebooks, controllers; ARGS="-k name -x" reaches pytest
	@$(BIN)/python -c 'import accelerate, h5py, numba, papermill, plotly, safetensors' 2>/dev/null || $(PIP) -e '.[tools]'
	@$(BIN)/python -m pytest $(WAITING) -m "$(FAST)" $(KERNEL) $(ARGS)

test-clusters: $(READY)  ## clusters in depth: other backends, faults, environments, fits, the server, rank groups
	@$(BIN)/python -c 'import dask_gateway, dask_gateway_server' 2>/dev/null || \
		$(PIP) -e '.[gateway,gateway-server]'
	@$(BIN)/python -m pytest $(RESTING) -m "$(FAST) and integration" $(GROUPS) $(DEPTH) $(ARGS)

test-groups: $(READY)  ## of these the rank groups alone: training, faults, persistent groups
	@$(BIN)/python -m pytest $(RESTING) -m "$(FAST)" $(GROUPS) $(ARGS)

test-real: $(READY)  ## programs as people paste them, with the frameworks that they use
	@$(BIN)/python -c 'import catboost, hyperopt, jax, lightning, peft, skorch' 2>/dev/null || \
		$(PIP) -e '.[real]'
	@$(BIN)/python -m pytest -m real tests/real $(ARGS)

test-gpu: $(READY)  ## training on this host's GPUs under nccl; skipped with a reason without one
	@$(BIN)/python -m pytest -m gpu tests/gpu $(ARGS)

test-slow: $(READY)  ## the tests that take minutes
	@$(BIN)/python -m pytest -m "slow and not kube and not gpu and not browser" $(ARGS)

test-js: node  ## the tests of the panel's TypeScript
	@$(PANEL) --test

test-browser: labextension  ## JupyterLab in a real browser (needs chromium)
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(PIP) -e '.[browser]'
	@$(BIN)/python -m pytest $(WAITING) tests/browser $(ARGS)

labextension: node  ## build the panel for JupyterLab where it is missing or old
	@$(PANEL) --link

test-kube: $(READY)  ## clusters of pods on the Kubernetes of KUBECONFIG (docs/kubernetes.md)
	@$(BIN)/python -m pytest tests/kube -m "kube and not slow" $(ARGS)

test-kube-slow: $(READY)  ## pods again and again, and without an operator: 20 minutes
	@$(BIN)/python -m pytest tests/kube -m "kube and slow" $(ARGS)

lab: labextension  ## open JupyterLab on the notebooks
	@$(BIN)/jupyter lab --notebook-dir=notebooks $(ARGS)

lint: $(READY)  ## style, types, layers, spelling, stripped notebooks, the panel's copy of the messages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell *.md docs notebooks jupyter_ddl tools bench binder labextension/src
	$(BIN)/python tools/strip_notebooks.py --check
	$(BIN)/python tools/make_types.py --check

format: $(READY)  ## rewrite what `make lint` can fix by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python tools/strip_notebooks.py
	$(BIN)/python tools/make_types.py
	$(BIN)/python tools/make_chart.py

helm: node  ## bring helm, with which the tests of deploy/helm are not skipped
	@tools/helm.sh

soak: $(READY)  ## kill what a search and a training need, 1,000 times in random order; ARGS="--kills 20"
	@$(BIN)/python -m tests.soak $(ARGS)

soak-orphans: $(READY)  ## kill kernel and controller in every state of both, 300 times; ARGS="--rounds 35"
	@$(BIN)/python -m tests.soak.orphans $(ARGS)

soak-strategies: $(READY)  ## each strategy 500 times in a row, half of the runs with a killed rank; ARGS="--runs 5"
	@$(BIN)/python -m tests.soak.strategies $(ARGS)

soak-kube: $(READY)  ## the same with pods, their controller and its notebooks, 200 times; ARGS="--kills 20"
	@$(BIN)/python -m tests.soak.kube $(ARGS)

fuzz: $(READY)  ## a million damaged inputs of each kind for all that reads what others wrote: an hour
	@$(BIN)/python -m jupyter_ddl.testing.fuzz --count 1000000 $(ARGS)

bench: $(READY)  ## measure the figures of docs/performance.md; ARGS="--quick --no-peers" is shorter
	@$(BIN)/python -m bench $(ARGS)

AUDIT := $(BIN)/python -c 'import cyclonedx_py, pip_audit' 2>/dev/null || $(PIP) -e '.[audit]'
audit: node  ## known advisories of the dependencies, of their lowest versions, and of the panel's
	@$(AUDIT)
	@$(BIN)/python tools/audit.py $(ARGS)

sbom: $(READY)  ## what is installed in .venv, as CycloneDX: out/sbom.json
	@$(AUDIT)
	@$(BIN)/python tools/audit.py --sbom out/sbom.json

docs: $(READY)  ## build the documents into out/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet $(ARGS)

notebooks: $(READY)  ## execute the notebooks and write them with outputs into docs/notebooks; ARGS=FILE
	@$(BIN)/python -c 'import dask_ml' 2>/dev/null || $(PIP) -e '.[large-data]'
	@$(BIN)/python tools/publish_notebooks.py $(ARGS)

badge:  ## lead the Binder badge and the live cells to your repository; ARGS=ADDRESS, else git's origin
	@$(PYTHON) tools/repository.py $(ARGS)

pictures: $(READY)  ## take the documents' pictures anew (needs chromium)
	@$(PIP) -e '.[browser]'
	@$(BIN)/python docs/make_pictures.py
	@$(MAKE) --no-print-directory test-browser \
		ARGS="-q -k 'panel_reads_well or page_reads_well or watched_rank_by_rank'"
	@for theme in light dark; do \
		cp out/browser/panel-wide-$$theme.png docs/images/panel_$$theme.png; \
		cp out/browser/cell-ddp-$$theme.png docs/images/training_$$theme.png; \
		$(BIN)/python -c "import sys; from PIL import Image; source, target = sys.argv[1:]; \
			Image.open(source).crop((0, 0, 1072, 1130)).quantize(256).save(target, optimize=True)" \
			out/browser/replay-search-$$theme-1100.png docs/images/replay_$$theme.png; done

clean:  ## delete the environment and everything that was made; runs of yours stay
	rm -rf $(VENV) out build dist bench/.peers .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache .hypothesis \
		jupyter_ddl/labextension labextension/lib labextension/.jest labextension/node_modules
	find jupyter_ddl tests bench tools docs -name __pycache__ -type d -prune -exec rm -rf {} +

# A node of the system is not used: its version is anybody's guess.
.PHONY: node
node: $(READY)
	@test -x $(BIN)/node || $(PIP) -e '.[panel]'

# The stamp is written last, so an interrupted installation is repeated; it holds the extras.  Python's own
# pip may be years old: below 25 it takes a minute more.
$(READY): pyproject.toml constraints.txt tools/check_python.sh
	@sh tools/check_python.sh "$(PYTHON)"
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV): one to three minutes …"
	@$(PIP) 'pip>=25'
	@$(PIP) -e '.[dev$(EXTRAS:%=,%)]'
	@echo "$(EXTRAS)" >$@
