#!/usr/bin/env bash
# On Debian as root, install the named system packages that are missing. Elsewhere change nothing: programs that need
# them report it.
set -euo pipefail

declare -A command_of=([buildah]=buildah [chromium]=chromium [curl]=curl [docker-registry]=docker-registry [etcd-server]=etcd [etcd-client]=etcdctl [gettext]=msgfmt [iproute2]=ip [nginx-light]=nginx [nodejs]=node [npm]=npm [openssl]=openssl [pgbouncer]=pgbouncer [prometheus]="prometheus promtool" [postgresql]=pg_createcluster [redis-server]=redis-server)

# A package without a command is looked up by name.
present() {
    local command
    if [[ -n ${command_of[$1]:-} ]]; then
        for command in ${command_of[$1]}; do
            command -v "$command" >/dev/null || return 1
        done
    else
        dpkg --status "$1" >/dev/null 2>&1
    fi
}

missing=()
for package in "$@"; do
    present "$package" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 || ! -f /etc/debian_version || $(id -u) -ne 0 ]]; then
    exit 0
fi
# Tests start servers of their own: do not let Debian start the services of these packages.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
echo "Installing ${missing[*]} ..."
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    echo "apt-get could not install ${missing[*]}." >&2
fi
