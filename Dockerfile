# Two images: --target operator, --target sidecar. BASE needs python3 (3.11 or newer) and
# ca-certificates; pip may be absent, and is not in the result either way:
#   docker build --target operator -t resumable-training-operator:0.1.0 .
#   docker build --target sidecar  -t resumable-training-sidecar:0.1.0 .
# What changes seldom comes first, so that a change of the source rebuilds only the last layers.
# The import at the end compiles what is used of the base's own library, which slim images bring as
# source only: else each start compiles it anew, and nobody who runs here may write it down.
ARG BASE=python:3.12-slim

FROM ${BASE} AS pip
# This stage is thrown away, and any pip will do.
# hadolint ignore=DL3008,DL3009
RUN python3 -m pip --version >/dev/null 2>&1 \
 || { apt-get update -q && apt-get install -qy --no-install-recommends python3-pip; }

FROM pip AS operator-packages
COPY requirements/operator.txt /tmp/requirements.txt
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
      --require-hashes --no-deps --only-binary :all: --target /opt/rtj/packages -r /tmp/requirements.txt \
 && rm -rf /opt/rtj/packages/bin

FROM pip AS sidecar-packages
# Which clients beside those of s3:// and file://, which are always in: `cloud` for gs:// and az://
# (14 MB), `hdfs` for hdfs:// too (it is published as source only), `none`.
ARG STORES=cloud
COPY requirements/sidecar.txt requirements/sidecar-stores.txt requirements/sidecar-hdfs.txt /tmp/
# botocore describes every service there is (most of its size); what a store needs is S3 and the
# services that turn a workload identity into credentials.
RUN python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \
      --require-hashes --no-deps --only-binary :all: --no-binary hdfs,docopt --target /opt/rtj/packages \
      -r "/tmp/$(case "$STORES" in none) echo sidecar ;; hdfs) echo sidecar-hdfs ;; *) echo sidecar-stores ;; esac).txt" \
 && rm -rf /opt/rtj/packages/bin /opt/rtj/packages/boto3/examples \
 && find /opt/rtj/packages/botocore/data /opt/rtj/packages/boto3/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name sts ! -name sso ! -name sso-oidc -exec rm -rf {} +

FROM ${BASE} AS operator
LABEL org.opencontainers.image.title="resumable-training-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONPATH=/opt/rtj/packages:/opt/rtj/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
ENTRYPOINT ["python3", "-m", "rtj_operator"]
COPY --from=operator-packages /opt/rtj/packages /opt/rtj/packages
COPY crds/rtj_api /opt/rtj/app/rtj_api
COPY operator/rtj_operator /opt/rtj/app/rtj_operator
RUN python3 -m compileall -q /opt/rtj/app \
 && PYTHONDONTWRITEBYTECODE='' python3 -c 'import rtj_operator.__main__'
USER 65532:65532

FROM ${BASE} AS sidecar
LABEL org.opencontainers.image.title="resumable-training-sidecar" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PYTHONPATH=/opt/rtj/packages:/opt/rtj/app PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /tmp
# root, for it hands files over to whatever user the trainer runs as; the pod that it is put into
# takes every capability but CHOWN, DAC_OVERRIDE and FOWNER from it, or names the trainer's user.
ENTRYPOINT ["python3", "-m", "rtj_sidecar"]
COPY --from=sidecar-packages /opt/rtj/packages /opt/rtj/packages
COPY crds/rtj_api /opt/rtj/app/rtj_api
COPY trainer_sidecar/rtj_sidecar /opt/rtj/app/rtj_sidecar
RUN python3 -m compileall -q /opt/rtj/app \
 && PYTHONDONTWRITEBYTECODE='' python3 -c 'import rtj_sidecar.serve, rtj_sidecar.metrics, rtj_sidecar.stores.s3'
