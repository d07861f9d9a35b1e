# Two commands matter: `make demo` and `make test`. Both do all the set-up, reuse caches outside
# the tree ($RTJ_CACHE, default ~/.cache/rtj), can be run twice and clean up after themselves.
SHELL := /bin/bash
RTJ_CACHE ?= $(HOME)/.cache/rtj
export RTJ_CACHE
VENV := $(RTJ_CACHE)/venv
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR)/crds:$(CURDIR)/operator:$(CURDIR)/trainer_sidecar:$(CURDIR)/trainer_library:$(CURDIR)/cli:$(CURDIR)/tests:$(CURDIR)
export PYTHONDONTWRITEBYTECODE := 1
PYTEST := $(PY) -m pytest -q
PACKAGES := crds/rtj_api operator/rtj_operator trainer_sidecar/rtj_sidecar trainer_library/rtj_trainer cli/rtj_cli

.DEFAULT_GOAL := help
.PHONY: help setup setup-lint demo docs docs-serve test test-long lint typecheck unit property simulation contract e2e scale schedules frameworks fuzz scan release-check release-build generate check-generated lock benchmarks images clean

help: ## This list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Everything that demo and test need: packages, virtual environments, cluster binaries, images
	@scripts/setup all

setup-lint: ## Only what lint and the fast tests need
	@scripts/setup python

demo: setup ## A real cluster, the operator by Helm, a PyTorch job killed four ways; prints the timeline
	@$(PY) -u -m kit.demo

test: setup ## Every test tier, from fast to real; a tier that cannot run is a failure in CI
	@scripts/test all

test-long: setup ## The tests that `make test` leaves out (repetitions, larger sizes; hours); TIERS=e2e only these
	@scripts/test --long $(TIERS)

lint: setup-lint ## ruff, import contracts, strict types, generated files
	@scripts/test lint

unit: setup-lint ## One module at a time, tables of cases
	@scripts/test $@

property: setup-lint ## The laws, on inputs that are made up
	@scripts/test $@

simulation: setup-lint ## In-memory cluster and store with a fake clock, faults between any two writes
	@scripts/test $@

contract: setup ## Real kopf, real client, real API server and S3
	@scripts/test $@

e2e: setup ## Real scheduler, kubelet, containerd, S3, Prometheus, Helm, PyTorch
	@scripts/test $@

scale: setup ## Many jobs, simulated sidecars
	@scripts/test $@

schedules: setup-lint ## COUNT random schedules of faults in the simulation (default 10000; seeds printed; long, not in CI)
	@nice -n 19 $(PY) -u -m kit.schedules --count $${COUNT:-10000} --first $${FIRST:-0}

frameworks: ## Every training framework, for real: saves, killed saves, resumes (long; not in CI)
	@scripts/setup trainer
	@RTJ_FRAMEWORKS=$${RTJ_FRAMEWORKS:-1} nice -n 10 $(PYTEST) -s tests/frameworks

fuzz: setup-lint ## Fuzz every reader of a checkpoint's bytes for SECONDS (long; not in CI)
	@scripts/fuzz $${SECONDS:-600}

release-check: setup-lint ## What a release needs, thing by thing; TAG=v1.2.3 asks about the tag too
	@$(PY) scripts/release.py check $(if $(TAG),--tag $(TAG))

scan: setup-lint ## hadolint, checkov, trivy and pip-audit; says which could not run here (STRICT=1: a failure)
	@scripts/setup scan
	@$(PY) scripts/scan.py $(if $(STRICT),--strict)

release-build: setup-lint ## The release's files into dist/: chart, wheel, CRD, SHA256SUMS
	@$(PY) scripts/release.py build

docs: ## The site made of docs/, into build/site; a broken link or a forgotten page is a failure
	@scripts/setup docs
	@NO_MKDOCS_2_WARNING=1 $(RTJ_CACHE)/docs-venv/bin/mkdocs build --strict --quiet

docs-serve: ## The site on 127.0.0.1:8000, made anew while you write
	@scripts/setup docs
	@NO_MKDOCS_2_WARNING=1 $(RTJ_CACHE)/docs-venv/bin/mkdocs serve --dev-addr 127.0.0.1:8000

generate: ## Write every generated file anew: CRD, chart copies, docs, dashboards
	@scripts/generate

check-generated: ## Fail where a generated file differs from what the code says
	@scripts/generate --check

lock: ## Pin the requirements anew, with hashes and without index addresses
	@scripts/lock

benchmarks: setup ## Print every benchmark's JSON, one after the other (long; on an idle machine)
	@set -e; for name in transfer discovery trainer_step operator_load spares recovery hiccups; do $(PY) -u benchmarks/$$name.py; done

clean: ## Take down the clusters that demo and tests made; caches stay
	@for name in rtj-demo rtj-test rtj-test-gw0 rtj-test-gw1 rtj-test-gw2 rtj-bench; do python3 -m devcluster down --name $$name; done
