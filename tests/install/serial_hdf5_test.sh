# SPDX-License-Identifier: Apache-2.0
#
# A site whose HDF5 knows no MPI: Trireme is configured with it, and what calls HDF5 compiles. That HDF5 is this machine's own, with
# the headers of one that is not parallel.
# Environment: BUILD (a build folder), HDF5_INCLUDE, HDF5_LIBRARY, TRIREME_SOURCE.
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-serial-hdf5.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$1"; tail -n 40 "$work/log"; exit 1; }

mkdir -p "$work/hdf5/include" "$work/hdf5/lib"
cp "$HDF5_INCLUDE"/*.h "$work/hdf5/include"
sed -i 's/^#define H5_HAVE_PARALLEL.*//' "$work"/hdf5/include/H5pubconf*.h
ln -s "$HDF5_LIBRARY" "$work/hdf5/lib/libhdf5.so"
# Configuration of this build, except for its HDF5.
sed -nE '/HDF5|^BUILD_TESTING/!s/^([A-Za-z0-9_.+-]+):(BOOL|STRING|PATH|FILEPATH)=(.*)$/set(\1 [[\3]] CACHE \2 "")/p' \
  "$BUILD/CMakeCache.txt" >"$work/as_it_is.cmake"
cmake -S "$TRIREME_SOURCE" -B "$work/build" -G Ninja -C "$work/as_it_is.cmake" -DHDF5_ROOT="$work/hdf5" -DHDF5_C_COMPILER_EXECUTABLE=NO \
  -DHDF5_NO_FIND_PACKAGE_CONFIG_FILE=ON -DBUILD_TESTING=OFF -DTRIREME_UNITY=OFF >"$work/log" 2>&1 || fail 'it cannot be configured'
grep -q "Found HDF5: $work/hdf5" "$work/log" || fail 'it found another HDF5'
for source in hdf5 hdf5_version hdf5_image save/index_image; do
  cmake --build "$work/build" --target "CMakeFiles/trireme_checkpoint.dir/src/checkpoint/$source.cpp.o" >"$work/log" 2>&1 || fail "$source does not compile"
done
