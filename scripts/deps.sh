#!/usr/bin/env bash
# Installs what is missing: apt when root or sudo may, otherwise says what to install.
# usage: deps.sh build|test
set -euo pipefail

want=()
have_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] && return 0
  ldconfig -p 2>/dev/null | grep -q 'libclang[-.0-9]*\.so' && return 0
  compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null
}
have_libclang || want+=(libclang-dev)
command -v cc >/dev/null || want+=(build-essential)
if [ "${1:-build}" = test ]; then
  command -v psql >/dev/null || want+=(postgresql-client)
  command -v pgbench >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null ||
    want+=(postgresql-contrib)
fi

command -v cargo >/dev/null || {
  echo "Rust is missing: install rustup (https://rustup.rs), then run this again." >&2
  exit 1
}
[ ${#want[@]} -eq 0 ] && exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo='sudo -n'; else
    echo "Missing: ${want[*]}. Install them (Debian: apt-get install ${want[*]}), then run this again." >&2
    exit 1
  fi
fi
command -v apt-get >/dev/null || {
  echo "Missing: ${want[*]} (Debian's names). Install them, then run this again." >&2
  exit 1
}
echo "Installing ${want[*]}"
$sudo apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -q --no-install-recommends "${want[@]}" >/dev/null
