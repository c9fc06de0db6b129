# A worker, on a ROCm image that has MIGraphX. At the root of a checkout:
#   docker build -f deploy/docker/worker.Dockerfile -t mxr-worker .
#   docker run --device /dev/kfd --device /dev/dri --group-add video --group-add "$(getent group render | cut -d: -f3)" \
#       --security-opt seccomp=unconfined -v mxr-worker:/data -v ./worker.token:/run/secrets/token:ro \
#       -e MXR_REGISTRY=https://registry.example.com -e MXR_TOKEN_FILE=/run/secrets/token mxr-worker
#
# One image for each toolchain: programs fit the ROCm and MIGraphX that compiled them. Choose the BASE that your serving
# hosts run. This one has ROCm 7.2.4 with MIGraphX and ONNX Runtime, whose Python is in /opt/venv; the tags are listed at
# hub.docker.com/r/rocm/onnxruntime/tags. Its size is that of the base, more than 10 GB.
ARG BASE=docker.io/rocm/onnxruntime:rocm7.2.4_ub24.04_ort1.23_torch2.10.0

FROM ${BASE}
LABEL org.opencontainers.image.title="mxr-worker" \
      org.opencontainers.image.description="Compiles MIGraphX programs for an mxr registry" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 0
# Its own environment: what mxr needs changes nothing that MIGraphX and ONNX Runtime need.
ARG PYTHON=/opt/venv/bin/python3
COPY . /tmp/src
RUN "$PYTHON" -m venv /opt/mxr \
    && /opt/mxr/bin/pip install --no-cache-dir -c /tmp/src/constraints.txt '/tmp/src[workers,trust]' \
    && rm -rf /tmp/src \
    && install -d -m 0700 -o 65532 -g 65532 /data
# The interpreter that imports migraphx, whose module is in ROCm's folder.
ENV PATH=/opt/mxr/bin:/opt/rocm/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/data \
    PYTHONUNBUFFERED=1 \
    PYTHONPATH=/opt/rocm/lib \
    MXR_WORKER_PYTHON=${PYTHON} \
    MXR_WORKER_SPOOL=/data/spool
USER 65532:65532
WORKDIR /data
VOLUME /data
ENTRYPOINT ["mxr-worker"]
CMD ["run"]
