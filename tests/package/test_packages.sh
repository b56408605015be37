#!/bin/sh
# Makes the packages with cpack, installs them into an empty root, uses what they bring, and
# removes them again: nothing is left.
#
# usage: test_packages.sh BUILD
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

fail() {
    echo "$1"
    exit 1
}

(cd "$build" && cpack -B "$work/packages" >"$work/cpack.log" 2>&1) || {
    cat "$work/cpack.log"
    exit 1
}
for name in libattnrun0 libattnrun-dev attnrun; do
    deb=$(find "$work/packages" -maxdepth 1 -name "${name}_*.deb")
    [ -f "$deb" ] || fail "no package $name"
    dpkg-deb --info "$deb" | grep -q "Package: $name\$" || fail "$name has another name"
    dpkg-deb --contents "$deb" >"$work/$name.list"
done
dpkg-deb --info "$(find "$work/packages" -maxdepth 1 -name 'libattnrun0_*.deb')" symbols |
    grep -q "^ attnrun_run@ATTNRUN_1 [0-9]" || fail "libattnrun0 has no symbols file"
[ -f "$(find "$work/packages" -maxdepth 1 -name 'attnrun-*.tar.gz')" ] || fail "no tar.gz"
grep -q "libattnrun.so.0" "$work/libattnrun0.list" || fail "libattnrun0 has no library"
grep -q "libattnrun.so ->" "$work/libattnrun-dev.list" || fail "no link to build with"
for header in h hpp; do
    grep -q "include/attnrun.$header\$" "$work/libattnrun-dev.list" ||
        fail "libattnrun-dev has no attnrun.$header"
done
grep -q "include/\|\.so" "$work/attnrun.list" && fail "attnrun has files of the library"
dpkg-deb --field "$(find "$work/packages" -maxdepth 1 -name 'libattnrun-dev_*.deb')" Depends |
    grep -q "libattnrun0 (= " || fail "libattnrun-dev does not depend on its library"

dpkg-deb --control "$(find "$work/packages" -maxdepth 1 -name 'libattnrun0_*.deb')" "$work/control"
grep -q '^ attnrun_run@ATTNRUN_1 [0-9]' "$work/control/symbols" || fail "no symbols file"
tar -tf "$work"/packages/attnrun-*.tar.gz | grep -q '/doc/attnrun/LICENSE$' || fail "no license"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning "$work"/packages/*.deb ||
        fail "lintian complains"
else
    echo "skipped: lintian is not installed"
fi

mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
: >"$root/var/lib/dpkg/status"
packages() { # dpkg in the empty root; what the packages depend on is on this machine
    dpkg --root="$root" --force-depends --force-not-root --log="$work/log" "$@" \
        >>"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log"; exit 1; }
}
packages --install "$work"/packages/*.deb
"$root/usr/bin/attnrun" --version | grep -q '^attnrun [0-9]' || fail "attnrun does not start"
[ -n "$(find "$root/usr/share/man" -name 'attnrun-run.1*')" ] || fail "no man pages"
[ -f "$root/usr/share/bash-completion/completions/attnrun" ] || fail "no completion"
if command -v zsh >/dev/null; then # zsh finds it in a folder that it reads
    zsh -fc 'print -l $fpath' | while read -r folder; do
        [ ! -f "$root$folder/_attnrun" ] || echo "$folder"
    done | grep -q . || fail "zsh does not read the completion"
fi
library=$(find "$root/usr" -name 'libattnrun.so.0')
cat >"$work/use.c" <<'C'
#include <attnrun.h>
#include <stdio.h>
int main(void) { return puts(attnrun_version()) < 0; }
C
cc -I"$root/usr/include" -o "$work/use" "$work/use.c" -L"$(dirname "$library")" -lattnrun
LD_LIBRARY_PATH=$(dirname "$library") "$work/use" | grep -q "^[0-9]" ||
    fail "the library does not run"
packages --purge attnrun libattnrun-dev libattnrun0
[ -z "$(find "$root/usr" -type f -o -type l 2>/dev/null)" ] || fail "files are left"
echo "ok: packages made, installed, used and removed"
