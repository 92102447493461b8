# Programs that come as ordinary packages of the machine's own distribution. Sourced by install.sh.
# Each is installed only where its command is absent; none is started, and none is left enabled.

# command or file[:package[,package]], one a line; the package has the command's name where none is written.
readonly SYSTEM_PROGRAMS="
nginx
/usr/lib/nginx/modules/ngx_http_js_module.so:libnginx-mod-http-js
systemd-nspawn:systemd-container
prometheus-node-exporter
netdata
mtail
fail2ban-client:fail2ban
rg:ripgrep
node:nodejs
npm
chromium
gcc:gcc,libc6-dev
mvn:maven
java:default-jdk-headless
"

has_program() { # services live in sbin, which is not on every user's PATH
  [[ $1 = /* && -e $1 ]] || PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1
}

missing_packages() {
  local line
  for line in $SYSTEM_PROGRAMS; do
    has_program "${line%%:*}" || tr , '\n' <<<"${line##*:}"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 \
    -o Dpkg::Use-Pty=0 "$@" </dev/null
}

without_starts() { # run a command while a policy forbids the starting of services
  local policy=/usr/sbin/policy-rc.d status=0
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
  "$@" || status=$?
  as_root rm -f "$policy"
  return "$status"
}

disable_services() { # of what we have just installed: a reboot must not start them either
  local package
  command -v systemctl >/dev/null || return 0
  for package in "$@"; do
    as_root systemctl --quiet disable "$package" 2>/dev/null || true
  done
}

install_system_packages() {
  local wanted package
  mapfile -t wanted < <(missing_packages)
  [ ${#wanted[@]} -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    lacks "${wanted[*]} (no apt-get here: install them by this system's own package tool)"
    return 0
  fi
  if ! can_be_root; then
    lacks "${wanted[*]} (needs root: sudo apt-get install ${wanted[*]})"
    return 0
  fi
  say "installing ${wanted[*]}"
  apt_get update || say "apt-get update failed; trying with the lists that are there"
  if ! without_starts apt_get install --yes --no-install-recommends "${wanted[@]}" >/dev/null; then
    for package in "${wanted[@]}"; do # one that cannot be had must not cost the others
      without_starts apt_get install --yes --no-install-recommends "$package" >/dev/null ||
        lacks "$package (apt-get could not install it)"
    done
  fi
  disable_services "${wanted[@]}"
}
