# The PaddleJob controller. Build in the root of the project:
#   docker build --file deploy/kubernetes/controller.Dockerfile --tag registry.example.com/regatta/controller:0.1.0 .
ARG BASE=python:3.11-slim
FROM $BASE
# Settings of pip for the package index. The default is pypi.org.
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_TRUSTED_HOST PIP_CERT
WORKDIR /regatta
COPY requirements.txt ./
RUN grep -E '^(kubernetes|prometheus-client|PyYAML)==' requirements.txt > controller.txt \
    && python3 -m pip install --no-cache-dir --requirement controller.txt
COPY jobs/__init__.py jobs/
# Environment variables of Paddle, shared with the portal.
COPY jobs/frameworks/__init__.py jobs/frameworks/paddle.py jobs/frameworks/
COPY jobs/operator jobs/operator
# Functions of Kubernetes objects, shared with elastic jobs.
COPY jobs/kubernetes_objects jobs/kubernetes_objects
USER 10001
ENTRYPOINT ["python3", "-m", "jobs.operator"]
