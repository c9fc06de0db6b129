# The client: `mxr` for init containers, the initializer of KServe, and hosts whose cache is filled. At the root of a
# checkout: docker build -f deploy/docker/client.Dockerfile -t mxr .
#   docker run --rm -e MXR_REGISTRY=https://registry.example.com -e MXR_TOKEN_FILE=/run/secrets/token ... mxr whoami

# Any image with Python 3.10 or newer and its module venv.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS build
COPY . /src
RUN python3 -m venv /opt/mxr \
    && /opt/mxr/bin/pip install --no-cache-dir -c /src/constraints.txt /src \
    && /opt/mxr/bin/pip uninstall --yes --quiet pip setuptools

FROM ${BASE}
LABEL org.opencontainers.image.title="mxr" \
      org.opencontainers.image.description="Fetches MIGraphX programs from an mxr registry" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/mxr /opt/mxr
ENV PATH=/opt/mxr/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    MXR_CACHE_DIR=/tmp/mxr
USER 65532:65532
ENTRYPOINT ["mxr"]
