# SPDX-License-Identifier: Apache-2.0
#
# docs/families.md is what `trireme models` prints; TRIREME_UPDATE_GOLDENS=1 writes it.
source "$TRIREME_SOURCE/tests/cli/small_run.sh"

program models
expect_done
"$TRIREME_SOURCE/tests/support/families.py" <out.txt >families.md
[[ -z ${TRIREME_UPDATE_GOLDENS:-} ]] || cp families.md "$TRIREME_SOURCE/docs/families.md"
diff families.md "$TRIREME_SOURCE/docs/families.md" || fail 'docs/families.md: TRIREME_UPDATE_GOLDENS=1 writes it'
