# cmake --install: headers, library, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

install(TARGETS regard EXPORT regardTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT regardTargets NAMESPACE regard:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
if(TARGET regard-cli)
  install(TARGETS regard-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# A static library brings its third-party libraries along as dependencies of whoever links it; a shared one keeps them to itself.
get_target_property(regard_type regard TYPE)
set(REGARD_IS_STATIC OFF)
set(REGARD_PC_PRIVATE "")
if(regard_type STREQUAL "STATIC_LIBRARY")
  set(REGARD_IS_STATIC ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/regardConfig.cmake.in ${PROJECT_BINARY_DIR}/regardConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regardConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/regardConfig.cmake ${PROJECT_BINARY_DIR}/regardConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)

# The package file finds its prefix from where it lies, so that --prefix at install time holds.
get_filename_component(REGARD_LIB_NAME ${CMAKE_INSTALL_LIBDIR} NAME)
configure_file(${PROJECT_SOURCE_DIR}/cmake/regard.pc.in ${PROJECT_BINARY_DIR}/regard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/regard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
