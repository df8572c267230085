#!/usr/bin/env bash
# Downloads the wheels with a local version (+cu129) of all earlier releases of $GH_REPO into a folder. Ends with an
# error where one of them cannot be had: an index without it would be published as if it had never been there. Whether
# they are what was published says tools/release.py, by tools/published.sha256.
#     tools/earlier_wheels.sh FOLDER
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
