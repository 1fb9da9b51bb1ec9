#!/bin/sh
# Fail if portal/static/portal/dist or JupyterLab's extension differs from what frontend/ builds. Needs Node 20 or newer.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

cd "$root/frontend"
# An installation that matches the lock file is kept: installing is the slow part.
if ! cmp -s package-lock.json node_modules/.regatta-lock; then
    npm ci --ignore-scripts --silent
    cp package-lock.json node_modules/.regatta-lock
fi
npx --no-install tsc --noEmit
node build.mjs --out "$fresh/dist"
npm test --silent

# Compressed copies are compared by their contents: versions of zlib may compress differently.
if ! diff -rq --exclude='*.gz' "$fresh/dist" "$root/portal/static/portal/dist"; then
    echo "The built pages are stale. Run 'make frontend' and commit portal/static/portal/dist." >&2
    exit 1
fi
if ! diff -r "$fresh/dist-labextensions" "$root/runtime/notebook/labextensions"; then
    echo "JupyterLab's extension is stale. Run 'make frontend' and commit runtime/notebook/labextensions." >&2
    exit 1
fi
for packed in "$root"/portal/static/portal/dist/*.js.gz "$root/portal/static/portal/app.css.gz"; do
    gzip -dc "$packed" | cmp -s - "${packed%.gz}" || { echo "$packed is stale. Run 'make frontend'." >&2; exit 1; }
done
echo "The built pages are fresh."
