#!/usr/bin/env bash
# Create .venv and install a requirements file into it. Does nothing if nothing has changed since the last time.
# Usage: scripts/environment.sh requirements.txt     (PYTHON= chooses the interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=$1
stamp=.venv/installed-$(basename "$requirements")

fail() {
    echo "$1" >&2
    exit 1
}

pick_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            echo "$candidate"
            return
        fi
    done
    command -v "${PYTHON:-python3}" >/dev/null ||
        fail "Regatta needs Python 3.11 or newer, and there is no ${PYTHON:-python3} here. Install it, or name one: make run PYTHON=/path/to/python3."
    fail "Regatta needs Python 3.11 or newer; ${PYTHON:-python3} is $("${PYTHON:-python3}" -V 2>&1). Name another: make run PYTHON=/path/to/python3."
}

make_environment() {
    local python
    python=$(pick_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module. On Debian or Ubuntu: apt-get install python3-venv. Then try again."
    "$python" -m venv .venv
}

# Print a requirements file with all files that it includes by -r.
wanted() {
    cat "$requirements" $(sed -n 's/^-r //p' "$requirements")
}

.venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { rm -rf .venv && make_environment; }
if ! cmp -s <(wanted) "$stamp"; then
    echo "Installing $requirements ..."
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$requirements" ||
        fail "The packages could not be installed; pip says why above. Check the network, then try again."
    wanted >"$stamp"
fi
