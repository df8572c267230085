#!/usr/bin/env bash
# Downloads the wheels with a local version (+cu129) of all earlier releases of $GH_REPO into a folder.
#     tools/earlier_wheels.sh FOLDER
# Called by release.yml. Fails if a download fails, because the new index would lack that wheel. tools/release.py
# compares the files with tools/published.sha256.
set -euo pipefail
mkdir -p "$1"
tags="$(gh release list --limit 1000 --exclude-drafts --json tagName --jq '.[].tagName')"
for tag in $tags; do
  wheels="$(gh release view "$tag" --json assets --jq '.assets[].name | select(test("[+]cu.*[.]whl$"))')"
  if [ -n "$wheels" ]; then
    gh release download "$tag" --dir "$1" --pattern '*+cu*.whl' --skip-existing
  else
    echo "no index wheels in $tag"
  fi
done
