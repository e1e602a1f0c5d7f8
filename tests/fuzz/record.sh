#!/bin/bash
# Records the corpus of fuzz targets anew, from a real job of three ranks on two "hosts" (agents on
# this machine): tests/fuzz/record.sh [BUILD], default build/release. See record.cc.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
bin="$(cd "${1:-$root/build/release}" && pwd)/bin"
scene="$(mktemp -d)"
trap 'rm -rf "$scene"' EXIT
cp "$bin/launcher_worker" "$scene/worker"
cat >"$scene/rsh" <<END
#!/bin/bash
host=\$1
shift
tee "$scene/to.\$host" | "\$@" | tee "$scene/from.\$host"
END
chmod +x "$scene/rsh"
# Nothing of this machine's environment shall be in the corpus.
env -i PATH="$scene:/usr/bin:/bin" LANG=C "$bin/kolorun" -np 3 -H a:2,b:1 --wdir / \
  --network-interfaces lo --launcher-exec "$scene/rsh" worker fall exit:3 1 || true
"$bin/fuzz_record" "$root/tests/fuzz/corpus" "$scene/to.a" "$scene/from.a"
