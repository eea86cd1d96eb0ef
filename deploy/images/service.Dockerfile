# syntax=docker/dockerfile:1
# The image of every role but the worker with its own vLLM: `slackwater api | control | work | migrate`.
#
#   docker build --file deploy/images/service.Dockerfile --tag slackwater .

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements requirements
# The locked packages first, in a layer that a change of our own code does not touch.
RUN python -m venv /opt/slackwater \
 && pip install --require-hashes --requirement requirements/uv.txt \
 && uv pip install --python /opt/slackwater --no-cache --compile-bytecode --require-hashes --requirement requirements/service.txt
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY src src
RUN uv build --wheel --require-hashes --build-constraints requirements/dev.txt --out-dir /dist \
 && uv pip install --python /opt/slackwater --no-cache --compile-bytecode --no-deps /dist/slackwater-*.whl

FROM python:3.11-slim-bookworm
# A fixed number, so that volumes keep their owner across builds.
RUN groupadd --system --gid 10001 slackwater \
 && useradd --system --uid 10001 --gid slackwater --home-dir /var/lib/slackwater --create-home --shell /usr/sbin/nologin slackwater \
 && install --directory --owner=slackwater --group=slackwater /scratch
COPY --from=build /opt/slackwater /opt/slackwater
# In a container the network is the fence, so the roles listen on every address of it.
ENV PATH=/opt/slackwater/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SLACKWATER_API_HOST=0.0.0.0 \
    SLACKWATER_PROBE_HOST=0.0.0.0 \
    SLACKWATER_SCRATCH_DIR=/scratch
# The number, because Kubernetes cannot tell from a name that it is not root.
USER 10001:10001
WORKDIR /var/lib/slackwater
EXPOSE 8000 9464
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9464/healthz', timeout=2)"]
ENTRYPOINT ["slackwater"]
