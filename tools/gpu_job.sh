#!/usr/bin/env bash
# The GPU tests of a wheel file, in a fresh environment with a CUDA build of torch; without a GPU it fails.
#     tools/gpu_job.sh WHEEL REPORT
# The checkout must be the one that the wheel was built from. The report is tests/gpu_report.json's kind. As many
# processes as cores share the tests, which take up to 80 minutes of one core.
set -euo pipefail
wheel="$(realpath "$1")"
report="$(realpath -m "$2")"
cd "$(dirname "$0")/.."

if ! nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader; then
  echo "convt_ext: this machine has no NVIDIA GPU that works, and the GPU tests need one" >&2
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
