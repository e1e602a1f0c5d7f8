#!/bin/sh
# Installs kolo into a folder, moves that folder, and builds and runs a C and a C++ program against
# it out of tree: with find_package and with pkg-config. The source tree is not on any path.
# Usage: install_test.sh CMAKE BUILD_DIR CONSUMER_DIR
set -eu
cmake=$1
build=$2
consumer=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
export KOLO_NOTICE=0

"$cmake" --install "$build" --prefix "$folder/first" > "$folder/install.log"
mv "$folder/first" "$folder/moved"
prefix=$folder/moved
for file in kolo.h kolo.hpp; do test -f "$prefix/include/kolo/$file"; done
if grep -rlE 'internal|protobuf|boost' "$prefix/include"; then
  echo "install_test: an installed header names internals" >&2
  exit 1
fi

echo "-- find_package"
"$cmake" -S "$consumer" -B "$folder/build" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_BUILD_TYPE=Release > "$folder/configure.log"
"$cmake" --build "$folder/build" > "$folder/build.log" || { cat "$folder/build.log"; exit 1; }
"$folder/build/consumer_c"
"$folder/build/consumer_cpp"

if ! command -v pkg-config > /dev/null; then
  echo "-- pkg-config is not installed: that half is skipped"
  exit 0
fi
echo "-- pkg-config"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name kolo.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir kolo)
# shellcheck disable=SC2046  # the flags are meant to be split
cc -std=c99 -pedantic -Wall -Wextra -Werror "$consumer/consumer.c" -o "$folder/c" \
  $(pkg-config --cflags --libs kolo) -Wl,-rpath,"$libdir"
# shellcheck disable=SC2046
c++ -std=c++17 -pedantic -Wall -Wextra -Werror "$consumer/consumer.cc" -o "$folder/cpp" \
  $(pkg-config --cflags --libs kolo) -Wl,-rpath,"$libdir"
"$folder/c"
"$folder/cpp"
