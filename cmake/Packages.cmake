# Packages of the program alone: aerie with its prompt sets, the units for systemd, licence and README.
#   cmake --build build/release --target aerie
#   cpack --config build/release/CPackConfig.cmake -B build/packages
# makes a .deb and a .tar.gz; scripts/check_package.sh tries them in a bare Debian.
include(GNUInstallDirs)

install(TARGETS aerie RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
file(GLOB prompts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/train/prompts/*.jsonl")
install(FILES ${prompts} DESTINATION "${CMAKE_INSTALL_DATADIR}/aerie/prompts" COMPONENT program)
install(FILES "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/deploy/aerie.service"
  "${CMAKE_SOURCE_DIR}/deploy/aerie-audit.service" "${CMAKE_SOURCE_DIR}/deploy/aerie-audit.timer"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/aerie" COMPONENT program)
# Debian's packages have it under this name.
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/aerie"
  RENAME copyright COMPONENT program)

# Completion in shells and the manual page, which the program writes; where it cannot run here, they are left out.
if(NOT CMAKE_CROSSCOMPILING)
  set(written "${CMAKE_BINARY_DIR}/completion")
  install(CODE "
    file(MAKE_DIRECTORY \"${written}\")
    foreach(pair bash=aerie zsh=_aerie fish=aerie.fish man=aerie.1)
      string(REPLACE = \";\" pair \"\${pair}\")
      list(GET pair 0 kind)
      list(GET pair 1 name)
      execute_process(COMMAND \"$<TARGET_FILE:aerie>\" completion \${kind} OUTPUT_FILE \"${written}/\${name}\"
        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()" COMPONENT program)
  install(FILES "${written}/aerie" DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
    COMPONENT program)
  install(FILES "${written}/_aerie" DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT program)
  install(FILES "${written}/aerie.fish" DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d"
    COMPONENT program)
  install(FILES "${written}/aerie.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT program)
endif()

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_NAME aerie)
set(CPACK_PACKAGE_VENDOR "The Aerie authors")
set(CPACK_PACKAGE_CONTACT "The Aerie authors <aerie@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference engine for language models with lossless speculative decoding")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_RESOURCE_FILE_README "${CMAKE_SOURCE_DIR}/README.md")
set(CPACK_STRIP_FILES ON)

# Of what can be installed only the program, whatever else has rules of its own.
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_FILE_NAME "aerie-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_ARCHIVE_PROGRAM_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}")
# The archive unpacks into a folder of its name; cpack reads this for each kind of package.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/PackageOptions.cmake" CONTENT [[
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
endif()
]] @ONLY)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_BINARY_DIR}/PackageOptions.cmake")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION
  "Runs and serves language models; drafts are verified, so that the tokens are those of plain decoding.")

set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME aerie)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)

include(CPack)
