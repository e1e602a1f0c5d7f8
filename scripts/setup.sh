#!/bin/bash
# Installs what kolo needs from Debian 12's own packages, and says so. With everything in place it
# only asks dpkg, which takes a moment.
#
#   scripts/setup.sh [build] [test] [bench]      default: build test
#
# build: configure, compile and run kolo and its examples;  test: what the tests need on top;
# bench: the peers that the benchmark compares with.
set -euo pipefail

build=(g++ cmake ninja-build pkg-config libboost-dev libprotobuf-dev protobuf-compiler libssl-dev
  libisal-dev libgtest-dev libgmock-dev nlohmann-json3-dev python3)
test=(patch iproute2 nftables procps mpich libmpich-dev clang libclang-rt-14-dev llvm clang-format)
bench=(libgloo-dev mpich libmpich-dev libbenchmark-dev)

wanted=()
for set in "${@:-build test}"; do
  case "$set" in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    "build test") wanted+=("${build[@]}" "${test[@]}") ;;
    bench) wanted+=("${bench[@]}") ;;
    *) echo "usage: scripts/setup.sh [build] [test] [bench]" >&2 && exit 2 ;;
  esac
done

if ! command -v dpkg-query > /dev/null; then
  echo "setup: this is not Debian; make sure that you have the like of: ${wanted[*]}" >&2
  exit 0
fi

format='${db:Status-Status} ${Package}\n'
installed="$(dpkg-query -W -f "$format" "${wanted[@]}" 2> /dev/null || true)"
missing=()
for package in "${wanted[@]}"; do
  grep -qx "installed $package" <<< "$installed" || missing+=("$package")
done
[ ${#missing[@]} = 0 ] && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo > /dev/null; then
    echo "setup: Debian packages are missing, and there is neither root nor sudo here. As root:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing from Debian: ${missing[*]}"
log="$(mktemp)"
install() {
  "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -q -y --no-install-recommends "${missing[@]}"
}
if ! install > "$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get failed; the end of its output is above, all of it in $log" >&2
  exit 1
fi
rm -f "$log"
echo "setup: done"
