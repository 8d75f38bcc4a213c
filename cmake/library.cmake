# libtrimtab: the shared library of include/trimtab.h, its examples, and the files of `cmake --install`. Below
# src/api its objects are the program's; symbols are hidden by default (CMakeLists.txt), so only those marked
# TT_PUBLIC in the header can be linked to.
include(GNUInstallDirs)
file(GLOB api_sources CONFIGURE_DEPENDS src/api/*.c)
add_library(trimtab_lib SHARED ${api_sources})
set_target_properties(trimtab_lib PROPERTIES
  OUTPUT_NAME trimtab
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} # before 1.0 a minor version may change the interface
  PUBLIC_HEADER include/trimtab.h)
target_include_directories(trimtab_lib PRIVATE src PUBLIC include)
target_link_libraries(trimtab_lib PRIVATE tt_run tt_store)
# clang's runtimes of sanitizers are in the program, GNU's are libraries of their own.
set(runtime_in_program OFF)
if(TT_SANITIZE_THREAD OR TT_FUZZ OR (TT_SANITIZE AND NOT CMAKE_C_COMPILER_ID STREQUAL "GNU"))
  set(runtime_in_program ON)
endif()
if(NOT runtime_in_program)
  target_link_options(trimtab_lib PRIVATE -Wl,--no-undefined)
endif()

# example_<name> from examples/library/<name>.c
file(GLOB library_examples CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/examples/library examples/library/*.c)
foreach(source ${library_examples})
  string(REGEX REPLACE "\\.c$" "" name ${source})
  add_executable(example_${name} examples/library/${source})
  target_link_libraries(example_${name} PRIVATE trimtab_lib)
endforeach()

# Relative to its own folder, so that --install --prefix and packages may move it.
file(RELATIVE_PATH prefix_from_pc /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/trimtab.pc.in trimtab.pc @ONLY)
install(TARGETS trimtab_lib
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${CMAKE_BINARY_DIR}/trimtab.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(TARGETS trimtab RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Completions and manual pages, written by the program that is installed.
set(TT_ZSH_COMPLETIONS ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING
  "Folder below the prefix for the completion of zsh (Debian's zsh reads share/zsh/vendor-completions)")
if(NOT CMAKE_CROSSCOMPILING)
  foreach(shell bash zsh)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/completion.${shell}
      COMMAND trimtab help --${shell} > ${CMAKE_BINARY_DIR}/completion.${shell} DEPENDS trimtab VERBATIM)
  endforeach()
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/man1/trimtab.1
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:trimtab> -DCOMMANDS=${CMAKE_SOURCE_DIR}/src/cli/commands.def
      -DFOLDER=${CMAKE_BINARY_DIR}/man1 -P ${CMAKE_SOURCE_DIR}/cmake/pages.cmake
    DEPENDS trimtab cmake/pages.cmake VERBATIM)
  add_custom_target(completion ALL DEPENDS ${CMAKE_BINARY_DIR}/completion.bash ${CMAKE_BINARY_DIR}/completion.zsh
    ${CMAKE_BINARY_DIR}/man1/trimtab.1)
  install(FILES ${CMAKE_BINARY_DIR}/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    RENAME trimtab)
  install(FILES ${CMAKE_BINARY_DIR}/completion.zsh DESTINATION ${TT_ZSH_COMPLETIONS} RENAME _trimtab)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
# Beside the program in a build too (src/run/tracker.c).
configure_file(src/run/python/tracker.py share/trimtab/python/tracker.py COPYONLY)
install(FILES src/run/python/tracker.py DESTINATION ${CMAKE_INSTALL_DATADIR}/trimtab/python)
# The pages link to each other as they do in the repository.
install(FILES LICENSE README.md ARCHITECTURE.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
