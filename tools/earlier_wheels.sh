#!/usr/bin/env bash
# Downloads the wheels with a local version (+cu129) of all earlier releases of $GH_REPO into a folder.
#     tools/earlier_wheels.sh FOLDER
set -euo pipefail
mkdir -p "$1"
gh release list --limit 1000 --exclude-drafts --json tagName --jq '.[].tagName' | while read -r tag; do
  # A release without such a wheel is no error.
  gh release download "$tag" --dir "$1" --pattern '*+cu*.whl' --skip-existing || echo "no index wheels in $tag"
done
