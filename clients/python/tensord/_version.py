"""The version of the package: that of the server in CMakeLists.txt, with which it is released."""

VERSION = "0.1.0"
