# What one can do here. The environment `.venv` is made and kept up to date by itself.
#
#   PYTHON=…  names an interpreter to use instead of `.venv`; it must have all dependencies.
#   ARGS=…    is handed on to the daemon (run) or to pytest (test).
#   N=…, WINDOWS=…  set the sizes of the full proofs.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

ifeq ($(origin PYTHON), undefined)
python := .venv/bin/python
run_environment := .venv/.run
dev_environment := .venv/.dev
else
# The package need not be installed there: it is found through a link with its name.
python := env PYTHONPATH="$(CURDIR)/build/link$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
run_environment := build/link/vllm_watchdog
dev_environment := build/link/vllm_watchdog
endif

.PHONY: help
help: ## say what can be made
	@awk -F ':.*## ' '/^[a-zA-Z%-]+:.*## / { sub(/%/, "NAME", $$1); printf "make %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: $(run_environment) ## start the daemon in the foreground (ARGS='--config FILE')
	@PYTHONSAFEPATH=1 exec $(python) -m vllm_watchdog.watchdog.cli run $(ARGS)

.PHONY: test
test: $(dev_environment) ## run all tests but the full-size proofs (ARGS='tests/promql -x')
	$(python) -m pytest $(ARGS)

.PHONY: peers
peers: ## install the real servers that tests and benchmarks start
	@tests/peers/install.sh

.PHONY: lint
lint: $(dev_environment) ## formatter, linter, strict types, import contracts
	$(python) -m ruff format --check .
	$(python) -m ruff check .
	$(python) -m mypy watchdog collectors remediations rules
	$(python) -c 'from importlinter.cli import lint_imports; raise SystemExit(lint_imports())'

.PHONY: incidents
incidents: $(dev_environment) ## judge the incident corpus: causes and acts (ARGS=--json)
	@$(python) -m vllm_watchdog.watchdog.cli test-incidents tests/incidents $(ARGS)

.PHONY: docs
docs: $(dev_environment) ## write the pages that are made from the code
	$(python) -c 'from vllm_watchdog.watchdog.config.reference import page; print(page(), end="")' > docs/configuration.md
	$(python) -c 'from vllm_watchdog.watchdog.setup.kinds import script; print(script(), end="")' > deploy/elk/filebeat/vllm-kinds.js
	$(python) -c 'from vllm_watchdog.watchdog.setup.objects import ndjson; print(ndjson(), end="")' > deploy/elk/kibana/vllm-watchdog.ndjson

.PHONY: screenshots
screenshots: $(dev_environment) ## take the pictures of the status page in docs/images (needs chromium)
	$(python) -m tests.pages.screenshots

.PHONY: promql-oracle
promql-oracle: $(dev_environment) ## compare N=20000 generated expressions with a real Prometheus
	N=$(or $(N),20000) $(python) -m pytest tests/promql/test_oracle.py

.PHONY: fuzz-captures
fuzz-captures: $(dev_environment) ## feed N=100000 damaged outputs to the collectors
	N=$(or $(N),100000) $(python) -m pytest $(wildcard tests/collectors/test_*_fuzz.py)

.PHONY: latency
latency: $(dev_environment) ## judge WINDOWS=200 windows of a known round trip each
	WINDOWS=$(or $(WINDOWS),200) $(python) -m pytest tests/test_latency_namespaces.py

.PHONY: loss
loss: $(dev_environment) ## ship EVENTS=100000 events through every outage: each once
	EVENTS=$(or $(EVENTS),100000) $(python) -m pytest tests/elk/test_loss.py

.PHONY: crash-steps
crash-steps: $(dev_environment) ## kill the daemon at each step of each act on a whole node
	STEPS=all $(python) -m pytest -s tests/healing/test_crash_steps.py

bench-%: $(dev_environment) ## run benchmarks/NAME.py; its last line is one JSON object
	@$(python) benchmarks/$(subst -,_,$*).py $(ARGS)

.venv/.run: pyproject.toml deploy/environment.sh
	@deploy/environment.sh run

.venv/.dev: pyproject.toml deploy/environment.sh
	@deploy/environment.sh dev

build/link/vllm_watchdog:
	@mkdir -p build/link && ln -s ../.. $@
