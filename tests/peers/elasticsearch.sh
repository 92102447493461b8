# Elasticsearch's integration-test distribution, by Maven. Sourced by install.sh.
#
# It is the server core: bulk, search, templates with data streams, basic auth. It refuses to run as
# root, so under root its home must be reachable by a system user: where the cache folder is not,
# the home goes to /var/cache and the cache folder holds a link to it.

readonly ES_USER=vllm-watchdog-peer

java_home() { # the oldest JDK under /usr/lib/jvm of at least the given major version
  local need=$1 home major
  for home in /usr/lib/jvm/*; do
    if [ -L "$home" ] || [ ! -x "$home/bin/java" ]; then continue; fi
    major=$("$home/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${major:-0}" -ge "$need" ] && echo "$major $home"
  done | sort -n | head -n 1 | cut -d' ' -f2-
}

maven_zip() { # VERSION DIR -> the distribution's zip in DIR
  mvn --batch-mode -q -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    -Dartifact="org.elasticsearch.distribution.integ-test-zip:elasticsearch:$1:zip" \
    -DoutputDirectory="$2" -Dmdep.useBaseVersion=true </dev/null >"$2/maven.log" 2>&1 && return
  grep -m 1 ERROR "$2/maven.log" >&2
  return 1
}

peer_user() {
  id "$ES_USER" >/dev/null 2>&1 ||
    useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$ES_USER"
}

reachable() { # may the system user enter the folder?
  [ "$(id -u)" != 0 ] || runuser -u "$ES_USER" -- test -x "$1"
}

install_elasticsearch() { # MAJOR VERSION JDK
  local major=$1 version=$2 jdk=$3 link=$PEERS/elasticsearch-$1 root=$PEERS fresh
  [ "$(id -u)" != 0 ] || peer_user
  if [ -x "$link/bin/elasticsearch" ] && reachable "$link/"; then return 0; fi
  if [ -z "$(java_home "$jdk")" ]; then
    lacks "Elasticsearch $version (needs a JDK >= $jdk under /usr/lib/jvm)"
    return 0
  fi
  if ! command -v mvn >/dev/null; then
    lacks "Elasticsearch $version (needs Maven)"
    return 0
  fi
  reachable "$PEERS" || root=/var/cache/vllm-watchdog-peers
  mkdir -p "$root"
  fresh=$(mktemp -d "$root/unpack.XXXXXX")
  chmod 755 "$fresh"
  say "fetching Elasticsearch $version"
  if maven_zip "$version" "$fresh" && (cd "$fresh" && unzip_here elasticsearch-*.zip); then
    rm -rf "$link" "$root/elasticsearch-$version"
    mv "$fresh/elasticsearch-$version" "$root/"
    chmod -R go+rX "$root/elasticsearch-$version"
    chmod +x "$root/elasticsearch-$version"/bin/*
    if [ "$root" = "$PEERS" ]; then ln -s "elasticsearch-$version" "$link"; else
      ln -s "$root/elasticsearch-$version" "$link"
    fi
  else
    lacks "Elasticsearch $version (Maven did not give it)"
  fi
  rm -rf "$fresh"
}

unzip_here() { # unpack without asking for an unzip program
  if command -v unzip >/dev/null; then unzip -q "$1"; else python3 -m zipfile -e "$1" .; fi
}
