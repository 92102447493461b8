# Prometheus 3.x with promtool, Alertmanager with amtool, and promtool 2.42. Sourced by install.sh.
#
# They come from Debian's archive whatever this machine's own release is, and are unpacked into a
# folder of their own: 3.x from unstable, 2.42 from Debian 12. They are static programs, so no
# dependency is needed and nothing of the system changes. The mirror is the one apt already uses; it
# may be a snapshot whose lists are past their date, but their signatures are checked.

# Debian's Alertmanager reads its default templates from this folder, wherever itself lies.
readonly ALERTMANAGER_TEMPLATES=/usr/share/prometheus/alertmanager

debian_mirror() {
  { apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null
    grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null
  } | tr -d ' ' | grep -E '/debian/?$' | head -n 1 || true
}

unpack_debian() { # SUITE DIR PACKAGE...
  local suite=$1 dir=$2 apt package options
  shift 2
  apt=$(mktemp -d)
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$dir"
  printf 'deb [signed-by=%s] %s %s main\n' /usr/share/keyrings/debian-archive-keyring.gpg \
    "$(debian_mirror)" "$suite" >"$apt/sources.list"
  options=(-qq -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=-
    -o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=
    -o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false)
  if apt-get "${options[@]}" update && (cd "$apt" && apt-get "${options[@]}" download "$@"); then
    for package in "$@"; do dpkg -x "$apt/${package}"_*.deb "$dir"; done
    rm -rf "$apt"
  else
    rm -rf "$apt"
    return 1
  fi
}

place_templates() { # from the cache folder to where Alertmanager looks
  [ ! -e "$ALERTMANAGER_TEMPLATES/default.tmpl" ] && [ -d "$PEERS/alertmanager" ] || return 0
  if can_be_root; then
    as_root mkdir -p "$ALERTMANAGER_TEMPLATES"
    as_root cp -r "$PEERS/alertmanager/." "$ALERTMANAGER_TEMPLATES/"
  else
    lacks "Alertmanager (its templates in $ALERTMANAGER_TEMPLATES need root: sudo make peers)"
  fi
}

install_prometheus() {
  unpack_prometheus
  place_templates
}

unpack_prometheus() {
  local bin=$PEERS/bin fresh
  if [ -x "$bin/prometheus" ] && [ -d "$PEERS/alertmanager" ] && [ -x "$bin/promtool-2.42" ]; then
    return 0
  fi
  if ! command -v apt-get >/dev/null || [ -z "$(debian_mirror)" ] ||
    [ ! -r /usr/share/keyrings/debian-archive-keyring.gpg ]; then
    lacks "Prometheus 3.x, promtool, Alertmanager (no Debian mirror among apt's sources)"
    return 0
  fi
  mkdir -p "$bin"
  fresh=$(mktemp -d "$PEERS/unpack.XXXXXX")
  say "unpacking Prometheus 3.x, Alertmanager and promtool 2.42"
  if unpack_debian sid "$fresh/sid" prometheus promtool prometheus-alertmanager; then
    mv -f "$fresh"/sid/usr/bin/{prometheus,promtool,prometheus-alertmanager,amtool} "$bin/"
    rm -rf "$PEERS/alertmanager"
    mv "$fresh/sid$ALERTMANAGER_TEMPLATES" "$PEERS/alertmanager"
  else
    lacks "Prometheus 3.x, promtool, Alertmanager (the mirror did not give them)"
  fi
  if unpack_debian bookworm "$fresh/bookworm" prometheus; then
    mv -f "$fresh/bookworm/usr/bin/promtool" "$bin/promtool-2.42"
  else
    lacks "promtool 2.42 (the mirror did not give it)"
  fi
  rm -rf "$fresh"
}
