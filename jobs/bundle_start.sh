#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# bin/trireme of an archive made by jobs/bundle.sh: compares the site's libraries with the program's requirements
# (share/trireme/bundle.txt) and starts it. TRIREME_BUNDLE_CHECKED=1 skips the comparison. Exit code 5: something is missing
# or too old. A libstdc++ that is missing or older is replaced by the one in lib/gcc.
here=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd -P) || exit 5

required() { sed -n "s/^$1=//p" "$here/share/trireme/bundle.txt"; }
# older A B: version A is older than version B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }
refuse() {
  printf 'trireme: error: %s\n' "$1" >&2
  printf 'trireme: error: %s\n' "Use the container instead (jobs/trireme.def, jobs/trireme-cuda.def; docs/installing.md), or build from source on this machine." >&2
  exit 5
}
# Path of a shared library of the site: the loader's own search order.
library() {
  for directory in $(printf '%s' "${LD_LIBRARY_PATH:-}" | tr ':' ' '); do
    if [ -e "$directory/$1" ]; then printf '%s\n' "$directory/$1"; return; fi
  done
  { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | awk -v name="$1" '$1 == name { print $NF; exit }'
}

if [ -z "${TRIREME_BUNDLE_CHECKED:-}" ]; then
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
  needed=$(required glibc)
  [ -n "$found" ] || refuse "this system has no glibc, and this program requires glibc $needed or later."
  if older "$found" "$needed"; then refuse "this system has glibc $found, and this program requires $needed or later."; fi

  needed=$(required libstdcxx)
  path=$(library libstdc++.so.6)
  if [ -z "$path" ] || ! grep -qaF "$needed" "$path"; then
    if older "$found" "$(required gcc_glibc)"; then
      refuse "${path:-no libstdc++.so.6} provides no $needed, and the libstdc++ of this archive requires glibc $(required gcc_glibc) (found: $found). Load a newer GCC (module load gcc): its library directory comes first in LD_LIBRARY_PATH."
    fi
    LD_LIBRARY_PATH=$here/lib/gcc${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
  fi

  needed=$(required mpi)
  path=$(library "$needed")
  if [ -z "$path" ]; then
    # Open MPI in PATH without its libraries in the loader's paths, as some modules leave it.
    launcher=$(command -v mpirun) && prefix=$(dirname "$(dirname "$(readlink -f "$launcher")")")
    for directory in "${prefix:-}/lib" "${prefix:-}/lib64" "${MPI_HOME:-}/lib"; do
      if [ -e "$directory/$needed" ]; then
        LD_LIBRARY_PATH=$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export LD_LIBRARY_PATH
        path=$directory/$needed
        break
      fi
    done
  fi
  [ -n "$path" ] || refuse "no $needed was found; this program was built with $(required mpi_version) and requires the site's MPI of the same major version. Load its module."
  export TRIREME_BUNDLE_CHECKED=1
fi
exec "$here/front/trireme" "$@"
