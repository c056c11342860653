# SPDX-License-Identifier: Apache-2.0
#
# Writes hash and date of the checked-out commit into a header, which is touched only when it changes.
# cmake -D source=<checkout> -D output=<header> -P git_hash.cmake
execute_process(COMMAND git --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY ${source} OUTPUT_VARIABLE hash ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(hash unknown)  # a release archive, or a checkout without a commit
endif()
execute_process(COMMAND git --no-optional-locks log -1 --format=%cs
  WORKING_DIRECTORY ${source} OUTPUT_VARIABLE date ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  string(TIMESTAMP date "%Y-%m-%d" UTC)  # of the build
endif()
file(CONFIGURE OUTPUT ${output}
  CONTENT "#define TRIREME_GIT_HASH \"${hash}\"\n#define TRIREME_GIT_DATE \"${date}\"\n")
