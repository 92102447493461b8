#!/usr/bin/env bash
# Make or update the environment `.venv` of a clone: the package (editable) and what it needs.
#
# Usage: environment.sh run|dev     (`make` calls it; dev adds the tools of the tests)
#
# What the machine itself lacks is said in one line, with the command that mends it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'environment: %s\n' "$*" >&2; exit 2; }

mend() { # DEBIAN_PACKAGE RPM_PACKAGE -> the command that installs it here
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo "
  if command -v apt-get >/dev/null; then
    echo "${sudo}apt-get install -y $1"
  elif command -v dnf >/dev/null; then
    echo "${sudo}dnf install -y $2"
  else
    echo "install $1"
  fi
}

find_python() { # the first interpreter that is new enough
  local name
  for name in python3 python3.13 python3.12 python3.11 python3.10; do
    if command -v "$name" >/dev/null &&
      "$name" -c 'import sys; raise SystemExit(sys.version_info < (3, 10))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  die "needs Python 3.10 or newer; run: $(mend 'python3 python3-venv' python3)"
}

make_venv() {
  local python
  python=$(find_python) || exit 2
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "this Python has no venv module; run: $(mend python3-venv python3-pip)"
  echo "environment: making .venv with $python" >&2
  "$python" -m venv --clear .venv
}

install() { # EXTRA ("" or [dev])
  local log
  log=$(mktemp)
  echo "environment: installing the package and what it needs (a minute or two)" >&2
  if .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --editable ".$1" >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return
  fi
  tail -n 15 "$log" >&2
  if grep -qE "Python\.h|command '?[a-z0-9_-]*(gcc|g\+\+|cc)'? failed|[Cc]ompiler" "$log"; then
    die "a dependency has no wheel for this machine; run: $(mend 'g++ python3-dev' 'gcc-c++ python3-devel')"
  fi
  die "pip could not install the dependencies (above); check the network or pip's settings, then try again"
}

case ${1:-} in
  run) extra="" ;;
  dev) extra="[dev]" ;;
  *) die "usage: environment.sh run|dev" ;;
esac
.venv/bin/python -m pip --version >/dev/null 2>&1 || make_venv
install "$extra"
touch .venv/.run
[ "$1" = run ] || touch .venv/.dev
