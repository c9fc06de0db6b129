# A registry. At the root of a checkout: docker build -f deploy/docker/registry.Dockerfile -t mxr-registry .
#
# It runs as uid 65532 with a read-only root file system, and writes to /data only:
#   docker run --read-only -v mxr:/data -p 8765:8765 mxr-registry
# Every setting is a variable (docs/operate.md, "Settings of the registry"). Other commands take the place of `serve`:
#   docker run --rm -v mxr:/data mxr-registry token create alice --scopes admin

# Any image with Python 3.10 or newer and its module venv.
ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS build
COPY . /src
# pip builds a wheel of the checkout.
RUN python3 -m venv /opt/mxr \
    && /opt/mxr/bin/pip install --no-cache-dir -c /src/constraints.txt '/src[registry]' \
    && /opt/mxr/bin/pip uninstall --yes --quiet pip setuptools \
    && install -m 0644 /src/deploy/docker/health_check.py /opt/mxr/

FROM ${BASE}
LABEL org.opencontainers.image.title="mxr-registry" \
      org.opencontainers.image.description="Artifact registry and compile queue for MIGraphX programs" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/mxr /opt/mxr
RUN install -d -m 0700 -o 65532 -g 65532 /data
# HOME: nothing is written there, because a registry that other hosts reach keeps no tokens for its user.
ENV PATH=/opt/mxr/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/data \
    PYTHONUNBUFFERED=1 \
    MXR_SERVE_HOST=0.0.0.0 \
    MXR_SERVE_DATA=/data
USER 65532:65532
# Temporary files go there, too, where /tmp is read-only.
WORKDIR /data
VOLUME /data
EXPOSE 8765
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python3", "/opt/mxr/health_check.py"]
ENTRYPOINT ["mxr-registry"]
CMD ["serve"]
