#!/bin/sh
# The shared library exports attnrun_* of version ATTNRUN_1 and nothing else; every external
# symbol of the static one is attnrun_* or attn_*; and neither ends the process, prints, or asks the
# locale what a letter is.
#
# usage: test_symbols.sh LIBATTNRUN.so LIBATTNRUN.a
set -eu
shared=$1 static=$2
bad=0

complain() { # what, names
    if [ -n "$2" ]; then
        echo "$1:"
        echo "$2"
        bad=1
    fi
}

complain "exported by $shared" \
    "$(nm -D --defined-only "$shared" | awk '{ print $3 }' |
        grep -v -e '^attnrun_[a-z0-9_]*@@ATTNRUN_1$' -e '^ATTNRUN_1$' || true)"
complain "exported code of protobuf messages" \
    "$(nm -D --defined-only "$shared" | awk '{ print $3 }' | grep '^attnrun__' || true)"
complain "external in $static" \
    "$(nm -g --defined-only "$static" 2>/dev/null | awk 'NF == 3 { print $3 }' |
        grep -v -e '^attnrun_' -e '^attn_' || true)"
complain "ends the process or prints" \
    "$(nm -D --undefined-only "$shared" | awk '{ print $2 }' | sed 's/@.*//' |
        grep -x -e abort -e exit -e _exit -e quick_exit -e printf -e __printf_chk -e puts \
            -e putchar -e fprintf -e __fprintf_chk -e vprintf -e vfprintf -e perror \
            -e __vfprintf_chk -e fputs -e fwrite -e signal -e sigaction -e setlocale || true)"
complain "depends on the locale" \
    "$(nm -D --undefined-only "$shared" | awk '{ print $2 }' | sed 's/@.*//' |
        grep -x -e '__ctype_.*_loc' -e tolower -e toupper -e strcoll || true)"
readelf -d "$shared" | grep -q 'soname: \[libattnrun.so.0\]' ||
    complain "soname" "not libattnrun.so.0"
[ "$bad" = 0 ] && echo "ok: $(nm -D --defined-only "$shared" | grep -c ATTNRUN_1) exported symbols"
exit "$bad"
