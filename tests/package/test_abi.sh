#!/bin/sh
# What programs that were linked with an earlier build rely on: the functions that the shared
# library exports with their version, and the sizes of the public structs. Compares them with
# abi.txt: nothing may go or shrink, and what is new has to be written there.
#
# usage: test_abi.sh LIBATTNRUN.so ATTNRUN.h ABI.txt [--update]
set -eu
library=$1 header=$2 stored=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
    echo '#include <attnrun.h>'
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    sed -n 's/^} \(attnrun_[a-z_]*\);$/    printf("struct \1 %zu\\n", sizeof(\1));/p' "$header"
    echo 'return 0; }'
} >"$work/sizes.c"
cc -I"$(dirname "$header")" -o "$work/sizes" "$work/sizes.c"
{
    nm -D --defined-only "$library" | awk '$3 ~ /^attnrun_/ { print "function", $3 }' |
        sed 's/@@/ /'
    "$work/sizes"
} | LC_ALL=C sort >"$work/now"

if [ "${4-}" = --update ]; then
    cp "$work/now" "$stored"
    exit 0
fi
awk -v stored="$stored" '
    { key = $1 " " $2 }
    FILENAME == stored { had[key] = $3; next }
    { has[key] = $3 }
    END {
        for (key in had)
            if (!(key in has)) { print "gone: " key; bad = 1 }
            else if (key ~ /^struct/ ? has[key] + 0 < had[key] + 0 : has[key] != had[key]) {
                print key ": " had[key] ", now " has[key]; bad = 1
            }
        for (key in has)
            if (!(key in had) || has[key] != had[key]) {
                print "not in abi.txt: " key " " has[key]; bad = 1
            }
        exit bad
    }' "$stored" "$work/now" || {
    echo "where that is meant: sh tests/package/test_abi.sh $library $header $stored --update"
    exit 1
}
echo "ok: $(grep -c ^function "$stored") functions, $(grep -c ^struct "$stored") structs"
