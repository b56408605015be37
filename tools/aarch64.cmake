# Toolchain of `bash tools/test.sh aarch64`: gcc for AArch64 on another machine, programs run
# under qemu. Libraries come from ATTNRUN_SYSROOT, unpacked Debian packages (need_sysroot in
# tools/prepare.sh).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;/usr/aarch64-linux-gnu")

set(ATTNRUN_SYSROOT "" CACHE PATH "Libraries of AArch64")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ATTNRUN_SYSROOT)
set(libraries ${ATTNRUN_SYSROOT}/usr/lib/aarch64-linux-gnu)
list(APPEND CMAKE_FIND_ROOT_PATH ${ATTNRUN_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${ATTNRUN_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/openblas-serial/pkgconfig:${libraries}/pkgconfig)
# Packages have their libraries in two folders; programs find them there when they run.
foreach(folder ${libraries} ${libraries}/openblas-serial
    ${ATTNRUN_SYSROOT}/lib/aarch64-linux-gnu)
  string(APPEND search " -L${folder} -Wl,-rpath,${folder} -Wl,-rpath-link,${folder}")
endforeach()
string(APPEND search " -Wl,--disable-new-dtags") # for the libraries of libraries, too
set(CMAKE_EXE_LINKER_FLAGS_INIT "${search}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${search}")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "${search}")
