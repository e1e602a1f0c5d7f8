# What the scripts share; sourced, never run. Expects `set -euo pipefail`.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

# A compiler cache is used where there is one; results do not depend on the checkout's place.
launcher=()
if command -v ccache > /dev/null; then
  export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
  launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

say() { printf '== %s\n' "$*"; }

# stage TITLE COMMAND...: runs a step, says how long it took, and keeps its exit code.
stage() {
  local title="$1" start=$SECONDS code=0
  shift
  say "$title"
  "$@" || code=$?
  local outcome="done"
  [ "$code" = 0 ] || outcome="FAILED ($code)"
  say "$title: $outcome after $((SECONDS - start)) s"
  return "$code"
}

# configure PRESET: nothing to do once it has succeeded; ninja itself notices changed CMake files.
configure() {
  local log="build/$1.configure.log"
  [ "build/$1/build.ninja" -nt CMakePresets.json ] && return
  mkdir -p build
  if ! cmake --preset "$1" "${launcher[@]}" > "$log" 2>&1; then
    cat "$log" >&2
    echo "error: cmake --preset $1 failed; its output is above and in $log" >&2
    return 1
  fi
}
