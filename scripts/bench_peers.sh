#!/usr/bin/env bash
# Create build/peers and install the peer packages of `make bench`. A package that cannot be installed is reported, and
# its rows are MISSED. Does nothing if nothing has changed since the last time.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=bench/requirements-peers.txt
stamp=build/peers/installed

mkdir -p build
[[ -x build/peers/bin/python ]] || .venv/bin/python -m venv build/peers
cmp -s "$requirements" "$stamp" && exit 0
echo "Installing $requirements into build/peers ..."
complete=yes
while read -r requirement; do
    [[ -z $requirement || $requirement == \#* ]] && continue
    build/peers/bin/python -m pip install --quiet --disable-pip-version-check --constraint "$requirements" "$requirement" || {
        echo "$requirement could not be installed; pip says why above. Its rows will be MISSED." >&2
        complete=
    }
done <"$requirements"
[[ -z $complete ]] || cp "$requirements" "$stamp"
