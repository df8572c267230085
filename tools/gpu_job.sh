#!/usr/bin/env bash
# Runs the GPU tests of a wheel file in a fresh environment with a CUDA build of torch. Fails without a GPU.
#     tools/gpu_job.sh WHEEL REPORT
# Called by wheels.yml. The wheel must be built from this checkout. Writes a report like tests/gpu_report.json. The tests
# run in parallel processes (tools/gpu_shards.py) and need up to 80 minutes of processor time.
set -euo pipefail
wheel="$(realpath "$1")"
report="$(realpath -m "$2")"
cd "$(dirname "$0")/.."

if ! nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader; then
  echo "convt_ext: this machine has no working NVIDIA GPU, which the GPU tests need" >&2
  exit 1
fi
python="$PWD/.venv-gpu/bin/python"
"${PYTHON:-python3}" -m venv --clear .venv-gpu
"$python" tools/install_torch.py "${TORCH_SPEC:-torch==2.13.0}" --build cuda
"$python" -m pip install --quiet "$wheel[test,bench]"
rm -rf dist
mkdir dist
cp "$wheel" dist/
make gpu-test SYSTEM=1 PYTHON="$python" REPORT="$report"
"$python" -m convt_ext info
