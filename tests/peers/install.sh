#!/usr/bin/env bash
# Install the real servers that tests and benchmarks start: `make peers`.
#
# Usage: install.sh [DIR]    (default: $VLLM_WATCHDOG_PEERS, else .peers in the repository)
#
# Idempotent, and quick the second time. What cannot be had on this machine is listed at the end and
# is no error: its tests skip and say so. Servers are unpacked or installed, never started or enabled.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PEERS=${1:-${VLLM_WATCHDOG_PEERS:-$here/../../.peers}}
mkdir -p "$PEERS"
PEERS=$(cd "$PEERS" && pwd)
export DEBIAN_FRONTEND=noninteractive
missing=()

say() { printf 'peers: %s\n' "$*"; }
lacks() { missing+=("$*"); }

# shellcheck source=tests/peers/debian.sh
source "$here/debian.sh"
# shellcheck source=tests/peers/prometheus.sh
source "$here/prometheus.sh"
# shellcheck source=tests/peers/elasticsearch.sh
source "$here/elasticsearch.sh"
# shellcheck source=tests/peers/node.sh
source "$here/node.sh"

install_prometheus
install_system_packages
install_elasticsearch 8 8.19.7 17
install_elasticsearch 9 9.1.0 21
install_node_libraries

if [ ${#missing[@]} -eq 0 ]; then
  say "all there, in $PEERS and on the system"
else
  say "not to be had here (their tests skip):"
  printf '  - %s\n' "${missing[@]}"
fi
