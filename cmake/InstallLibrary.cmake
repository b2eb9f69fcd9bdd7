# The shared library libaerie, its headers and the package that find_package(aerie) finds: what
# `cmake --install` puts into its prefix for programs outside the tree (docs/library.md). All that the
# library is made of stays hidden, and what it links comes along by itself.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(version_header "${CMAKE_BINARY_DIR}/include/aerie/version.h")
configure_file("${CMAKE_CURRENT_LIST_DIR}/version.h.in" "${version_header}" @ONLY)

set(stub "${CMAKE_BINARY_DIR}/libaerie.cc")
file(CONFIGURE OUTPUT "${stub}" CONTENT "// Everything comes from the archives.\n")
set(map "${CMAKE_CURRENT_LIST_DIR}/libaerie.map")
add_library(aerie_shared SHARED "${stub}")
target_link_libraries(aerie_shared PRIVATE aerie_engine)
# Nothing in the stub asks for what the headers promise.
set_property(TARGET aerie_shared PROPERTY LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,aerie_engine,aerie_decode")
target_link_options(aerie_shared PRIVATE "LINKER:--version-script=${map}")
# A sanitizer's names come with the program.
if(NOT AERIE_SANITIZE)
  target_link_options(aerie_shared PRIVATE LINKER:--no-undefined)
endif()
# While the version begins with 0, every second number is an interface of its own.
set_target_properties(aerie_shared PROPERTIES
  OUTPUT_NAME aerie EXPORT_NAME aerie LINK_DEPENDS "${map}"
  VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
target_compile_features(aerie_shared INTERFACE cxx_std_20)

install(TARGETS aerie_shared EXPORT aerie COMPONENT library
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_COMPONENT library
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/aerie" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT library FILES_MATCHING PATTERN "*.h")
install(FILES "${version_header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/aerie" COMPONENT library)

# The exported targets need no package of their own: aerieConfig.cmake is they.
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/aerie")
install(EXPORT aerie FILE aerieConfig.cmake NAMESPACE aerie:: DESTINATION "${package}" COMPONENT library)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/aerieConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/aerieConfigVersion.cmake" DESTINATION "${package}" COMPONENT library)
