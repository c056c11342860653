# SPDX-License-Identifier: Apache-2.0
#
# The install tree is self-contained: the program runs from it in an empty environment, and an external project builds
# against it with find_package(Trireme). A site's libraries have precedence over the cache.
# Environment: BUILD (a finished build), TRIREME_SOURCE, MPIEXEC, MPIEXEC_FLAGS.
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-install-test.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { printf 'FAILED: %s\n' "$1"; tail -n 40 "${2:-/dev/null}"; exit 1; }
# quietly LOG COMMAND...
quietly() { local log=$1; shift; "$@" >"$log" 2>&1 || fail "$*" "$log"; }

# strip: a debug build's binaries are large.
quietly install.log cmake --install "$BUILD" --prefix "$work/prefix" --strip
for file in bin/trireme libexec/trireme/trireme share/trireme/inputs/quickstart.toml share/trireme/modulefiles/trireme/0.1.0.lua \
  share/doc/trireme/LICENSE include/trireme/schedule/op.hpp; do
  [[ -e prefix/$file ]] || fail "no $file was installed"
done
env -i prefix/bin/trireme --version >version.txt || fail "the installed program does not run" version.txt
grep -q '^trireme 0.1.0 ' version.txt || fail "the installed program's version" version.txt
env -i prefix/bin/trireme plan prefix/share/trireme/inputs/quickstart.toml --ranks 4 >plan.txt ||
  fail "the installed program cannot plan the installed run file" plan.txt
env -i prefix/bin/trireme train --help >help.txt || fail "the installed program does not find the full one" help.txt
! grep -rlE "$TRIREME_SOURCE([/;\"]|$)" prefix/lib*/cmake prefix/include || fail "the package points into the source tree"

quietly configure.log cmake -S "$TRIREME_SOURCE/tests/install/consumer" -B build -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$work/prefix"
quietly build.log cmake --build build
build/values_only || fail "the values-only program"
# shellcheck disable=SC2086
$MPIEXEC $MPIEXEC_FLAGS -n 2 build/consumer >said.txt || fail "the consumer does not run" said.txt
(($(grep -c '^trireme 0.1.0, mesh .*, 1 nodes$' said.txt) == 2)) || fail "output of the consumer" said.txt

# A site's libtorch and Kokkos, given in the two ways that modules and Spack do.
cache_of() { sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"; }
torch=$(cache_of Libtorch_INCLUDE_DIR)
kokkos=$(cache_of Kokkos_DIR)
mkdir -p site/lib/python3/site-packages site/kokkos
cp -rs "${torch%/include}" site/lib/python3/site-packages/torch
cp -r "${kokkos%/lib/cmake/Kokkos}/." site/kokkos
site() { quietly site.log cmake -S "$TRIREME_SOURCE/tests/install/site" -B "$1" -G Ninja -DSITE="$work/site" -DTRIREME_SOURCE="$TRIREME_SOURCE" "${@:2}"; }
site by_variable -DCMAKE_PREFIX_PATH="$work/site/lib/python3/site-packages/torch/share/cmake;$work/site/kokkos"
CMAKE_PREFIX_PATH=$work/site/lib/python3/site-packages/torch/share/cmake:$work/site/kokkos site by_environment
site by_roots -DLibtorch_ROOT="$work/site/lib/python3/site-packages/torch" -DKokkos_ROOT="$work/site/kokkos"
