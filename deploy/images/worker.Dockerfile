# syntax=docker/dockerfile:1
# A worker with vLLM beside it: vLLM's official image, and our wheel in an environment of its own.
#
#   docker build --file deploy/images/worker.Dockerfile --tag slackwater-worker .
#
# The worker starts vLLM as its child. Raise the version here and in docs only after the engine's contract suite
# passed with it.
ARG VLLM_VERSION=v0.32.0

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements requirements
RUN pip install --require-hashes --requirement requirements/uv.txt
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY src src
RUN uv build --wheel --require-hashes --build-constraints requirements/dev.txt --out-dir /dist

FROM vllm/vllm-openai:${VLLM_VERSION}
COPY requirements/service.txt requirements/uv.txt /tmp/requirements/
COPY --from=build /dist /tmp/dist
# Two environments that never meet: /opt/slackwater holds the service and nothing of vLLM's; /opt/engine is a door to
# the image's own packages, because a worker is told a folder (SLACKWATER_ENGINE_ENVIRONMENT), not an interpreter.
RUN python3 -m venv /opt/slackwater \
 && python3 -m venv --without-pip --system-site-packages /opt/engine \
 && /opt/slackwater/bin/pip install --no-cache-dir --require-hashes --requirement /tmp/requirements/uv.txt \
 && /opt/slackwater/bin/uv pip install --python /opt/slackwater --no-cache --compile-bytecode --require-hashes --requirement /tmp/requirements/service.txt \
 && /opt/slackwater/bin/uv pip install --python /opt/slackwater --no-cache --compile-bytecode --no-deps /tmp/dist/slackwater-*.whl \
 && rm -rf /tmp/requirements /tmp/dist \
 && groupadd --system --gid 10001 slackwater \
 && useradd --system --uid 10001 --gid slackwater --home-dir /var/lib/slackwater --create-home --shell /usr/sbin/nologin slackwater \
 && install --directory --owner=slackwater --group=slackwater /models /scratch
ENV PATH=/opt/slackwater/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/models \
    VLLM_NO_USAGE_STATS=1 \
    DO_NOT_TRACK=1 \
    SLACKWATER_ENGINE=vllm \
    SLACKWATER_ENGINE_ENVIRONMENT=/opt/engine \
    SLACKWATER_PROBE_HOST=0.0.0.0 \
    SLACKWATER_SCRATCH_DIR=/scratch
# The number, because Kubernetes cannot tell from a name that it is not root.
USER 10001:10001
WORKDIR /var/lib/slackwater
EXPOSE 9464
# Loading a large model takes minutes; the probe port answers from the start, so this says that the worker lives.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz', timeout=2)"]
ENTRYPOINT ["slackwater"]
CMD ["work"]
