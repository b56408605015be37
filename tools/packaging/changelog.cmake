# debian_changelog(FILE): the changelog of the packages, which Debian's tools read. What changed
# for users is in CHANGELOG.md.
function(debian_changelog file)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # or SOURCE_DATE_EPOCH
  file(WRITE ${file} "attnrun (${PROJECT_VERSION}) unstable; urgency=medium\n\n"
    "  * Version ${PROJECT_VERSION}; its changes are listed in CHANGELOG.md of the sources.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
endfunction()
