# `make run` starts the portal, `make test` and `make check` judge it, `make bench` measures it, `make frontend` builds
# the pages' scripts. PORT= and REGATTA_* are passed on.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test test-frameworks test-glusterfs test-kube check bench frontend environment environment-dev

BIN := .venv/bin
# A job starts many processes of the same modules: they are compiled once, whatever the caller's shell prefers.
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make run       start the portal on this machine (PORT=8000, REGATTA_DATA_DIR=./data)"
	@echo "make test      run every test that can run here; the last lines name what could not"
	@echo "make test-kube try Kubernetes on the cluster of KUBECONFIG, with images from REGISTRY (KUBECTL=kubectl)"
	@echo "make test-glusterfs try data sets on a GlusterFS volume of its own (as root, with /dev/fuse)"
	@echo "make test-frameworks try jobs of PaddlePaddle, which their builds install from PyPI (about 1.5 GB); with KUBECONFIG"
	@echo "               and REGISTRY those on the cluster as well (3 GB of images)"
	@echo "make check     style, types, imports, migrations, frontend files"
	@echo "make bench     measure; tables on the terminal, JSON in build/bench (ROWS=P for one letter)"
	@echo "make frontend  rebuild portal/static/portal/dist (needs Node)"

environment:
	@scripts/environment.sh requirements.txt

environment-dev:
	@scripts/environment.sh requirements-dev.txt

run: environment
	@$(BIN)/python manage.py up

test: environment-dev
	@# libatomic1: for the Node that playwright brings.
	@scripts/system_packages.sh chromium gettext libatomic1 etcd-server etcd-client openssl postgresql docker-registry
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-kube: environment-dev
	@: $${KUBECONFIG:?make test-kube needs a cluster: set KUBECONFIG to the file that says where it is.}
	@: $${REGISTRY:?make test-kube needs a registry with base/python:3.11: set REGISTRY to its address and port (deploy/README.md).}
	@# libatomic1: for the Node that playwright brings.
	@scripts/system_packages.sh buildah chromium etcd-server etcd-client libatomic1 openssl
	@# At once: they wait for pods more than they work. Then those that need all that the cluster has. (5: ARGS left none.)
	$(BIN)/python -m pytest -m "kube and not frameworks and not alone" --numprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS) tests || [ $$? = 5 ]
	$(BIN)/python -m pytest -m "kube and alone" --numprocesses 0 $(ARGS) tests || [ $$? = 5 ]

test-glusterfs: environment-dev
	@scripts/system_packages.sh glusterfs-server glusterfs-client
	$(BIN)/python -m pytest -m glusterfs $(ARGS) tests/datasets

test-frameworks: environment-dev
	@scripts/system_packages.sh $(if $(KUBECONFIG),buildah libgomp1)
	$(BIN)/python -m pytest -m "frameworks$(if $(KUBECONFIG),, and not kube)" $(ARGS) tests/end_to_end tests/jobs/kubernetes

check: environment-dev
	@scripts/system_packages.sh nodejs npm
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@scripts/in_scratch.sh $(BIN)/python manage.py makemigrations --check --dry-run
	@scripts/in_scratch.sh $(BIN)/python manage.py check
	scripts/check_frontend.sh

bench: environment
	$(BIN)/python -m bench $(ROWS)

frontend:
	npm --prefix frontend ci --no-audit --no-fund
	npm --prefix frontend run build
