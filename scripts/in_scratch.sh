#!/usr/bin/env bash
# Run a command with a temporary data directory.
set -euo pipefail
REGATTA_DATA_DIR=$(mktemp -d)
export REGATTA_DATA_DIR
trap 'rm -rf "$REGATTA_DATA_DIR"' EXIT
"$@"
