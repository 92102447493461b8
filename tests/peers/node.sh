# JavaScript libraries that tests ask for a second opinion. Sourced by install.sh.
#
# Installed below the cache folder, for the tests alone.

readonly NODE_LIBRARIES="@cybernetex/kbn-es-query@1.0.2 axe-core@4.14.1"

install_node_libraries() { # all of them at once: npm takes away what it is not told to install
  local wanted=() missing="" each
  if ! has_program npm; then
    lacks "$NODE_LIBRARIES (no npm here)"
    return 0
  fi
  for each in $NODE_LIBRARIES; do
    wanted+=("$each")
    [ -f "$PEERS/node_modules/${each%@*}/package.json" ] || missing=yes
  done
  [ -n "$missing" ] || return 0
  say "installing ${wanted[*]}"
  npm install --silent --no-audit --no-fund --no-save --prefix "$PEERS" "${wanted[@]}" </dev/null >/dev/null 2>&1 ||
    lacks "${wanted[*]} (npm could not install it)"
}
