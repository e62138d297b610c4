"""The version of the package, which is released with the server and has its version (CMakeLists.txt)."""

VERSION = "0.1.0"
