# `make run` starts the portal, `make test` and `make check` verify it, `make bench` measures it, and `make frontend`
# builds the scripts of the pages. PORT= and REGATTA_* are passed on.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-timed test-untimed test-processes test-others test-packages kube-setup test-near test-deep mutate test-faults test-frameworks test-glusterfs test-kube check bench frontend environment environment-dev

BIN := .venv/bin
# A job starts many processes with the same modules: compile them once, whatever the caller's environment sets.
export PYTHONDONTWRITEBYTECODE :=
# Groups of tests that have targets of their own.
APART := not kube and not glusterfs and not frameworks
# Tests that wait for processes, servers or a browser: they fail if the machine has far too little time for them.
PROCESSES := processes or browser or faults or postgres
# More workers than cores: many tests wait for processes, servers and browsers. Fewer for those that wait for none: each
# worker reads all test files first, which takes 25 s of a core.
WORKERS = $(shell echo $$((2 * $$(nproc))))
WORKERS_OF_OTHERS = $(shell echo $$(($$(nproc) + 1)))
IN_PARALLEL = HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Reading only these files saves the time of importing all others, in each worker. tests/conftest.py checks that no other
# has such tests.
TIMED = $(shell grep -rlw --include='test_*.py' timed tests)
WITH_PROCESSES = $(shell grep -rlE --include='test_*.py' 'mark\.(processes|browser|faults|postgres)\b' tests)
ON_CLUSTER = $(shell grep -rlE --include='test_*.py' 'mark\.kube\b' tests)

help:
	@echo "make run       start the portal on this machine (PORT=8000, REGATTA_DATA_DIR=./data)"
	@echo "make test      run every test that this machine supports; the last lines name the skipped groups and why"
	@echo "make test-near run the tests that the change since main can affect (BASE= names another branch)"
	@echo "make test-deep run property tests with ten times the examples and a random seed (SEED= repeats one)"
	@echo "make mutate    apply small bugs and list those that no test notices (ONLY=quota- for some, JOBS=1)"
	@echo "make test-kube run the tests on the cluster of KUBECONFIG, with images from REGISTRY (KUBECTL=kubectl)"
	@echo "make test-faults install the platform on that cluster, cause faults under a running job, and print what each did"
	@echo "               (WORDS='etcd Redis' chooses some; KUBE_NODE_UP and KUBE_NODE_DOWN: commands for a second node)"
	@echo "make test-glusterfs test datasets on a temporary GlusterFS volume (as root, with /dev/fuse)"
	@echo "make test-frameworks run jobs of PaddlePaddle, installed from PyPI (about 1.5 GB); with KUBECONFIG and REGISTRY"
	@echo "               also on the cluster (3 GB of images)"
	@echo "make check     check style, types, imports, migrations, the page of invariants and frontend files"
	@echo "make bench     measure everything and write docs/benchmarks.md (ROWS=S for a letter, ROWS=S2,P4 for rows; RESUME=1"
	@echo "               continues an earlier run of this commit; QUICK=1 only checks that the rows work)"
	@echo "make frontend  rebuild portal/static/portal/dist (needs Node)"

environment:
	@scripts/environment.sh requirements.txt

environment-dev:
	@scripts/environment.sh requirements-dev.txt

run: environment
	@$(BIN)/python manage.py up

# Tests that compare times come first: another test beside them would change what they measure.
test:
	@$(MAKE) --no-print-directory test-timed
	@$(MAKE) --no-print-directory test-untimed

test-timed: test-packages
	@# (5: ARGS selected none.)
	$(BIN)/python -m pytest -m "timed and $(APART)" --numprocesses 0 $(or $(ARGS),$(TIMED)) || [ $$? = 5 ]

test-untimed: test-packages
	$(IN_PARALLEL) -m "not timed and $(APART)" $(ARGS)

# The two halves of test-untimed.
test-processes: test-packages
	$(IN_PARALLEL) -m "($(PROCESSES)) and not timed and $(APART)" $(or $(ARGS),$(WITH_PROCESSES))

test-others: test-packages
	$(IN_PARALLEL) --numprocesses $(WORKERS_OF_OTHERS) -m "not ($(PROCESSES)) and not timed and $(APART)" $(ARGS)

test-near: environment-dev
	@near=$$($(BIN)/python scripts/test_near.py --base $${BASE:-main}) || exit; \
	if [ -z "$$near" ]; then echo "The change affects no test."; exit; fi; \
	$(MAKE) --no-print-directory test ARGS="$$(echo $$near) $(ARGS)"

test-packages: environment-dev
	@# libatomic1: for the Node that playwright brings.
	@scripts/system_packages.sh chromium curl gettext iproute2 libatomic1 etcd-server etcd-client openssl pgbouncer postgresql redis-server docker-registry prometheus

test-deep: environment-dev
	@seed=$${SEED:-$$((RANDOM * 32768 + RANDOM))}; echo "Seed $$seed. The same again: make test-deep SEED=$$seed"; \
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -m hypothesis --hypothesis-seed=$$seed --timeout 3600 --numprocesses 2 $(ARGS)

# Packages of which tests on a cluster make images or run programs. libatomic1: for the Node that playwright brings.
KUBE_PACKAGES = buildah chromium docker-registry etcd-server etcd-client libatomic1 nginx-light openssl postgresql prometheus redis-server

kube-setup: environment-dev
	@: $${KUBECONFIG:?These tests need a cluster: set KUBECONFIG to the file that says where it is.}
	@: $${REGISTRY:?These tests need a registry with base/python:3.11: set REGISTRY to its address and port (deploy/README.md).}
	@scripts/system_packages.sh $(KUBE_PACKAGES)

test-kube: kube-setup
	@# In parallel: they mostly wait for pods. Then those that need the whole cluster or compare times. (5: ARGS selected none.)
	$(BIN)/python -m pytest -m "kube and not frameworks and not alone and not timed" --numprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS) $(ON_CLUSTER) || [ $$? = 5 ]
	$(BIN)/python -m pytest -m "kube and (alone or timed)$(if $(SHORT), and not lengthy)" --numprocesses 0 $(ARGS) $(ON_CLUSTER) || [ $$? = 5 ]

test-faults: kube-setup
	$(BIN)/python -m tests.installation.faults $(WORDS)

test-glusterfs: environment-dev
	@scripts/system_packages.sh glusterfs-server glusterfs-client
	$(BIN)/python -m pytest -m glusterfs $(ARGS) tests/datasets

test-frameworks: environment-dev
	@scripts/system_packages.sh $(if $(KUBECONFIG),buildah libgomp1)
	$(BIN)/python -m pytest -m "frameworks$(if $(KUBECONFIG),, and not kube)" $(ARGS) tests/end_to_end tests/jobs/operator

check: environment-dev
	@scripts/system_packages.sh nodejs npm
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_programs.py
	$(BIN)/python scripts/invariants.py --check
	$(BIN)/python scripts/retired_words.py
	@scripts/in_scratch.sh $(BIN)/python manage.py makemigrations --check --dry-run
	@scripts/in_scratch.sh $(BIN)/python scripts/check_migrations.py
	@scripts/in_scratch.sh $(BIN)/python manage.py check
	scripts/check_frontend.sh

bench:
	@scripts/environment.sh requirements-bench.txt
	@scripts/system_packages.sh chromium curl etcd-server iproute2 libatomic1 nginx-light postgresql redis-server $(if $(KUBECONFIG),buildah)
	@scripts/bench_peers.sh
	$(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(RESUME),--resume) $(ROWS)

mutate: environment-dev
	$(BIN)/python scripts/mutate.py --only '$(ONLY)' --jobs $${JOBS:-1}

frontend:
	npm --prefix frontend ci --no-audit --no-fund
	npm --prefix frontend run build
